"""What `verify` checks of a unit's audit rows: each agrees with its annotation and decides as it must."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.decisions import KEPT, QUARANTINED, REJECTED, partitions_of
from pipeline.findings import Findings, align, compare_columns, mismatches, shown
from pipeline.recipe import Recipe
from pipeline.rules import score_column, threshold_columns
from pipeline.store import Store
from pipeline.verify_files import audit_name
from pipeline.work import WorkUnit
from schemas.sampling import sampling_hashes
from schemas.tables import ANNOTATION_BASE, AUDIT

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Columns = dict[str, Floats]

EXACT, NEAR, BALANCE = "exact_duplicates", "near_duplicates", "balance_languages"
CUT, BASE = "balance_languages.max_sampling_hash", "balance_languages.base_epochs"

REFUSED, REFUSED_EXACT, REFUSED_NEAR, SURVIVES = 0, 1, 2, 3
"""How far a record came: stopped by reading or a rule, by a duplicate step, or by none of these."""


BLOCK_ROWS = 8192
"""Rows of a unit that are checked at once."""


@dataclass(frozen=True)
class UnitRows:
    """Audit rows of a unit with their annotations, row by row, and what their numbers decide.

    `annotation_row` is the position in the unit's annotations, `state` how far the record came, `hashes`
    the sampling hash of the records that survive every comparison (NaN for the others).
    """

    work: WorkUnit
    audit: pa.Table
    annotations: pa.Table
    annotation_row: npt.NDArray[np.int64]
    scores: Columns
    thresholds: Columns
    state: npt.NDArray[np.uint8]
    hashes: Floats
    groups: npt.NDArray[Any]
    doc_ids: list[str]

    @property
    def file(self) -> str:
        """Name of the audit file."""
        return audit_name(self.work.unit_id)


def check_unit_rows(store: Store, recipe: Recipe, work: WorkUnit, found: Findings) -> Iterator[UnitRows]:
    """Check a unit's audit against its annotations and the rules, `BLOCK_ROWS` rows at a time.

    Yields each block after checking it; nothing where the tables are not what they should be. Raises what
    reading a broken file raises.
    """
    file = audit_name(work.unit_id)
    annotations = work.annotations(store, [n for n in annotation_names(store, work) if n != "signature"])
    missing = [n for n in ANNOTATION_BASE.names if n not in annotations.column_names]
    if missing:
        found.add(file, f"the annotations of its unit have no column {', '.join(missing)}")
        return
    with store.open(file) as opened:
        reader = pq.ParquetFile(opened)
        if not reader.schema_arrow.equals(AUDIT):
            found.add(file, "its columns are not those of an audit")
            return
        _check_quarantine(store, work, annotations, found)
        have = reader.read(columns=["doc_id"]).column("doc_id").to_pylist()
        want = annotations.column("doc_id").to_pylist()
        mine, theirs = align(found, file, have, want, "the annotations")
        if have == want:
            blocks: Iterable[pa.Table] = map(
                pa.Table.from_batches, ([b] for b in reader.iter_batches(BLOCK_ROWS))
            )
        else:
            blocks = [reader.read().take(mine)]
        start = 0
        for audit in blocks:
            rows = theirs[start : start + audit.num_rows]
            start += audit.num_rows
            block = _decided(recipe, work, audit, annotations.take(rows), rows, found)
            _check_copied(recipe, block, found)
            yield block


def annotation_names(store: Store, work: WorkUnit) -> list[str]:
    """Every column that a chunk of the unit has, in the order of the files."""
    names: dict[str, None] = {}
    for chunk in work.manifest["chunks"]:
        with store.open(chunk["files"]["annotations"]["name"]) as file:
            names.update(dict.fromkeys(pq.ParquetFile(file).schema_arrow.names))
    return list(names)


def _check_copied(recipe: Recipe, rows: UnitRows, found: Findings) -> None:
    """Everything that an audit row takes over from its annotation or from the recipe."""
    audit, annotations, file = rows.audit, rows.annotations, rows.file
    same = [n for n in AUDIT.names if n in annotations.column_names]
    compare_columns(found, file, audit, annotations, same, rows.doc_ids, "the annotations")
    for name in ("annotate_digest", "decide_digest"):
        values, expected = audit.column(name).to_pylist(), getattr(recipe, name)
        bad = [i for i, v in enumerate(values) if v != expected]
        found.rows(
            file,
            bad,
            lambda i: rows.doc_ids[i],
            lambda i, n=name, v=values, e=expected: f"{n} is {v[i]}, the recipe's is {e}",  # type: ignore[misc]
        )
    measured = [
        n
        for n in annotations.column_names
        if n not in ANNOTATION_BASE.names and annotations.column(n).type == pa.float64()
    ]
    from_decide = {s.name for s in recipe.judging} & {EXACT, NEAR, BALANCE}
    for name in sorted({*measured, *rows.scores} - from_decide):
        _check_numbers(
            found, rows, name, rows.scores, score_column(annotations, name), "the annotations", "score"
        )


def _check_numbers(
    found: Findings, rows: UnitRows, name: str, have: Columns, expected: Floats, source: str, what: str
) -> None:
    got = have.get(name, np.full(len(expected), np.nan))
    found.rows(
        rows.file,
        mismatches(got, expected),
        lambda i: rows.doc_ids[i],
        lambda i: f"{what} {name} is {_number(got[i])}, but {_number(expected[i])} in {source}",
    )


def _number(value: float) -> str:
    return "not there" if np.isnan(value) else shown(float(value))


def number_columns(column: pa.ChunkedArray) -> tuple[Columns, Bools]:
    """A map<string, double> column as a float64 column per key (NaN = not there), and the rows that are no
    plain map: a key twice, a null or a NaN in it."""
    array = column.combine_chunks()
    n = len(array)
    offsets = np.asarray(array.offsets)
    if n == 0 or offsets[-1] == offsets[0]:
        return {}, np.zeros(n, dtype=bool)
    inside = slice(int(offsets[0]), int(offsets[-1]))
    keys = array.keys[inside].dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    values = array.items[inside].to_numpy(zero_copy_only=False)
    names: list[str] = keys.dictionary.to_pylist()
    row = np.repeat(np.arange(n), np.diff(offsets))
    matrix = np.full((len(names), n), np.nan)
    matrix[codes, row] = values
    there = np.zeros((len(names), n), dtype=np.int64)
    np.add.at(there, (codes, row), 1)
    odd: Bools = np.asarray((there > 1).any(axis=0))
    odd[row[np.isnan(values)]] = True
    return dict(zip(names, matrix, strict=True)), odd


def _decided(
    recipe: Recipe,
    work: WorkUnit,
    audit: pa.Table,
    annotations: pa.Table,
    annotation_row: npt.NDArray[np.int64],
    found: Findings,
) -> UnitRows:
    """Derive each row's decision from its own scores and thresholds, and compare it with what it says."""
    doc_ids = annotations.column("doc_id").to_pylist()
    n = len(doc_ids)
    file = audit_name(work.unit_id)
    (scores, odd_scores), (thresholds, odd_thresholds) = (
        number_columns(audit.column(c)) for c in ("scores", "thresholds")
    )
    found.rows(
        file,
        np.flatnonzero(odd_scores | odd_thresholds),
        lambda i: doc_ids[i],
        lambda _: "a number in scores or thresholds stands there twice or is none",
    )
    nothing = np.full(n, np.nan)
    measured = annotations.column("bad_stage").is_null().to_numpy(zero_copy_only=False).astype(bool)
    state = np.where(measured, SURVIVES, REFUSED).astype(np.uint8)
    failures: list[tuple[str, str, Bools]] = []
    expected = _row_thresholds(recipe, annotations, measured)
    alive = measured.copy()
    for stage in recipe.judging:
        if stage.name in (EXACT, NEAR):
            alive = state == SURVIVES
            for name, value in stage.thresholds("").items():
                expected[name] = np.where(alive, value, np.nan)
        by_reason: dict[str, Bools] = {}
        for rule in stage.rules:
            failing = rule.failing(scores.get(rule.score, nothing), thresholds.get(rule.threshold, nothing))
            if stage.name == BALANCE:
                failing = failing & (thresholds.get(BASE, nothing) == 0)
            by_reason[rule.reason] = by_reason.get(rule.reason, np.zeros(n, dtype=bool)) | failing
        for reason, failing in by_reason.items():
            failures.append((stage.name, reason, failing))
            if stage.name != BALANCE:
                how_far = {EXACT: REFUSED_EXACT, NEAR: REFUSED_NEAR}.get(stage.name, REFUSED)
                state[failing & (state == SURVIVES)] = how_far
    alive = state == SURVIVES
    hashes = np.full(n, np.nan)
    if recipe.judges(BALANCE):
        where = np.flatnonzero(alive)
        hashes[where] = sampling_hashes(recipe.run.seed, "balance", [doc_ids[i] for i in where])
    groups = partitions_of(annotations)
    rows = UnitRows(
        work, audit, annotations, annotation_row, scores, thresholds, state, hashes, groups, doc_ids
    )
    for name in sorted({*expected, *thresholds} - {CUT, BASE}):
        _check_numbers(found, rows, name, thresholds, expected.get(name, nothing), "the recipe", "threshold")
    _check_said(rows, failures, found)
    _check_duplicate_columns(recipe, rows, found)
    _check_balance_columns(rows, found)
    return rows


