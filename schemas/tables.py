"""Arrow schemas of every table that a run writes, one for all files of a kind."""

from __future__ import annotations

import re

import pyarrow as pa

from schemas.chunk import EDIT

VERSION = 1
"""Version of the tables; raised when a column changes its meaning or type."""

SCORE_MAP = pa.map_(pa.string(), pa.float64())
SPANS = pa.list_(pa.struct([pa.field("start", pa.uint32(), False), pa.field("end", pa.uint32(), False)]))


def _schema(*described: tuple[str, pa.DataType, str]) -> pa.Schema:
    fields = [pa.field(n, t, metadata={b"description": d.encode()}) for n, t, d in described]
    return pa.schema(fields, metadata={b"sluice.schema_version": str(VERSION).encode()})


_IDENTITY = (
    ("doc_id", pa.string(), "source/relative-path#locator"),
    ("input_id", pa.string(), "the input's own id"),
    ("source", pa.string(), "name of the input"),
)

AUDIT = _schema(
    *_IDENTITY,
    ("source_path", pa.string(), "path of the file within its source"),
    ("decision", pa.string(), "kept, rejected or quarantined"),
    ("stage", pa.string(), "the first stage, in decide's order, that refused the document"),
    ("reason", pa.string(), "the first reason of that stage"),
    ("failed", pa.list_(pa.string()), "every stage.reason that the document failed, in decide's order"),
    ("flags", pa.list_(pa.string()), "what was noticed and did not decide"),
    ("language", pa.string(), "BCP 47, with script where it matters"),
    ("kind", pa.string(), "prose, code, mathematics or mixed"),
    ("duplicate_of", pa.string(), "doc_id of the document that this one repeats"),
    ("similarity", pa.float64(), "similarity to duplicate_of"),
    ("scores", SCORE_MAP, "what was measured, by stage.detail; what is not there was not measured"),
    ("thresholds", SCORE_MAP, "the resolved bounds that the judging stages applied to this row"),
    ("edits", pa.list_(EDIT), "changes of the text, in stage order"),
    ("annotate_digest", pa.string(), "digest of all that the measurement depends on"),
    ("decide_digest", pa.string(), "digest of all that the decision depends on"),
    ("text_hash", pa.string(), "xxh3-128 of the text after the edits, in hexadecimal"),
    ("characters", pa.uint64(), "code points of the text after the edits"),
    ("programming_language", pa.string(), "for code"),
    ("epochs", pa.uint32(), "how often the document is written to the corpus"),
    ("error", pa.string(), "what went wrong with a quarantined record"),
)
"""One row per record that can hold a document; one file per unit."""

CORPUS = _schema(
    ("text", pa.large_string(), "the text after all edits"),
    *_IDENTITY,
    ("url", pa.string(), "where the document was found"),
    ("date", pa.string(), "as the input gave it"),
    ("language", pa.string(), "BCP 47, with script where it matters"),
    ("kind", pa.string(), "prose, code, mathematics or mixed"),
    ("programming_language", pa.string(), "for code"),
    ("licence", pa.string(), "as the input gave it"),
    ("token_count", pa.uint32(), "null until a tokenizer is set"),
    ("epoch", pa.uint32(), "0 for the first copy; (doc_id, epoch) is unique"),
    ("quality_bucket", pa.uint8(), "null until a quality stage is in the recipe"),
    ("loss_mask_spans", SPANS, "code points of the text that a trainer leaves out of the loss"),
    ("scores", SCORE_MAP, "what was measured on the document"),
    ("flags", pa.list_(pa.string()), "what was noticed and did not decide"),
    ("metadata", pa.large_string(), "JSON object of every input field without a column of its own"),
)
"""The shards."""

TEXT = pa.schema(
    [
        pa.field("row", pa.uint32(), False),
        *[f for f in CORPUS if f.name not in ("epoch", "token_count", "quality_bucket")],
    ]
)
"""Work file of a chunk: every measured document's final text, sorted by kind, language and row."""

ANNOTATION_BASE = pa.schema(
    [
        pa.field("row", pa.uint32(), False),
        *[AUDIT.field(n) for n in ("doc_id", "input_id", "source", "source_path")],
        pa.field("locator", pa.uint64(), False),
        *[AUDIT.field(n) for n in ("language", "kind", "programming_language", "flags", "edits")],
        pa.field("bad_stage", pa.string()),
        pa.field("bad_reason", pa.string()),
        *[AUDIT.field(n) for n in ("error", "text_hash", "characters")],
        pa.field("text_bytes", pa.uint64()),
    ]
)
"""Columns that every annotation file has; then follow a float64 column per score and the stages' own columns.

`bad_stage` is null for a measured document; for a quarantined record it names where reading failed.
"""


def text_partition(kind: str, language: str, programming_language: str | None) -> str:
    """Folder of the corpus that a document goes to. The input says what a programming language is called:
    what cannot be part of a folder's name becomes a hyphen.

    >>> text_partition("prose", "zh-Hans", None), text_partition("code", "en", "python")
    ('zh-Hans', 'code/python')
    >>> text_partition("code", "en", "../Perl 6 / Raku"), text_partition("code", "en", "..")
    ('code/Perl-6-Raku', 'code/unknown')
    """
    return f"code/{_folder(programming_language or '')}" if kind == "code" else _folder(language)


def _folder(name: str) -> str:
    # 60 code points are at most 240 bytes; file systems allow 255.
    return re.sub(r"[^\w+#.-]+", "-", name).strip("-.")[:60] or "unknown"
