"""HTTP messages as WARC stores them: header fields, body decoding, and the text of a body."""

from __future__ import annotations

import codecs
import io
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import zstandard
from fastwarc.stream_io import BrotliReader

Fields = tuple[tuple[str, str], ...]

_MAX_HEAD_BYTES = 256 << 10
_MAX_CONTENT_CODINGS = 5
# Of a byte each, a body at the limit would take half a minute; servers send some thousand bytes in each.
_MAX_CHUNKS = 200_000
_STATUS_LINE = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})(?!\d)[^\n]*(?:\n|\Z)")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]{0,4096})?\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_PIECE_BYTES = 1 << 16


class BadHttp(ValueError):
    """A message that is no HTTP, or whose body cannot be decoded."""


class TooLarge(ValueError):
    """A body of more bytes than allowed once it is decoded."""


@dataclass(frozen=True, slots=True)
class Message:
    """An HTTP response: `body` is decoded; `torn` says that it ends before its own framing says."""

    status: int
    fields: Fields
    body: bytes
    torn: bool


def parse_fields(head: bytes) -> Fields:
    """Header fields of a WARC record or HTTP message (without the first line), in order.

    Lines that begin with white space continue the field before them; lines without a colon are passed
    over. Bytes that are not UTF-8 are read as Latin-1 (RFC 9110, 5.5).

    >>> parse_fields(b"A: 1\\r\\nB: 2\\n  3\\r\\n")
    (('A', '1'), ('B', '2 3'))
    """
    names: list[str] = []
    values: list[list[str]] = []
    for line in head.split(b"\n"):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            text = line.decode("latin-1")
        name, colon, value = text.partition(":")
        if text[:1] in (" ", "\t"):
            if values and text.strip():
                values[-1].append(text.strip())
        elif colon:
            names.append(name.strip())
            values.append([value.strip()])
    return tuple((name, " ".join(parts)) for name, parts in zip(names, values, strict=True))


def field(fields: Fields, name: str) -> str | None:
    """The first field of this name, whatever its case, or None."""
    return next((v for n, v in fields if n.lower() == name), None)


def parse_response(block: bytes, max_bytes: int) -> Message:
    """Parse an HTTP response and decode its body (chunked; gzip, deflate, br, zstd).

    Archives often hold bodies that were decoded already under the old header fields: a body that is not
    in the coding that its header names is taken as it is. Raises BadHttp, and TooLarge when the decoded
    body has more than `max_bytes` bytes.
    """
    status = _STATUS_LINE.match(block)
    if status is None:
        raise BadHttp("the block does not begin with an HTTP status line")
    end = _HEAD_END.search(block, status.end() - 2)
    if end is None:
        head, body = block[status.end() :], b""
    else:
        head, body = block[status.end() : end.start() + 1], block[end.end() :]
    if len(head) > _MAX_HEAD_BYTES:
        raise BadHttp(f"header fields of {len(head):,} bytes")
    fields = parse_fields(head)
    torn = False
    transfer = _codings(fields, "transfer-encoding")
    if "chunked" in transfer:
        joined = _join_chunks(body)
        if joined is not None:
            body, torn = joined
    codings = [*_codings(fields, "content-encoding"), *(c for c in transfer if c != "chunked")]
    if len(codings) > _MAX_CONTENT_CODINGS:
        raise BadHttp(f"{len(codings)} content codings on one body")
    for coding in reversed(codings):
        decoded = _decode(coding, body, max_bytes)
        if decoded is not None:
            body, complete = decoded
            torn |= not complete
    if len(body) > max_bytes:
        raise TooLarge(f"a body of {len(body):,} bytes is over the limit of {max_bytes:,}")
    return Message(int(status.group(1)), fields, body, torn)


def _codings(fields: Fields, name: str) -> list[str]:
    return [c.strip().lower() for n, v in fields if n.lower() == name for c in v.split(",")]


def _join_chunks(body: bytes) -> tuple[bytes, bool] | None:
    """The body without its chunk framing and whether it is torn; None when it is not chunked.

    Raises BadHttp for too many chunks.
    """
    joined = bytearray()
    chunks = position = 0
    while size := _CHUNK_SIZE.match(body, position):
        count = int(size.group(1), 16)
        if count == 0:
            return bytes(joined), False
        position = size.end() + count
        joined += body[size.end() : position]
        chunks += 1
        if chunks > _MAX_CHUNKS:
            raise BadHttp(f"a body of more than {_MAX_CHUNKS:,} chunks")
        if position >= len(body):
            break
        line_end = _LINE_END.match(body, position)
        if line_end is None:
            chunks -= 1  # no chunk ends here: the size was wrong, or a line of text
            break
        position = line_end.end()
    return (bytes(joined), True) if chunks else None


