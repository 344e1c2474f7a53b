"""Annotate: read, measure and edit every document, and commit the work files. It rejects nothing."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import xxhash
from apache_beam import coders

from pipeline.compression import local_path
from pipeline.engine import Engine
from pipeline.inputs import Segment
from pipeline.measure import RAW_BYTES, run_stage
from pipeline.plan import PLAN, Plan, Unit
from pipeline.readers import Bad, FieldMapping, Read, ReadLimits, read_segment
from pipeline.receipts import (
    Receipt,
    committed,
    file_entry,
    put_receipt,
    put_unit_manifest,
    read_unit_manifest,
    unit_manifest,
)
from pipeline.recipe import Recipe
from pipeline.store import Store, content_name, open_store, parquet_bytes
from schemas.chunk import DOCUMENTS, Chunk
from schemas.records import Document, Edit, Unreadable
from schemas.sampling import sampling_hash
from schemas.tables import ANNOTATION_BASE, TEXT

COMMITTED = "committed"
"""Tag of receipts that an earlier run left."""


class ChunkCoder(coders.Coder):  # type: ignore[misc]
    """Chunks as Arrow IPC. The size is estimated, not measured: Beam asks after every stage."""

    def encode(self, value: Chunk) -> bytes:
        return value.encode()

    def decode(self, encoded: bytes) -> Chunk:
        return Chunk.decode(encoded)

    def estimate_size(self, value: Chunk) -> int:
        return int(value.documents.nbytes) + sum(map(len, value.texts))

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self) -> type:
        return Chunk


coders.registry.register_coder(Chunk, ChunkCoder)


def annotate(store: Store, plan: Plan, engine: Engine) -> None:
    """Run the annotate job over every unit that is not complete yet."""
    recipe = json.dumps(plan.recipe.to_json())

    def build(pipeline: beam.Pipeline) -> None:
        units = (
            pipeline
            | "plan" >> beam.Create([store.url])
            | "units to do" >> beam.ParDo(_UnitsToDo()).with_output_types(bytes)
            | "spread" >> beam.Reshuffle()
        )
        read = units | "read" >> beam.ParDo(_ReadUnit(store.url, recipe)).with_outputs(
            COMMITTED, main="chunks"
        )
        chunks = read.chunks
        chunks.element_type = Chunk
        for stage in plan.recipe.measured:
            chunks = chunks | stage.name >> MeasureStage(stage.name, recipe)
        fresh = chunks | "commit" >> beam.ParDo(_CommitChunk(store.url, recipe)).with_output_types(
            tuple[str, bytes]
        )
        earlier = read[COMMITTED] | "earlier receipts" >> beam.Map(lambda r: r).with_output_types(
            tuple[str, bytes]
        )
        (
            (fresh, earlier)
            | "receipts" >> beam.Flatten()
            | "by unit" >> beam.GroupByKey()
            | "unit manifests" >> beam.ParDo(_CommitUnit(store.url))
        )

    engine.run(build)


class MeasureStage(beam.PTransform):  # type: ignore[misc]
    """One stage of a recipe over a PCollection of chunks, for this pipeline or anyone's own."""

    def __init__(self, stage: str, recipe: str) -> None:
        super().__init__()
        self._stage, self._recipe = stage, recipe

    def expand(self, chunks: Any) -> Any:
        return chunks | beam.ParDo(_Measure(self._stage, self._recipe)).with_output_types(Chunk)


class _Measure(beam.DoFn):  # type: ignore[misc]
    def __init__(self, stage: str, recipe: str) -> None:
        self._name, self._recipe = stage, recipe

    def setup(self) -> None:
        self._stage = Recipe.from_json(json.loads(self._recipe)).by_name[self._name]

    def process(self, chunk: Chunk) -> Iterable[Chunk]:
        yield run_stage(self._stage, chunk)


class _UnitsToDo(beam.DoFn):  # type: ignore[misc]
    def process(self, url: str) -> Iterable[bytes]:
        store = open_store(url)
        lines = store.get(PLAN).decode().splitlines()
        digest = Recipe.from_json(json.loads(lines[0])["recipe"]).annotate_digest
        for line in lines[1:]:
            if read_unit_manifest(store, Unit.from_json(json.loads(line)), digest) is None:
                yield line.encode()


