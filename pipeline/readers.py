"""Reading inputs record by record: every record is a document, unreadable with a reason, or none.

`read_segment` is the one entry. What it yields depends on the file and the segment alone, and reading can
go on behind any item: an item's `position` given as `start` yields exactly the items that came after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.compression import ByteStream, open_stored
from pipeline.inputs import Segment
from pipeline.readers_fields import FieldMapping, RecordReader
from pipeline.readers_items import (
    READ_FLAGS,
    READ_REASONS,
    Bad,
    Item,
    Read,
    ReadLimits,
    ReadReason,
    Skipped,
)
from pipeline.readers_jsonl import read_jsonl
from pipeline.readers_parquet import read_parquet
from pipeline.readers_warc import read_warc
from pipeline.readers_whole import read_binary, read_text

__all__ = [
    "READ_FLAGS",
    "READ_REASONS",
    "Bad",
    "FieldMapping",
    "Item",
    "Read",
    "ReadLimits",
    "ReadReason",
    "Skipped",
    "read_segment",
]


_USUAL_NAMES = FieldMapping()
_USUAL_LIMITS = ReadLimits()


def read_segment(
    segment: Segment,
    mapping: FieldMapping = _USUAL_NAMES,
    limits: ReadLimits = _USUAL_LIMITS,
    start: int | None = None,
) -> Iterator[Item]:
    """The records of a segment, from `start` (the position of an item of this segment) on.

    Positions are bytes of the decompressed stream (JSONL, WARC), rows (Parquet), or 1 behind the one
    record of a text or binary file. Raises OSError when the store fails; nothing in the data raises.
    """
    file = segment.file
    if file.format == "empty":
        return
    if file.format == "parquet" and file.compression == "none":
        records = RecordReader(mapping, file.source, file.path)
        with open_stored(file.url) as stored:
            yield from read_parquet(stored, records, limits, segment.begin, segment.end, start)
    elif file.format == "jsonl":
        records = RecordReader(mapping, file.source, file.path)
        with ByteStream(file.url, file.compression) as stream:
            yield from read_jsonl(stream, records, limits, segment.begin, segment.end, start)
    elif file.format == "warc":
        size = file.size if file.compression == "none" else None
        yield from read_warc(
            lambda: ByteStream(file.url, file.compression), file.source, file.path, limits, start, size
        )
    elif not start:
        with ByteStream(file.url, file.compression) as stream:
            if file.format == "text":
                yield read_text(stream, file.source, file.path, limits)
            else:
                yield read_binary(stream)
