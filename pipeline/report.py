"""report/: the numbers of a run (report.json), its resolved recipe, and a first data card (index.html).

Everything is counted from the summaries that decide left for each unit and from the receipts of
annotate; no text and no audit row is read again. `Report` is the schema of report.json, version
`VERSION`; characters are code points of the text after the edits, and a quarantined record has none.
But for `times` the same decisions give the same report.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, TypedDict

from classifiers.registry import model_file
from pipeline.decisions import KEPT, QUARANTINED, REJECTED, summary_name
from pipeline.emit import AccountingError
from pipeline.plan import Plan
from pipeline.receipts import receipt_folder
from pipeline.recipe import DISTRIBUTION, Recipe
from pipeline.recipe_text import recipe_toml
from pipeline.report_page import page
from pipeline.store import Store
from pipeline.work import WorkUnit, work_units
from schemas.tables import text_partition

SCHEMA, VERSION = "sluice.report", 1
"""Name and version of report.json; the version is raised when a field changes its meaning or goes."""

JSON_NAME, PAGE_NAME, RECIPE_NAME = "report/report.json", "report/index.html", "report/recipe.toml"

CODE = "code"
"""Code is one group here; decide balances it among programming languages."""


class Passage(TypedDict):
    """One step of the flow. A document is refused by the first step, in decide's order, that it fails."""

    stage: str
    documents_in: int
    documents_refused: int
    documents_out: int
    characters_in: int
    characters_refused: int
    characters_out: int


class Reason(TypedDict):
    """One reason: documents and characters refused by it first, and documents that failed it at all."""

    stage: str
    reason: str
    plain: str
    documents: int
    characters: int
    failed: int


class Group(TypedDict):
    """Documents of one language, kind or source: what was measured and what became of it.

    `quarantined` records are no part of `documents`. `written` counts copies (epochs). `eligible` is what
    passed every stage before balance; `asked_characters` what balance allows of it, null where nothing
    balances.
    """

    name: str
    documents: int
    characters: int
    kept: int
    rejected: int
    quarantined: int
    eligible_characters: int
    asked_characters: int | None
    kept_characters: int
    written: int
    written_characters: int


class Time(TypedDict):
    """Time of one stage over all workers, from receipts: seconds, share of all stages, and speed."""

    stage: str
    seconds: float
    share: float
    documents_per_second: float | None
    characters_per_second: float | None


class Model(TypedDict):
    """A model that a stage measured with; the last four are null for a model outside the registry."""

    stage: str
    model: str
    sha256: str | None
    licence: str | None
    source: str | None
    url: str | None


class Report(TypedDict):
    """report.json."""

    schema: str
    version: int
    code: dict[str, str]
    name: str
    command: str
    recipe: dict[str, Any]
    digests: dict[str, str]
    input: dict[str, int]
    accounting: dict[str, int]
    written: dict[str, int]
    flow: list[Passage]
    reasons: list[Reason]
    quarantined: list[Reason]
    languages: list[Group]
    kinds: list[Group]
    sources: list[Group]
    duplicates: dict[str, dict[str, int]]
    models: list[Model]
    times: list[Time]


QUARANTINE_LINES = {
    "no_text": "no field holds a text, or the body is empty",
    "wrong_type": "the text is no string",
    "not_json": "the line is no JSON object",
    "not_utf8": "bytes that are not UTF-8 where the format demands it",
    "binary": "a file or a body that is no text",
    "too_large": "the record is longer than run.max_record_bytes",
    "torn": "the file ends or breaks inside the record",
    "unreadable_file": "nothing of the file, or of its rest, can be read",
    "unsupported_format": "a format that can be told but is not read",
    "bad_http": "a WARC record that says it holds HTTP and does not",
    "stage_failed": "a stage raised an error on this document alone",
}
"""One plain line for each reason of a quarantined record."""


