"""`sluice explain`: the trail of one record, in plain text, from its audit row."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from filters.base import Rule
from pipeline.catalogue import SET_STAGES
from pipeline.decisions import KEPT, QUARANTINED
from pipeline.findings import printable
from pipeline.plan import Plan, Unit, read_plan
from pipeline.receipts import read_unit_manifest
from pipeline.store import Store, open_store
from schemas.tables import text_partition

EDITS_SHOWN = 5
TEXT_CHARS = 240
IDS_COMPARED = 100_000
"""Input ids among which the nearest to an unknown one is looked for."""

_BOUND = {"below": "at least", "above": "at most", "reaches": "below"}


class UnknownId(LookupError):
    """No record, or more than one, has this id; the message names the nearest. Exit status 1."""


class NoTrail(Exception):
    """A folder without a decided run. Exit status 2."""


@dataclass(frozen=True)
class _Found:
    """One record: its unit and its audit row."""

    unit: Unit
    row: Mapping[str, Any]


def explain(store: Store, doc_id: str, text: bool = False) -> str:
    """The trail of the record with this doc_id, or with this input_id where only one has it.

    Identity, decision, every stage with its scores beside the thresholds, edits, the document that it
    repeats, flags, digests, and where its text lies. With `text`, the first characters of the text and of
    `duplicate_of`'s. Raises UnknownId and NoTrail.
    """
    try:
        plan = read_plan(store)
    except FileNotFoundError:
        raise NoTrail(f"{store.url}: holds no run: plan.jsonl is not there") from None
    except (ValueError, LookupError, TypeError, ImportError, AttributeError) as error:
        raise NoTrail(f"{store.url}: plan.jsonl cannot be read: {error}") from None
    found = _find(store, plan, doc_id)
    sections = [
        _identity(found.row),
        _decision(plan, found.row),
        *_stages(plan, found.row),
        _edits(found.row),
        _duplicate(found.row),
        _places(store, plan, found),
        _texts(store, plan, found) if text else [],
    ]
    return "\n\n".join("\n".join(printable(line) for line in s) for s in sections if s) + "\n"


# Finding the row.


def _find(store: Store, plan: Plan, wanted: str) -> _Found:
    if not any(store.exists(_audit(unit)) for unit in plan.units):
        raise NoTrail(f"{store.url}: holds no audit; the run is not finished")
    found = _by_doc_id(store, plan, wanted)
    if found is not None:
        return found
    units = [(u, i) for u in plan.units for i in _rows_with(store, u, "input_id", wanted)]
    if len(units) == 1:
        return _Found(units[0][0], _row(store, *units[0]))
    if units:
        ids = [str(_row(store, u, i)["doc_id"]) for u, i in units[:5]]
        raise UnknownId(
            f"{len(units)} records have the input_id {wanted}: name one by its doc_id: {', '.join(ids)}"
        )
    near = _nearest(store, plan, wanted)
    hint = f"; the nearest: {', '.join(near)}" if near else ""
    raise UnknownId(f"no record has the id {wanted}{hint}")


def _by_doc_id(store: Store, plan: Plan, doc_id: str) -> _Found | None:
    file = doc_id.rpartition("#")[0]
    for unit in plan.units:
        if any(f"{s.file.source}/{s.file.path}" == file for s in unit.segments):
            for i in _rows_with(store, unit, "doc_id", doc_id):
                return _Found(unit, _row(store, unit, i))
    return None


def _audit(unit: Unit) -> str:
    return f"audit/{unit.unit_id}.parquet"


def _ids(store: Store, unit: Unit, column: str) -> pa.ChunkedArray:
    """One column of a unit's audit; empty where the unit has none."""
    if not store.exists(_audit(unit)):
        return pa.chunked_array([], pa.string())
    with store.open(_audit(unit)) as file:
        return pq.ParquetFile(file).read(columns=[column]).column(column)


def _rows_with(store: Store, unit: Unit, column: str, value: str) -> list[int]:
    same = pa.compute.equal(_ids(store, unit, column), pa.scalar(value, pa.string()))
    rows: list[int] = pa.compute.indices_nonzero(same.fill_null(False)).to_pylist()
    return rows


