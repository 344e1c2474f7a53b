"""What the tests of the readers share: writing inputs, reading them, and what holds for any input."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pipeline.compression import Compression, local_url
from pipeline.inputs import Format, InputFile, Segment
from pipeline.readers import (
    READ_FLAGS,
    READ_REASONS,
    Bad,
    Item,
    Read,
    ReadLimits,
    Skipped,
    read_segment,
)
from schemas.records import Document

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("SLUICE_DATA", ROOT / ".." / "shared" / "data"))

COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "gzip": gzip.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
    "bz2": lambda data: bz2.compress(data, 1),
}
PACKED: tuple[Compression, ...] = ("gzip", "zstd", "bz2")


def stored(folder: Path, data: bytes, file_format: Format, compression: Compression = "none") -> InputFile:
    """A file of these stored bytes, said to be of this format."""
    path = folder / "file"
    path.write_bytes(data)
    return InputFile("web", "a/b.x", local_url(str(path)), len(data), "", file_format, compression)


def read(file: InputFile, **options: Any) -> list[Item]:
    return list(read_segment(Segment(file), **options))


def documents(items: list[Item]) -> list[Document]:
    return [i.document for i in items if isinstance(i, Read)]


def texts(items: list[Item]) -> list[str]:
    return [d.text for d in documents(items)]


def bad(items: list[Item]) -> list[tuple[int, str]]:
    return [(i.locator, i.reason) for i in items if isinstance(i, Bad)]


def only(items: list[Item]) -> Item:
    assert len(items) == 1, items
    return items[0]


def locators(items: list[Item]) -> list[int]:
    return [
        i.document.locator if isinstance(i, Read) else i.locator for i in items if not isinstance(i, Skipped)
    ]


def check(file: InputFile, limits: ReadLimits) -> list[Item]:
    """Read a file; check what holds for any bytes: order, ids, and going on behind each item."""
    items = read(file, limits=limits)
    positions = [i.position for i in items]
    assert positions == sorted(set(positions))
    assert locators(items) == sorted(set(locators(items)))
    for item in items:
        if isinstance(item, Read):
            document = item.document
            assert document.doc_id == file.doc_id(document.locator)
            assert set(item.flags) <= set(READ_FLAGS)
            assert isinstance(json.loads(document.metadata), dict)
            for value in (document.text, document.metadata, document.url, document.date, document.input_id):
                (value or "").encode("utf-8")
        elif isinstance(item, Bad):
            assert item.reason in READ_REASONS
            assert item.error
            assert len(item.raw) <= 64 << 10
    for i, position in enumerate(positions, 1):
        assert read(file, limits=limits, start=position) == items[i:], position
    return items


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def warc_record(
    kind: str,
    block: bytes,
    *fields: str,
    length: int | None = None,
    line_end: str = "\r\n",
    version: str = "1.0",
) -> bytes:
    said = len(block) if length is None else length
    head = [f"WARC/{version}", f"WARC-Type: {kind}", *fields, f"Content-Length: {said}", "", ""]
    return line_end.join(head).encode() + block + 2 * line_end.encode()


def real(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no real data in {DATA} (set SLUICE_DATA)")
    return path
