"""Reading WARC files (1.0, 1.1 and the older 0.x), WET files among them.

Records are framed here and not by FastWARC: its 2.0.1 raises at the first record whose Content-Length is
wrong and gives none of those behind it, makes an empty record of one without a length, and reads an LF-only
header as one field. Here such a record costs itself at most. The tests compare both on sound files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.compression import ByteStream, DamagedStream
from pipeline.readers_http import (
    BadHttp,
    Fields,
    TooLarge,
    decode_text,
    field,
    parse_fields,
    parse_response,
)
from pipeline.readers_items import MAX_RAW_BYTES, Bad, Item, Read, ReadLimits, ReadReason, Skipped
from pipeline.readers_json import write
from schemas.records import Document

DOCUMENT_TYPES = frozenset({"response", "resource", "conversion"})
"""The WARC record types that can hold a document."""

_BLOCK_BYTES = 1 << 20
_MAX_HEADER_BYTES = 256 << 10
_VERSION_BYTES = 32
_VERSION = re.compile(rb"WARC/\d{1,3}\.\d{1,3}[ \t]{0,8}\r?\n")
# A record's begin inside other bytes, which need not end with a line: its version line and the name of its
# first header field.
_BEGIN = re.compile(rb"WARC/\d{1,3}\.\d{1,3}[ \t]{0,8}\r?\n[A-Za-z][A-Za-z0-9-]{0,63}[ \t]{0,8}:")
_BEGIN_BYTES = 128
_HEADER_END = re.compile(rb"\n\r?\n")
_SEPARATOR_BYTES = 64
_LENGTH = re.compile(r"\d{1,18}", re.ASCII)

_NO_TEXT_TYPES = re.compile(
    r"(?:image|audio|video|font)/(?!svg)|application/(?:pdf|zip|gzip|x-gzip|x-7z-compressed|x-rar-compressed"
    r"|java-archive|msword|vnd\.(?:ms-|openxmlformats)|font-|x-font|x-shockwave-flash|wasm)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Record:
    """A stretch of the file: a framed record, or one that cannot be read (`reason`)."""

    offset: int
    end: int
    fields: Fields = ()
    block: bytes = b""
    flags: tuple[str, ...] = ()
    reason: ReadReason | None = None
    error: str = ""


def read_warc(
    open_stream: Callable[[], ByteStream],
    source: str,
    source_path: str,
    limits: ReadLimits,
    start: int | None = None,
    known_size: int | None = None,
) -> Iterator[Item]:
    """The records of a WARC file from decompressed offset `start` on; locators are such offsets.

    `open_stream` opens the file anew (a record that claims to reach beyond the end is read again without
    its claim); `known_size` is the decompressed size where it is known before reading.
    """
    framer = _Framer(open_stream, limits.max_record_bytes, known_size)
    try:
        for record in framer.records(start or 0):
            yield _item(record, source, source_path, limits)
    finally:
        framer.close()


def _item(record: _Record, source: str, source_path: str, limits: ReadLimits) -> Item:
    record_id = field(record.fields, "warc-record-id")

    def bad(reason: ReadReason, error: str) -> Bad:
        raw = record.block[:MAX_RAW_BYTES]
        return Bad(record.offset, record_id, reason, error, raw, record.end)

    kind = (field(record.fields, "warc-type") or "").lower()
    holds_document = kind in DOCUMENT_TYPES
    if record.reason is not None:
        if record.reason == "too_large" and kind and not holds_document:
            return Skipped(record.end)
        return bad(record.reason, record.error)
    if not kind:
        return bad("torn", "a WARC header without WARC-Type")
    if not holds_document:
        return Skipped(record.end)

    content_type = field(record.fields, "content-type")
    http = (content_type or "").lower().startswith("application/http")
    http |= kind == "response" and record.block.startswith(b"HTTP/")
    metadata: dict[str, object] = {}
    _add_fields(metadata, record.fields, {"warc-record-id", "warc-target-uri", "warc-date"})
    body, flags = record.block, record.flags
    if field(record.fields, "warc-truncated"):
        flags += ("truncated",)
    if http and body:
        try:
            message = parse_response(body, limits.max_record_bytes)
        except BadHttp as error:
            return bad("bad_http", str(error))
        except TooLarge as error:
            return bad("too_large", str(error))
        body, content_type = message.body, field(message.fields, "content-type")
        metadata["http_status"] = message.status
        _add_fields(metadata.setdefault("http_fields", {}), message.fields, frozenset())
        if message.torn:
            flags += ("truncated",)
    if not body:
        return bad("no_text", "the body has no bytes")
    if content_type and _NO_TEXT_TYPES.match(content_type.strip()):
        return bad("binary", f"the body is {content_type[:200]}")
    decoded = decode_text(body, content_type)
    if decoded is None:
        return bad("binary", "the body is no text: too many control characters or undecodable bytes")
    text, metadata["charset"], replaced = decoded
    if replaced:
        flags += ("undecodable_bytes",)
    url = field(record.fields, "warc-target-uri")
    document = Document(
        text=text,
        doc_id=f"{source}/{source_path}#{record.offset}",
        input_id=record_id,
        source=source,
        source_path=source_path,
        locator=record.offset,
        # WARC 1.0 draws the URI in angle brackets, and some writers put them there.
        url=url.removeprefix("<").removesuffix(">") if url else None,
        date=field(record.fields, "warc-date"),
        metadata=write(metadata),
    )
    return Read(document, record.end, (), tuple(dict.fromkeys(flags)))


def _add_fields(target: object, fields: Fields, without: frozenset[str] | set[str]) -> None:
    """Header fields as an object; a name that comes several times has a list."""
    assert isinstance(target, dict)
    for name, value in fields:
        if name.lower() in without:
            continue
        old = target.get(name)
        if old is None:
            target[name] = value
        elif isinstance(old, list):
            old.append(value)
        else:
            target[name] = [old, value]


class _Window:
    """A stream with a view of its next bytes. Ends like the stream does: at its end or its damage."""

    def __init__(self, stream: ByteStream, offset: int) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._begin = 0
        self.offset = offset
        self.ended = False
        self.damage: DamagedStream | None = None
        try:
            if stream.skip(offset) < offset:
                self.ended = True
                self.offset = stream.tell()
        except DamagedStream as damage:
            self.ended, self.damage = True, damage
            self.offset = stream.tell()

    def fill(self, count: int) -> bool:
        """Have at least `count` bytes in view; False when the stream ends before."""
        while not self.ended and len(self._buffer) - self._begin < count:
            try:
                block = self._stream.read(_BLOCK_BYTES)
            except DamagedStream as damage:
                self.ended, self.damage = True, damage
                break
            if not block:
                self.ended = True
                break
            if self._begin > _BLOCK_BYTES:
                del self._buffer[: self._begin]
                self._begin = 0
            self._buffer += block
        return len(self) >= count

    def __len__(self) -> int:
        return len(self._buffer) - self._begin

    def view(self, begin: int, end: int) -> bytes:
        """Bytes begin to end of the view (at most what is in it)."""
        return bytes(self._buffer[self._begin + begin : self._begin + end])

    def search(
        self, pattern: re.Pattern[bytes], begin: int, end: int | None = None
    ) -> tuple[int, int] | None:
        """Where the pattern is found first in the view from `begin` on (before `end`)."""
        stop = len(self._buffer) if end is None else min(self._begin + end, len(self._buffer))
        found = pattern.search(self._buffer, self._begin + begin, stop)
        return (found.start() - self._begin, found.end() - self._begin) if found else None

    def pass_over(self, count: int) -> int:
        """Go on by `count` bytes without holding them; returns how many there were."""
        passed = min(count, len(self))
        self._begin += passed
        if passed < count and not self.ended:
            self._buffer.clear()
            self._begin = 0
            try:
                passed += self._stream.skip(count - passed)
            except DamagedStream as damage:
                passed += self._stream.tell() - self.offset - passed
                self.damage = damage
            self.ended = passed < count
        self.offset += passed
        return passed


class _Framer:
    """Cuts a WARC stream into records, finding the next one whatever the one before looks like.

    What it yields depends on the bytes from a record's begin on only, so that reading can go on at any
    record's end. A stretch that swallowed the stream's damage ends one byte behind it.
    """

    def __init__(
        self, open_stream: Callable[[], ByteStream], max_block_bytes: int, known_size: int | None
    ) -> None:
        self._open = open_stream
        self._max = max_block_bytes
        self._size = known_size
        self._stream = open_stream()

    def close(self) -> None:
        self._stream.close()

    def records(self, start: int) -> Iterator[_Record]:
        window = _Window(self._stream, start)
        if window.offset < start:
            return
        while True:
            _pass_separators(window)
            if not len(window):
                if window.damage is not None:
                    yield _rest(window, "torn", str(window.damage))
                return
            offset = window.offset
            record = self._next(window)
            if record is None:
                self._stream.close()
                self._stream = self._open()
                window = _Window(self._stream, offset)
                continue
            yield record
            if record.end > window.offset:
                return

    def _next(self, window: _Window) -> _Record | None:
        """The record at the window's begin; None to be asked again once the size of the file is known."""
        window.fill(_VERSION_BYTES)
        version = _VERSION.match(window.view(0, _VERSION_BYTES))
        if version is None:
            return _rest(window, "torn", "these bytes belong to no WARC record")
        body, another = _header_end(window, version.end())
        if another is not None:
            return _rest(window, "torn", "the record ends inside its header", upto=another)
        if body is None:
            if not window.fill(_MAX_HEADER_BYTES + 1):
                return _rest(window, "torn", "the file ends inside the header of a WARC record")
            return _rest(window, "too_large", f"a WARC header of more than {_MAX_HEADER_BYTES:,} bytes")
        fields = parse_fields(window.view(version.end(), body))
        said = field(fields, "content-length") or ""
        length = int(said) if _LENGTH.fullmatch(said) else None
        if length is None or (self._size is not None and window.offset + body + length > self._size):
            return self._unframed(window, body, length, fields)
        if length > self._max:
            return self._oversized(window, body, length, fields)
        if window.fill(body + length) and _is_boundary(window, body + length):
            offset, block = window.offset, window.view(body, body + length)
            window.pass_over(body + length)
            return _Record(offset, window.offset, fields, block)
        return self._unframed(window, body, length, fields)

    def _unframed(self, window: _Window, body: int, length: int | None, fields: Fields) -> _Record:
        """A record whose Content-Length is absent or wrong: it ends where the next one begins."""
        searched = body
        reach = body + self._max + _BEGIN_BYTES
        while (begin := window.search(_BEGIN, searched, reach)) is None and len(window) < reach:
            if window.ended:
                break
            searched = max(body, len(window) - _BEGIN_BYTES)
            window.fill(min(len(window) + _BLOCK_BYTES, reach))
        if begin is None and window.fill(reach + 1):
            return _rest(window, "too_large", f"no end within the limit of {self._max:,} bytes", fields)
        if begin is None and window.damage is not None:
            return _rest(window, "torn", str(window.damage), fields)
        end = len(window) if begin is None else begin[0]
        region = window.view(body, end)
        missing = 0 if length is None else length - len(region)
        # Turning CRLF into LF takes a byte from each line and leaves the length as it was.
        converted = b"\r" not in window.view(0, body) and missing <= region.count(b"\n")
        if missing > 0 and not converted:
            error = f"Content-Length says {length:,} bytes, {len(region):,} are there"
            return _rest(window, "torn", error, fields, upto=end)
        block = region.rstrip(b"\r\n")
        if len(block) > self._max:
            return _rest(window, "too_large", f"a block of {len(block):,} bytes", fields, upto=end)
        offset = window.offset
        window.pass_over(end)
        return _Record(offset, window.offset, fields, block, ("warc_length",))

    def _oversized(self, window: _Window, body: int, length: int, fields: Fields) -> _Record | None:
        window.fill(MAX_RAW_BYTES)
        offset, raw = window.offset, window.view(0, min(body + length, MAX_RAW_BYTES))
        if window.pass_over(body + length) < body + length:
            if window.damage is None:
                self._size = window.offset
                return None
            return _Record(offset, window.offset + 1, fields, raw, (), "torn", str(window.damage))
        error = f"a block of {length:,} bytes is over the limit of {self._max:,}"
        end = window.offset
        if not _is_boundary(window, 0):
            end = _rest(window, "too_large", error).end
        return _Record(offset, end, fields, raw, (), "too_large", error)


