"""Emit: one task per output shard gathers its rows from the work files; then the audit and the manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import xxhash

from pipeline.decide import Corpus
from pipeline.decisions import audit_work_name, keep_name, summary_name
from pipeline.engine import Engine
from pipeline.manifest import manifest_of
from pipeline.plan import Plan
from pipeline.receipts import file_entry, unit_name
from pipeline.recipe import Recipe
from pipeline.store import Store, digest_of, open_store, read_parquet
from pipeline.work import work_units
from schemas.tables import CORPUS

KEY = "emit/key"
SUCCESS = "_SUCCESS"


def plan_shards(store: Store, plan: Plan, key: str) -> list[dict[str, Any]]:
    """The shards of each partition: row groups in the order of the plan, filled to `shard_bytes`.

    First copies come first; repeated copies follow, epoch by epoch.
    """
    limit = plan.recipe.run.shard_bytes
    pieces: dict[str, list[dict[str, Any]]] = {}
    for unit in plan.units:
        summary = json.loads(store.get(summary_name(key, unit.unit_id)))
        for group in summary["groups"]:
            if group["rows"]:
                pieces.setdefault(group["partition"], []).append({"unit": unit.unit_id, **group})
    shards = []
    for partition, own in sorted(pieces.items()):
        own.sort(key=lambda p: p["epoch"])
        filled: list[list[dict[str, Any]]] = [[]]
        size = 0
        for piece in own:
            if size and size + piece["bytes"] > limit:
                filled.append([])
                size = 0
            filled[-1].append(piece)
            size += piece["bytes"]
        for i, members in enumerate(filled):
            name = f"corpus/{partition}/part-{i:05d}-of-{len(filled):05d}.parquet"
            shards.append({"name": name, "pieces": [_short(p) for p in members]})
    return shards


def _short(piece: dict[str, Any]) -> list[Any]:
    return [piece["unit"], piece["chunk"], piece["group"], piece["epoch"]]


def emit(store: Store, plan: Plan, corpus: Corpus, engine: Engine) -> list[dict[str, Any]]:
    """Write the shards and the audit; returns the manifest's entries for them.

    The folder's earlier success mark is removed first; files of another decision are removed last.
    """
    store.delete(SUCCESS)
    if not store.exists(KEY) or store.get(KEY).decode() != corpus.key:
        for name in store.list("emit"):
            store.delete(name)
        store.put(KEY, corpus.key.encode())
    shards = plan_shards(store, plan, corpus.key)
    todo = [s for s in shards if not _is_written(store, s["name"])]
    audits = [u.unit_id for u in plan.units if not _is_written(store, f"audit/{u.unit_id}.parquet")]
    if todo or audits:
        recipe = json.dumps(plan.recipe.to_json())

        def build(pipeline: beam.Pipeline) -> None:
            (
                pipeline
                | "shards" >> beam.Create([json.dumps(s).encode() for s in todo])
                | "spread shards" >> beam.Reshuffle()
                | "write shards" >> beam.ParDo(_WriteShard(store.url, recipe, corpus.key))
            )
            (
                pipeline
                | "units" >> beam.Create(audits)
                | "spread units" >> beam.Reshuffle()
                | "write audit" >> beam.ParDo(_WriteAudit(store.url, corpus.key))
            )

        engine.run(build)
    names = {s["name"] for s in shards} | {f"audit/{u.unit_id}.parquet" for u in plan.units}
    # quarantine/ holds raw records: those of inputs and settings that are no more go, and first the
    # manifests by which a later run would take their units for complete.
    units = {unit_name(u.unit_id) for u in plan.units}
    for name in store.list("units"):
        if name not in units:
            store.delete(name)
    chunks = (chunk["files"] for work in work_units(store, plan) for chunk in work.manifest["chunks"])
    listed = names | {files["quarantine"]["name"] for files in chunks if "quarantine" in files}
    for folder in ("corpus", "audit", "quarantine"):
        for name in store.list(folder):
            if name not in listed:
                store.delete(name)
    return [json.loads(store.get(_receipt_name(n))) for n in sorted(names)]


def _receipt_name(name: str) -> str:
    return f"emit/{hashlib.sha256(name.encode()).hexdigest()[:24]}.json"


def _is_written(store: Store, name: str) -> bool:
    """Whether this decision's receipt names the file and the file is there in its size."""
    if not store.exists(_receipt_name(name)) or not store.exists(name):
        return False
    return bool(json.loads(store.get(_receipt_name(name)))["bytes"] == store.size(name))


class _WriteShard(beam.DoFn):  # type: ignore[misc]
    def __init__(self, url: str, recipe: str, key: str) -> None:
        self._url, self._recipe_json, self._key = url, recipe, key

    def setup(self) -> None:
        self._store = open_store(self._url)
        self._recipe = Recipe.from_json(json.loads(self._recipe_json))

    def process(self, line: bytes) -> None:
        shard = json.loads(line)
        rows = 0
        with self._store.writer(shard["name"]) as file:
            out = _Hashing(file)
            with pq.ParquetWriter(out, CORPUS, compression="zstd", compression_level=3) as writer:
                for table in _row_groups(self._pieces(shard["pieces"]), self._recipe.run.row_group_bytes):
                    writer.write_table(table, row_group_size=table.num_rows)
                    rows += table.num_rows
        entry = {"name": shard["name"], "sha256": out.sha.hexdigest(), "rows": rows, "bytes": out.size}
        self._store.put(_receipt_name(shard["name"]), json.dumps(entry).encode())

    def _pieces(self, pieces: list[list[Any]]) -> Iterator[pa.Table]:
        keep: dict[str, pa.Table] = {}
        manifests: dict[str, Any] = {}
        for unit_id, chunk, group, epoch in pieces:
            if unit_id not in keep:
                keep = {unit_id: read_parquet(self._store, keep_name(self._key, unit_id))}
                manifests = {unit_id: json.loads(self._store.get(f"units/{unit_id}.json"))}
            name = manifests[unit_id]["chunks"][chunk]["files"]["text"]["name"]
            with self._store.open(name) as file:
                table = pq.ParquetFile(file).read_row_group(group)
            chosen = keep[unit_id]
            mine = (chosen.column("chunk").to_numpy() == chunk) & (chosen.column("epochs").to_numpy() > epoch)
            rows = chosen.column("row").to_numpy()[mine]
            yield _corpus_rows(table.filter(pa.array(np.isin(table.column("row").to_numpy(), rows))), epoch)


