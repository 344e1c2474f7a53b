"""Reading Parquet: columns of every type, row groups, and files that are broken."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import (
    bad,
    check,
    documents,
    locators,
    only,
    read,
    texts,
)

from pipeline.inputs import InputFile, Segment, list_inputs, segments_of
from pipeline.readers import (
    Bad,
    FieldMapping,
    Item,
    Read,
    ReadLimits,
    read_segment,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


def parquet(folder: Path, table: pa.Table, **options: Any) -> InputFile:
    path = folder / "table.parquet"
    pq.write_table(table, path, **options)
    (file,) = list_inputs([str(path)])
    assert file.format == "parquet"
    return file


def test_columns_of_every_type_are_kept(folder: Path) -> None:
    noon = datetime(2024, 5, 6, 12, 30, tzinfo=UTC)
    columns: dict[str, tuple[pa.Array, Any]] = {
        "int": (pa.array([2**63 - 1]), 2**63 - 1),
        "uint": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
        "float": (pa.array([math.nan]), "NaN"),
        "half": (pa.array([-math.inf], pa.float16()), "-Infinity"),
        "bool": (pa.array([True]), True),
        "null": (pa.nulls(1), None),
        "bytes": (pa.array([b"\xff\x00"]), "/wA="),
        "fixed": (pa.array([b"ab"], pa.binary(2)), "YWI="),
        "decimal": (pa.array([Decimal("1.20")]), "1.20"),
        "day": (pa.array([date(2024, 5, 6)]), "2024-05-06"),
        "instant": (pa.array([noon], pa.timestamp("us", "Asia/Shanghai")), "2024-05-06T12:30:00.000000Z"),
        "nowhere": (pa.array([1], pa.timestamp("ns", "No/Where")), "1970-01-01T00:00:00.000000001Z"),
        "naive": (pa.array([1], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001"),
        "duration": (pa.array([timedelta(seconds=2)]), "2000000us"),
        "list": (pa.array([[1, None, 2]]), [1, None, 2]),
        "fixed list": (pa.array([[1.5, math.inf]], pa.list_(pa.float64(), 2)), [1.5, "Infinity"]),
        "struct": (pa.array([{"a": b"x", "b": {"c": noon}}]), {"a": "eA==", "b": {"c": str(noon)}}),
        "structs": (pa.array([[{"a": 1}, None]]), [{"a": 1}, None]),
        "map": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), [{"key": "k", "value": 1}]),
        "dictionary": (pa.array(["x"]).dictionary_encode(), "x"),
        "large": (pa.array(["x"], pa.large_string()), "x"),
        "view": (pa.array(["x"], pa.string_view()), "x"),
    }
    columns["struct"][1]["b"]["c"] = "2024-05-06T12:30:00.000000Z"
    arrays = {name: array for name, (array, _) in columns.items()}
    item = only(read(parquet(folder, pa.table({"text": ["t"], **arrays}))))
    assert isinstance(item, Read)
    assert json.loads(item.document.metadata) == {name: value for name, (_, value) in columns.items()}


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()], ids=str
)
def test_a_text_column_may_have_any_type_of_strings(folder: Path, kind: pa.DataType) -> None:
    texts_in = pa.array(["a", None, "\u4e16", ""], pa.string()).cast(pa.binary()).to_pylist()
    is_text = kind in (pa.string(), pa.large_string(), pa.string_view())
    column = pa.array([t.decode() if is_text and t is not None else t for t in texts_in], kind)
    file = parquet(folder, pa.table({"id": [1, 2, 3, 4], "text": column}))
    items = check(file, ReadLimits())
    assert texts(items) == ["a", "\u4e16", ""]
    assert bad(items) == [(1, "no_text")]
    assert [d.input_id for d in documents(items)] == ["1", "3", "4"]


def test_strings_that_are_not_utf8_cost_their_row(folder: Path) -> None:
    data = pa.array([b"ok", b"\xff\xfe", b"\xe4\xb8\x96"])
    broken = pa.Array.from_buffers(pa.string(), 3, data.buffers())
    ids = pa.array(["x", "y", "z"])
    for table in (
        pa.table({"text": broken, "id": ids}),
        pa.table({"text": data, "id": ids}),
        pa.table({"text": ["ok", "", "\u4e16"], "id": ids, "title": broken}),
        pa.table({"text": ["ok", "", "\u4e16"], "id": ids, "m": pa.StructArray.from_arrays([broken], ["s"])}),
    ):
        items = check(parquet(folder, table), ReadLimits())
        assert texts(items) == ["ok", "\u4e16"]
        assert bad(items) == [(1, "not_utf8")]
        assert items[1].input_id == "y"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"text": [1, 2]}), "wrong_type"),
        (pa.table({"text": pa.nulls(2)}), "no_text"),
        (pa.table({"title": ["a", "b"]}), "no_text"),
        (pa.table({"text": [["a"], ["b"]]}), "wrong_type"),
        (pa.table({"text": ["x" * 2000, "y" * 2000]}), "too_large"),
    ],
    ids=["number", "null", "absent", "list", "large"],
)
def test_rows_without_a_text_say_why(folder: Path, table: pa.Table, reason: str) -> None:
    items = check(parquet(folder, table), ReadLimits(1000))
    assert bad(items) == [(0, reason), (1, reason)]


def test_a_text_inside_a_struct_can_be_named(folder: Path) -> None:
    file = parquet(folder, pa.table({"doc": [{"body": "a", "n": 1}, None]}))
    items = read(file, mapping=FieldMapping(text="doc.body"))
    assert [(d.text, d.metadata) for d in documents(items)] == [("a", '{"doc":{"n":1}}')]
    assert bad(items) == [(1, "no_text")]


def test_columns_of_one_name_are_both_kept(folder: Path) -> None:
    table = pa.table([["t"], ["a"], ["b"]], names=["text", "x", "x"])
    (got,) = documents(read(parquet(folder, table)))
    assert json.loads(got.metadata) == {"x": "a", "x#2": "b"}


@given(st.integers(0, 40), st.integers(1, 15), st.integers(1, 2000))
@settings(max_examples=30)
def test_row_groups_are_segments_and_rows_positions(
    folder: Path, rows: int, group: int, unit_bytes: int
) -> None:
    table = pa.table(
        {"text": pa.array([None if i % 7 == 3 else f"row {i}" for i in range(rows)], pa.string())}
    )
    file = parquet(folder, table, row_group_size=group)
    items = check(file, ReadLimits())
    assert locators(items) == list(range(rows))
    segments = segments_of(file, unit_bytes)
    assert [i for s in segments for i in read_segment(s)] == items
    for segment in segments:
        part = list(read_segment(segment))
        for n, item in enumerate(part, 1):
            assert list(read_segment(segment, start=item.position)) == part[n:]


def test_a_large_row_group_is_read_in_batches(folder: Path) -> None:
    words = [random.Random(i).randbytes(10_000).hex() for i in range(2000)]
    file = parquet(folder, pa.table({"text": words}), row_group_size=2000, use_dictionary=False)
    assert len(file.rows_by_group) == 1
    pa_before = pa.default_memory_pool().bytes_allocated()
    peaks = []
    for item in read_segment(Segment(file)):
        assert isinstance(item, Read)
        assert item.document.text == words[item.document.locator]
        peaks.append(pa.default_memory_pool().bytes_allocated() - pa_before)
    assert len(peaks) == 2000
    assert max(peaks) < 32 << 20 < sum(map(len, words))


def test_a_broken_footer_is_one_record(folder: Path) -> None:
    path = folder / "broken.parquet"
    pq.write_table(pa.table({"text": ["a"]}), path)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little")
    for data in (whole[:-1], whole[: len(whole) // 2], whole[: -8 - footer] + b"\xff" * footer + whole[-8:]):
        path.write_bytes(data)
        (file,) = list_inputs([str(path)])
        items = check(file, ReadLimits())
        assert bad(items) == [(0, "unreadable_file")]
        assert segments_of(file, 1) == [Segment(file)]


def test_a_broken_row_group_costs_its_rest_and_no_more(folder: Path) -> None:
    path = folder / "broken.parquet"
    words = [f"{random.Random(i).getrandbits(4000):x}" for i in range(900)]
    pq.write_table(
        pa.table({"text": words}), path, row_group_size=300, use_dictionary=False, data_page_size=9000
    )
    data = bytearray(path.read_bytes())
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    middle = chunk.data_page_offset + chunk.total_compressed_size * 9 // 10
    data[middle : middle + 20_000] = b"\xff" * 20_000
    path.write_bytes(data)
    (file,) = list_inputs([str(path)])
    items = check_positions(file)
    (hole,) = [i for i in items if isinstance(i, Bad)]
    assert hole.reason == "unreadable_file"
    assert 300 <= hole.locator < 600
    assert hole.position == 600
    assert read(file, start=600) == items[items.index(hole) + 1 :]
    assert texts(items) == words[: hole.locator] + words[600:]


def check_positions(file: InputFile) -> list[Item]:
    items = read(file)
    for n in range(0, len(items), 50):
        assert read(file, start=items[n].position) == items[n + 1 :]
    return items


def test_parquet_inside_gzip_is_told(folder: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"]}), sink)
    path = folder / "a.parquet.gz"
    path.write_bytes(gzip.compress(sink.getvalue()))
    (file,) = list_inputs([str(path)])
    item = only(read(file))
    assert isinstance(item, Bad)
    assert item.reason == "unsupported_format"
    assert "Parquet" in item.error
