"""One stage over one chunk: only the kinds it judges, timed, and a failing record costs itself alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.chunk import DOCUMENTS, Chunk, Measured
from schemas.edits import apply_edits
from schemas.records import Document, Edit, Unreadable
from schemas.tables import ANNOTATION_BASE

RAW_BYTES = 64 << 10
"""How much of a record goes to the quarantine folder."""

TOLD = ("language", "kind", "programming_language")
"""Columns of the annotations that a stage may replace; the others are the reader's."""


def run_stage(stage: Any, chunk: Chunk) -> Chunk:
    """The chunk after the stage; documents on which the stage raised are moved to `unreadable`.

    A stage is asked about the whole chunk; only when it raises is the chunk halved until the documents
    at fault are found. A stage that raises for a chunk without documents has measured nothing.
    """
    began = time.perf_counter()
    try:
        done = _whole(stage, chunk)
    except Exception:
        done = _in_pieces(stage, chunk) if len(chunk) else chunk
    return done.with_seconds(stage.name, time.perf_counter() - began)


def _whole(stage: Any, chunk: Chunk) -> Chunk:
    if hasattr(stage, "apply"):
        texts, edits = [], []
        for i, document in enumerate(chunk):
            if document.kind in stage.kinds:
                after, made = stage.apply(document)
                texts.append(_replayed(stage, document, after, made))
                edits.append(made)
            else:
                texts.append(chunk.texts[i])
                edits.append(())
        chunk = chunk.with_texts(texts, edits) if any(edits) else chunk
    if hasattr(stage, "measure"):
        chunk = chunk.with_measured(_applicable(stage, chunk, stage.measure(chunk)))
    return chunk


def _replayed(stage: Any, before: Document, after: Document, edits: Sequence[Edit]) -> str:
    """The text after an editor; ValueError when its edits do not give that text, or it is no Unicode."""
    if any(e.stage != stage.name for e in edits) or apply_edits(before.text, edits) != after.text:
        raise ValueError(f"the edits of {stage.name} do not give the text that it returned")
    if edits:
        after.text.encode()
    return after.text


def _applicable(stage: Any, chunk: Chunk, measured: Measured) -> Measured:
    """Scores of kinds that the stage does not judge are not measured.

    Raises ValueError for a column of a wrong length, or one that is not the stage's to write.
    """
    scores = {n: np.asarray(s, dtype=np.float64) for n, s in measured.scores.items()}
    for name, values in (*scores.items(), *measured.columns.items()):
        if len(values) != len(chunk):
            raise ValueError(f"{name} has {len(values)} values for {len(chunk)} documents")
        if name in ANNOTATION_BASE.names and name not in TOLD:
            raise ValueError(f"{name} is not a column that a stage may write")
        if name in ("language", "kind") and values.null_count:
            raise ValueError(f"{name} must be told of every document")
    apart = np.array([k not in stage.kinds for k in chunk.strings("kind")], dtype=bool)
    if not apart.any():
        return replace(measured, scores=scores)
    judged = pa.array(~apart)
    columns = {}
    for name, column in measured.columns.items():
        if name in DOCUMENTS.names:
            own = chunk.documents.column(name).combine_chunks()
            # A language is told for every kind, whatever kinds are judged by it.
            columns[name] = column if name == "language" else pc.if_else(judged, column, own)
        else:
            columns[name] = pc.if_else(judged, column, pa.scalar(None, column.type))
    return Measured(
        {n: np.where(apart, np.nan, s) for n, s in scores.items()},
        columns,
        {r: f for r, f in measured.flags.items() if not apart[r]},
    )


def _in_pieces(stage: Any, chunk: Chunk) -> Chunk:
    failures: dict[int, Exception] = {}
    pieces = _pieces(stage, chunk, range(len(chunk)), failures)
    good = chunk.take([i for i in range(len(chunk)) if i not in failures])
    bad = [_unreadable(stage, chunk, i, error) for i, error in sorted(failures.items())]
    return replace(_joined(good, pieces), unreadable=[*chunk.unreadable, *bad])


def _pieces(stage: Any, chunk: Chunk, rows: Sequence[int], failures: dict[int, Exception]) -> list[Chunk]:
    """What the stage made of these documents, in order, less those on which it raised."""
    try:
        return [_whole(stage, chunk.take(list(rows)))]
    except Exception as error:
        if len(rows) == 1:
            failures[rows[0]] = error
            return []
    half = len(rows) // 2
    return _pieces(stage, chunk, rows[:half], failures) + _pieces(stage, chunk, rows[half:], failures)


def _joined(chunk: Chunk, pieces: Sequence[Chunk]) -> Chunk:
    """The chunk with the texts, columns and edits of its pieces; each score depends on its document alone."""
    if not pieces:
        return chunk
    names = list(dict.fromkeys(n for p in pieces for n in p.scores))
    scores = {n: np.concatenate([p.scores.get(n, np.full(len(p), np.nan)) for p in pieces]) for n in names}
    columns = pa.concat_tables([_columns(p) for p in pieces], promote_options="default").combine_chunks()
    return replace(
        chunk,
        documents=pa.concat_tables([p.documents for p in pieces]).combine_chunks(),
        texts=[t for p in pieces for t in p.texts],
        scores=scores,
        columns={n: columns.column(n).combine_chunks() for n in columns.column_names if n != "row"},
        flags=[f for p in pieces for f in p.flags],
        edits=[e for p in pieces for e in p.edits],
    )


def _columns(piece: Chunk) -> pa.Table:
    return pa.table({"row": piece.documents.column("row"), **piece.columns})


def _unreadable(stage: Any, chunk: Chunk, i: int, error: Exception) -> Unreadable:
    row = chunk.documents.slice(i, 1).to_pylist()[0]
    said = f"{type(error).__name__}: {error}"[:500]
    return Unreadable(
        row["row"],
        row["doc_id"],
        row["input_id"],
        row["source"],
        row["source_path"],
        row["locator"],
        stage.name,
        "stage_failed",
        said.encode("utf-8", "backslashreplace").decode(),
        chunk.texts[i].encode("utf-8", "surrogatepass")[:RAW_BYTES],
    )
