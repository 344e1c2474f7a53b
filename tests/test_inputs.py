"""Listing inputs: ids, formats by content, fingerprints, segments."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from reading import COMPRESS, PACKED

from pipeline.compression import Compression, local_path, local_url, open_stored
from pipeline.inputs import FORMATS, InputError, InputFile, Segment, format_of, list_inputs, segments_of

LINE = b'{"text": "a"}\n'


def parquet(rows: int = 7, group: int = 3) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [f"row {i}" for i in range(rows)]}), sink, row_group_size=group)
    return sink.getvalue()


def write(folder: Path, names: str, data: bytes = LINE) -> None:
    for name in names.split():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def ids(files: list[InputFile]) -> list[str]:
    return [f"{f.source}/{f.path}" for f in files]


# --- which files ----------------------------------------------------------------------------------------


def test_a_folder_its_glob_and_its_files_give_the_same_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "web/b.jsonl web/a.jsonl")
    web = tmp_path / "web"
    expected = list_inputs([str(web)])
    assert ids(expected) == ["web/a.jsonl", "web/b.jsonl"]
    monkeypatch.chdir(web)
    for paths in (
        [f"{web}/"],
        [f"{web}/*"],
        [str(web / "b.jsonl"), str(web / "a.jsonl")],
        [str(web), f"{web}/*"],
        ["."],
        ["b.jsonl", "../web/a.jsonl"],
        [f"file://{web}"],
    ):
        assert list_inputs(paths) == expected, paths


def test_a_folder_is_walked_through_and_sorted(tmp_path: Path) -> None:
    write(tmp_path, "web/z/a web/b web/a/c.d/e web/a-b")
    assert ids(list_inputs([str(tmp_path / "web")])) == ["web/a-b", "web/a/c.d/e", "web/b", "web/z/a"]


def test_hidden_names_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    write(tmp_path, "web/a web/.b web/.git/c web/d/.e/f")
    assert ids(list_inputs([str(tmp_path / "web")])) == ["web/a"]
    assert ids(list_inputs([str(tmp_path / "web/.b")])) == ["web/.b"]
    assert ids(list_inputs([str(tmp_path / "web/.git")])) == [".git/c"]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        (["SOURCE.txt"], ["web/a", "web/words/en.txt", "web/words/x/de.txt"]),
        (["words/*"], ["web/SOURCE.txt", "web/a", "web/x/SOURCE.txt"]),
        (["*.txt"], ["web/a"]),
        (["x/SOURCE.txt", "[ab]"], ["web/SOURCE.txt", "web/words/en.txt", "web/words/x/de.txt"]),
        (["*"], []),
    ],
)
def test_exclude_matches_the_relative_path_or_the_base_name(
    tmp_path: Path, exclude: list[str], left: list[str]
) -> None:
    write(tmp_path, "web/a web/SOURCE.txt web/x/SOURCE.txt web/words/en.txt web/words/x/de.txt")
    assert ids(list_inputs([str(tmp_path / "web")], exclude=exclude)) == left


def test_a_recipe_names_the_source(tmp_path: Path) -> None:
    write(tmp_path, "2024/a.jsonl 2024/x/b.jsonl 2025/a.jsonl 2025/y/b.jsonl")
    old, new = str(tmp_path / "2024"), str(tmp_path / "2025")
    names = {old: "old", new: "new"}
    found = ids(list_inputs([old, new], source_names=names))
    assert found == ["new/a.jsonl", "new/y/b.jsonl", "old/a.jsonl", "old/x/b.jsonl"]
    # Below the first wildcard of a glob, so that files of one name stay apart.
    pattern = f"{tmp_path}/20*/a.jsonl"
    assert ids(list_inputs([pattern], source_names={pattern: "crawl"})) == [
        "crawl/2024/a.jsonl",
        "crawl/2025/a.jsonl",
    ]
    folders = f"{tmp_path}/20*"
    assert ids(list_inputs([folders], source_names={folders: "crawl"})) == [
        "crawl/2024/a.jsonl",
        "crawl/2024/x/b.jsonl",
        "crawl/2025/a.jsonl",
        "crawl/2025/y/b.jsonl",
    ]


def test_a_glob_matches_as_a_shell_would(tmp_path: Path) -> None:
    write(tmp_path, "web/a.jsonl web/b.txt web/x/c.jsonl web/x/y/d.jsonl")
    web = tmp_path / "web"
    assert ids(list_inputs([f"{web}/*.jsonl"])) == ["web/a.jsonl"]
    assert ids(list_inputs([f"{web}/*/*.jsonl"])) == ["x/c.jsonl"]
    assert ids(list_inputs([f"{web}/?"])) == ["x/c.jsonl", "x/y/d.jsonl"]
    assert ids(list_inputs([f"{web}/**/*.jsonl"])) == ["web/a.jsonl", "x/c.jsonl", "y/d.jsonl"]
    write(tmp_path, "web/[x].txt")
    assert ids(list_inputs([f"{web}/[x].txt"])) == ["web/[x].txt"], "a name with a bracket is a name first"


def test_two_files_with_one_id_are_refused_and_both_are_named(tmp_path: Path) -> None:
    write(tmp_path, "one/web/a two/web/a")
    one, two = str(tmp_path / "one/web"), str(tmp_path / "two/web")
    with pytest.raises(InputError) as raised:
        list_inputs([one, two])
    assert "web/a" in str(raised.value)
    assert one in str(raised.value)
    assert two in str(raised.value)
    assert len(list_inputs([one, two], source_names={one: "first"})) == 2
    # Another way to one id: the border between source and path moves.
    write(tmp_path, "b/c d/b/c")
    names = {str(tmp_path / "b"): "s/b", str(tmp_path / "d"): "s"}
    with pytest.raises(InputError, match="s/b/c"):
        list_inputs(list(names), source_names=names)


@pytest.mark.parametrize("path", ["nowhere", "nowhere/*.jsonl", "a/b", "link", "memory://nowhere/x"])
def test_a_path_that_is_not_there_is_named(tmp_path: Path, path: str) -> None:
    write(tmp_path, "a")
    (tmp_path / "link").symlink_to("nothing")
    argument = path if "://" in path else str(tmp_path / path)
    with pytest.raises(InputError) as raised:
        list_inputs([argument])
    assert argument in str(raised.value)


def test_a_store_that_is_not_known_is_named() -> None:
    with pytest.raises(InputError, match="nostore://bucket/x"):
        list_inputs(["nostore://bucket/x"])


def test_links_inside_a_folder_are_read_and_links_out_of_it_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "web/a.jsonl web/x/b.jsonl outside/secret.jsonl")
    web = tmp_path / "web"
    (web / "inside.jsonl").symlink_to("x/b.jsonl")
    (web / "secret.jsonl").symlink_to("../outside/secret.jsonl")
    (web / "loop").symlink_to(".")
    (web / "x/up").symlink_to("../..")
    (web / "outside").symlink_to("../outside")
    (web / "broken").symlink_to("nothing")
    (tmp_path / "webs").mkdir()
    (web / "prefix").symlink_to("../webs")  # a sibling whose name begins like the folder's
    found = list_inputs([str(web)])
    assert ids(found) == ["web/a.jsonl", "web/inside.jsonl", "web/x/b.jsonl"]
    assert found[1].fingerprint == found[2].fingerprint
    assert "5 links that lead out of it" in caplog.text
    # The folder itself may be reached by a link; its name is then the link's.
    (tmp_path / "latest").symlink_to("web")
    assert ids(list_inputs([str(tmp_path / "latest")])) == [
        "latest/a.jsonl",
        "latest/inside.jsonl",
        "latest/x/b.jsonl",
    ]


def test_a_folder_of_nothing_but_links_out_is_no_silent_nothing(tmp_path: Path) -> None:
    write(tmp_path, "blobs/0a1b")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot/data.parquet").symlink_to("../blobs/0a1b")
    with pytest.raises(InputError, match="links that lead out"):
        list_inputs([str(tmp_path / "snapshot")])
    assert list_inputs([str(tmp_path / "blobs")])


def test_special_files_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "web/a")
    os.mkfifo(tmp_path / "web/pipe")
    assert ids(list_inputs([str(tmp_path / "web")])) == ["web/a"]
    with pytest.raises(InputError, match="pipe"):
        list_inputs([str(tmp_path / "web/pipe")])


@pytest.fixture
def no_root() -> Iterator[None]:
    """Root may read everything: be nobody for a while."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    yield
    if was == 0:
        os.seteuid(0)


