"""Reading files that are one record: plain text, and files that cannot be read as documents."""

from __future__ import annotations

import re

from pipeline.compression import ByteStream, DamagedStream
from pipeline.readers_fields import language_of_path
from pipeline.readers_http import is_text_like
from pipeline.readers_items import MAX_RAW_BYTES, Bad, Item, Read, ReadLimits, ReadReason
from pipeline.readers_jsonl import BYTE_ORDER_MARK
from schemas.records import Document

_BLOCK_BYTES = 1 << 20

JSON_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*\{\s*[\"}]")
"""How a file begins that is one JSON array of objects."""

_UNSUPPORTED: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (JSON_ARRAY, "one JSON array; write it as JSONL, one object a line (jq -c '.[]')"),
    (re.compile(rb"\xfd7zXZ\0"), "xz data; compress it with gzip or zstd instead"),
    (re.compile(rb"\x04\x22\x4d\x18"), "lz4 data; compress it with gzip or zstd instead"),
    (re.compile(rb"PK\x03\x04"), "a zip archive; unpack it"),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "a 7z archive; unpack it"),
    (re.compile(rb".{257}ustar", re.DOTALL), "a tar archive; unpack it"),
    (re.compile(rb"ORC"), "an ORC file; convert it to Parquet"),
    (re.compile(rb"Obj\x01"), "an Avro file; convert it to Parquet"),
    (re.compile(rb"ARROW1\0\0"), "an Arrow IPC file; convert it to Parquet"),
    (re.compile(rb"SQLite format 3\0"), "an SQLite database; export it as JSONL"),
    (re.compile(rb"PAR1"), "a Parquet file inside another compression; unpack it"),
    (re.compile(rb"\x1f\x8b\x08|\x28\xb5\x2f\xfd|BZh[1-9]1AY&SY"), "compressed twice; unpack it once"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "UTF-16 text; convert it to UTF-8"),
)


def read_text(stream: ByteStream, source: str, source_path: str, limits: ReadLimits) -> Item:
    """The file as one document of UTF-8 text."""
    data = bytearray()
    try:
        while block := stream.read(_BLOCK_BYTES):
            data += block
            if len(data) > limits.max_record_bytes:
                error = f"the file is over the limit of {limits.max_record_bytes:,} bytes"
                return _bad("too_large", error, data)
    except DamagedStream as damage:
        return _bad("torn", str(damage), data)
    try:
        text = data.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        return _bad("not_utf8", f"byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8", data)
    if b"\0" in data or not is_text_like(bytes(data)):
        return _bad("binary", "the file holds NUL bytes or too many control characters", data)
    programming_language = language_of_path(source_path)
    document = Document(
        text=text,
        doc_id=f"{source}/{source_path}#0",
        source=source,
        source_path=source_path,
        kind="code" if programming_language else "prose",
        programming_language=programming_language,
    )
    return Read(document, 1)


def read_binary(stream: ByteStream) -> Item:
    """The file as one record that cannot be read, with the reason as exact as its first bytes allow."""
    data = bytearray()
    try:
        while len(data) < MAX_RAW_BYTES and (block := stream.read(MAX_RAW_BYTES)):
            data += block
    except DamagedStream as damage:
        if not data:
            return _bad("torn" if damage.truncated else "unreadable_file", str(damage), data)
    for pattern, advice in _UNSUPPORTED:
        if pattern.match(data):
            return _bad("unsupported_format", f"the file is {advice}", data)
    return _bad("binary", "the file is no UTF-8 text and no format that can be read", data)


def _bad(reason: ReadReason, error: str, data: bytearray) -> Bad:
    return Bad(0, None, reason, error, bytes(data[:MAX_RAW_BYTES]), 1)