def _row(store: Store, unit: Unit, i: int) -> Mapping[str, Any]:
    with store.open(_audit(unit)) as file:
        row: Mapping[str, Any] = pq.ParquetFile(file).read().slice(i, 1).to_pylist()[0]
    return row


def _nearest(store: Store, plan: Plan, wanted: str) -> list[str]:
    """Ids of the same or the most similar file at the nearest places; else the most similar input ids."""
    file, hash_sign, locator = wanted.rpartition("#")
    files = list(dict.fromkeys(f"{s.file.source}/{s.file.path}" for u in plan.units for s in u.segments))
    near = difflib.get_close_matches(file if hash_sign else wanted, files, n=1)
    if near and hash_sign:
        place = int(locator) if locator.isdecimal() else 0
        ids = [
            str(d)
            for u in plan.units
            if any(f"{s.file.source}/{s.file.path}" == near[0] for s in u.segments)
            for d in _ids(store, u, "doc_id").to_pylist()
            if d.rpartition("#")[0] == near[0]
        ]
        return sorted(ids, key=lambda d: (abs(int(d.rpartition("#")[2]) - place), d))[:3]
    known = (d for u in plan.units for d in _ids(store, u, "input_id").to_pylist() if d is not None)
    compared = dict.fromkeys(islice(known, IDS_COMPARED))
    return difflib.get_close_matches(wanted, list(compared), n=3)


# The sections.


def _identity(row: Mapping[str, Any]) -> list[str]:
    lines = [str(row["doc_id"]), f"  input id    {row['input_id'] or 'none'}"]
    lines += [f"  source      {row['source']}", f"  file        {row['source_path']}"]
    lines += [f"  record at   {str(row['doc_id']).rpartition('#')[2]}"]
    if row["decision"] != QUARANTINED:
        lines += [f"  language    {row['language']}", f"  kind        {row['kind']}"]
        if row["programming_language"]:
            lines += [f"  programming language {row['programming_language']}"]
        lines += [f"  characters  {row['characters']}"]
    if row["flags"]:
        lines += [f"  flags       {', '.join(row['flags'])}"]
    return lines


def _decision(plan: Plan, row: Mapping[str, Any]) -> list[str]:
    if row["decision"] == KEPT:
        copies = "" if row["epochs"] == 1 else f", written {row['epochs']} times"
        return [f"Kept{copies}: no stage refused it."]
    if row["decision"] == QUARANTINED:
        return [f"Quarantined: {row['stage']} could not take it: {row['reason']}: {row['error']}"]
    rule = _rule_of(plan, row["stage"], row["reason"])
    plain = f" ({rule.plain})" if rule is not None and rule.plain else ""
    lines = [f"Rejected by {row['stage']}: {row['reason']}{plain}."]
    others = [f for f in row["failed"] if f != f"{row['stage']}.{row['reason']}"]
    if others:
        lines += [f"It also fails {', '.join(others)}."]
    return lines


def _rule_of(plan: Plan, stage: str | None, reason: str | None) -> Rule | None:
    rules: Sequence[Rule] = plan.recipe.by_name[stage].rules if stage in plan.recipe.by_name else ()
    return next((r for r in rules if r.reason == reason), None)


def _stages(plan: Plan, row: Mapping[str, Any]) -> Iterator[list[str]]:
    """Each stage in decide's order: a line for each rule, then the scores that no rule reads."""
    if row["decision"] == QUARANTINED:
        return
    scores, thresholds = dict(row["scores"]), dict(row["thresholds"])
    for stage in plan.recipe.stages:
        standing = _standing(plan, stage, row)
        asked = standing in ("", MEASURED_ONLY)
        lines = [_rule_line(stage.name, rule, scores, thresholds, row) for rule in stage.rules if asked]
        read = {rule.score for rule in stage.rules}
        lines += [
            ("", _detail(stage.name, n), _number(scores.get(n)), "") for n in stage.scores if n not in read
        ]
        widths = [max((len(line[k]) for line in lines), default=0) for k in (1, 2)]
        yield [
            f"{stage.name}{f' ({standing})' if standing else ''}",
            *(f"  {m:<4}  {n:<{widths[0]}}  {v:<{widths[1]}}  {w}".rstrip() for m, n, v, w in lines),
        ]


MEASURED_ONLY = "measured only"


