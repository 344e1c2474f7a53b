"""Reading records: every record of every format is accounted for, and reading can go on anywhere."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import zlib
from collections import Counter
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import (
    COMPRESS,
    PACKED,
    bad,
    check,
    documents,
    locators,
    only,
    peak_bytes,
    read,
    real,
    stored,
    texts,
    warc_record,
)

from pipeline.compression import Compression
from pipeline.inputs import Format, InputFile, list_inputs, segments_of
from pipeline.readers import (
    Bad,
    Item,
    Read,
    ReadLimits,
    Skipped,
    read_segment,
)
from schemas.edits import apply_edits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


# --- JSONL --------------------------------------------------------------------------------------------

LINES: list[tuple[bytes, str]] = [
    (b'{"text": "plain"}', "plain"),
    (b'  {"text": "white space around"}\t\r', "white space around"),
    (b'{"text": ""}', ""),
    ('{"text": "a\u2028b\u2029c\x85d"}'.encode(), "a\u2028b\u2029c\x85d"),
    (b'{"text": "a\\u0000b"}', "a\0b"),
    (b'{"text": "a\rb\x00c\td"}', "a\rb\0c\td"),
    (b'{"text": "\\ud835\\udc00"}', "\U0001d400"),
    (b'{"text": "\\ud83d\\ude00 and \\ud83d alone"}', "\U0001f600 and \ufffd alone"),
    (b'{"text": "a", "n": 123456789012345678901234567890}', "a"),
    (b'{"text": null}', "no_text"),
    (b'{"title": "no text here"}', "no_text"),
    (b"{}", "no_text"),
    (b'{"text": 5}', "wrong_type"),
    (b'{"text": ["a"]}', "wrong_type"),
    (b'{"text": {"a": 1}}', "wrong_type"),
    (b"not json", "not_json"),
    (b'{"text": "cut', "not_json"),
    (b'["text"]', "not_json"),
    (b"5", "not_json"),
    (b'"text"', "not_json"),
    (b'{"text": "a"} {"text": "b"}', "not_json"),
    (b'\xef\xbb\xbf{"text": "a mark inside the file"}', "not_json"),
    (b'{"text": "a", "deep": ' + b"[" * 300 + b"]" * 300 + b"}", "not_json"),
    (b'{"text": "a", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not_json"),
    (b'{"text": "a", "x": NaN, "deep": ' + b"[" * 300 + b"]" * 300 + b"}", "not_json"),
    (b'{"text": "caf\xe9"}', "not_utf8"),
    (b'{"text": "a surrogate in UTF-8: \xed\xa0\xb5"}', "not_utf8"),
    (b'{"text": "' + b"\\ud800" * 10_001 + b'"}', "not_utf8"),
]


@pytest.mark.parametrize("compression", COMPRESS)
def test_every_line_is_a_document_or_says_why_not(folder: Path, compression: Compression) -> None:
    data = b"".join(line + b"\n" for line, _ in LINES)
    items = check(stored(folder, COMPRESS[compression](data), "jsonl", compression), ReadLimits())
    outcomes = [
        i.document.text if isinstance(i, Read) else i.reason for i in items if not isinstance(i, Skipped)
    ]
    assert outcomes == [outcome for _, outcome in LINES]
    offset, expected = 0, []
    for line, _ in LINES:
        expected.append(offset)
        offset += len(line) + 1
    assert locators(items) == expected
    assert all(i.raw == LINES[n][0][: 64 << 10] for n, i in enumerate(items) if isinstance(i, Bad))


@pytest.mark.parametrize("data", [b"", b"\n", b"\n \n\t\r\n", b"\xef\xbb\xbf\n"])
def test_blank_lines_are_no_records(folder: Path, data: bytes) -> None:
    assert read(stored(folder, data, "jsonl")) == []


def test_a_byte_order_mark_at_the_begin_is_passed_over(folder: Path) -> None:
    items = read(stored(folder, b'\xef\xbb\xbf{"text": "a"}\n{"text": "b"}', "jsonl"))
    assert [(d.locator, d.text) for d in documents(items)] == [(0, "a"), (17, "b")]


def test_a_lone_surrogate_is_replaced_and_recorded(folder: Path) -> None:
    line = rb'{"id": "x\udc00", "text": "ok\ud835 \ud83d\ude00\udfff.", "tags": [{"\ud800": "\udbff"}]}'
    item = only(read(stored(folder, line, "jsonl")))
    assert isinstance(item, Read)
    assert item.document.text == "ok\ufffd \U0001f600\ufffd."
    assert item.document.input_id == "x\ufffd"
    assert json.loads(item.document.metadata) == {"tags": [{"\ufffd": "\ufffd"}]}
    assert [(e.stage, e.start, e.end, e.rule, e.before, e.after) for e in item.edits] == [
        ("read", 2, 3, "lone_surrogate", None, "\ufffd"),
        ("read", 5, 6, "lone_surrogate", None, "\ufffd"),
    ]
    assert item.flags == ("lone_surrogate",)
    assert apply_edits(json.loads(line)["text"], item.edits) == item.document.text


def test_a_lone_surrogate_in_another_field_is_flagged_and_edits_nothing(folder: Path) -> None:
    item = only(read(stored(folder, rb'{"text": "fine", "title": "\ud800"}', "jsonl")))
    assert isinstance(item, Read)
    assert (item.edits, item.flags) == ((), ("lone_surrogate",))
    assert json.loads(item.document.metadata) == {"title": "\ufffd"}


def test_an_unreadable_line_still_tells_its_id(folder: Path) -> None:
    lines = b'{"id": 7, "text": "\xff"}\n{"id": "b", "text": null}\n{"_id": {"$oid": "c"}, "text": 1}\n'
    items = read(stored(folder, lines, "jsonl"))
    assert [i.input_id for i in items if isinstance(i, Bad)] == ["7", "b", '{"$oid":"c"}']


@pytest.mark.parametrize(
    ("tail", "outcome"),
    [
        (b'{"text": "b"}', "b"),
        (b'{"text": "b', "torn"),
        (b'{"text": "\xe4\xb8', "torn"),
        (b'{"text": "b"}x', "torn"),
        (b"b", "not_json"),
        (b'{"text": b}', "not_json"),
        (b"  ", None),
    ],
)
def test_the_end_of_a_plain_file(folder: Path, tail: bytes, outcome: str | None) -> None:
    items = check(stored(folder, b'{"text": "a"}\n' + tail, "jsonl"), ReadLimits())
    assert texts(items[:1]) == ["a"]
    got = [
        i.document.text if isinstance(i, Read) else i.reason for i in items[1:] if not isinstance(i, Skipped)
    ]
    assert got == ([] if outcome is None else [outcome])


@pytest.mark.parametrize("compression", PACKED)
def test_a_torn_tail_is_exactly_one_record(folder: Path, compression: Compression) -> None:
    noise = random.Random(7)
    lines = [b'{"text": "%d"}\n' % noise.getrandbits(200) for _ in range(3000)]
    packed = COMPRESS[compression](b"".join(lines))
    seen = set()
    for kept in (*range(len(packed) - 12, len(packed)), len(packed) // 2, len(packed) * 3 // 4, 40):
        items = check_tail(stored(folder, packed[:kept], "jsonl", compression))
        assert [t.encode() for t in texts(items)] == [line[10:-3] for line in lines[: len(items) - 1]]
        assert [reason for _, reason in bad(items)] == ["torn"]
        seen.add(len(items))
    assert len(seen) > 1


def check_tail(file: InputFile) -> list[Item]:
    items = read(file)
    for item, rest in ((items[-1], []), *(((items[-2], items[-1:]),) if len(items) > 1 else ())):
        assert read(file, start=item.position) == rest
    return items


def test_a_record_that_is_whole_before_the_tear_is_read(folder: Path) -> None:
    whole = gzip.compress(b'{"text": "a"}\n{"text": "b"}')
    items = check(stored(folder, whole[:-4], "jsonl", "gzip"), ReadLimits())
    assert texts(items) == ["a", "b"]
    assert bad(items) == [(27, "torn")]


def test_what_lies_before_a_broken_place_is_read(folder: Path) -> None:
    line = b'{"text": "%d"}\n'
    members = [gzip.compress(b"".join(line % (1000 * m + i) for i in range(1000))) for m in range(3)]
    second = bytearray(members[1])
    second[len(second) // 2] ^= 0xFF
    second[len(second) // 2 + 1] ^= 0xFF
    items = read(stored(folder, members[0] + bytes(second) + members[2], "jsonl", "gzip"))
    assert texts(items)[:1000] == [str(i) for i in range(1000)]
    assert [reason for _, reason in bad(items)] == ["torn"]
    assert isinstance(items[-1], Bad)


# --- size limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [999, 1000, 1001, 5000, 3_000_000])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_record_over_the_limit_is_passed_over(folder: Path, length: int, compression: Compression) -> None:
    long = b'{"text": "' + b"x" * (length - 12) + b'"}'
    assert len(long) == length
    data = b'{"text": "a"}\n' + long + b'\n{"text": "b"}\n' + long
    items = check(stored(folder, COMPRESS[compression](data), "jsonl", compression), ReadLimits(1000))
    if length <= 1000:
        assert len(texts(items)) == 4
    else:
        assert texts(items) == ["a", "b"]
        assert bad(items) == [(14, "too_large"), (14 + length + 1 + 14, "too_large")]
        assert [i.raw for i in items if isinstance(i, Bad)] == [long[: 64 << 10]] * 2


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_huge_line_takes_the_limit_and_not_its_size(folder: Path, compression: Compression) -> None:
    data = b'{"text": "a"}\n{"text": "' + b"x" * 100_000_000 + b'"}\n{"text": "b"}\n'
    if compression == "gzip":
        packer = zlib.compressobj(1, wbits=31)
        data = packer.compress(data) + packer.flush()
    file = stored(folder, data, "jsonl", compression)
    del data
    items: list[Item] = []
    assert peak_bytes(lambda: items.extend(read(file, limits=ReadLimits(2_000_000)))) < 8_000_000
    assert texts(items) == ["a", "b"]
    assert bad(items) == [(14, "too_large")]


def test_a_huge_warc_record_and_a_huge_text_file_take_the_limit(folder: Path) -> None:
    body = b"x" * 50_000_000
    record = warc_record("conversion", b"hello")
    file = stored(folder, record + warc_record("response", body) + record, "warc")
    items: list[Item] = []
    assert peak_bytes(lambda: items.extend(read(file, limits=ReadLimits(2_000_000)))) < 8_000_000
    assert texts(items) == ["hello", "hello"]
    assert bad(items) == [(len(record), "too_large")]
    file = stored(folder, body, "text")
    assert peak_bytes(lambda: items.extend(read(file, limits=ReadLimits(2_000_000)))) < 8_000_000
    assert bad(items[3:]) == [(0, "too_large")]


# --- going on, and segments ---------------------------------------------------------------------------

JSONL = st.lists(
    st.tuples(
        st.sampled_from([line for line, _ in LINES if len(line) < 200]) | st.binary(max_size=12),
        st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\r", b" \n", b"", b"\xe2\x80\xa8"]),
    ),
    max_size=8,
).map(lambda pairs: b"".join(line + end for line, end in pairs))


@given(JSONL, st.sampled_from(["none", "gzip"]), st.sampled_from([20, 10**6]))
def test_reading_goes_on_behind_any_item(
    folder: Path, data: bytes, compression: Compression, limit: int
) -> None:
    check(stored(folder, COMPRESS[compression](data), "jsonl", compression), ReadLimits(limit))


@given(JSONL, st.integers(1, 80), st.sampled_from([20, 10**6]))
def test_segments_hold_each_record_once(folder: Path, data: bytes, unit_bytes: int, limit: int) -> None:
    file, limits = stored(folder, data, "jsonl"), ReadLimits(limit)
    segments = segments_of(file, unit_bytes)
    parts = [list(read_segment(s, limits=limits)) for s in segments]
    assert [i for part in parts for i in part] == read(file, limits=limits)
    for segment, part in zip(segments, parts, strict=True):
        for n, item in enumerate(part, 1):
            assert list(read_segment(segment, limits=limits, start=item.position)) == part[n:]


def test_segments_of_a_large_file_of_long_lines(folder: Path) -> None:
    noise = random.Random(3)
    data = b"".join(
        json.dumps({"text": "\u4e16" * noise.randrange(200_000)}).encode() + b"\n" for _ in range(30)
    )
    file = stored(folder, data, "jsonl")
    whole = read(file)
    for unit_bytes in (100_000, 1 << 20, 3_333_333):
        assert [i for s in segments_of(file, unit_bytes) for i in read_segment(s)] == whole


# --- whole files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "outcome"),
    [
        ("Grüße\r\n世界\u2028".encode(), "Grüße\r\n世界\u2028"),
        (b"\xef\xbb\xbfmarked", "marked"),
        (b" \n", " \n"),
        (b"a" * 70_000 + b"\xff", "not_utf8"),
        (b"a" * 70_000 + b"\0", "binary"),
        (b"[1]" + b"\x01" * 100, "binary"),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary"),
        (b"caf\xe9", "binary"),
        (b'[{"text": "a"}]', "unsupported_format"),
        (b"\xfd7zXZ\0\0\4", "unsupported_format"),
        (b"PK\x03\x04\x14\0", "unsupported_format"),
        ("x".encode("utf-16"), "unsupported_format"),
        (bytes(257) + b"ustar\0", "unsupported_format"),
        (gzip.compress(b"twice"), "unsupported_format"),
        (b"x" * 200_001, "too_large"),
    ],
)
@pytest.mark.parametrize("compression", PACKED)
def test_a_file_is_one_record(folder: Path, data: bytes, outcome: str, compression: Compression) -> None:
    path = folder / "whole"
    path.write_bytes(COMPRESS[compression](data))
    (file,) = list_inputs([str(path)])
    item = only(check(file, ReadLimits(200_000)))
    assert (item.document.text if isinstance(item, Read) else item.reason) == outcome  # type: ignore[union-attr]
    assert item.position == 1


def test_an_array_of_json_is_told_how_to_become_jsonl(folder: Path) -> None:
    path = folder / "array.json"
    path.write_bytes(b'[\n  {"text": "a"}\n]')
    item = only(read(list_inputs([str(path)])[0]))
    assert isinstance(item, Bad)
    assert "JSONL" in item.error


def test_a_plain_source_file_is_code(folder: Path) -> None:
    for name, kind, language in (("x.py", "code", "python"), ("x.txt", "prose", None)):
        path = folder / name
        path.write_bytes(b"print('hello')\n")
        (got,) = documents(read(list_inputs([str(path)])[0]))
        assert (got.kind, got.programming_language, got.input_id) == (kind, language, None)


def test_an_empty_file_has_no_record(folder: Path) -> None:
    for compression in COMPRESS:
        path = folder / "empty"
        path.write_bytes(COMPRESS[compression](b""))
        (file,) = list_inputs([str(path)])
        assert file.format == "empty"
        assert read(file) == []


@pytest.mark.parametrize("compression", PACKED)
def test_a_file_torn_at_its_head_is_one_record(folder: Path, compression: Compression) -> None:
    path = folder / "torn"
    path.write_bytes(COMPRESS[compression](b"some text " * 1000)[:12])
    item = only(check(list_inputs([str(path)])[0], ReadLimits()))
    assert isinstance(item, Bad)
    assert item.reason == "torn"


@given(
    st.binary(max_size=200) | JSONL,
    st.sampled_from(["jsonl", "warc", "parquet", "text", "binary"]),
    st.sampled_from(list(COMPRESS)),
    st.integers(0, 30),
)
@settings(max_examples=200)
def test_any_bytes_read_as_any_format_raise_nothing(
    folder: Path, data: bytes, file_format: Format, compression: Compression, cut: int
) -> None:
    packed = COMPRESS[compression](data)
    items = check(stored(folder, packed[: len(packed) - cut], file_format, compression), ReadLimits(100))
    if file_format in ("text", "binary"):
        assert len(items) == 1
    check(stored(folder, data, file_format, compression), ReadLimits(100))


def test_an_error_of_the_store_is_no_bad_record(folder: Path) -> None:
    for file_format in ("jsonl", "warc", "text", "parquet"):
        file = stored(folder, b"data", file_format)
        (folder / "file").unlink()
        with pytest.raises(FileNotFoundError):
            read(file)


# --- real data ----------------------------------------------------------------------------------------


def decompressed(path: Path) -> bytes:
    """All that zlib can decompress of a file: not by the code under test."""
    data = path.read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        return data
    out = b""
    while data:
        member = zlib.decompressobj(31)
        out += member.decompress(data)
        data = member.unused_data
    return out


TYPES = re.compile(rb"^WARC/[\d.]+\r?\n(?:[^\r\n]+\r?\n)*?WARC-Type: (\w+)", re.MULTILINE)
WARCS = {
    "cc_net__sample.warc.txt": (4, 3),
    "chatnoir-resiliparse__block-sized-records.warc": (3, 0),
    "chatnoir-resiliparse__clipped.warc.gz": (1, 0),
    "chatnoir-resiliparse__clueweb-quirk.warc.gz": (30, 29),
    "chatnoir-resiliparse__warcfile.warc.gz": (50, 16),
    "dolma__sample-0000.warc.gz": (48, 24),
    "dolma__sample-0001.warc.gz": (34, 17),
    "warcio__example-iana.org-chunked.warc": (3, 1),
    "warcio__example.warc": (6, 1),
}


@pytest.mark.parametrize("name", WARCS)
def test_every_record_of_real_warc_files(name: str) -> None:
    path = real("web/warc") / name
    records, held = WARCS[name]
    (file,) = list_inputs([str(path)])
    assert file.format == "warc"
    items = check(file, ReadLimits())
    data = decompressed(path)
    types = [m.group(1).decode() for m in TYPES.finditer(data)]
    torn = "clipped" in name
    assert len(items) == len(types) == records
    assert (
        len(documents(items))
        == held
        == sum(t in ("response", "resource", "conversion") for t in types) - torn
    )
    assert bad(items) == ([(0, "torn")] if torn else [])
    starts = [m.start() for m in TYPES.finditer(data)]
    documents_at = [
        s for s, t in zip(starts, types, strict=True) if t in ("response", "resource", "conversion")
    ]
    assert locators(items) == documents_at
    # The library does not follow LF-only files; in the others it finds the same records.
    if b"\r\n" in data[:50] and not torn:
        found = [r.stream_pos for r in ArchiveIterator(io.BytesIO(data), parse_http=False)]
        assert found == starts


def test_texts_of_real_warc_files() -> None:
    folder = real("web/warc")
    every = {d.doc_id: d for f in list_inputs([str(folder)]) for d in documents(read(f))}
    assert "これ" in "".join(d.text for i, d in every.items() if "clueweb" in i), "EUC-JP"
    iana = next(d for i, d in every.items() if "iana" in i)
    assert iana.text.startswith("<!doctype html>"), "chunked"
    assert iana.text.rstrip().endswith("</html>")
    example = next(d for i, d in every.items() if i.startswith("warc/warcio__example.warc"))
    assert "Example Domain" in example.text, "gzip"
    wet = [d for i, d in every.items() if "cc_net" in i]
    assert [d.url for d in wet] == [
        "http://sample_english.com",
        "http://sample_chinese.zh",
        "http://sample_russian.ru",
    ]
    assert wet[1].text.startswith("馬克·吐溫名言")
    assert wet[2].text.endswith("Правда нет.")
    assert "\ufffd" not in "".join(d.text for d in wet)


def test_what_of_the_real_corpus_cannot_be_read() -> None:
    roots = [str(real(name)) for name in ("web/warc", "text", "lowquality")]
    quarantined, counts = [], Counter[str]()
    for file in list_inputs(roots, exclude=["SOURCE.txt", "ldnoobw/*"]):
        for item in read(file):
            counts[type(item).__name__] += 1
            if isinstance(item, Bad):
                quarantined.append((file.doc_id(item.locator), item.reason))
    assert quarantined == [
        ("lowquality/ungoliant_garbage.txt.gz#0", "binary"),
        ("warc/chatnoir-resiliparse__clipped.warc.gz#0", "torn"),
    ]
    lines = sum(
        sum(1 for line in gzip.decompress(path.read_bytes()).split(b"\n") if line.strip())
        for root in roots[1:]
        for path in Path(root).glob("*.jsonl.gz")
    )
    assert counts["Read"] == lines + sum(held for _, held in WARCS.values())