def _corpus_rows(table: pa.Table, epoch: int) -> pa.Table:
    n = table.num_rows
    columns = {
        f.name: table.column(f.name) if f.name in table.column_names else pa.nulls(n, f.type) for f in CORPUS
    }
    columns["epoch"] = pa.array(np.full(n, epoch, dtype=np.uint32))
    return pa.table(columns, schema=CORPUS)


def _row_groups(tables: Iterable[pa.Table], limit: int) -> Iterator[pa.Table]:
    """The rows of all tables, gathered until a row group holds about `limit` bytes of text and metadata."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        lengths = (pa.compute.binary_length(table.column(n)).to_numpy() for n in ("text", "metadata"))
        running = np.cumsum(sum(lengths))
        start = 0
        while start < table.num_rows:
            before = running[start - 1] if start else 0
            end = max(start + 1, int(np.searchsorted(running, before + limit - size, side="right")))
            waiting.append(table.slice(start, end - start))
            size += int(running[end - 1] - before)
            start = end
            if size >= limit or start < table.num_rows:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


class _Hashing:
    """A file that knows the sha256 and the size of what was written to it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.sha = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.sha.update(data)
        self.size += len(data)
        self._file.write(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class _WriteAudit(beam.DoFn):  # type: ignore[misc]
    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    def process(self, unit_id: str) -> None:
        store = open_store(self._url)
        data = store.get(audit_work_name(self._key, unit_id))
        name = f"audit/{unit_id}.parquet"
        store.put(name, data)
        entry = file_entry(name, data, pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows)
        store.put(_receipt_name(name), json.dumps(entry).encode())


class AccountingError(RuntimeError):
    """The sums of a run differ: records were lost or counted twice. Exit status 1, no success mark."""


def account(store: Store, plan: Plan, entries: list[dict[str, Any]]) -> dict[str, int]:
    """Count again from what lies on disk: records read = kept + rejected + quarantined.

    `records` was counted by the reader before any stage; kept from the shards' first copies, rejected from
    the audit, quarantined from the quarantine files; `keeper_dropped` counts the copies that stay refused
    although a later step dropped the document they repeat. Raises AccountingError when the sums differ.
    """
    total = {"records": 0, "not_documents": 0, "not_sampled": 0, "kept": 0, "rejected": 0, "quarantined": 0}
    audited = {"kept": 0, "rejected": 0, "quarantined": 0}
    for work in work_units(store, plan):
        for name in ("records", "not_documents", "not_sampled"):
            total[name] += work.manifest["counts"].get(name, 0)
        for chunk in work.manifest["chunks"]:
            if "quarantine" in chunk["files"]:
                data = store.get(chunk["files"]["quarantine"]["name"])
                total["quarantined"] += data.count(b"\n")
    kept: list[npt.NDArray[np.uint64]] = []
    repeated: list[npt.NDArray[np.uint64]] = []
    for entry in entries:
        if entry["name"].startswith("corpus/"):
            epochs = read_parquet(store, entry["name"], ["epoch"]).column("epoch").to_numpy()
            total["kept"] += int((epochs == 0).sum())
            continue
        rows = read_parquet(store, entry["name"], ["doc_id", "decision", "duplicate_of"])
        for value in pa.compute.value_counts(rows.column("decision")).to_pylist():
            audited[value["values"]] += value["counts"]
        chosen = pa.compute.equal(rows.column("decision"), "kept")
        kept.append(_id_hashes(rows.filter(chosen).column("doc_id")))
        repeated.append(_id_hashes(rows.column("duplicate_of").drop_null()))
    total["rejected"] = audited["rejected"]
    ends = total["kept"] + total["rejected"] + total["quarantined"]
    if total["records"] != ends or audited != {n: total[n] for n in audited}:
        raise AccountingError(
            f"records read: {total['records']}; on disk: {total['kept']} kept, {total['rejected']} rejected, "
            f"{total['quarantined']} quarantined; the audit says {audited}"
        )
    gone = ~np.isin(np.concatenate(repeated), np.concatenate(kept)) if kept else np.zeros(0, dtype=bool)
    return {**total, "keeper_dropped": int(gone.sum())}


def _id_hashes(doc_ids: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    return np.array([xxhash.xxh3_64_intdigest(d.encode()) for d in doc_ids.to_pylist()], dtype=np.uint64)


def finish(
    store: Store,
    plan: Plan,
    corpus: Corpus,
    entries: list[dict[str, Any]],
    accounting: dict[str, int],
    report_files: Iterable[str],
) -> dict[str, Any]:
    """Write the manifest of an accounted run, then the success mark; returns the manifest."""
    manifest = manifest_of(store, plan, corpus, entries, accounting, report_files)
    data = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False).encode()
    store.put("manifest.json", data)
    store.put(SUCCESS, json.dumps({"manifest": digest_of(data)}).encode())
    store.sweep()
    return manifest
