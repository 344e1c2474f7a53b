"""The work plan: inputs cut into units by file size and recipe alone, written where annotate reads it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.inputs import InputFile, Segment, list_inputs, segments_of
from pipeline.recipe import Recipe
from pipeline.store import Store

PLAN = "plan.jsonl"


@dataclass(frozen=True)
class Unit:
    """A piece of work: segments of input files, in the order of (source, path, begin)."""

    unit_id: str
    segments: tuple[Segment, ...]

    @property
    def fingerprint(self) -> str:
        """Changes when the content of any of the unit's files does."""
        parts = [f"{s.file.source}/{s.file.path}:{s.file.fingerprint}" for s in self.segments]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    @property
    def bytes(self) -> int:
        """Stored bytes of input, for progress: of a Parquet file, its row groups' share by rows."""
        return sum(_stored_bytes(s) for s in self.segments)

    def to_json(self) -> dict[str, Any]:
        """A JSON object from which `from_json` makes an equal unit."""
        return {"unit": self.unit_id, "segments": [s.to_json() for s in self.segments]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Unit:
        """The unit that `to_json` wrote."""
        return Unit(data["unit"], tuple(Segment.from_json(s) for s in data["segments"]))


@dataclass(frozen=True)
class Plan:
    """Everything that annotate, decide, emit and verify need to know of the input."""

    recipe: Recipe
    units: tuple[Unit, ...]
    digest: str

    @property
    def bytes(self) -> int:
        """Stored bytes of all inputs."""
        return sum(u.bytes for u in self.units)

    def file_ordinals(self) -> dict[tuple[str, str], int]:
        """(source, path) -> position in the order by which ties between documents break."""
        files = sorted({(s.file.source, s.file.path) for u in self.units for s in u.segments})
        return {key: i for i, key in enumerate(files)}


def _stored_bytes(segment: Segment) -> int:
    file = segment.file
    if segment.end is None:
        return file.size
    if not file.rows_by_group:
        return segment.end - segment.begin
    rows = sum(file.rows_by_group[segment.begin : segment.end])
    return file.size * rows // max(1, sum(file.rows_by_group))


def make_plan(paths: Sequence[str], recipe: Recipe) -> Plan:
    """List the inputs and cut them into units; raises InputError for inputs that cannot be planned."""
    names = dict.fromkeys(paths, recipe.input.source) if recipe.input.source else None
    files = list_inputs(paths, exclude=recipe.input.exclude, source_names=names)
    units = cut_units(files, recipe.run.unit_bytes)
    return Plan(recipe, units, plan_digest(recipe, units))


def plan_digest(recipe: Recipe, units: Sequence[Unit]) -> str:
    """sha256 over the annotate digest and the units: names the work and the content that it is done on."""
    body = "\n".join(json.dumps(u.to_json(), sort_keys=True) for u in units)
    return hashlib.sha256(f"{recipe.annotate_digest}\n{body}".encode()).hexdigest()


def cut_units(files: Sequence[InputFile], unit_bytes: int) -> tuple[Unit, ...]:
    """The units of these files (sorted by source and path), sorted by id."""
    return tuple(sorted(_cut(files, unit_bytes), key=lambda u: u.unit_id))


def _cut(files: Sequence[InputFile], unit_bytes: int) -> Iterator[Unit]:
    small: list[Segment] = []
    for file in files:
        segments = segments_of(file, unit_bytes)
        if len(segments) == 1 and file.size < unit_bytes:
            small += segments
        else:
            yield from (_unit([s]) for s in segments)
    yield from _packed(small, unit_bytes, 0)


def _packed(segments: Sequence[Segment], unit_bytes: int, bit: int) -> Iterator[Unit]:
    """Small files by hash of their path: a pack over `unit_bytes` is split by one more bit of the hash.

    So a file that is added or removed changes the pack that it is in, and at most splits or joins it.
    """
    if len(segments) <= 1 or sum(s.file.size for s in segments) <= unit_bytes:
        yield from ([_unit(segments)] if segments else [])
        return
    halves: tuple[list[Segment], list[Segment]] = ([], [])
    for segment in segments:
        halves[_path_hash(segment.file) >> bit & 1].append(segment)
    for half in halves:
        yield from _packed(half, unit_bytes, bit + 1)


def _path_hash(file: InputFile) -> int:
    return int.from_bytes(hashlib.sha256(f"{file.source}/{file.path}".encode()).digest(), "big")


def _unit(segments: Sequence[Segment]) -> Unit:
    ordered = sorted(segments, key=lambda s: (s.file.source, s.file.path, s.begin))
    named = "\n".join(f"{s.file.source}\t{s.file.path}\t{s.begin}\t{s.end}" for s in ordered)
    slug = re.sub(r"[^A-Za-z0-9]+", "-", ordered[0].file.source).strip("-").lower()[:24] or "input"
    return Unit(f"{slug}-{hashlib.sha256(named.encode()).hexdigest()[:16]}", tuple(ordered))


def write_plan(store: Store, plan: Plan) -> None:
    """Write the plan: a line for the recipe, then a line a unit."""
    head = {"digest": plan.digest, "recipe": plan.recipe.to_json(), "units": len(plan.units)}
    lines = [json.dumps(head, sort_keys=True), *(json.dumps(u.to_json(), sort_keys=True) for u in plan.units)]
    store.put(PLAN, ("\n".join(lines) + "\n").encode())


def read_plan(store: Store) -> Plan:
    """The plan of an output folder; FileNotFoundError when nothing was planned there."""
    lines = store.get(PLAN).decode().splitlines()
    head = json.loads(lines[0])
    units = tuple(Unit.from_json(json.loads(line)) for line in lines[1:])
    return Plan(Recipe.from_json(head["recipe"]), units, head["digest"])
