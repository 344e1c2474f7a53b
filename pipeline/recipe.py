"""Recipes: TOML, checked against the stages' own fields before anything starts."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import json
import math
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import metadata, resources
from typing import Any

from filters.base import Editor, Measuring, RuleSet, knob
from pipeline.catalogue import CATALOGUE, SET_STAGES, load_class, stage_class
from schemas.tables import ANNOTATION_BASE

DISTRIBUTION = "sluice-corpus"

FORMAT = 1
"""Version of the work files; part of the annotate digest."""

OFF = "off"
"""What a recipe writes to switch an optional bound off (TOML has no null)."""


class RecipeError(ValueError):
    """A recipe that cannot be run: names the file, the key and the nearest match. Exit status 2."""


class StageNotImportable(RecipeError):
    """A stage of the user's own whose module is not installed or not on the path here."""


@dataclass(frozen=True)
class InputOptions:
    """Where a record's fields are found; empty means the field's usual names, whatever their case."""

    text: str | None = knob(None, phase="annotate", doc="field that holds the text")
    id: str | None = knob(None, phase="annotate", doc="field that holds the input's own id")
    url: str | None = knob(None, phase="annotate", doc="field that holds the URL")
    date: str | None = knob(None, phase="annotate", doc="field that holds the date")
    path: str | None = knob(None, phase="annotate", doc="field that holds the file path of code")
    language: str | None = knob(None, phase="annotate", doc="field that holds the input's own language")
    kind: str | None = knob(None, phase="annotate", doc="field that says prose, code, mathematics or mixed")
    source: str | None = knob(None, phase="annotate", doc="name of the source; default: the folder given")
    exclude: list[str] = knob([], phase="annotate", doc="shell-style globs of files to leave out")


@dataclass(frozen=True)
class RunOptions:
    """Sizes of units, chunks and shards, and the seed of every keyed choice."""

    unit_bytes: int = knob(16 << 20, phase="annotate", doc="bytes of input in one unit of work")
    chunk_bytes: int = knob(8 << 20, phase="annotate", doc="bytes of text and metadata in one chunk")
    max_record_bytes: int = knob(20_000_000, phase="annotate", doc="a longer record is quarantined")
    sample_rate: float = knob(1.0, phase="annotate", doc="share of records read, by keyed hash")
    shard_bytes: int = knob(
        256 << 20, doc="bytes of text in one shard (a chunk stays whole in each language)"
    )
    row_group_bytes: int = knob(16 << 20, doc="bytes of text in one row group of a shard")
    partition_bytes: int = knob(64 << 20, doc="bytes of one partition of a shuffle")
    pass_bytes: int = knob(96 << 20, doc="bytes shuffled in one pass; more partitions wait for the next")
    seed: int = knob(0, phase="annotate", doc="seed of every keyed choice")

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.name.endswith("_bytes") and getattr(self, f.name) < 1:
                raise ValueError(f"{f.name} must be at least 1, got {getattr(self, f.name)}")
        if not 0.0 < self.sample_rate <= 1.0:
            raise ValueError(f"sample_rate must be above 0 and at most 1, got {self.sample_rate}")


SHUFFLE_KEYS = ("partition_bytes", "pass_bytes")
"""How a shuffle is divided, on which no result depends."""

SECTIONS: dict[str, type] = {"input": InputOptions, "run": RunOptions}