def _decode(coding: str, body: bytes, max_bytes: int) -> tuple[bytes, bool] | None:
    """The decoded body and whether it is complete; None when it is not in this coding."""
    if coding in ("gzip", "x-gzip"):
        if not body.startswith(b"\x1f\x8b"):
            return None
        return _result(coding, *_inflate(body, zlib.MAX_WBITS | 16, max_bytes))
    if coding == "deflate":
        wrapped = len(body) > 1 and body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
        if wrapped:
            return _result(coding, *_inflate(body, zlib.MAX_WBITS, max_bytes))
        # Many servers send the data without the zlib wrapper that RFC 9110 asks for.
        decoded, complete = _inflate(body, -zlib.MAX_WBITS, max_bytes)
        return (decoded, True) if complete else None
    if coding == "br":
        reader = BrotliReader(io.BytesIO(body))
        parts = iter(lambda: reader.read(_PIECE_BYTES), b"")
        decoded, complete = _collect(parts, OSError, max_bytes)
        # Brotli data has no magic bytes: text that is no whole Brotli stream is text.
        return _result(coding, decoded, complete) if complete or not is_text_like(body) else None
    if coding == "zstd":
        if not body.startswith(b"\x28\xb5\x2f\xfd"):
            return None
        decoder = zstandard.ZstdDecompressor(max_window_size=8 << 20).decompressobj()
        frame = (decoder.decompress(body[i : i + 2048]) for i in range(0, len(body), 2048) if not decoder.eof)
        decoded, complete = _collect(frame, zstandard.ZstdError, max_bytes)
        return _result(coding, decoded, complete and decoder.eof)
    return None


def _result(coding: str, decoded: bytes, complete: bool) -> tuple[bytes, bool]:
    if not decoded and not complete:
        raise BadHttp(f"the body says {coding} and cannot be decoded")
    return decoded, complete


def _inflate(body: bytes, window_bits: int, max_bytes: int) -> tuple[bytes, bool]:
    decoder = zlib.decompressobj(window_bits)

    def pieces() -> Iterable[bytes]:
        nonlocal decoder
        data = body
        while data:
            yield decoder.decompress(data, _PIECE_BYTES)
            data = decoder.unconsumed_tail
            if decoder.eof:
                data = decoder.unused_data
                if window_bits <= zlib.MAX_WBITS or not data.startswith(b"\x1f\x8b"):
                    return
                decoder = zlib.decompressobj(window_bits)

    decoded, complete = _collect(pieces(), zlib.error, max_bytes)
    return decoded, complete and decoder.eof


def _collect(pieces: Iterable[bytes], failure: type[Exception], max_bytes: int) -> tuple[bytes, bool]:
    decoded = bytearray()
    try:
        for piece in pieces:
            decoded += piece
            if len(decoded) > max_bytes:
                raise TooLarge(f"the decoded body is over the limit of {max_bytes:,} bytes")
    except failure:
        return bytes(decoded), False
    return bytes(decoded), True


# --- text of a body -------------------------------------------------------------------------------------

# Labels of https://encoding.spec.whatwg.org/#names-and-labels for the codecs that Python has: never a
# codec by whatever name a page gives, since Python also has idna, punycode, unicode_escape and zip.
_LABELS: dict[str, tuple[str, ...]] = {
    "utf-8": ("utf8", "utf-8", "unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "x-unicode20utf8"),
    "utf-16-le": ("utf-16", "utf-16le", "ucs-2", "unicode", "csunicode", "iso-10646-ucs-2"),
    "utf-16-be": ("utf-16be", "unicodefffe"),
    "utf-32-le": ("utf-32", "utf-32le"),
    "utf-32-be": ("utf-32be",),
    "cp1252": (
        *("windows-1252", "cp1252", "x-cp1252", "iso-8859-1", "iso8859-1", "iso_8859-1", "latin1"),
        *("latin-1", "l1", "ascii", "us-ascii", "ansi_x3.4-1968", "ibm819", "cp819"),
    ),
    "cp1250": ("windows-1250", "cp1250", "x-cp1250"),
    "cp1251": ("windows-1251", "cp1251", "x-cp1251", "cp-1251", "win-1251"),
    "cp1253": ("windows-1253", "cp1253"),
    "cp1254": ("windows-1254", "cp1254", "iso-8859-9", "iso8859-9", "latin5"),
    "cp1255": ("windows-1255", "cp1255"),
    "cp1256": ("windows-1256", "cp1256"),
    "cp1257": ("windows-1257", "cp1257"),
    "cp1258": ("windows-1258", "cp1258"),
    "cp866": ("ibm866", "cp866", "866"),
    "cp874": ("windows-874", "tis-620", "iso-8859-11", "iso8859-11", "dos-874"),
    "mac_roman": ("macintosh", "mac", "x-mac-roman"),
    "mac_cyrillic": ("x-mac-cyrillic", "x-mac-ukrainian"),
    "koi8_r": ("koi8-r", "koi8", "koi8_r", "koi", "cskoi8r"),
    "koi8_u": ("koi8-u", "koi8-ru"),
    "gb18030": ("gb18030", "gbk", "gb2312", "gb_2312-80", "gb_2312", "x-gbk", "chinese", "cp936", "euc-cn"),
    "big5hkscs": ("big5", "big5-hkscs", "cn-big5", "x-x-big5", "csbig5", "cp950"),
    "cp932": ("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j", "ms_kanji", "ms932", "cp932"),
    "euc_jp": ("euc-jp", "x-euc-jp", "eucjp", "cseucpkdfmtjapanese"),
    "iso2022_jp": ("iso-2022-jp", "csiso2022jp"),
    "cp949": ("euc-kr", "ks_c_5601-1987", "ks_c_5601-1989", "ksc5601", "korean", "windows-949", "cp949"),
    "johab": ("johab", "x-johab"),
} | {f"iso8859_{n}": (f"iso-8859-{n}", f"iso8859-{n}", f"iso_8859-{n}") for n in (2, 3, 4, 5, 6, 7, 8, 10)}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels} | {
    f"iso-8859-{n}": f"iso8859_{n}" for n in (13, 14, 15, 16)
}

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_META = re.compile(rb"<(?:meta|\?xml)\b[^>]{0,500}", re.IGNORECASE)
_META_CHARSET = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_META_BYTES = 4096