def _row_thresholds(recipe: Recipe, annotations: pa.Table, measured: Bools) -> Columns:
    kinds, languages = (annotations.column(c).to_pylist() for c in ("kind", "language"))
    expected: Columns = {}
    for stage in recipe.row_stages:
        applies = measured & np.array([k in stage.kinds for k in kinds], dtype=bool)
        expected.update(threshold_columns(stage, languages, applies))
    return expected


def _check_said(rows: UnitRows, failures: Sequence[tuple[str, str, Bools]], found: Findings) -> None:
    """`failed`, `decision`, `stage` and `reason` against what the numbers give."""
    annotations, n = rows.annotations, len(rows.doc_ids)
    stages, reasons = (annotations.column(c).to_pylist() for c in ("bad_stage", "bad_reason"))
    decisions = [KEPT if s is None else QUARANTINED for s in stages]
    failed: list[list[str]] = [[] for _ in range(n)]
    for stage, reason, failing in failures:
        for i in np.flatnonzero(failing):
            failed[i].append(f"{stage}.{reason}")
            if decisions[i] == KEPT:
                decisions[i], stages[i], reasons[i] = REJECTED, stage, reason
    columns: dict[str, Any] = {"failed": failed, "decision": decisions, "stage": stages, "reason": reasons}
    derived = pa.table({k: pa.array(v, AUDIT.field(k).type) for k, v in columns.items()})
    compare_columns(
        found, rows.file, rows.audit, derived, list(columns), rows.doc_ids, "what its numbers decide"
    )