def _standing(plan: Plan, stage: Any, row: Mapping[str, Any]) -> str:
    """Why a stage did not judge the record; empty where it did."""
    if row["kind"] not in stage.kinds:
        return f"does not judge {row['kind']}"
    if not plan.recipe.judges(stage.name):
        return MEASURED_ONLY
    order = [s.name for s in plan.recipe.stages]
    first = row["stage"]
    if stage.name in SET_STAGES and first in order and order.index(first) < order.index(stage.name):
        return f"not asked: {first} refused it before"
    return ""


def _detail(stage: str, name: str) -> str:
    return name.removeprefix(f"{stage}.")


def _rule_line(
    stage: str,
    rule: Rule,
    scores: Mapping[str, float],
    thresholds: Mapping[str, float],
    row: Mapping[str, Any],
) -> tuple[str, str, str, str]:
    """(mark, what was measured, its value, what it was compared with)."""
    score, limit = scores.get(rule.score, math.nan), thresholds.get(rule.threshold, math.nan)
    name, bound = _detail(stage, rule.score), _detail(stage, rule.threshold)
    if bound == "min_selected" and math.isnan(limit):
        return "pass", "selected", "yes", "every language is: `languages` is empty"
    if math.isnan(limit):
        return "-", name, _number(score), f"(no {bound})"
    base = thresholds.get(f"{stage}.base_epochs")
    if base is not None:
        compared = f"{'above' if score > limit else 'at most'} {_number(limit, score)} ({bound})"
        if base:
            compared += f": {_number(base)} copies, one more for a hash up to there, {row['epochs']} in all"
        failed = f"{stage}.{rule.reason}" in row["failed"]
        outcome = f"{compared}: {rule.reason}" if failed else compared
        return "FAIL" if failed else "pass", "keyed hash", _number(score, limit), outcome
    if bound == "min_selected":
        chosen = score >= limit
        outcome = "in `languages`" if chosen else f"not in `languages`: {rule.reason}"
        return ("pass", "selected", "yes", outcome) if chosen else ("FAIL", "selected", "no", outcome)
    if rule.fails == "reaches" and math.isnan(score):
        return "pass", name, "none", f"no earlier document is as much like it as {_number(limit)} ({bound})"
    if math.isnan(score):
        return "-", name, _number(score), f"{_BOUND[rule.fails]} {_number(limit)} ({bound})"
    fails = {"below": score < limit, "above": score > limit, "reaches": score >= limit}[rule.fails]
    word = "reaches" if fails and rule.fails == "reaches" else _BOUND[rule.fails]
    compared = f"{word} {_number(limit, score)} ({bound})"
    return ("FAIL", name, _number(score, limit), f"{compared}: {rule.reason}") if fails else (
        "pass", name, _number(score, limit), compared
    )  # fmt: skip


def _number(value: float | None, other: float = math.nan) -> str:
    """Six digits, or all where six would not tell the value from the other."""
    if value is None or math.isnan(value):
        return "not measured"
    short = f"{value:.6g}"
    return repr(value) if short == f"{other:.6g}" and value != other else short


def _edits(row: Mapping[str, Any]) -> list[str]:
    edits = row["edits"] or []
    if not edits:
        return []
    lines = [f"{len(edits)} edit{'s' if len(edits) > 1 else ''} of the text"]
    for e in edits[:EDITS_SHOWN]:
        before = "(not stored)" if e["before"] is None else repr(_short(e["before"], 40))
        lines.append(
            f"  {e['stage']}.{e['rule']} at {e['start']}-{e['end']}: {before} -> {_short(e['after'], 40)!r}"
        )
    if len(edits) > EDITS_SHOWN:
        lines.append(f"  and {len(edits) - EDITS_SHOWN} more")
    return lines


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _duplicate(row: Mapping[str, Any]) -> list[str]:
    if row["duplicate_of"] is None:
        return []
    return [f"Repeats {row['duplicate_of']}", f"  similarity {_number(row['similarity'])}"]