class _ReadUnit(beam.DoFn):  # type: ignore[misc]
    def __init__(self, url: str, recipe: str) -> None:
        self._url, self._recipe_json = url, recipe

    def setup(self) -> None:
        self._store = open_store(self._url)
        self._recipe = Recipe.from_json(json.loads(self._recipe_json))

    def process(self, line: bytes) -> Iterable[Any]:
        unit = Unit.from_json(json.loads(line))
        done = committed(self._store, unit, self._recipe.annotate_digest)
        for receipt in done.values():
            yield beam.pvalue.TaggedOutput(COMMITTED, (unit.unit_id, json.dumps(receipt).encode()))
        yield from unit_chunks(unit, self._recipe, done)


def unit_chunks(unit: Unit, recipe: Recipe, done: dict[int, Receipt] | None = None) -> Iterator[Chunk]:
    """The chunks of a unit, less those that are committed: reading goes on behind them."""
    done = done or {}
    index, position = 0, {"segment": 0, "at": None, "row": 0}
    while True:
        if index in done:
            if done[index]["last"]:
                return
            position = done[index]["position"]
            index += 1
            continue
        for chunk in _read_from(unit, recipe, index, position):
            yield chunk
            if chunk.last:
                return
            index += 1
            position = dict(chunk.position)
            if index in done:
                break


def _read_from(unit: Unit, recipe: Recipe, index: int, position: dict[str, Any]) -> Iterator[Chunk]:
    """Chunks from this place to the unit's end, cut before the text would pass the limit."""
    options = recipe.input
    mapping = FieldMapping(
        options.text, options.id, options.url, options.date, options.path, options.language, options.kind
    )
    limits = ReadLimits(max_record_bytes=recipe.run.max_record_bytes)
    building = _Building(unit.unit_id, recipe, index, position["row"])
    fingerprint = unit.fingerprint
    at: dict[str, Any] = {"segment": position["segment"], "at": position["at"]}

    def closed(last: bool) -> Chunk:
        return building.chunk(last=last, position={**at, "row": building.row, "fingerprint": fingerprint})

    for i, segment in enumerate(unit.segments):
        if i < position["segment"]:
            continue
        start = position["at"] if i == position["segment"] else None
        _refuse_changed(segment)
        for item in read_segment(segment, mapping, limits, start):
            size = _size(item)
            if building.full_with(size):
                yield closed(last=False)
                building = _Building(unit.unit_id, recipe, building.index + 1, building.row)
            building.add(segment, item, size)
            at = {"segment": i, "at": item.position}
    yield closed(last=True)


def _refuse_changed(segment: Segment) -> None:
    """A local file whose size is not what was planned would be committed under its old fingerprint."""
    path = local_path(segment.file.url)
    if path is not None and os.path.exists(path) and os.path.getsize(path) != segment.file.size:
        raise RuntimeError(f"{path} changed since it was planned; run the same command again")


class _Building:
    """A chunk while it is being read."""

    def __init__(self, unit_id: str, recipe: Recipe, index: int, row: int) -> None:
        self.index, self.row = index, row
        self._unit, self._recipe = unit_id, recipe
        self._documents: list[tuple[int, Document]] = []
        self._edits: list[tuple[Edit, ...]] = []
        self._flags: list[tuple[str, ...]] = []
        self._bad: list[Unreadable] = []
        self._counts = {"records": 0, "not_documents": 0, "not_sampled": 0}
        self._bytes = 0

    def full_with(self, size: int) -> bool:
        return self._bytes > 0 and self._bytes + size > self._recipe.run.chunk_bytes

    def add(self, segment: Segment, item: Any, size: int) -> None:
        self._bytes += size
        if not isinstance(item, (Read, Bad)):
            self._counts["not_documents"] += 1
            return
        file = segment.file
        locator = item.document.locator if isinstance(item, Read) else item.locator
        doc_id = f"{file.source}/{file.path}#{locator}"
        rate = self._recipe.run.sample_rate
        if rate < 1.0 and sampling_hash(self._recipe.run.seed, "sample", doc_id) >= rate:
            self._counts["not_sampled"] += 1
            return
        self._counts["records"] += 1
        if isinstance(item, Read):
            self._documents.append((self.row, item.document))
            self._edits.append(item.edits)
            self._flags.append(item.flags)
        else:
            self._bad.append(
                Unreadable(
                    self.row, doc_id, item.input_id, file.source, file.path, locator,
                    "read", item.reason, item.error, item.raw[:RAW_BYTES],
                )
            )  # fmt: skip
        self.row += 1

    def chunk(self, *, last: bool, position: dict[str, Any]) -> Chunk:
        names = [n for n in DOCUMENTS.names if n != "row"]
        columns: dict[str, Any] = {n: [getattr(d, n) for _, d in self._documents] for n in names}
        columns["row"] = [r for r, _ in self._documents]
        return Chunk(
            self._unit, self.index, last,
            pa.table(columns, schema=DOCUMENTS),
            [d.text for _, d in self._documents],
            flags=self._flags, edits=self._edits, unreadable=self._bad,
            counts=self._counts, position=position,
        )  # fmt: skip