@pytest.mark.usefixtures("no_root")
def test_what_may_not_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, "web/a web/x/b")
        (folder / "web/a").chmod(0)
        with pytest.raises(InputError, match="web/a"):
            list_inputs([str(folder / "web")])
        (folder / "web/a").chmod(0o600)
        (folder / "web/x").chmod(0)
        with pytest.raises(InputError, match="web/x"):
            list_inputs([str(folder / "web")])
        (folder / "web/x").chmod(0o700)
        assert ids(list_inputs([str(folder / "web")])) == ["web/a", "web/x/b"]


def test_names_that_are_not_utf8_are_escaped_in_ids_and_still_open(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/web"
    os.mkdir(folder)
    for name in (b"caf\xe9.jsonl", b"new\nline", "中文 #1%.jsonl".encode()):
        Path(os.fsdecode(folder + b"/" + name)).write_bytes(LINE)
    found = list_inputs([str(tmp_path / "web")])
    assert ids(found) == ["web/caf%E9.jsonl", "web/new%0Aline", "web/中文 #1%.jsonl"]
    for file in found:
        again = InputFile.from_json(json.loads(json.dumps(file.to_json())))
        assert again == file
        file.url.encode("ascii")
        assert Path(local_path(again.url) or "").read_bytes() == LINE
    assert ids(list_inputs([os.fsdecode(folder + b"/caf\xe9.jsonl")])) == ["web/caf%E9.jsonl"]


@given(st.binary(min_size=1).filter(lambda b: b"\0" not in b))
def test_a_local_url_leads_back_to_any_path(name: bytes) -> None:
    path = os.path.abspath(b"/" + name)
    assert local_path(local_url(os.fsdecode(path))) == os.fsdecode(path)


# --- stores ---------------------------------------------------------------------------------------------


class TaggedFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory, with the entity tags that object stores give."""

    protocol = "tagged"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace("tagged://", "memory://")))

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return self._tagged(super().info(path, **kwargs))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        entries = [self._tagged(entry) for entry in super().ls(path, detail=True, **kwargs)]
        return entries if detail else [entry["name"] for entry in entries]

    def _tagged(self, info: dict[str, Any]) -> dict[str, Any]:
        if info["type"] == "file":
            info["ETag"] = f'"{hashlib.md5(self.cat_file(info["name"])).hexdigest()}"'
        return info


@pytest.fixture(params=["memory", "tagged"])
def bucket(request: pytest.FixtureRequest) -> Iterator[str]:
    fsspec.register_implementation("tagged", TaggedFileSystem, clobber=True)
    store = fsspec.filesystem(request.param)
    for name in ("web/b.jsonl", "web/x/a.jsonl", "web/.hidden", "web/SOURCE.txt"):
        store.pipe_file(f"/bucket/{name}", LINE)
    yield f"{request.param}://bucket"
    store.rm("/bucket", recursive=True)


def test_urls_are_listed_like_local_paths(bucket: str) -> None:
    found = list_inputs([f"{bucket}/web"], exclude=["SOURCE.txt"])
    assert ids(found) == ["web/b.jsonl", "web/x/a.jsonl"]
    assert [f.format for f in found] == ["jsonl", "jsonl"]
    assert [open_stored(f.url).read() for f in found] == [LINE, LINE]
    assert list_inputs([f"{bucket}/web/", f"{bucket}/web/*.jsonl"], exclude=["SOURCE.txt"]) == found
    assert ids(list_inputs([f"{bucket}/web/b.jsonl"])) == ["web/b.jsonl"]
    assert ids(list_inputs([f"{bucket}/*/x"])) == ["x/a.jsonl"]
    pattern = f"{bucket}/*/b.jsonl"
    assert ids(list_inputs([pattern], source_names={pattern: "crawl"})) == ["crawl/web/b.jsonl"]


def test_fingerprints_of_urls(bucket: str) -> None:
    (file,) = list_inputs([f"{bucket}/web/b.jsonl"])
    digest = hashlib.md5(LINE).hexdigest()
    if bucket.startswith("tagged"):
        assert file.fingerprint == f"etag:{digest}:{len(LINE)}"
    else:
        assert file.fingerprint == f"sha256:{hashlib.sha256(LINE).hexdigest()}"
    assert file.size == len(LINE)


def test_a_local_fingerprint_is_of_the_bytes_and_not_of_the_time(tmp_path: Path) -> None:
    write(tmp_path, "web/a web/b")
    first, second = list_inputs([str(tmp_path / "web")])
    assert first.fingerprint == second.fingerprint == f"sha256:{hashlib.sha256(LINE).hexdigest()}"
    os.utime(tmp_path / "web/a", (1, 1))
    assert list_inputs([str(tmp_path / "web")]) == [first, second]
    (tmp_path / "web/a").write_bytes(LINE[:-1] + b" ")
    assert list_inputs([str(tmp_path / "web")])[0].fingerprint != first.fingerprint


# --- formats --------------------------------------------------------------------------------------------

LONG_LINE = b'{"id": 1, "text": "' + b"x" * 100_000
CONTENTS = [
    ("jsonl", LINE),
    ("jsonl", b'\n\n \r\n{"text": "a"}'),
    ("jsonl", b"\xef\xbb\xbf" + LINE),
    ("jsonl", b'broken\n{"text": "a"}\n'),
    ("jsonl", b'{"text": "\xff"}\n'),
    ("jsonl", b'{"text": "\\ud835", "x": NaN}\n'),
    ("jsonl", b"{}\n"),
    ("jsonl", LONG_LINE),
    ("jsonl", LONG_LINE + b'"}\n'),
    ("jsonl", b'{"id": 1, "text": "the file was cut he'),
    ("parquet", parquet()),
    ("parquet", b"PAR1\x15\x00\x15\x00 and no footer"),
    ("warc", b"WARC/1.0\r\nWARC-Type: warcinfo\r\n"),
    ("warc", b"WARC/1.1\nWARC-Type: conversion\n"),
    ("warc", b"\r\nWARC/0.18\r\n"),
    ("text", "Grüße, 世界\n".encode()),
    ("text", b"\xef\xbb\xbfwith a byte order mark"),
    ("text", "世".encode() * 30_000),
    ("text", b'{\n  "name": "pretty",\n  "printed": true\n}\n'),
    ("text", b"[1, 2, 3]\n"),
    ("text", b"* one\n" * 20 + LINE),
    ("text", b"* one\n" * 20 + LINE.rstrip()),
    ("text", b"* one\n" * 20_000 + LONG_LINE),
    ("jsonl", b"* one\n" * 4 + LINE),
    ("binary", b'[\n  {"text": "a"},\n  {"text": "b"}\n]\n'),
    ("jsonl", b'[{"text": "an array in the first line"}]\n' + LINE),
    ("text", b" \n"),
    ("text", b"PAR1 is a magic word"),
    ("binary", b'[{"text": "a"},\n {"text": "b"}]\n'),
    ("binary", b"caf\xe9 in Latin-1\n"),
    ("binary", "UTF-16".encode("utf-16")),
    ("binary", b"text with a NUL\0 in it"),
    ("binary", bytes(range(256))),
    ("empty", b""),
]


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize(("expected", "data"), CONTENTS, ids=range(len(CONTENTS)))
def test_format_and_compression_are_told_by_content(
    tmp_path: Path, expected: str, data: bytes, compression: Compression
) -> None:
    assert expected in FORMATS
    path = tmp_path / "file.parquet.bz2"
    path.write_bytes(COMPRESS[compression](data))
    (file,) = list_inputs([str(path)])
    assert (file.format, file.compression) == (expected, compression)


@pytest.mark.parametrize("compression", PACKED)
def test_a_torn_file_has_the_format_of_what_is_left(tmp_path: Path, compression: Compression) -> None:
    data = b"".join(b'{"text": "%d"}\n' % (i * i) for i in range(100_000))
    stored = COMPRESS[compression](data)
    for name, kept in (("half", len(stored) * 9 // 10), ("head", 12)):
        (tmp_path / name).write_bytes(stored[:kept])
    half, head = list_inputs([str(tmp_path / "half"), str(tmp_path / "head")])
    assert (half.format, half.compression) == ("jsonl", compression)
    assert (head.format, head.compression) == ("binary", compression)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_have_a_format(sample: bytes, whole: bool) -> None:
    assert format_of(sample, whole) in FORMATS


def test_parquet_row_groups_are_told(tmp_path: Path) -> None:
    write(tmp_path, "a", parquet(rows=7, group=3))
    write(tmp_path, "b", parquet()[:-1])
    good, broken = list_inputs([str(tmp_path / "a"), str(tmp_path / "b")])
    assert good.rows_by_group == (3, 3, 1)
    assert len(good.bytes_by_group) == 3
    assert min(good.bytes_by_group) > 0
    assert (broken.format, broken.rows_by_group) == ("parquet", ())


# --- segments -------------------------------------------------------------------------------------------


def jsonl_file(size: int, compression: Any = "none") -> InputFile:
    return InputFile("s", "p", "memory://p", size, "", "jsonl", compression)


@given(st.integers(1, 10**6), st.integers(1, 10**6).filter(lambda n: n > 100))
def test_segments_of_jsonl_cover_the_file_once(size: int, unit_bytes: int) -> None:
    segments = segments_of(jsonl_file(size), unit_bytes)
    if size <= unit_bytes:
        assert segments == [Segment(jsonl_file(size), 0, None)]
        return
    assert [s.begin for s in segments] == [0, *[s.end for s in segments[:-1]]]
    assert segments[-1].end == size
    assert all(0 < (s.end or 0) - s.begin <= unit_bytes for s in segments)


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 3000))
def test_segments_of_parquet_are_runs_of_row_groups(sizes: list[int], unit_bytes: int) -> None:
    file = InputFile("s", "p", "memory://p", 1, "", "parquet", "none", (1,) * len(sizes), tuple(sizes))
    segments = segments_of(file, unit_bytes)
    covered = [g for s in segments for g in range(s.begin, len(sizes) if s.end is None else s.end)]
    assert covered == list(range(len(sizes)))
    assert all(s.end is None or s.begin < s.end for s in segments)
    if len(segments) > 1:
        held = [sum(sizes[s.begin : s.end]) for s in segments]
        assert all(
            h <= unit_bytes or (s.end or 0) - s.begin == 1 for h, s in zip(held, segments, strict=True)
        )
        assert all(
            h + sizes[after.begin] > unit_bytes for h, after in zip(held, segments[1:], strict=False)
        ), "a segment takes what fits"


def test_other_files_are_one_segment_and_an_empty_one_none() -> None:
    assert segments_of(jsonl_file(10**6, "gzip"), 10) == [Segment(jsonl_file(10**6, "gzip"), 0, None)]
    warc = InputFile("s", "p", "memory://p", 10**6, "", "warc")
    assert segments_of(warc, 10) == [Segment(warc)]
    assert segments_of(InputFile("s", "p", "memory://p", 0, "", "empty"), 10) == []
    with pytest.raises(ValueError, match="unit_bytes"):
        segments_of(warc, 0)


def test_files_and_segments_survive_json(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", parquet())
    (file,) = list_inputs([str(tmp_path)])
    for segment in [Segment(file), *segments_of(file, 1)]:
        assert Segment.from_json(json.loads(json.dumps(segment.to_json()))) == segment
