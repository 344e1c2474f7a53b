"""Decompressing: joined streams, cut and broken ones, bombs."""

from __future__ import annotations

import bz2
import gzip
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import (
    COMPRESS,
    PACKED,
    peak_bytes,
    stored,
)

from pipeline.compression import ByteStream, Compression, DamagedStream
from pipeline.inputs import InputFile


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


def pieces(file: InputFile, sizes: Iterator[int]) -> tuple[bytes, DamagedStream | None]:
    got = bytearray()
    with ByteStream(file.url, file.compression) as stream:
        try:
            while block := stream.read(next(sizes)):
                got += block
                assert stream.tell() == len(got)
        except DamagedStream as damage:
            assert stream.tell() == len(got)
            with pytest.raises(DamagedStream):
                stream.read(1)
            return bytes(got), damage
    return bytes(got), None


@pytest.mark.parametrize("compression", COMPRESS)
def test_members_frames_and_streams_are_joined(folder: Path, compression: Compression) -> None:
    noise = random.Random(5)
    parts = [noise.randbytes(n) for n in (10, 300_000, 0, 1, 70_000)]
    data = b"".join(map(COMPRESS[compression], parts))
    file = stored(folder, data, "binary", compression)
    sizes = iter(lambda: noise.randrange(1, 100_000), 0)
    assert pieces(file, sizes) == (b"".join(parts), None)


@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 8, 9, 100, 5000, 9000])
def test_a_cut_stream_gives_what_is_there_and_says_so(
    folder: Path, compression: Compression, cut: int
) -> None:
    data = random.Random(6).randbytes(10_000)
    packed = COMPRESS[compression](data)
    got, damage = pieces(stored(folder, packed[:-cut], "binary", compression), iter(lambda: 1000, 0))
    assert data.startswith(got)
    assert damage is not None
    assert damage.truncated


@pytest.mark.parametrize("compression", PACKED)
def test_bytes_behind_the_end(folder: Path, compression: Compression) -> None:
    packed = COMPRESS[compression](b"data")
    for behind in (b"garbage", b"\x01"):
        got, damage = pieces(stored(folder, packed + behind, "binary", compression), iter(lambda: 9, 0))
        assert got == b"data"
        assert damage is not None
    got, damage = pieces(stored(folder, packed + bytes(100_000), "binary", compression), iter(lambda: 9, 0))
    assert (got, damage is None) == (b"data", compression == "gzip"), "gzip alone allows padding"


def test_gzip_padding_between_members(folder: Path) -> None:
    packed = gzip.compress(b"a") + bytes(70_000) + gzip.compress(b"b") + bytes(3)
    assert pieces(stored(folder, packed, "binary", "gzip"), iter(lambda: 9, 0)) == (b"ab", None)


@pytest.mark.parametrize("compression", COMPRESS)
@given(st.binary(max_size=3000), st.lists(st.integers(0, 1500), max_size=5))
@settings(max_examples=25)
def test_skip_is_reading_and_dropping(
    folder: Path, compression: Compression, data: bytes, steps: list[int]
) -> None:
    file = stored(folder, COMPRESS[compression](data), "binary", compression)
    offset = 0
    with ByteStream(file.url, compression) as stream:
        for n, step in enumerate(steps):
            if n % 2:
                skipped = stream.skip(step)
                assert skipped == min(step, len(data) - offset)
                offset += skipped
            elif step:
                piece = stream.read(step)
                assert data.startswith(piece, offset)
                assert piece or offset == len(data)
                offset += len(piece)
            assert stream.tell() == offset


@pytest.mark.parametrize("compression", PACKED)
def test_a_bomb_is_streamed_in_bounded_memory(folder: Path, compression: Compression) -> None:
    size = 200_000_000
    if compression == "gzip":
        packer: Any = zlib.compressobj(1, wbits=31)
    elif compression == "bz2":
        packer = bz2.BZ2Compressor(1)
        size = 60_000_000
    else:
        packer = zstandard.ZstdCompressor(level=1).compressobj()
    packed = b"".join(packer.compress(bytes(10**6)) for _ in range(size // 10**6)) + packer.flush()
    file = stored(folder, packed, "binary", compression)
    with ByteStream(file.url, compression) as stream:
        assert peak_bytes(lambda: stream.skip(size)) < 140_000_000
        assert stream.tell() == size
        assert stream.read(1) == b""