def _size(item: Any) -> int:
    """Bytes that an item holds in a chunk: text and metadata, or its raw begin; 256 for the row itself."""
    if isinstance(item, Read):
        return 256 + len(item.document.text.encode()) + len(item.document.metadata)
    return 256 + (len(item.raw) if isinstance(item, Bad) else 0)


class _CommitChunk(beam.DoFn):  # type: ignore[misc]
    def __init__(self, url: str, recipe: str) -> None:
        self._url, self._recipe_json = url, recipe

    def setup(self) -> None:
        self._store = open_store(self._url)
        self._digest = Recipe.from_json(json.loads(self._recipe_json)).annotate_digest

    def process(self, chunk: Chunk) -> Iterable[tuple[str, bytes]]:
        yield chunk.unit, json.dumps(commit_chunk(self._store, chunk, self._digest)).encode()


def commit_chunk(store: Store, chunk: Chunk, annotate_digest: str) -> Receipt:
    """Write a measured chunk as content-named files, then its receipt; returns the receipt."""
    prefix = f"{chunk.unit}-{chunk.index:05d}"
    files: dict[str, Any] = {}
    if chunk.unreadable:
        lines = [json.dumps(_quarantine_row(u), ensure_ascii=False) for u in _by_row(chunk.unreadable)]
        data = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
        name, _ = content_name(f"quarantine/{prefix}", data, ".jsonl")
        store.put(name, data, private=True)
        files["quarantine"] = file_entry(name, data, len(chunk.unreadable))
    text = text_table(chunk)
    groups = _group_starts(text)
    data = _text_bytes(text, groups)
    name, _ = content_name(f"text/{prefix}", data, ".parquet")
    store.put(name, data)
    files["text"] = file_entry(name, data, text.num_rows)
    table = annotation_table(chunk)
    data = parquet_bytes(table, row_group_size=max(1, table.num_rows))
    name, _ = content_name(f"annotations/{prefix}", data, ".parquet")
    store.put(name, data)
    files["annotations"] = file_entry(name, data, table.num_rows)
    receipt = {
        "unit": chunk.unit,
        "chunk": chunk.index,
        "last": chunk.last,
        "counts": {**chunk.counts, "documents": len(chunk), "quarantined": len(chunk.unreadable)},
        "files": files,
        "position": dict(chunk.position),
        "annotate_digest": annotate_digest,
        "fingerprint": chunk.position["fingerprint"],
        "seconds": {n: round(s, 6) for n, s in chunk.seconds.items()},
        "characters": sum(map(len, chunk.texts)),
    }
    put_receipt(store, receipt)
    return receipt


class _CommitUnit(beam.DoFn):  # type: ignore[misc]
    def __init__(self, url: str) -> None:
        self._url = url

    def process(self, grouped: tuple[str, Iterable[bytes]]) -> None:
        unit_id, receipts = grouped
        manifest = unit_manifest(json.loads(r) for r in receipts)
        if manifest is None:
            raise RuntimeError(f"unit {unit_id}: chunks are missing at the end of annotate")
        put_unit_manifest(open_store(self._url), manifest)


def _by_row(unreadable: Iterable[Unreadable]) -> list[Unreadable]:
    return sorted(unreadable, key=lambda u: u.row)


