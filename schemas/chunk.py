"""A chunk: some documents of one unit, by column, on their way through the stages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.records import Document, Edit, Unreadable

Scores = npt.NDArray[np.float64]

DOCUMENT_FIELDS: tuple[pa.Field, ...] = (
    pa.field("row", pa.uint32(), nullable=False),
    pa.field("doc_id", pa.string(), nullable=False),
    pa.field("input_id", pa.string()),
    pa.field("source", pa.string(), nullable=False),
    pa.field("source_path", pa.string(), nullable=False),
    pa.field("locator", pa.uint64(), nullable=False),
    pa.field("url", pa.string()),
    pa.field("date", pa.string()),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("language", pa.string(), nullable=False),
    pa.field("programming_language", pa.string()),
    pa.field("licence", pa.string()),
    pa.field("metadata", pa.large_string(), nullable=False),
)
DOCUMENTS = pa.schema(DOCUMENT_FIELDS)
"""Columns of `Chunk.documents`: all of a document but its text; `row` counts the unit's records from 0."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a stage measured on a chunk: score columns (float64, NaN = not measured) by full name,
    typed columns by name (`language` and `kind` replace the document's own), and flags by row."""

    scores: Mapping[str, Scores] = field(default_factory=dict)
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    flags: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Chunk:
    """Documents `documents[i]` with text `texts[i]`, their scores and edits; never mutated.

    `position` is where the reader stood after the chunk (see `pipeline.readers`), so that a resumed run
    can go on behind it. `counts` holds the reader's own counts of records (`records`, `not_documents`,
    `not_sampled`). `seconds` is the time each stage took. `cache` holds values derived from texts
    (the text view); it is shared by copies whose texts are the same and is never encoded.
    """

    unit: str
    index: int
    last: bool
    documents: pa.Table
    texts: Sequence[str]
    scores: Mapping[str, Scores] = field(default_factory=dict)
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    flags: Sequence[tuple[str, ...]] = ()
    edits: Sequence[tuple[Edit, ...]] = ()
    unreadable: Sequence[Unreadable] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    position: Mapping[str, Any] = field(default_factory=dict)
    cache: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    @staticmethod
    def of(documents: Sequence[Document], unit: str = "unit", index: int = 0) -> Chunk:
        """A chunk of these documents, for tests and for use outside a pipeline."""
        names = [f.name for f in DOCUMENT_FIELDS if f.name != "row"]
        columns = {n: [getattr(d, n) for d in documents] for n in names}
        columns["row"] = list(range(len(documents)))
        table = pa.table(columns, schema=DOCUMENTS)
        return Chunk(
            unit,
            index,
            True,
            table,
            [d.text for d in documents],
            flags=[()] * len(documents),
            edits=[()] * len(documents),
            counts={"records": len(documents)},
        )

    def document(self, row: int) -> Document:
        """The document at this position of the chunk."""
        values = self.documents.slice(row, 1).to_pylist()[0]
        values.pop("row")
        return Document(text=self.texts[row], **values)

    def __iter__(self) -> Iterator[Document]:
        return (self.document(i) for i in range(len(self)))

    def strings(self, name: str) -> list[str]:
        """A string column of the documents as a list."""
        result: list[str] = self.documents.column(name).to_pylist()
        return result

    @property
    def languages(self) -> list[str]:
        """The language of each document."""
        return self.strings("language")

    def with_measured(self, measured: Measured) -> Chunk:
        """The chunk with the stage's columns added; the texts (and the view of them) stay shared."""
        documents, cache = self.documents, self.cache
        own = {n: c for n, c in measured.columns.items() if n in DOCUMENTS.names}
        for name, column in own.items():
            where = DOCUMENTS.get_field_index(name)
            documents = documents.set_column(where, DOCUMENTS.field(where), column)
        if own:
            cache = {}
        flags = list(self.flags)
        for row, new in measured.flags.items():
            flags[row] = tuple(dict.fromkeys((*flags[row], *new)))
        return replace(
            self,
            documents=documents,
            scores={**self.scores, **measured.scores},
            columns={**self.columns, **{n: c for n, c in measured.columns.items() if n not in own}},
            flags=flags,
            cache=cache,
        )

    def with_texts(self, texts: Sequence[str], edits: Sequence[tuple[Edit, ...]]) -> Chunk:
        """The chunk after an editor: new texts, and for each document the edits that made them."""
        joined = [(*old, *new) for old, new in zip(self.edits, edits, strict=True)]
        return replace(self, texts=list(texts), edits=joined, cache={})

    def with_seconds(self, stage: str, seconds: float) -> Chunk:
        """The chunk with the stage's time added to the record of times."""
        return replace(self, seconds={**self.seconds, stage: self.seconds.get(stage, 0.0) + seconds})

    def take(self, rows: Sequence[int]) -> Chunk:
        """The chunk of only these documents, in this order (unreadable records stay)."""
        index = pa.array(rows, pa.int64())
        return replace(
            self,
            documents=self.documents.take(index),
            texts=[self.texts[i] for i in rows],
            scores={n: s[list(rows)] for n, s in self.scores.items()},
            columns={n: c.take(index) for n, c in self.columns.items()},
            flags=[self.flags[i] for i in rows],
            edits=[self.edits[i] for i in rows],
            cache={},
        )

    def encode(self) -> bytes:
        """The chunk as one Arrow IPC stream: no pickle, any Arrow reader can open it."""
        table = self.documents.append_column("text", pa.array(self.texts, pa.large_string()))
        table = table.append_column("flags", pa.array([list(f) for f in self.flags], pa.list_(pa.string())))
        edits = [[_edit_row(e) for e in row] for row in self.edits]
        table = table.append_column("edits", pa.array(edits, pa.list_(EDIT)))
        for name, score in self.scores.items():
            table = table.append_column(f"score:{name}", pa.array(score))
        for name, column in self.columns.items():
            table = table.append_column(f"column:{name}", column)
        head = {
            "unit": self.unit,
            "index": self.index,
            "last": self.last,
            "counts": dict(self.counts),
            "seconds": dict(self.seconds),
            "position": dict(self.position),
            "unreadable": [
                {**{n: getattr(u, n) for n in Unreadable.__slots__}, "raw": u.raw.hex()}
                for u in self.unreadable
            ],
        }
        sink = pa.BufferOutputStream()
        schema = table.schema.with_metadata({b"chunk": json.dumps(head).encode()})
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(table.replace_schema_metadata(schema.metadata))
        encoded: bytes = sink.getvalue().to_pybytes()
        return encoded

    @staticmethod
    def decode(data: bytes) -> Chunk:
        """The chunk that `encode` wrote."""
        table = pa.ipc.open_stream(data).read_all().combine_chunks()
        head = json.loads(table.schema.metadata[b"chunk"])
        edits = [tuple(Edit(**e) for e in row) for row in table.column("edits").to_pylist()]
        names = table.column_names
        return Chunk(
            unit=head["unit"],
            index=head["index"],
            last=head["last"],
            documents=table.select(DOCUMENTS.names).cast(DOCUMENTS),
            texts=table.column("text").to_pylist(),
            scores={n[6:]: table.column(n).to_numpy() for n in names if n.startswith("score:")},
            columns={n[7:]: _whole(table.column(n)) for n in names if n.startswith("column:")},
            flags=[tuple(f) for f in table.column("flags").to_pylist()],
            edits=edits,
            unreadable=[Unreadable(**{**u, "raw": bytes.fromhex(u["raw"])}) for u in head["unreadable"]],
            counts=head["counts"],
            seconds=head["seconds"],
            position=head["position"],
        )


EDIT = pa.struct(
    [
        pa.field("stage", pa.string(), nullable=False),
        pa.field("start", pa.uint32(), nullable=False),
        pa.field("end", pa.uint32(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("before", pa.string()),
        pa.field("after", pa.string(), nullable=False),
    ]
)
"""Arrow type of one `Edit`."""


def _edit_row(edit: Edit) -> dict[str, Any]:
    return {n: getattr(edit, n) for n in Edit.__slots__}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.array([], column.type) if column.num_chunks == 0 else column.combine_chunks()