def _places(store: Store, plan: Plan, found: _Found) -> list[str]:
    """Where the record and its text lie, and the digests of what it was made by."""
    row = found.row
    lines = ["Where it is", f"  audit       {_audit(found.unit)}"]
    manifest = read_unit_manifest(store, found.unit, plan.recipe.annotate_digest)
    chunk = None if manifest is None else _chunk_of(store, manifest, str(row["doc_id"]))
    if chunk is not None and row["decision"] == QUARANTINED:
        name = chunk["files"]["quarantine"]["name"]
        lines.append(f"  raw record  {name}, line {_line_of(store, name, str(row['doc_id']))}")
    elif chunk is not None:
        lines.append(f"  work file   {chunk['files']['text']['name']}")
    if row["decision"] == KEPT:
        folder = f"corpus/{text_partition(row['kind'], row['language'], row['programming_language'])}"
        shards = [n for n in store.list(folder) if n.count("/") == folder.count("/") + 1]
        holding = [n for n in shards if _holds(store, n, str(row["doc_id"]))]
        lines += [f"  shard       {n}" for n in holding] or [f"  shard       none under {folder}/"]
    if row["text_hash"]:
        lines.append(f"  text hash   {row['text_hash']}")
    lines += [f"  annotate    {row['annotate_digest']}", f"  decide      {row['decide_digest']}"]
    return lines


def _holds(store: Store, name: str, doc_id: str) -> bool:
    with store.open(name) as file:
        ids = pq.ParquetFile(file).read(columns=["doc_id"]).column("doc_id")
    return bool(pa.compute.any(pa.compute.equal(ids, doc_id)).as_py())


def _chunk_of(store: Store, manifest: Mapping[str, Any], doc_id: str) -> Mapping[str, Any] | None:
    for chunk in manifest["chunks"]:
        name = chunk["files"]["annotations"]["name"]
        if store.exists(name) and _holds(store, name, doc_id):
            found: Mapping[str, Any] = chunk
            return found
    return None


def _line_of(store: Store, name: str, doc_id: str) -> int:
    with store.open(name) as file:
        for number, line in enumerate(file):
            if json.loads(line)["doc_id"] == doc_id:
                return number + 1
    return 0


def _texts(store: Store, plan: Plan, found: _Found) -> list[str]:
    lines = []
    for label, doc_id in (
        ("Its text", found.row["doc_id"]),
        ("The text it repeats", found.row["duplicate_of"]),
    ):
        if doc_id is None or found.row["decision"] == QUARANTINED:
            continue
        text = _text_of(store, plan, str(doc_id))
        lines += [label, f"  {'(not in the work files)' if text is None else _short(text, TEXT_CHARS)}"]
    return lines


def _text_of(store: Store, plan: Plan, doc_id: str) -> str | None:
    found = _by_doc_id(store, plan, doc_id)
    manifest = None if found is None else read_unit_manifest(store, found.unit, plan.recipe.annotate_digest)
    chunk = None if manifest is None else _chunk_of(store, manifest, doc_id)
    if chunk is None or not store.exists(chunk["files"]["text"]["name"]):
        return None
    with store.open(chunk["files"]["text"]["name"]) as file:
        reader = pq.ParquetFile(file)
        for group in range(reader.num_row_groups):
            ids = reader.read_row_group(group, columns=["doc_id"]).column("doc_id").to_pylist()
            if doc_id in ids:
                texts = reader.read_row_group(group, columns=["text"]).column("text")
                return str(texts[ids.index(doc_id)].as_py())
    return None


def explain_command(argv: Sequence[str]) -> int:
    """Run `sluice explain OUT DOC_ID [--text]`: 0 printed, 1 no such record or a damaged one, 2 no run."""
    parser = argparse.ArgumentParser(
        prog="sluice explain",
        description="Print why a record was kept, refused or quarantined.",
        allow_abbrev=False,
    )
    parser.add_argument("output", metavar="OUT", help="the output folder of a run")
    parser.add_argument("doc_id", metavar="DOC_ID", help="a doc_id, or an input_id that one record alone has")
    parser.add_argument("--text", action="store_true", help="show the first characters of the texts too")
    options = parser.parse_args(list(argv))
    try:
        print(explain(open_store(options.output), options.doc_id, options.text), end="")
    except NoTrail as error:
        print(f"sluice: {printable(str(error))}", file=sys.stderr)
        return 2
    except UnknownId as error:
        print(f"sluice: {printable(str(error))}", file=sys.stderr)
        return 1
    except (OSError, pa.ArrowException) as error:
        print(
            f"sluice: {options.output}: damaged (see sluice verify): {printable(str(error))}", file=sys.stderr
        )
        return 1
    return 0