class _Flow:
    """The flow rows of all units, summed: key -> documents, characters, copies, written characters."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], list[int]] = {}
        self.failed: dict[str, int] = {}

    def add(self, summary: Mapping[str, Any]) -> None:
        for row in summary["flow"]:
            total = self.rows.setdefault(tuple(row[:-4]), [0, 0, 0, 0])
            for i, n in enumerate(row[-4:]):
                total[i] += n
        for name, n in summary["failed"].items():
            self.failed[name] = self.failed.get(name, 0) + n


def make_report(
    store: Store, plan: Plan, key: str, accounting: Mapping[str, int], command: Sequence[str] = ()
) -> Report:
    """The report on the decisions `key`; `accounting` is what was counted on disk (see `pipeline.emit`).

    Raises AccountingError when the summaries say anything else than the accounting.
    """
    flow = _Flow()
    for unit in plan.units:
        flow.add(json.loads(store.get(summary_name(key, unit.unit_id))))
    _check(flow, accounting)
    recipe = plan.recipe
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "code": {"distribution": DISTRIBUTION, "version": metadata.version(DISTRIBUTION)},
        "name": recipe.name,
        "command": shlex.join(command),
        "recipe": recipe.to_json(),
        "digests": {
            "annotate": recipe.annotate_digest,
            "decide": recipe.decide_digest,
            "plan": plan.digest,
            "decision": key,
        },
        "input": {
            "bytes": plan.bytes,
            "files": len({(s.file.source, s.file.path) for u in plan.units for s in u.segments}),
            "units": len(plan.units),
        },
        "accounting": dict(accounting),
        "written": {
            "documents": sum(n[2] for n in flow.rows.values()),
            "characters": sum(n[3] for n in flow.rows.values()),
        },
        "flow": _passages(recipe, flow),
        "reasons": _reasons(recipe, flow),
        "quarantined": _quarantined(flow),
        "languages": _languages(recipe, flow),
        "kinds": _groups(flow, lambda row: row["kind"]),
        "sources": _groups(flow, lambda row: row["source"]),
        "duplicates": _duplicates(flow, accounting),
        "models": _models(recipe),
        "times": _times(recipe, work_units(store, plan), store),
    }


def write_report(
    store: Store, plan: Plan, key: str, accounting: Mapping[str, int], command: Sequence[str] = ()
) -> list[str]:
    """Write report/ and return the names of its files; see `make_report`.

    `report/recipe.toml` is the recipe with every setting as it was in force: a run with it measures and
    decides alike.
    """
    report = make_report(store, plan, key, accounting, command)
    toml = recipe_toml(plan.recipe)
    files = {
        JSON_NAME: json.dumps(report, indent=1) + "\n",
        PAGE_NAME: page(report, toml),
        RECIPE_NAME: toml,
    }
    for name, text in files.items():
        store.put(name, text.encode())
    return sorted(files)


FLOW_KEY = ("decision", "stage", "reason", "source", "language", "kind", "programming_language")


def _named(flow: _Flow) -> Iterable[tuple[dict[str, Any], list[int]]]:
    for key, numbers in flow.rows.items():
        yield dict(zip(FLOW_KEY, key, strict=True)), numbers


def _check(flow: _Flow, accounting: Mapping[str, int]) -> None:
    found = {KEPT: 0, REJECTED: 0, QUARANTINED: 0}
    for row, numbers in _named(flow):
        found[row["decision"]] += numbers[0]
    wanted = {name: accounting[name] for name in found}
    if found != wanted or sum(found.values()) != accounting["records"]:
        raise AccountingError(
            f"the summaries count {found}, on disk are {wanted} of {accounting['records']} records"
        )


def _judging(recipe: Recipe) -> list[Any]:
    return [s for s in recipe.judging if s.rules]


def _passages(recipe: Recipe, flow: _Flow) -> list[Passage]:
    refused: dict[str, list[int]] = {}
    alive = [0, 0]
    for row, (documents, characters, *_) in _named(flow):
        alive[0] += documents
        alive[1] += characters
        step = QUARANTINED if row["decision"] == QUARANTINED else row["stage"]
        if step is not None:
            entry = refused.setdefault(step, [0, 0])
            entry[0] += documents
            entry[1] += characters
    passages: list[Passage] = []
    for step in (QUARANTINED, *(s.name for s in _judging(recipe))):
        documents, characters = refused.get(step, [0, 0])
        passages.append(
            {
                "stage": step,
                "documents_in": alive[0],
                "documents_refused": documents,
                "documents_out": alive[0] - documents,
                "characters_in": alive[1],
                "characters_refused": characters,
                "characters_out": alive[1] - characters,
            }
        )
        alive = [alive[0] - documents, alive[1] - characters]
    return passages


def _reasons(recipe: Recipe, flow: _Flow) -> list[Reason]:
    first: dict[tuple[str, str], list[int]] = {}
    for row, (documents, characters, *_) in _named(flow):
        if row["decision"] == REJECTED:
            entry = first.setdefault((row["stage"], row["reason"]), [0, 0])
            entry[0] += documents
            entry[1] += characters
    reasons: list[Reason] = []
    for stage in _judging(recipe):
        lines: dict[str, list[str]] = {}
        for rule in stage.rules:
            own = lines.setdefault(rule.reason, [])
            if rule.plain and rule.plain not in own:
                own.append(rule.plain)
        for reason, plain in lines.items():
            documents, characters = first.get((stage.name, reason), [0, 0])
            reasons.append(
                {
                    "stage": stage.name,
                    "reason": reason,
                    "plain": "; or ".join(plain),
                    "documents": documents,
                    "characters": characters,
                    "failed": flow.failed.get(f"{stage.name}.{reason}", 0),
                }
            )
    return reasons


def _quarantined(flow: _Flow) -> list[Reason]:
    counts: dict[tuple[str, str], int] = {}
    for row, numbers in _named(flow):
        if row["decision"] == QUARANTINED:
            name = (row["stage"], row["reason"])
            counts[name] = counts.get(name, 0) + numbers[0]
    return [
        {
            "stage": stage,
            "reason": reason,
            "plain": QUARANTINE_LINES.get(reason, ""),
            "documents": n,
            "characters": 0,
            "failed": n,
        }
        for (stage, reason), n in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))
    ]


def _groups(flow: _Flow, name_of: Any) -> list[Group]:
    """One group a name, those with most characters first; what has no name (a quarantined record has
    neither language nor kind) is left out."""
    groups: dict[str, Group] = {}
    for row, (documents, characters, copies, written) in _named(flow):
        name = name_of(row)
        if name is None:
            continue
        if name not in groups:
            groups[name] = {
                "name": name,
                "documents": 0,
                "characters": 0,
                "kept": 0,
                "rejected": 0,
                "quarantined": 0,
                "eligible_characters": 0,
                "asked_characters": None,
                "kept_characters": 0,
                "written": 0,
                "written_characters": 0,
            }
        group = groups[name]
        group[row["decision"]] += documents  # type: ignore[literal-required]
        if row["decision"] == QUARANTINED:
            continue
        group["documents"] += documents
        group["characters"] += characters
        group["written"] += copies
        group["written_characters"] += written
        if row["decision"] == KEPT:
            group["kept_characters"] += characters
        if row["decision"] == KEPT or row["stage"] == "balance_languages":
            group["eligible_characters"] += characters
    return sorted(groups.values(), key=lambda g: (-g["characters"], g["name"]))


def _languages(recipe: Recipe, flow: _Flow) -> list[Group]:
    """Languages as decide balances them: prose by language, code by programming language, each apart."""
    languages = _groups(flow, _partition)
    if recipe.judges("balance_languages"):
        stage = recipe.by_name["balance_languages"]
        there = {g["name"]: g["eligible_characters"] for g in languages if g["name"] is not None}
        code = {n: c for n, c in there.items() if n.startswith(f"{CODE}/")}
        prose = {n: c for n, c in there.items() if n not in code}
        budgets = {**stage.budgets(prose), **stage.budgets(code)}
        for group in languages:
            group["asked_characters"] = budgets.get(group["name"], 0)
    return languages


def _partition(row: Mapping[str, Any]) -> str | None:
    if row["kind"] is None:
        return None
    return text_partition(row["kind"], row["language"], row["programming_language"])


def _duplicates(flow: _Flow, accounting: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found = {}
    for short, stage in (("exact", "exact_duplicates"), ("near", "near_duplicates")):
        rows = [n for row, n in _named(flow) if row["decision"] == REJECTED and row["stage"] == stage]
        found[short] = {"documents": sum(n[0] for n in rows), "characters": sum(n[1] for n in rows)}
    return {**found, "keeper_dropped": {"documents": accounting["keeper_dropped"]}}


def _models(recipe: Recipe) -> list[Model]:
    models: list[Model] = []
    for stage in recipe.measured:
        if not hasattr(stage, "model_id"):
            continue
        known = [model_file(name) for name in getattr(stage, "models", ())]
        for file in known:
            models.append(
                {
                    "stage": stage.name,
                    "model": file.name,
                    "sha256": file.sha256,
                    "licence": file.licence,
                    "source": file.source,
                    "url": file.url,
                }
            )
        if not known:
            models.append(
                {
                    "stage": stage.name,
                    "model": stage.model_id,
                    "sha256": None,
                    "licence": None,
                    "source": None,
                    "url": None,
                }
            )
    return models


def _times(recipe: Recipe, units: Iterable[WorkUnit], store: Store) -> list[Time]:
    """Seconds by stage, from the receipt of each chunk that the unit's manifest lists; a stage that only
    decides has none."""
    idle = {s.name for s in recipe.measured if not hasattr(s, "measure") and not hasattr(s, "apply")}
    seconds: dict[str, float] = {}
    documents = characters = 0
    for work in units:
        wanted = {c["files"]["annotations"]["name"] for c in work.manifest["chunks"]}
        for name in store.list(receipt_folder(work.unit_id)):
            receipt = json.loads(store.get(name))
            if receipt["files"]["annotations"]["name"] not in wanted:
                continue
            wanted.discard(receipt["files"]["annotations"]["name"])
            documents += receipt["counts"]["documents"]
            characters += receipt["characters"]
            for stage, spent in receipt["seconds"].items():
                if stage in idle:
                    continue
                seconds[stage] = seconds.get(stage, 0.0) + spent
    order = [s.name for s in recipe.measured]
    names = sorted(seconds, key=lambda n: (n in order, order.index(n) if n in order else 0, n))
    whole = sum(seconds.values())
    return [
        {
            "stage": name,
            "seconds": round(seconds[name], 6),
            "share": round(seconds[name] / whole, 6) if whole else 0.0,
            "documents_per_second": round(documents / seconds[name], 3) if seconds[name] else None,
            "characters_per_second": round(characters / seconds[name], 1) if seconds[name] else None,
        }
        for name in names
    ]
