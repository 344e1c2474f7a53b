"""Changing what a run wrote, and then everything that says what was written: for tests of `verify`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.decide import survey
from pipeline.findings import Finding
from pipeline.plan import read_plan
from pipeline.store import open_store
from pipeline.verify import verify
from schemas.tables import CORPUS

Row = dict[str, Any]


def change(
    folder: Path, which: str | Callable[[Row], bool], edit: Callable[[Row], Row | Iterable[Row]]
) -> None:
    """Replace the rows of a record, or all that are asked for, in every table of a folder by what `edit`
    gives (nothing: they are deleted)."""
    touched = 0
    for path in sorted(folder.rglob("*.parquet")):
        with path.open("rb") as file:
            table = pq.ParquetFile(file).read()
        rows: list[Row] = []
        for row in table.to_pylist():
            if row["input_id"] == which if isinstance(which, str) else which(row):
                touched += 1
                changed = edit(row)
                rows += [changed] if isinstance(changed, dict) else list(changed)
            else:
                rows.append(row)
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    assert touched, f"{folder} has no row of {which}"


def setting(**columns: Any) -> Callable[[Row], Row]:
    """An edit that sets columns."""
    return lambda row: {**row, **columns}


def number(column: str, name: str, value: float | None) -> Callable[[Row], Row]:
    """An edit that sets one number of a map column, or takes it out."""

    def edit(row: Row) -> Row:
        values = {**dict(row[column]), name: value}
        return {**row, column: sorted((k, v) for k, v in values.items() if v is not None)}

    return edit


def restamp(output: Path) -> None:
    """Make every manifest match the files: sizes, sha256, rows, sums, digests, and the success mark."""
    store = open_store(str(output))
    files: Row = {}
    for path in sorted(output.rglob("*")):
        name = path.relative_to(output).as_posix()
        folders = ("corpus", "audit", "annotations", "text", "quarantine", "report")
        if path.is_file() and (name.split("/")[0] in folders or name == "plan.jsonl"):
            files[name] = stamp(path)
    for path in sorted((output / "units").glob("*.json")):
        unit = json.loads(path.read_text())
        for chunk in unit["chunks"]:
            for entry in chunk["files"].values():
                known = files.get(entry["name"], {})
                entry.update({k: known[k] for k in ("bytes", "sha256", "rows") if k in known})
        path.write_text(json.dumps(unit, sort_keys=True))
        files[f"units/{path.name}"] = stamp(path)
    manifest = json.loads((output / "manifest.json").read_text())
    manifest["files"] = files
    plan = read_plan(store)
    manifest["recipe"] = plan.recipe.to_json()
    manifest["plan"] = {"digest": plan.digest, "units": len(plan.units), "bytes": plan.bytes}
    try:
        corpus = survey(store, plan)
        manifest["decision"] = {"key": corpus.key, "documents": corpus.documents, "chunks": corpus.chunks}
    except RuntimeError:  # a unit is gone
        pass
    decisions = pq.read_table(output / "audit", columns=["decision"]).column("decision").to_pylist()
    for decision in ("kept", "rejected", "quarantined"):
        manifest["accounting"][decision] = decisions.count(decision)
    seal(output, manifest)


def stamp(path: Path) -> Row:
    data = path.read_bytes()
    rows: int | None = None
    if path.suffix == ".parquet":
        rows = pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows
    elif path.suffix == ".jsonl" and path.name != "plan.jsonl":
        rows = len(data.splitlines())
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": rows, "tokens": None}


def seal(output: Path, manifest: Mapping[str, Any]) -> None:
    data = json.dumps(manifest).encode()
    (output / "manifest.json").write_bytes(data)
    (output / "_SUCCESS").write_text(json.dumps({"manifest": hashlib.sha256(data).hexdigest()}))


def found(output: Path) -> list[Finding]:
    return verify(open_store(str(output)))


def has(findings: Iterable[Finding], file: str, problem: str) -> bool:
    return any(f.file.startswith(file) and problem in f.problem for f in findings)


def shown(findings: Iterable[Finding]) -> str:
    return "\n".join(map(str, findings))


def doc_id(out: Path, input_id: str) -> str:
    rows = pq.read_table(out / "audit", columns=["doc_id", "input_id"]).to_pylist()
    return str(next(r["doc_id"] for r in rows if r["input_id"] == input_id))


def unrefused(input_id: str, *names: str) -> Callable[[Path], None]:
    """A refused record becomes a kept one, without the numbers that refused it, and is put in the corpus."""

    def tamper(out: Path) -> None:
        columns: Row = {"decision": "kept", "stage": None, "reason": None, "failed": [], "epochs": 1}
        columns |= {"duplicate_of": None, "similarity": None}
        for name in names:
            change(out / "audit", input_id, number("scores", name, None))
        change(out / "audit", input_id, setting(**columns))
        in_corpus(input_id)(out)

    return tamper


def in_corpus(input_id: str) -> Callable[[Path], None]:
    """A record is written to the first English shard."""

    def tamper(out: Path) -> None:
        rows = [
            r
            for p in (out / "text").glob("*")
            for r in pq.read_table(p).to_pylist()
            if r["input_id"] == input_id
        ]
        path = sorted((out / "corpus/en").glob("*"))[0]
        new = {n: rows[0].get(n) for n in CORPUS.names} | {"epoch": 0}
        table = pq.read_table(path)
        pq.write_table(pa.concat_tables([table, pa.Table.from_pylist([new], CORPUS)]), path)

    return tamper


def quarantine(edit: Callable[[Row], Row]) -> Callable[[Path], None]:
    def tamper(out: Path) -> None:
        (path,) = (out / "quarantine").glob("*.jsonl")
        path.write_text(
            "".join(json.dumps(edit(json.loads(x))) + "\n" for x in path.read_text().splitlines())
        )

    return tamper


NEW_ENTRY: dict[str, Any] = {
    "edits": {"stage": "s", "start": 0, "end": 0, "rule": "r", "before": None, "after": "x"},
    "loss_mask_spans": {"start": 0, "end": 1},
}


def another(column: str, kind: pa.DataType, value: Any) -> Any:
    """Another value for a column."""
    if pa.types.is_map(kind):
        (name, number), *others = value
        return [(name, number + 1.0), *others]
    if pa.types.is_list(kind):
        return [*value, NEW_ENTRY.get(column, "other")]
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes(reversed(value))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "other" if value is None else f"{value}x"
    return (value or 0) + 1


def cell(schema: pa.Schema, column: str) -> Callable[[Row], Row]:
    return lambda row: {**row, column: another(column, schema.field(column).type, row[column])}
