"""Reading WARC: frames, HTTP bodies, charsets."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import pytest
import zstandard
from fastwarc.stream_io import BrotliWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import (
    COMPRESS,
    PACKED,
    bad,
    check,
    only,
    peak_bytes,
    read,
    stored,
    texts,
    warc_record,
)

from pipeline.compression import Compression
from pipeline.readers import (
    Item,
    Read,
    ReadLimits,
    Skipped,
)
from pipeline.readers_http import decode_text, parse_fields


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


def http(body: bytes, *fields: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, *fields, "", ""]).encode() + body


HTTP = "Content-Type: application/http; msgtype=response"


def response(body: bytes, *fields: str) -> bytes:
    return warc_record("response", http(body, *fields), HTTP)


def test_a_warc_record_becomes_a_document(folder: Path) -> None:
    fields = ("WARC-Target-URI: <http://a/b>", "WARC-Date: 2024-01-02T03:04:05Z", "WARC-Record-ID: <urn:x>")
    block = http(
        "<p>Grüße".encode(), "Content-Type: text/html; charset=UTF-8", "Set-Cookie: a", "Set-Cookie: b"
    )
    data = warc_record("warcinfo", b"software: x") + warc_record("response", block, HTTP, *fields)
    items = check(stored(folder, data, "warc"), ReadLimits())
    skipped, item = items
    assert isinstance(skipped, Skipped)
    assert isinstance(item, Read)
    offset = len(warc_record("warcinfo", b"software: x"))
    got = item.document
    assert got.doc_id == f"web/a/b.x#{offset}"
    assert (got.text, got.url, got.date) == ("<p>Grüße", "http://a/b", "2024-01-02T03:04:05Z")
    assert (got.input_id, got.kind) == ("<urn:x>", "prose")
    assert json.loads(got.metadata) == {
        "WARC-Type": "response",
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": str(len(block)),
        "http_status": 200,
        "http_fields": {"Content-Type": "text/html; charset=UTF-8", "Set-Cookie": ["a", "b"]},
        "charset": "utf-8",
    }


@pytest.mark.parametrize("kind", ["request", "metadata", "revisit", "warcinfo", "continuation", "unknown"])
def test_other_records_are_no_documents(folder: Path, kind: str) -> None:
    assert isinstance(only(read(stored(folder, warc_record(kind, b"text"), "warc"))), Skipped)
    file = stored(folder, warc_record(kind, b"x" * 2000), "warc")
    assert isinstance(only(read(file, limits=ReadLimits(1000))), Skipped), "too large and no document"


def brotli(data: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.br"
        with BrotliWriter(str(path)) as writer:
            writer.write(data)
        return path.read_bytes()


PAGE = b"<html><body>" + b"words and words " * 40 + b"</body></html>"
ZIPPED = gzip.compress(PAGE)
CHUNKED = b"10;ext=1\r\n<html><body>word\r\n6\r\ns and \r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("fields", "body", "text"),
    [
        (["Content-Encoding: gzip"], gzip.compress(PAGE), PAGE),
        (["content-encoding: X-GZIP"], gzip.compress(PAGE[:50]) + gzip.compress(PAGE[50:]), PAGE),
        (["Content-Encoding: deflate"], zlib.compress(PAGE), PAGE),
        (["Content-Encoding: deflate"], zlib.compress(PAGE)[2:-4], PAGE),
        (["Content-Encoding: br"], brotli(PAGE), PAGE),
        (["Content-Encoding: zstd"], zstandard.ZstdCompressor().compress(PAGE), PAGE),
        (["Content-Encoding: gzip, br"], brotli(gzip.compress(PAGE)), PAGE),
        (["Content-Encoding: gzip", "Content-Encoding: identity"], gzip.compress(PAGE), PAGE),
        (["Content-Encoding: gzip"], PAGE, PAGE),
        (["Content-Encoding: br"], PAGE, PAGE),
        (["Content-Encoding: deflate"], PAGE, PAGE),
        (["Content-Encoding: utf-8"], PAGE, PAGE),
        (["Transfer-Encoding: chunked"], CHUNKED, b"<html><body>words and "),
        (["Transfer-Encoding: chunked"], PAGE, PAGE),
        (["Transfer-Encoding: gzip, chunked"], b"%x\r\n%b\r\n0\r\n\r\n" % (len(ZIPPED), ZIPPED), PAGE),
    ],
)  # fmt: skip
def test_bodies_are_decoded(folder: Path, fields: list[str], body: bytes, text: bytes) -> None:
    item = only(read(stored(folder, response(body, *fields), "warc")))
    assert isinstance(item, Read), item
    assert (item.document.text, item.flags) == (text.decode(), ())


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (["Content-Encoding: gzip"], gzip.compress(PAGE)[:-9]),
        (["Content-Encoding: br"], brotli(PAGE + random.Random(1).randbytes(60_000).hex().encode())[:-9]),
        (["Transfer-Encoding: chunked"], CHUNKED[:-12]),
    ],
)
def test_a_torn_body_is_read_and_flagged(folder: Path, fields: list[str], body: bytes) -> None:
    item = only(check(stored(folder, response(body, *fields), "warc"), ReadLimits()))
    assert isinstance(item, Read)
    assert item.flags == ("truncated",)
    assert item.document.text.startswith("<html><body>word")


def test_a_body_that_the_crawler_cut_is_flagged(folder: Path) -> None:
    record = warc_record("response", http(PAGE), HTTP, "WARC-Truncated: length")
    item = only(read(stored(folder, record, "warc")))
    assert isinstance(item, Read)
    assert item.flags == ("truncated",)
    assert json.loads(item.document.metadata)["WARC-Truncated"] == "length"


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"", "no_text"),
        (http(b""), "no_text"),
        (http(b"", status="HTTP/1.1 301 Moved"), "no_text"),
        (b"HTTP/1.1 200 OK", "no_text"),
        (http(gzip.compress(b""), "Content-Encoding: gzip"), "no_text"),
        (b"<html>no HTTP here", "bad_http"),
        (http(b"\x1f\x8b\x08 broken", "Content-Encoding: gzip"), "bad_http"),
        (http(PAGE, "Content-Encoding: gzip" + ", gzip" * 20), "bad_http"),
        (http(b"1\r\nx\r\n" * 200_001, "Transfer-Encoding: chunked"), "bad_http"),
        (http(PAGE, "Content-Type: image/png"), "binary"),
        (http(PAGE, "Content-Type: application/pdf"), "binary"),
        (http(bytes(range(256)) * 4), "binary"),
        (http(b"text\0" * 100), "binary"),
        (http(b"\xff\xfe\xfd" * 100, "Content-Type: text/html; charset=utf-8"), "binary"),
        (http(gzip.compress(b"x" * 2_000_000), "Content-Encoding: gzip"), "too_large"),
        (http(zstandard.compress(b"x" * 2_000_000), "Content-Encoding: zstd"), "too_large"),
        (http(brotli(b"x" * 2_000_000), "Content-Encoding: br"), "too_large"),
    ],
)
def test_bodies_that_are_no_text_say_why(folder: Path, block: bytes, reason: str) -> None:
    after = warc_record("conversion", b"goes on")
    data = warc_record("response", block, HTTP, "WARC-Record-ID: <urn:x>") + after
    items = check(stored(folder, data, "warc"), ReadLimits(1_500_000))
    assert bad(items) == [(0, reason)]
    assert items[0].input_id == "<urn:x>"  # type: ignore[union-attr]
    assert texts(items) == ["goes on"]


def test_a_decompression_bomb_takes_the_limit(folder: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(10**6)) for _ in range(100)) + packer.flush()
    bombs = {
        "gzip": bomb,
        "br": brotli(bytes(100_000_000)),
        "zstd": zstandard.compress(bytes(100_000_000)),
    }
    for coding, body in bombs.items():
        file = stored(folder, response(body, f"Content-Encoding: {coding}"), "warc")
        items: list[Item] = []
        # zstd decodes what it gets: 2 KiB of it stand for at most 64 MiB.
        assert peak_bytes(lambda: items.extend(read(file, limits=ReadLimits(1_000_000)))) < 140_000_000  # noqa: B023
        assert bad(items) == [(0, "too_large")]


JAPANESE = "これは日本語の文章です。" * 5
CHINESE = "这是一个中文网页，内容并不长。" * 5
RUSSIAN = "Это страница на русском языке. " * 5
FRENCH = "Voilà l’été où l’œuvre était finie à 20 €. " * 5


@pytest.mark.parametrize(
    ("text", "written_as", "content_type", "head"),
    [
        (JAPANESE, "euc_jp", "text/html; charset=EUC-JP", ""),
        (JAPANESE, "cp932", "text/html; charset=Shift_JIS", ""),
        (JAPANESE, "iso2022_jp", "text/html; charset=ISO-2022-JP", ""),
        (JAPANESE, "euc_jp", "text/html", '<meta charset="x-euc-jp">'),
        (CHINESE, "gb18030", 'text/html; charset="gb2312"', ""),
        (CHINESE, "gb18030", None, "<meta charset=gbk>"),
        (RUSSIAN, "koi8_r", None, '<META http-equiv=Content-Type content="text/html; charset=koi8-r">'),
        (RUSSIAN, "cp1251", "text/html; charset=utf-8", '<meta charset="windows-1251">'),
        (FRENCH, "cp1252", "text/html; charset=ISO-8859-1", ""),
        (FRENCH, "cp1252", None, ""),
        (FRENCH, "utf-8", None, ""),
        (FRENCH, "utf-8", "text/html; charset=iso-8859-1", ""),
        (FRENCH, "utf-8", "text/html; charset=no-such-charset", ""),
        (FRENCH, "utf-8", "text/html; charset=idna", "<meta charset=zip>"),
        (FRENCH, "utf-16", None, ""),
        (FRENCH, "utf-16-be", "text/html; charset=utf-16be", ""),
        (FRENCH, "utf-8-sig", "text/html; charset=windows-1251", ""),
        (FRENCH, "utf-8", None, '<meta charset="utf-16">'),
    ],
)
def test_the_charset_of_a_body(text: str, written_as: str, content_type: str | None, head: str) -> None:
    decoded = decode_text((head + text).encode(written_as), content_type)
    assert decoded is not None
    assert decoded[0] == head + text
    assert decoded[2] is False


def test_bytes_outside_the_charset_are_replaced_and_flagged(folder: Path) -> None:
    body = CHINESE.encode("gb18030") + b"\xff" + CHINESE.encode("gb18030")
    item = only(read(stored(folder, response(body, "Content-Type: text/html; charset=gbk"), "warc")))
    assert isinstance(item, Read)
    assert item.document.text == CHINESE + "\ufffd" + CHINESE
    assert item.flags == ("undecodable_bytes",)


def test_header_fields() -> None:
    head = b"A: 1\r\nb:2\r\n folded\r\n\tmore\r\nno colon\r\n: no name\r\nC: caf\xe9:x\nD:\r\n"
    assert parse_fields(head) == (
        ("A", "1"),
        ("b", "2 folded more"),
        ("", "no name"),
        ("C", "café:x"),
        ("D", ""),
    )


HELLO = warc_record("conversion", b"hello")
WORLD = warc_record("conversion", b"world")


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        (HELLO + WORLD, ["hello", "world"]),
        (warc_record("conversion", b"hello", version="1.1") + WORLD, ["hello", "world"]),
        (warc_record("conversion", b"hello", version="0.18") + WORLD, ["hello", "world"]),
        (b"\r\n\r\n" + HELLO + b"\r\n" * 90 + WORLD, ["hello", "world"]),
        (HELLO[:-4] + WORLD[:-4], ["hello", "world"]),
        (HELLO[:-2] + WORLD[:-2], ["hello", "world"]),
        # LF only; and with the lengths that the file had before CRLF became LF.
        (HELLO.replace(b"\r\n", b"\n") + WORLD.replace(b"\r\n", b"\n"), ["hello", "world"]),
        (
            warc_record("conversion", b"a\nb\nc\n", length=9, line_end="\n") + WORLD.replace(b"\r\n", b"\n"),
            ["a\nb\nc", "world"],
        ),
        # A wrong Content-Length costs no other record.
        (warc_record("conversion", b"hello", length=3) + WORLD, ["hello", "world"]),
        (HELLO.replace(b"Content-Length: 5\r\n", b"") + WORLD, ["hello", "world"]),
        (HELLO.replace(b": 5", b": five") + WORLD, ["hello", "world"]),
        (HELLO.replace(b": 5", b": -5") + WORLD, ["hello", "world"]),
        (warc_record("conversion", b"hello", length=15) + WORLD, ["torn", "world"]),
        (warc_record("conversion", b"hello", length=5000) + WORLD, ["torn", "world"]),
        (warc_record("conversion", b"hello", length=10**15) + WORLD, ["torn", "world"]),
        (warc_record("conversion", b"hello", length=10**30) + WORLD, ["hello", "world"]),
        # Bytes between records, and records that end too early.
        (HELLO + b"junk\r\nmore junk\r\n" + WORLD, ["hello", "torn", "world"]),
        (HELLO + b"\0\xff" * 200 + b"\n" + WORLD, ["hello", "torn", "world"]),
        (HELLO[:30] + b"\r\n" + WORLD, ["torn", "world"]),
        (HELLO[:-7] + WORLD, ["torn", "world"]),
        (HELLO + WORLD[:20], ["hello", "torn"]),
        (HELLO + WORLD[:-7], ["hello", "torn"]),
        (HELLO + b"WARC/1.0\r\n", ["hello", "torn"]),
        (HELLO.replace(b"WARC-Type", b"X-Type") + WORLD, ["torn", "world"]),
        (warc_record("conversion", b"hello", "X: " + "y" * 300_000) + WORLD, ["too_large", "world"]),
        # What looks like a record inside a block of the right length is the block's.
        (warc_record("conversion", b"see:\n\n" + WORLD) + HELLO, ["see:\n\n" + WORLD.decode(), "hello"]),
        (warc_record("conversion", b"x\n" * 2000 + WORLD) + HELLO, ["too_large", "hello"]),
        (warc_record("conversion", b"x\n" * 2000, length=3500) + HELLO, ["too_large", "hello"]),
        (warc_record("conversion", b"x" * 4000, length=4005), ["too_large"]),
        (warc_record("conversion", b""), ["no_text"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compression", COMPRESS)
def test_frames(folder: Path, data: bytes, outcome: list[str], compression: Compression) -> None:
    items = check(stored(folder, COMPRESS[compression](data), "warc", compression), ReadLimits(3000))
    assert [i.document.text if isinstance(i, Read) else getattr(i, "reason", "") for i in items] == outcome


def test_a_long_file_of_false_lengths_takes_linear_time(folder: Path) -> None:
    lies = warc_record("conversion", b"hello", length=19_000_000) * 3000
    begins = b"WARC/1.0\r\nWARC-Type: conversion\r\n" * 3000
    items = read(stored(folder, lies + begins + HELLO, "warc"))
    assert Counter(r for _, r in bad(items)) == {"torn": 6000}
    assert texts(items) == ["hello"]


@pytest.mark.parametrize("compression", PACKED)
def test_a_torn_record_over_the_limit_is_one_record(folder: Path, compression: Compression) -> None:
    record = warc_record("conversion", random.Random(1).randbytes(300_000).hex().encode())
    packed = COMPRESS[compression](HELLO + record)
    file = stored(folder, packed[: len(packed) // 2], "warc", compression)
    items = check(file, ReadLimits(100_000))
    assert texts(items) == ["hello"]
    assert bad(items) == [(len(HELLO), "torn")]


@pytest.mark.parametrize("over", range(4))
@pytest.mark.parametrize("compression", COMPRESS)
def test_a_length_that_ends_just_behind_the_file(folder: Path, compression: Compression, over: int) -> None:
    body = b"x" * 5000
    data = warc_record("conversion", body, length=len(body) + 4 + over)
    items = check(stored(folder, COMPRESS[compression](data), "warc", compression), ReadLimits(3000))
    assert bad(items) == [(0, "too_large")]


@pytest.mark.parametrize("compression", PACKED)
def test_a_torn_warc_is_one_record_wherever_it_is_torn(folder: Path, compression: Compression) -> None:
    records = [
        warc_record("conversion", f"{random.Random(i).getrandbits(900):x}".encode()) for i in range(20)
    ]
    # A member for each record, as crawlers write them.
    packed = [COMPRESS[compression](record) for record in records]
    data = b"".join(packed)
    ends = [len(b"".join(packed[:n])) for n in range(21)]
    for kept in range(len(packed[0]), len(data), 41):
        items = read(stored(folder, data[:kept], "warc", compression))
        whole = sum(end <= kept for end in ends[1:])
        assert len(texts(items)) - whole in (0, 1), "the record's text may be whole before its end is"
        assert [r for _, r in bad(items)] == ([] if kept in ends else ["torn"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([HELLO, WORLD, response(PAGE), warc_record("request", b"x"), b"\r\n", b"junk\n"]),
            st.integers(0, 400),
            st.binary(max_size=3),
        ),
        max_size=6,
    ),
    st.sampled_from(["none", "gzip", "zstd"]),
    st.sampled_from([100, 10**6]),
)
@settings(max_examples=60)
def test_any_warc_is_accounted_for(
    folder: Path, parts: list[tuple[bytes, int, bytes]], compression: Compression, limit: int
) -> None:
    data = b"".join(part[:at] + noise + part[at + len(noise) :] for part, at, noise in parts)
    check(stored(folder, COMPRESS[compression](data), "warc", compression), ReadLimits(limit))
