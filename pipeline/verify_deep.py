"""`verify --deep`: the whole flow again from the input, in a temporary folder, compared table by table."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.annotate import annotate
from pipeline.compression import local_path
from pipeline.decide import decide
from pipeline.emit import emit
from pipeline.engine import Engine, JobFailed
from pipeline.findings import Findings, align, compare_columns, shown
from pipeline.inputs import InputError, InputFile, list_inputs
from pipeline.plan import PLAN, Plan, cut_units, plan_digest, write_plan
from pipeline.receipts import unit_name
from pipeline.store import Store, digest_object, open_store
from pipeline.verify_files import audit_name
from pipeline.work import WorkUnit, work_units

AGAIN = "what the input gives when it is measured again"
DECIDED_AGAIN = "what is decided again from the input"


def check_again(store: Store, plan: Plan, works: Sequence[WorkUnit], workers: int, found: Findings) -> None:
    """Measure, decide and emit again from the plan's input files, and compare every column of every row.

    Input files are compared with their fingerprints first; units of changed or missing ones are not
    measured again, and then nothing is decided again. The temporary folder (see `TMPDIR`) takes as much
    room as the output.
    """
    changed = changed_inputs(plan, found)
    units = tuple(
        u for u in plan.units if not any((s.file.source, s.file.path) in changed for s in u.segments)
    )
    part = (
        plan if len(units) == len(plan.units) else Plan(plan.recipe, units, plan_digest(plan.recipe, units))
    )
    with tempfile.TemporaryDirectory(prefix="sluice-verify-") as folder:
        again = open_store(folder)
        try:
            run_again(again, part, workers, decides=part is plan)
        except JobFailed as error:
            found.add(PLAN, f"cannot be run again: {error}")
            return
        compare_measured(store, works, again, part, found)
        if part is plan:
            compare_decided(store, works, again, found)
        else:
            found.add(PLAN, "inputs have changed: nothing is decided again")


def run_again(again: Store, plan: Plan, workers: int, *, decides: bool = True) -> None:
    """Run a plan in an empty store, on the embedded engine; raises JobFailed."""
    engine = Engine(workers=workers)
    write_plan(again, plan)
    annotate(again, plan, engine)
    if decides:
        emit(again, plan, decide(again, plan, engine), engine)


def compare_measured(
    store: Store, works: Sequence[WorkUnit], again: Store, plan: Plan, found: Findings
) -> None:
    """Compare annotations, texts, quarantine and counts of each unit with a run of the plan in `again`."""
    fresh = {w.unit_id: w for w in work_units(again, plan)}
    for work in works:
        if work.unit_id in fresh:
            _compare_unit(store, work, again, fresh[work.unit_id], found)


def compare_decided(store: Store, works: Sequence[WorkUnit], again: Store, found: Findings) -> None:
    """Compare audit and shards with those of the run in `again`."""
    for work in works:
        _compare_file(store, audit_name(work.unit_id), again, audit_name(work.unit_id), found, DECIDED_AGAIN)
    have, want = store.list("corpus"), again.list("corpus")
    for name in want:
        if name not in have:
            found.add(name, f"is not there, but in {DECIDED_AGAIN}")
    for name in have:
        if name not in want:
            found.add(name, f"is not in {DECIDED_AGAIN}")
        else:
            _compare_file(store, name, again, name, found, DECIDED_AGAIN)


def changed_inputs(plan: Plan, found: Findings) -> set[tuple[str, str]]:
    """The (source, path) of the plan's files that are not what they were; each is a finding.

    It is one too when the files, cut again, give other units: one was taken out of the plan.
    """
    files = {(s.file.source, s.file.path): s.file for u in plan.units for s in u.segments}
    changed = set()
    for key, file in sorted(files.items()):
        problem = _input_problem(file)
        if problem:
            found.add(PLAN, f"the input {file.url} {problem}", f"{file.source}/{file.path}")
            changed.add(key)
    ordered = [file for _, file in sorted(files.items())]
    if cut_units(ordered, plan.recipe.run.unit_bytes) != plan.units:
        found.add(PLAN, "its input files, cut again, give other units")
    return changed


def _input_problem(file: InputFile) -> str | None:
    try:
        (now,) = list_inputs([local_path(file.url) or file.url])
    except (InputError, OSError, ValueError) as error:
        return f"cannot be read: {error}"
    now = replace(now, source=file.source, path=file.path)
    if now == file:
        return None
    names = [n for n in InputFile.__slots__ if getattr(now, n) != getattr(file, n)]
    return "has changed: " + ", ".join(
        f"{n} is {shown(getattr(now, n))}, was {shown(getattr(file, n))}" for n in names
    )


def _compare_unit(store: Store, work: WorkUnit, again: Store, fresh: WorkUnit, found: Findings) -> None:
    name = unit_name(work.unit_id)
    if work.manifest["counts"] != fresh.manifest["counts"]:
        found.add(name, f"counts are {work.manifest['counts']}, but {fresh.manifest['counts']} in {AGAIN}")
    chunks, fresh_chunks = work.manifest["chunks"], fresh.manifest["chunks"]
    if len(chunks) != len(fresh_chunks):
        found.add(name, f"has {len(chunks)} chunks, but {len(fresh_chunks)} in {AGAIN}")
    for chunk, fresh_chunk in zip(chunks, fresh_chunks, strict=False):
        files, fresh_files = chunk["files"], fresh_chunk["files"]
        for kind in ("annotations", "text"):
            _compare_file(store, files[kind]["name"], again, fresh_files[kind]["name"], found, AGAIN)
        lines, fresh_lines = (_lines(s, f) for s, f in ((store, files), (again, fresh_files)))
        if lines != fresh_lines:
            at = next((i for i, (a, b) in enumerate(zip(lines, fresh_lines, strict=False)) if a != b), None)
            what = (
                f"has {len(lines)} lines, but {len(fresh_lines)}"
                if at is None
                else f"line {at + 1} differs from that"
            )
            found.add(files.get("quarantine", {"name": name})["name"], f"{what} in {AGAIN}")


def _lines(store: Store, files: dict[str, Any]) -> list[Any]:
    if "quarantine" not in files:
        return []
    return [json.loads(line) for line in store.get(files["quarantine"]["name"]).splitlines()]


def _compare_file(
    store: Store, name: str, again: Store, fresh_name: str, found: Findings, source: str
) -> None:
    """Compare two Parquet files row by row, a row group at a time where they have the same ones."""
    try:
        if digest_object(store, name) == digest_object(again, fresh_name):
            return
        with store.open(name) as mine, again.open(fresh_name) as theirs:
            for got, expected in _pieces(pq.ParquetFile(mine), pq.ParquetFile(theirs)):
                _compare_tables(found, name, got, expected, source)
    except Exception as error:  # what a broken file makes a reader raise is no closed set
        found.add(name, f"cannot be compared: {type(error).__name__}: {error}")


def _pieces(mine: pq.ParquetFile, theirs: pq.ParquetFile) -> Iterator[tuple[pa.Table, pa.Table]]:
    rows = [[f.metadata.row_group(i).num_rows for i in range(f.num_row_groups)] for f in (mine, theirs)]
    if rows[0] != rows[1]:
        yield mine.read(), theirs.read()
        return
    for group in range(len(rows[0])):
        yield mine.read_row_group(group), theirs.read_row_group(group)


def _compare_tables(found: Findings, name: str, got: pa.Table, expected: pa.Table, source: str) -> None:
    if got.column_names != expected.column_names:
        found.add(
            name, f"has columns {shown(got.column_names)}, but {shown(expected.column_names)} in {source}"
        )
    keys, expected_keys = _keys(got), _keys(expected)
    mine, theirs = align(found, name, keys, expected_keys, source)
    shared = [n for n in expected.column_names if n in got.column_names]
    if keys != expected_keys:
        got, expected = got.take(mine), expected.take(theirs)
    records = [expected_keys[i] for i in theirs]
    compare_columns(found, name, got, expected, shared, records, source)


def _keys(table: pa.Table) -> list[str]:
    """What names a row: its doc_id, and the number of the copy where there are copies."""
    doc_ids: list[str] = table.column("doc_id").to_pylist()
    if "epoch" not in table.column_names:
        return doc_ids
    epochs = table.column("epoch").to_pylist()
    return [f"{d} (copy {e})" if e else d for d, e in zip(doc_ids, epochs, strict=True)]