_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b")) + b"\x7f"
_MAX_CONTROL_FRACTION = 0.01
_MAX_UNDECODABLE_FRACTION = 0.1


def is_text_like(data: bytes) -> bool:
    """Whether at most one byte in a hundred is a control character that text does not use.

    ESC is counted as text (ISO-2022-JP); compressed data and images have about ten in a hundred.
    """
    return len(data) - len(data.translate(None, _CONTROLS)) <= _MAX_CONTROL_FRACTION * len(data)


def charset_of(content_type: str | None) -> str | None:
    """Python's codec for the charset that a Content-Type field names, or None.

    >>> charset_of('text/html; charset="GB2312"')
    'gb18030'
    """
    named = _CHARSET.search(content_type or "")
    return _CODECS.get(named.group(1).lower()) if named else None


def decode_text(body: bytes, content_type: str | None) -> tuple[str, str, bool] | None:
    """Decode a body to (text, codec, whether bytes had to be replaced), or None when it is no text.

    The rule: a byte order mark decides (https://encoding.spec.whatwg.org/#decode). Else the charset of
    the header, that of a meta element or XML declaration in the first 4 KiB, and UTF-8 are tried in this
    order, and the first that decodes the whole body is taken; but a body that is UTF-8 beyond ASCII is
    never read as the Latin-1 that servers declare by default. Where none fits, the first that was named
    (else Windows-1252) decodes it with U+FFFD for what it cannot. More than one control character in a
    hundred, or one replaced in ten, is no text.
    """
    for mark, codec in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return _decoded(body[len(mark) :], codec)
    named = [c for c in (charset_of(content_type), _meta_charset(body)) if c]
    tried = ["utf-8", *named] if named[:1] == ["cp1252"] and not body.isascii() else [*named, "utf-8"]
    for codec in dict.fromkeys(tried):
        try:
            text = body.decode(codec)
        except UnicodeError:
            continue
        return (text, codec, False) if is_text_like(_as_bytes(text, codec, body)) else None
    return _decoded(body, named[0] if named else "cp1252")


def _decoded(body: bytes, codec: str) -> tuple[str, str, bool] | None:
    text = body.decode(codec, "replace")
    replaced = text.count("\N{REPLACEMENT CHARACTER}")
    if replaced > _MAX_UNDECODABLE_FRACTION * len(text):
        return None
    return (text, codec, replaced > 0) if is_text_like(_as_bytes(text, codec, body)) else None


def _as_bytes(text: str, codec: str, body: bytes) -> bytes:
    """Bytes in which a control character is one byte."""
    return text.encode("utf-8", "replace") if codec.startswith(("utf-16", "utf-32")) else body


def _meta_charset(body: bytes) -> str | None:
    for element in _META.finditer(body, 0, _META_BYTES):
        named = _META_CHARSET.search(element.group())
        if named:
            codec = _CODECS.get(named.group(1).decode("ascii").lower())
            # Bytes that hold an ASCII meta element are not UTF-16 (the standard says the same).
            return "utf-8" if codec is not None and codec.startswith(("utf-16", "utf-32")) else codec
    return None