def _rest(
    window: _Window, reason: ReadReason, error: str, fields: Fields = (), upto: int | None = None
) -> _Record:
    """The bytes up to `upto`, else up to where the next record begins, as a record that is unreadable."""
    window.fill(MAX_RAW_BYTES)
    offset, raw = window.offset, window.view(0, MAX_RAW_BYTES)
    if upto is not None:
        window.pass_over(upto)
        return _Record(offset, window.offset, fields, raw[:upto], (), reason, error)
    searched = 1
    while (begin := window.search(_BEGIN, searched)) is None and not window.ended:
        window.pass_over(max(len(window) - _BEGIN_BYTES, 0))
        searched = 1
        window.fill(len(window) + _BLOCK_BYTES)
    window.pass_over(len(window) if begin is None else begin[0])
    swallowed = begin is None and window.damage is not None
    return _Record(
        offset, window.offset + swallowed, fields, raw[: window.offset - offset], (), reason, error
    )


def _pass_separators(window: _Window) -> None:
    while window.fill(1):
        head = window.view(0, _SEPARATOR_BYTES)
        blank = len(head) - len(head.lstrip(b"\r\n"))
        window.pass_over(blank)
        if blank < len(head):
            return


def _header_end(window: _Window, begin: int) -> tuple[int | None, int | None]:
    """Where the record's block begins, or else where another record begins inside the header.

    Both are None when the header has no end within the limit. The view is searched in growing steps, so
    that a file of nothing but begins of records takes linear time.
    """
    step = 1024
    while True:
        window.fill(step)
        end = window.search(_HEADER_END, 0, step)
        another = window.search(_BEGIN, begin, step if end is None else end[1])
        if another is not None:
            return None, another[0]
        if end is not None:
            return end[1], None
        if len(window) < step or step >= _MAX_HEADER_BYTES:
            return None, None
        step *= 4


def _is_boundary(window: _Window, position: int) -> bool:
    """Whether a record can end here: then come the separator, or another record, or the end."""
    window.fill(position + _SEPARATOR_BYTES)
    tail = window.view(position, position + _SEPARATOR_BYTES)
    following = tail.lstrip(b"\r\n")
    return not following or following.startswith(b"WARC/") or tail.startswith((b"\r\n\r\n", b"\n\n"))
