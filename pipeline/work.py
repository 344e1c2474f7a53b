"""Reading work files: the units of a plan with their ordinals, and the annotation columns of a unit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.plan import PLAN, Plan, Unit, read_plan
from pipeline.receipts import read_unit_manifest
from pipeline.recipe import Recipe
from pipeline.store import Store, open_store, read_parquet
from schemas.tables import ANNOTATION_BASE

ROW_BITS = 32
"""A document's reference is uint64: the unit's ordinal in the plan, then its row in the unit."""

Uint64s = npt.NDArray[np.uint64]


def refs_of(ordinal: int, rows: npt.NDArray[Any]) -> Uint64s:
    """References of rows of one unit."""
    refs: Uint64s = (np.uint64(ordinal) << np.uint64(ROW_BITS)) | rows.astype(np.uint64)
    return refs


def ordinals_of(refs: Uint64s) -> Uint64s:
    """The unit's ordinal in each reference."""
    ordinals: Uint64s = refs >> np.uint64(ROW_BITS)
    return ordinals


def rows_of(refs: Uint64s) -> npt.NDArray[np.uint32]:
    """The row in each reference."""
    return (refs & np.uint64((1 << ROW_BITS) - 1)).astype(np.uint32)


@dataclass(frozen=True)
class WorkUnit:
    """A complete unit as decide and emit see it."""

    ordinal: int
    unit: Unit
    files: dict[tuple[str, str], int]
    manifest: dict[str, Any]

    @property
    def unit_id(self) -> str:
        """The unit's id."""
        return self.unit.unit_id

    def annotations(self, store: Store, columns: Sequence[str] | None = None) -> pa.Table:
        """These columns of every record of the unit, in row order, or `ANNOTATION_BASE` and every score.

        Columns that no stage wrote are left out; what one did not write of a chunk is null.
        """
        parts = []
        for chunk in self.manifest["chunks"]:
            name = chunk["files"]["annotations"]["name"]
            with store.open(name) as file:
                reader = pq.ParquetFile(file)
                have = [f.name for f in reader.schema_arrow if _is_wanted(f, columns)]
                parts.append(reader.read(columns=have))
        return pa.concat_tables(parts, promote_options="default").combine_chunks()

    def order(self, table: pa.Table) -> tuple[npt.NDArray[np.uint32], Uint64s]:
        """(file ordinal, locator) of each row: smaller means earlier, and the earlier is kept."""
        pairs = zip(table.column("source").to_pylist(), table.column("source_path").to_pylist(), strict=True)
        files = np.array([self.files[p] for p in pairs], dtype=np.uint32)
        return files, table.column("locator").to_numpy().astype(np.uint64)


def _is_wanted(column: pa.Field, columns: Sequence[str] | None) -> bool:
    if columns is not None:
        return column.name in columns
    return column.name in ANNOTATION_BASE.names or pa.types.is_float64(column.type)


class NotAnnotated(RuntimeError):
    """A unit of the plan has no manifest for these settings and this content: annotate comes first."""


def work_units(store: Store, plan: Plan) -> Iterable[WorkUnit]:
    """Every unit of the plan with its manifest; NotAnnotated when one is not complete."""
    files = plan.file_ordinals()
    for ordinal, unit in enumerate(plan.units):
        manifest = read_unit_manifest(store, unit, plan.recipe.annotate_digest)
        if manifest is None:
            raise NotAnnotated(f"unit {unit.unit_id} is not annotated; run --phase annotate first")
        own = {(s.file.source, s.file.path): files[s.file.source, s.file.path] for s in unit.segments}
        yield WorkUnit(ordinal, unit, own, manifest)


class AllUnits(beam.PTransform):  # type: ignore[misc]
    """The units of an output folder's plan, spread over workers as JSON lines."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def expand(self, begin: Any) -> Any:
        return (
            begin
            | "store" >> beam.Create([self._url])
            | "units" >> beam.ParDo(_ListUnits()).with_output_types(bytes)
            | "spread" >> beam.Reshuffle()
        )


class _ListUnits(beam.DoFn):  # type: ignore[misc]
    def process(self, url: str) -> Iterable[bytes]:
        plan = read_plan(open_store(url))
        files = plan.file_ordinals()
        for ordinal, unit in enumerate(plan.units):
            own = sorted({(s.file.source, s.file.path) for s in unit.segments})
            line = {"ordinal": ordinal, "files": [[*k, files[k]] for k in own], **unit.to_json()}
            yield json.dumps(line).encode()


class UnitDoFn(beam.DoFn):  # type: ignore[misc]
    """Base of DoFns over units: opens the store and the recipe once, and the manifest of each unit."""

    def __init__(self, url: str, recipe: str, key: str) -> None:
        self._url, self._recipe_json, self.key = url, recipe, key

    def setup(self) -> None:
        self.store = open_store(self._url)
        self.recipe = Recipe.from_json(json.loads(self._recipe_json))

    def work_unit(self, line: bytes) -> WorkUnit:
        """The unit that `AllUnits` described."""
        data = json.loads(line)
        unit = Unit.from_json(data)
        manifest = read_unit_manifest(self.store, unit, self.recipe.annotate_digest)
        if manifest is None:
            raise NotAnnotated(f"unit {unit.unit_id} is not annotated; run --phase annotate first")
        files = {(source, path): n for source, path, n in data["files"]}
        return WorkUnit(data["ordinal"], unit, files, manifest)


def hop_name(key: str, hop: str, ordinal: int) -> str:
    """Name of what one step of decide wrote for one unit."""
    return f"decide/{key}/{hop}/{ordinal:08d}.parquet"


def read_hop(store: Store, key: str, hop: str, ordinal: int) -> pa.Table | None:
    """What a step wrote for a unit, or None when it had nothing to say of it."""
    name = hop_name(key, hop, ordinal)
    return read_parquet(store, name) if store.exists(name) else None


__all__ = ["PLAN", "AllUnits", "UnitDoFn", "WorkUnit", "hop_name", "read_hop", "work_units"]
