"""What a reader yields: documents, records that could not be read, and records that are no documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from schemas.records import Document, Edit

ReadReason = Literal[
    "no_text",
    "wrong_type",
    "not_json",
    "not_utf8",
    "binary",
    "too_large",
    "torn",
    "unreadable_file",
    "unsupported_format",
    "bad_http",
]
READ_REASONS: tuple[str, ...] = get_args(ReadReason)
"""Why a record could not be read: the closed set of `Bad.reason`.

- `no_text`: no field for the text, a null in it, or a WARC body of no bytes.
- `wrong_type`: the text is no string.
- `not_json`: the line is no JSON object.
- `not_utf8`: bytes that are not UTF-8 where the format demands it.
- `binary`: a file or a WARC body that is no text.
- `too_large`: the record has more than `ReadLimits.max_record_bytes`.
- `torn`: the file ends or breaks inside the record, or bytes of a WARC file belong to no record.
- `unreadable_file`: nothing of the file (or of a Parquet row group's rest) can be read.
- `unsupported_format`: a format that can be told but is not read.
- `bad_http`: a WARC record that says it holds HTTP and does not.
"""

READ_FLAGS = ("lone_surrogate", "undecodable_bytes", "truncated", "warc_length")
"""Marks on documents that could be read although something was wrong: a lone surrogate became U+FFFD,
undecodable bytes became U+FFFD, the HTTP body ends too early or the crawler cut it (WARC-Truncated), the
WARC record's Content-Length is absent or wrong."""

MAX_RAW_BYTES = 64 << 10
"""How much of an unreadable record is kept for the quarantine."""

STAGE = "read"
"""The stage name of the readers' edits."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds on what one record may take. `max_record_bytes` counts the bytes of a JSONL line, of a WARC
    record's block before and after decoding, of a Parquet row's text, and of a plain text file."""

    max_record_bytes: int = 20_000_000

    def __post_init__(self) -> None:
        if self.max_record_bytes < 1:
            raise ValueError(f"max_record_bytes must be at least 1, got {self.max_record_bytes}")


@dataclass(frozen=True, slots=True)
class Read:
    """A document. Reading can go on behind it at `position`."""

    document: Document
    position: int
    edits: tuple[Edit, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that can hold a document but could not be read; `raw` is its begin (at most 64 KiB)."""

    locator: int
    input_id: str | None
    reason: ReadReason
    error: str
    raw: bytes
    position: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that holds no document (a WARC request, warcinfo, metadata, revisit, ...)."""

    position: int


Item = Read | Bad | Skipped