def _quarantine_row(u: Unreadable) -> dict[str, Any]:
    return {
        "doc_id": u.doc_id,
        "input_id": u.input_id,
        "source": u.source,
        "source_path": u.source_path,
        "locator": u.locator,
        "stage": u.stage,
        "reason": u.reason,
        "error": u.error,
        "raw": u.raw.decode("utf-8", "backslashreplace"),
    }


def text_hash(text: str) -> str:
    """xxh3-128 of the UTF-8 of a text, in hexadecimal."""
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def text_table(chunk: Chunk) -> pa.Table:
    """The work table of texts: `schemas.tables.TEXT`, sorted by kind, language, programming language, row."""
    documents = chunk.documents
    names = sorted(chunk.scores)
    scores = [
        [(n, float(chunk.scores[n][i])) for n in names if not np.isnan(chunk.scores[n][i])]
        for i in range(len(chunk))
    ]
    columns: dict[str, Any] = {n: documents.column(n) for n in TEXT.names if n in documents.column_names}
    columns["text"] = pa.array(chunk.texts, pa.large_string())
    columns["flags"] = pa.array([list(f) for f in chunk.flags], TEXT.field("flags").type)
    columns["scores"] = pa.array(scores, TEXT.field("scores").type)
    columns["loss_mask_spans"] = pa.array([[]] * len(chunk), TEXT.field("loss_mask_spans").type)
    table = pa.table({n: columns[n] for n in TEXT.names}, schema=TEXT)
    keys = zip(
        chunk.strings("kind"), chunk.languages, (p or "" for p in chunk.strings("programming_language")),
        chunk.strings("row"), strict=True,
    )  # fmt: skip
    order = [i for i, _ in sorted(enumerate(keys), key=lambda pair: pair[1])]
    return table.take(pa.array(order, pa.int64()))


def _group_starts(table: pa.Table) -> list[int]:
    columns = (table.column(n).to_pylist() for n in ("kind", "language", "programming_language"))
    keys = [(kind, language, name or "") for kind, language, name in zip(*columns, strict=True)]
    return [i for i, k in enumerate(keys) if i == 0 or k != keys[i - 1]]


def _text_bytes(table: pa.Table, starts: Sequence[int]) -> bytes:
    """Parquet bytes with one row group per kind and language, so that a shard reads only its own."""
    import io

    import pyarrow.parquet as pq

    sink = io.BytesIO()
    with pq.ParquetWriter(sink, TEXT, compression="zstd") as writer:
        for start, end in itertools.pairwise([*starts, table.num_rows]):
            writer.write_table(table.slice(start, end - start), row_group_size=end - start)
    return sink.getvalue()


def annotation_table(chunk: Chunk) -> pa.Table:
    """The work table of measurements: `ANNOTATION_BASE`, a column per score, the stages' own columns.

    Quarantined records have a row too; rows are in the order of the input.
    """
    bad = _by_row(chunk.unreadable)
    documents = chunk.documents
    columns: dict[str, Any] = {}
    for field in ANNOTATION_BASE:
        n = field.name
        if n in documents.column_names:
            own = documents.column(n).to_pylist()
            rest: list[Any] = [getattr(u, n, None) for u in bad]
        elif n == "flags":
            own, rest = [list(f) for f in chunk.flags], [[] for _ in bad]
        elif n == "edits":
            own = [[{k: getattr(e, k) for k in Edit.__slots__} for e in row] for row in chunk.edits]
            rest = [[] for _ in bad]
        elif n in ("bad_stage", "bad_reason", "error"):
            own = [None] * len(chunk)
            rest = [getattr(u, n.removeprefix("bad_")) for u in bad]
        else:
            own = [_DERIVED[n](t) for t in chunk.texts]
            rest = [None] * len(bad)
        columns[n] = pa.array([*own, *rest], field.type)
    for name, score in sorted(chunk.scores.items()):
        values = pa.array(score, from_pandas=True)
        columns[name] = pa.concat_arrays([values, pa.nulls(len(bad), pa.float64())])
    for name, column in sorted(chunk.columns.items()):
        columns[name] = pa.concat_arrays([column, pa.nulls(len(bad), column.type)])
    table = pa.table(columns)
    return table.sort_by("row") if bad else table


_DERIVED: dict[str, Callable[[str], object]] = {
    "text_hash": text_hash,
    "characters": len,
    "text_bytes": lambda text: len(text.encode("utf-8", "surrogatepass")),
}
