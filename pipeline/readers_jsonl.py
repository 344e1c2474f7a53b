"""Reading JSONL: one JSON object a line; a line ends at \\n only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.compression import ByteStream, DamagedStream
from pipeline.readers_fields import Problem, RecordReader
from pipeline.readers_items import MAX_RAW_BYTES, STAGE, Bad, Item, Read, ReadLimits, ReadReason
from pipeline.readers_json import NotJson, lone_surrogates, parse, without_surrogates
from schemas.records import Edit

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_BLOCK_BYTES = 1 << 20
# Each becomes an edit of its own; a text with more of them is no text with a slip in it.
_MAX_LONE_SURROGATES = 10_000


@dataclass(frozen=True, slots=True)
class _Line:
    """A line without its \\n; `data` is only its begin where `length` is over the limit."""

    offset: int
    data: bytes | bytearray
    length: int
    ended: bool
    damage: DamagedStream | None = None


def read_jsonl(
    stream: ByteStream,
    records: RecordReader,
    limits: ReadLimits,
    begin: int = 0,
    end: int | None = None,
    start: int | None = None,
) -> Iterator[Item]:
    """The records whose first byte lies in [begin, end) of the decompressed stream.

    With `start` (an item's position) reading goes on there. Memory: one record of at most
    `limits.max_record_bytes` and one block.
    """
    cut = start is None and begin > 0
    position = start if start is not None else max(begin - 1, 0)
    try:
        if stream.skip(position) < position:
            return
    except DamagedStream:
        return
    lines = _lines(stream, limits.max_record_bytes, end)
    if cut:
        next(lines, None)
    for line in lines:
        yield from _items(line, records, limits)


def _items(line: _Line, records: RecordReader, limits: ReadLimits) -> Iterator[Item]:
    position = line.offset + line.length + 1
    if line.length > limits.max_record_bytes and line.damage is None:
        error = f"a line of {line.length:,} bytes is over the limit of {limits.max_record_bytes:,}"
        yield Bad(line.offset, None, "too_large", error, bytes(line.data), position)
        return
    item = None
    if line.length <= limits.max_record_bytes:
        item = _item(line, position, records)
    if line.damage is None:
        if item is not None:
            yield item
        return
    # A cut cannot leave a whole JSON object behind by chance: one that parses lost nothing.
    locator, raw = line.offset, bytes(line.data[:MAX_RAW_BYTES])
    if isinstance(item, Read):
        locator, raw = position - 1, b""
        yield Read(item.document, locator, item.edits, item.flags)
    yield Bad(locator, None, "torn", str(line.damage), raw, position)


def _item(line: _Line, position: int, records: RecordReader) -> Item | None:
    data = line.data
    if line.offset == 0 and data.startswith(BYTE_ORDER_MARK):
        data = data[len(BYTE_ORDER_MARK) :]

    def bad(reason: ReadReason, error: str, input_id: str | None = None) -> Bad:
        if not line.ended and data.startswith(b"{") and not data.rstrip().endswith(b"}"):
            reason, error = "torn", f"the file ends inside a record ({error})"
        return Bad(line.offset, input_id, reason, error, bytes(line.data[:MAX_RAW_BYTES]), position)

    try:
        value, surrogates = parse(data)
    except UnicodeDecodeError as error:
        where = f"byte 0x{data[error.start]:02x} at offset {line.offset + error.start} is not UTF-8"
        return bad("not_utf8", where, _id_of_undecodable(data, records))
    except NotJson as error:
        return bad("not_json", str(error)) if data.strip() else None
    if not isinstance(value, dict):
        return bad("not_json", "the line is a JSON value but no object")

    edits: tuple[Edit, ...] = ()
    if surrogates:
        text = records.text_of(value)
        places = lone_surrogates(text) if isinstance(text, str) else []
        value = without_surrogates(value)
        if len(places) > _MAX_LONE_SURROGATES:
            return bad("not_utf8", f"{len(places):,} lone surrogates in one text", records.id_of(value))
        edits = tuple(
            Edit(STAGE, p, p + 1, "lone_surrogate", None, "\N{REPLACEMENT CHARACTER}") for p in places
        )
    try:
        document = records.document(value, line.offset)
    except NotJson as error:
        return bad("not_json", str(error))
    if isinstance(document, Problem):
        return bad(document.reason, document.error, document.input_id)
    return Read(document, position, edits, ("lone_surrogate",) if surrogates else ())


def _id_of_undecodable(data: bytes | bytearray, records: RecordReader) -> str | None:
    try:
        value, _ = parse(data.decode("utf-8", "replace").encode())
    except NotJson:
        return None
    return records.id_of(without_surrogates(value)) if isinstance(value, dict) else None


def _lines(stream: ByteStream, max_bytes: int, end: int | None) -> Iterator[_Line]:
    offset = stream.tell()
    head = bytearray()
    length = 0
    while end is None or offset < end:
        try:
            block = stream.read(_BLOCK_BYTES)
        except DamagedStream as damage:
            yield _Line(offset, head, length, False, damage)
            return
        if not block:
            if length:
                yield _Line(offset, head, length, False)
            return
        used = 0
        while (found := block.find(b"\n", used)) >= 0:
            piece = block[used:found]
            used = found + 1
            if length:
                _extend(head, piece, length, max_bytes)
                length += len(piece)
                yield _Line(offset, head, length, True)
                head = bytearray()
            else:
                length = len(piece)
                yield _Line(offset, piece if length <= max_bytes else piece[:MAX_RAW_BYTES], length, True)
            offset += length + 1
            length = 0
            if end is not None and offset >= end:
                return
        piece = block[used:]
        _extend(head, piece, length, max_bytes)
        length += len(piece)


def _extend(head: bytearray, piece: bytes, length: int, max_bytes: int) -> None:
    """Add to the line's begin; once the line is over the limit only its begin is kept."""
    if length + len(piece) <= max_bytes:
        head += piece
    elif length <= max_bytes:
        head += piece[: max(MAX_RAW_BYTES - len(head), 0)]
        del head[MAX_RAW_BYTES:]