def _check_duplicate_columns(recipe: Recipe, rows: UnitRows, found: Findings) -> None:
    """`duplicate_of` and `similarity` are there where a duplicate step refused the row, and only there."""
    nothing = np.full(len(rows.doc_ids), np.nan)
    expected = nothing.copy()
    for name, refused in ((EXACT, REFUSED_EXACT), (NEAR, REFUSED_NEAR)):
        mine = rows.scores.get(name, nothing)
        expected = np.where(rows.state == refused, mine, expected)
        if recipe.judges(name):
            found.rows(
                rows.file,
                np.flatnonzero(~np.isnan(mine) & (rows.state != refused)),
                lambda i: rows.doc_ids[i],
                lambda _, name=name: f"has a score {name} and was not refused by it",  # type: ignore[misc]
            )
    have = {"similarity": np.asarray(rows.audit.column("similarity").to_numpy())}
    _check_numbers(
        found, rows, "similarity", have, expected, "the score of the step that refused it", "value"
    )
    named = rows.audit.column("duplicate_of").is_valid().to_numpy(zero_copy_only=False).astype(bool)
    should = np.isin(rows.state, (REFUSED_EXACT, REFUSED_NEAR))
    found.rows(
        rows.file,
        np.flatnonzero(named != should),
        lambda i: rows.doc_ids[i],
        lambda i: (
            "duplicate_of is set and no duplicate step refused it"
            if named[i]
            else "a duplicate step refused it and duplicate_of is null"
        ),
    )


def _check_balance_columns(rows: UnitRows, found: Findings) -> None:
    """The sampling hash is the keyed one, stands only where a cut is, and gives the number of copies."""
    n = len(rows.doc_ids)
    nothing = np.full(n, np.nan)
    cut, base = (rows.thresholds.get(name, nothing) for name in (CUT, BASE))
    sampled = ~np.isnan(cut) | ~np.isnan(base)
    expected = np.where(sampled & (rows.state == SURVIVES), rows.hashes, np.nan)
    _check_numbers(found, rows, BALANCE, rows.scores, expected, "the keyed hash of its doc_id", "score")
    copies = np.where(sampled, base + (rows.hashes <= cut), 1.0)
    copies = np.where(rows.state == SURVIVES, copies, 0.0)
    have = {"epochs": rows.audit.column("epochs").to_numpy().astype(np.float64)}
    _check_numbers(found, rows, "epochs", have, copies, "what its numbers decide", "value")


def _check_quarantine(store: Store, work: WorkUnit, annotations: pa.Table, found: Findings) -> None:
    """Each quarantined record has its line, in order, and the line says what the annotation says."""
    keys = {n: n for n in ("doc_id", "input_id", "error")} | {"stage": "bad_stage", "reason": "bad_reason"}
    bad = annotations.filter(annotations.column("bad_stage").is_valid()).select(list(keys.values()))
    rows = bad.to_pylist()
    at = 0
    for chunk in work.manifest["chunks"]:
        if "quarantine" not in chunk["files"]:
            continue
        name = chunk["files"]["quarantine"]["name"]
        with store.open(name) as file:
            for number, raw in enumerate(file):
                line = _line(raw)
                row: Mapping[str, Any] = rows[at] if at < len(rows) else {}
                at += 1
                for key, column in keys.items():
                    if line.get(key) != row.get(column):
                        found.add(
                            name,
                            f"line {number + 1}: {key} is {shown(line.get(key))}, "
                            f"but {shown(row.get(column))} in the annotations",
                            row.get("doc_id"),
                        )
    for row in rows[at:]:
        found.add(audit_name(work.unit_id), "is quarantined and has no line in quarantine/", row["doc_id"])


def _line(raw: bytes) -> Mapping[str, Any]:
    try:
        line = json.loads(raw)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}
