"""Opening stored files and reading their decompressed bytes, forward only and in bounded memory."""

from __future__ import annotations

import bz2
import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal, cast
from urllib.parse import quote_from_bytes, unquote_to_bytes

import fsspec
import zstandard

Compression = Literal["none", "gzip", "zstd", "bz2"]

MAGIC_BYTES = 16
"""How many first bytes `compression_of` needs."""

_BLOCK_BYTES = 1 << 20
_STORED_BYTES = 1 << 16
# A zstd block of 4 bytes may stand for 128 KiB, and the decoder cannot be told to stop: what goes in at
# once bounds what comes out (here by 64 MiB).
_ZSTD_STORED_BYTES = 1 << 11
# The decoder's memory for one frame (`zstd --long=27`); RFC 8878 asks for no more than 8 MiB.
_ZSTD_WINDOW_BYTES = 1 << 27

_MAGIC: tuple[tuple[re.Pattern[bytes], Compression], ...] = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip"),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL), "zstd"),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), "bz2"),
)


class DamagedStream(Exception):
    """The compressed data ends too early or is broken: all bytes before this place were handed out."""

    def __init__(self, message: str, truncated: bool) -> None:
        super().__init__(message)
        self.truncated = truncated


def compression_of(head: bytes) -> Compression:
    """Tell the compression of a file from its first bytes (`MAGIC_BYTES` of them).

    >>> compression_of(bytes.fromhex("1f8b0800")), compression_of(b"plain")
    ('gzip', 'none')
    """
    for pattern, name in _MAGIC:
        if pattern.match(head):
            return name
    return "none"


def local_url(path: str) -> str:
    """The URL of a local path: ASCII only, so that names that are not UTF-8 survive JSON.

    >>> local_url("/data/a b.jsonl")
    'file:///data/a%20b.jsonl'
    """
    return "file://" + quote_from_bytes(os.fsencode(os.path.abspath(path)), safe="/~@+=,:")


def local_path(url: str) -> str | None:
    """The local path of a URL made by `local_url`, or None for a URL of another store."""
    if not url.startswith("file://"):
        return None
    return os.fsdecode(unquote_to_bytes(url.removeprefix("file://")))


def open_stored(url: str) -> BinaryIO:
    """Open the stored (still compressed) bytes at a URL as `InputFile.url` has it; the stream can seek.

    Raises OSError when the file cannot be opened.
    """
    path = local_path(url)
    if path is not None:
        return open(path, "rb", buffering=0)
    store, name = fsspec.core.url_to_fs(url)
    return cast(BinaryIO, store.open(name, "rb"))


class ByteStream:
    """The decompressed bytes of a file, forward only.

    `tell()` counts decompressed bytes. Errors of the store (OSError) pass through; damage of the data is
    raised as `DamagedStream` once all bytes before it have been read, and again at every later read.
    """

    def __init__(self, url: str, compression: Compression) -> None:
        self._stored = open_stored(url)
        self._seekable = compression == "none"
        self._blocks = _DECODERS[compression](self._stored)
        self._block = b""
        self._used = 0
        self._offset = 0
        self._damage: DamagedStream | None = None

    def tell(self) -> int:
        """Offset of the next byte in the decompressed stream."""
        return self._offset

    def read(self, size: int) -> bytes:
        """Up to `size` next bytes (at least one), or b"" at the end of the stream."""
        if self._used == len(self._block) and not self._fill():
            return b""
        if self._used == 0 and len(self._block) <= size:
            piece = self._block
        else:
            piece = self._block[self._used : self._used + size]
        self._used += len(piece)
        self._offset += len(piece)
        return piece

    def skip(self, count: int) -> int:
        """Pass over `count` bytes (a plain file seeks); returns how many there were to pass over."""
        if self._seekable and count > len(self._block) - self._used:
            size = self._stored.seek(0, os.SEEK_END)
            target = min(self._offset + count, size)
            self._stored.seek(target)
            skipped = target - self._offset
            self._block, self._used, self._offset = b"", 0, target
            return skipped
        left = count
        while left and (piece := self.read(left)):
            left -= len(piece)
        return count - left

    def close(self) -> None:
        """Close the stored file."""
        self._stored.close()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self) -> bool:
        if self._damage is not None:
            raise self._damage
        try:
            self._block, self._used = next(self._blocks, b""), 0
        except DamagedStream as damage:
            self._damage = damage
            raise
        return bool(self._block)


def _plain(stored: BinaryIO) -> Iterator[bytes]:
    while block := stored.read(_BLOCK_BYTES):
        yield block


def _gzip(stored: BinaryIO) -> Iterator[bytes]:
    """Members one after another; zero padding behind a member is no damage (gzip(1), tape blocks)."""
    data = stored.read(_STORED_BYTES)
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof:
            if not data:
                data = stored.read(_STORED_BYTES)
                if not data:
                    raise DamagedStream("the gzip data ends inside a member", truncated=True)
            try:
                block = member.decompress(data, _BLOCK_BYTES)
            except zlib.error as error:
                raise DamagedStream(f"broken gzip data: {error}", truncated=False) from error
            if block:
                yield block
            data = member.unconsumed_tail
        data = member.unused_data
        while not data.strip(b"\0"):
            data = stored.read(_STORED_BYTES)
            if not data:
                return
        stripped = data.lstrip(b"\0")
        if len(stripped) < 3:
            stripped += stored.read(_STORED_BYTES)
        if not stripped.startswith(b"\x1f\x8b"[: len(stripped)]):
            raise DamagedStream("bytes behind the last gzip member are no gzip data", truncated=False)
        data = stripped


def _zstd(stored: BinaryIO) -> Iterator[bytes]:
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    data = stored.read(_ZSTD_STORED_BYTES)
    while data:
        frame = decoder.decompressobj()
        while not frame.eof:
            if not data:
                data = stored.read(_ZSTD_STORED_BYTES)
                if not data:
                    raise DamagedStream("the zstd data ends inside a frame", truncated=True)
            try:
                block = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise DamagedStream(f"broken zstd data: {error}", truncated=False) from error
            data = b""
            if block:
                yield block
        data = frame.unused_data or stored.read(_ZSTD_STORED_BYTES)


def _bz2(stored: BinaryIO) -> Iterator[bytes]:
    data = stored.read(_STORED_BYTES)
    while data:
        stream = bz2.BZ2Decompressor()
        while not stream.eof:
            if stream.needs_input and not data:
                data = stored.read(_STORED_BYTES)
                if not data:
                    raise DamagedStream("the bzip2 data ends inside a stream", truncated=True)
            try:
                block = stream.decompress(data, _BLOCK_BYTES)
            except (OSError, ValueError) as error:
                raise DamagedStream(f"broken bzip2 data: {error}", truncated=False) from error
            data = b""
            if block:
                yield block
        data = stream.unused_data or stored.read(_STORED_BYTES)


_DECODERS = {"none": _plain, "gzip": _gzip, "zstd": _zstd, "bz2": _bz2}