@dataclass(frozen=True)
class Recipe:
    """A checked recipe: the stages with their settings, in the catalogue's order.

    `only` is None (every stage judges) or the names of the stages that may edit or reject. `annotated` is
    None, or the names of the stages that an earlier run measured, where one decides again from its scores.
    """

    name: str
    origin: str
    stages: tuple[Any, ...]
    uses: Mapping[str, str]
    input: InputOptions = field(default_factory=InputOptions)
    run: RunOptions = field(default_factory=RunOptions)
    only: tuple[str, ...] | None = None
    annotated: tuple[str, ...] | None = None

    @cached_property
    def by_name(self) -> dict[str, Any]:
        """Stage name -> stage."""
        return {s.name: s for s in self.stages}

    @cached_property
    def measured(self) -> tuple[Any, ...]:
        """Stages that act while annotating: those asked for and what they depend on."""
        if self.annotated is not None:
            return tuple(s for s in self.stages if s.name in self.annotated)
        if self.only is None:
            return self.stages
        wanted = set(self.only)
        for stage in reversed(self.stages):
            if stage.name in wanted:
                wanted |= set(stage.requires)
        return tuple(s for s in self.stages if s.name in wanted)

    @cached_property
    def judging(self) -> tuple[Any, ...]:
        """Stages that may reject, in decide's order."""
        return tuple(s for s in self.stages if self.only is None or s.name in self.only)

    @cached_property
    def row_stages(self) -> tuple[Any, ...]:
        """Judging stages whose decision follows from the document's own scores."""
        return tuple(s for s in self.judging if s.name not in SET_STAGES)

    def judges(self, name: str) -> bool:
        """Whether this stage is in the recipe and may reject."""
        return any(s.name == name for s in self.judging)

    @cached_property
    def annotate_digest(self) -> str:
        """Names everything that a unit's work files depend on, beside the input itself."""
        models = {s.name: s.model_id for s in self.measured if hasattr(s, "model_id")}
        stages = {
            s.name: [self.uses[s.name], _settings(s, "annotate"), _own_code(self.uses[s.name])]
            for s in self.measured
        }
        parts = {
            "format": FORMAT,
            "code": metadata.version(DISTRIBUTION),
            "stages": stages,
            "models": models,
            "input": _settings(self.input, "annotate"),
            "run": _settings(self.run, "annotate"),
        }
        return _digest(parts)

    @cached_property
    def decide_digest(self) -> str:
        """Names everything that the decisions depend on, the annotations included."""
        stages = [[s.name, _settings(s, "decide")] for s in self.judging]
        run = {k: v for k, v in _settings(self.run, "decide").items() if k not in SHUFFLE_KEYS}
        return _digest({"annotate": self.annotate_digest, "stages": stages, "run": run})

    def to_json(self) -> dict[str, Any]:
        """The resolved recipe, from which `from_json` makes an equal one."""
        return {
            "name": self.name,
            "origin": self.origin,
            "only": None if self.only is None else list(self.only),
            "annotated": None if self.annotated is None else list(self.annotated),
            "input": dataclasses.asdict(self.input),
            "run": dataclasses.asdict(self.run),
            "stages": [
                {"name": s.name, "use": self.uses[s.name], "settings": dataclasses.asdict(s)}
                for s in self.stages
            ],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Recipe:
        """The recipe that `to_json` wrote; RecipeError where it names as a stage what is none."""
        stages = tuple(
            _class_of(data["origin"], s["name"], s["use"])(**s["settings"]) for s in data["stages"]
        )
        return Recipe(
            data["name"],
            data["origin"],
            stages,
            {s["name"]: s["use"] for s in data["stages"]},
            InputOptions(**data["input"]),
            RunOptions(**data["run"]),
            None if data["only"] is None else tuple(data["only"]),
            None if data["annotated"] is None else tuple(data["annotated"]),
        )

    def phase_of(self, key: str) -> str:
        """Whether a recipe key acts in `annotate` or in `decide`."""
        section, _, name = key.partition(".")
        cls = SECTIONS.get(section) or type(self.by_name[section])
        spec = next(f for f in fields(cls) if f.name == name)
        return _phase(spec)


def _settings(options: Any, phase: str) -> dict[str, Any]:
    return {f.name: getattr(options, f.name) for f in fields(options) if _phase(f) == phase}


def _phase(spec: dataclasses.Field[Any]) -> str:
    """When a key acts; a plain field of a user's own stage may act while measuring."""
    phase: str = spec.metadata.get("phase", "annotate")
    return phase


def _own_code(use: str) -> str:
    """sha256 of the module of a user's own stage, so that a changed stage measures again; else empty."""
    if use in CATALOGUE.values():
        return ""
    path = importlib.import_module(use.partition(":")[0]).__file__
    if path is None:
        return ""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def shipped() -> dict[str, str]:
    """Name -> text of every shipped recipe."""
    folder = resources.files("pipeline") / "recipes"
    names = sorted(e.name for e in folder.iterdir() if e.name.endswith(".toml"))
    return {n.removesuffix(".toml"): (folder / n).read_text(encoding="utf-8") for n in names}


def load_recipe(recipe: str, *, settings: Sequence[str] = (), only: str | None = None) -> Recipe:
    """The recipe of a file or a shipped name, with `--set` and `--only` applied.

    Raises RecipeError that names file, key and nearest match for anything unknown or of a wrong type.
    """
    known = shipped()
    if recipe in known:
        origin, text = recipe, known[recipe]
    elif os.path.isfile(recipe):
        origin = recipe
        with open(recipe, "rb") as file:
            raw = file.read()
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RecipeError(f"{recipe}: not UTF-8: {error}") from None
    else:
        near = nearest(recipe, known)
        raise RecipeError(f"{recipe}: no such file, and no shipped recipe of that name{near}")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{origin}: not TOML: {error}") from None
    for setting in settings:
        _apply_setting(data, setting)
    return _build(data, origin, only)


def _apply_setting(data: dict[str, Any], setting: str) -> None:
    section, name, value = setting_parts(setting)
    table = data.setdefault(section, {})
    if not isinstance(table, dict):
        raise RecipeError(f"--set {setting}: {section} is no table of keys")
    table[name] = value


def setting_parts(setting: str) -> tuple[str, str, Any]:
    """Section, key and value of `section.key=value`: a TOML value, else a bare string."""
    key, equals, raw = setting.partition("=")
    section, dot, name = key.strip().partition(".")
    if not equals or not dot or not name:
        raise RecipeError(f"--set {setting}: expected stage.key=value")
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    return section, name, parsed["value"] if len(parsed) == 1 else raw


def _build(data: dict[str, Any], origin: str, only: str | None) -> Recipe:
    recipe_name = data.pop("name", os.path.splitext(os.path.basename(origin))[0])
    if not isinstance(recipe_name, str):
        raise RecipeError(f"{origin}: name: expected a string, got {recipe_name!r}")
    if "stages" not in data:
        _refuse_unknown(origin, [k for k in data if k not in CATALOGUE and k not in SECTIONS])
    names = data.pop("stages", None)
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise RecipeError(f'{origin}: stages: expected a list of stage names, as stages = ["gopher_quality"]')
    if len(set(names)) != len(names):
        raise RecipeError(f"{origin}: stages: {names} names one stage twice")
    sections = {n: checked_section(origin, n, cls, data.pop(n, {})) for n, cls in SECTIONS.items()}
    uses: dict[str, str] = {}
    tables: dict[str, dict[str, Any]] = {}
    for name in names:
        table = data.pop(name, {})
        if not isinstance(table, dict):
            raise RecipeError(f"{origin}: {name}: expected a table of keys, got {table!r}")
        tables[name] = dict(table)
        use = tables[name].pop("use", None)
        if use is None and name not in CATALOGUE:
            raise RecipeError(f"{origin}: stages: unknown stage {name!r}{nearest(name, CATALOGUE)}")
        if use is not None and not isinstance(use, str):
            raise RecipeError(
                f"{origin}: {name}.use: expected a string of the form module:Class, got {use!r}"
            )
        uses[name] = CATALOGUE[name] if use is None else use
    _refuse_unknown(origin, data)
    stages = [_stage(origin, n, uses[n], tables[n]) for n in names]
    ordered = _in_order(origin, stages)
    asked = None
    if only is not None:
        asked = tuple(n for n in (part.strip() for part in only.split(",")) if n)
        for name in asked:
            if name not in names:
                raise RecipeError(f"--only {name}: not a stage of {origin}{nearest(name, names)}")
    return Recipe(recipe_name, origin, ordered, uses, sections["input"], sections["run"], asked)


def _refuse_unknown(origin: str, keys: Iterable[str]) -> None:
    for key in keys:
        if key in CATALOGUE:
            raise RecipeError(f"{origin}: {key}: is not in `stages`")
        raise RecipeError(
            f"{origin}: {key}: is unknown{nearest(key, [*CATALOGUE, *SECTIONS, 'name', 'stages'])}"
        )


def _in_order(origin: str, stages: list[Any]) -> tuple[Any, ...]:
    """Catalogue order; a user's own stage stands after the rules and before what compares documents."""
    order = list(CATALOGUE)
    first_set = order.index(SET_STAGES[0])

    def position(stage: Any) -> float:
        return order.index(stage.name) if stage.name in order else first_set - 0.5

    present = {s.name for s in stages}
    for stage in stages:
        for needed in stage.requires:
            if needed not in present:
                raise RecipeError(
                    f"{origin}: {stage.name} needs the stage {needed}, which is not in `stages`"
                )
    ordered = tuple(sorted(stages, key=position))
    before: set[str] = set()
    for stage in ordered:
        for needed in stage.requires:
            if needed not in before:
                raise RecipeError(f"{origin}: stages: {stage.name} needs {needed}, which comes after it")
        before.add(stage.name)
    return ordered


def _stage(origin: str, name: str, use: str, table: Mapping[str, Any]) -> Any:
    return checked_section(origin, name, _class_of(origin, name, use), table)


def _class_of(origin: str, name: str, use: str) -> Any:
    """The class of a stage; RecipeError where `use` names anything else.

    Recipes and plans come from elsewhere too: what they name is called only if it is a stage of this name.
    """
    if use == CATALOGUE.get(name):
        return stage_class(name)
    try:
        cls = load_class(use)
    except Exception as error:  # a module of the user's may raise anything
        kind = StageNotImportable if isinstance(error, ModuleNotFoundError) else RecipeError
        raise kind(f"{origin}: {name}.use: {use!r} cannot be imported: {error}") from None
    fault = _own_fault(name, cls)
    if fault:
        raise RecipeError(f"{origin}: {name}.use: {use!r} {fault}")
    return cls


def _own_fault(name: str, cls: Any) -> str | None:
    """What is wrong with a user's own stage, or None."""
    base = stage_class(name) if name in SET_STAGES else RuleSet
    if not (isinstance(cls, type) and issubclass(cls, base) and dataclasses.is_dataclass(cls)):
        return f"must be a frozen dataclass and a subclass of {base.__module__}.{base.__name__}"
    if getattr(cls, "name", None) != name or not name.isidentifier() or name in ANNOTATION_BASE.names:
        return f"must have name = {name!r}, a name that is an identifier and no column of the annotations"
    if not isinstance(cls, (Measuring, Editor)):
        return "has neither measure(chunk) nor apply(document)"
    for score in cls.scores:
        if score != name and not score.startswith(f"{name}."):
            return f"has the score {score!r}, which is not named {name} or {name}.detail"
    for rule in cls.rules:
        if rule.score not in cls.scores:
            return f"has a rule on {rule.score!r}{nearest(rule.score, cls.scores)}"
        if not rule.threshold.startswith(f"{name}.") or not hasattr(cls, rule.threshold[len(name) + 1 :]):
            return (
                f"has a rule with the threshold {rule.threshold!r}: expected {name}.KEY, KEY with a default"
            )
    return None


def checked_section(origin: str, section: str, cls: Any, table: Mapping[str, Any]) -> Any:
    """The options or stage made of a recipe's table; RecipeError for an unknown key or a wrong type."""
    if not isinstance(table, Mapping):
        raise RecipeError(f"{origin}: {section}: expected a table of keys, got {table!r}")
    hints = typing.get_type_hints(cls)
    names = [f.name for f in fields(cls)]
    values = {}
    for key, value in table.items():
        if key not in names:
            raise RecipeError(f"{origin}: {section}.{key}: unknown key{nearest(key, names)}")
        values[key] = _typed(origin, f"{section}.{key}", hints[key], value)
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{origin}: {section}: {error}") from None


def _typed(origin: str, key: str, hint: Any, value: Any) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if types.NoneType in options and (value is None or value == OFF):
        return None
    for option in options:
        if typing.get_origin(option) is list:
            inner = typing.get_args(option)[0]
            if isinstance(value, list) and all(_is(v, inner) for v in value):
                return value
        elif option is float and _is(value, int):
            return float(value)
        elif option is not types.NoneType and _is(value, option):
            return value
    raise RecipeError(f"{origin}: {key}: expected {_plain(options)}, got {value!r}")


def _is(value: Any, kind: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)


def _plain(options: Iterable[Any]) -> str:
    words = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    parts = [
        words.get(o, f"a list of {typing.get_args(o)[0].__name__}" if typing.get_args(o) else "")
        for o in options
        if o is not types.NoneType
    ]
    return " or ".join(parts) + (f' (or "{OFF}")' if types.NoneType in options else "")


def nearest(word: str, known: Iterable[str]) -> str:
    """What an error message adds to an unknown word: the nearest known one, else all of them."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {found[0]!r}?)" if found else f" (known: {', '.join(known)})"
