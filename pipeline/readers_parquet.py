"""Reading Parquet: each row of a row group is a record, every column a field."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.readers_fields import Problem, RecordReader
from pipeline.readers_items import MAX_RAW_BYTES, Bad, Item, Read, ReadLimits, ReadReason
from pipeline.readers_json import NotJson, has_surrogates, without_surrogates

_BATCH_BYTES = 8 << 20
_MAX_BATCH_ROWS = 256
_BUFFER_BYTES = 1 << 20


class _Watched:
    """A stored file that remembers an error of the store, which Arrow reports like damage of the data."""

    def __init__(self, stored: BinaryIO) -> None:
        self._stored = stored
        self.failure: OSError | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stored.read(size)
        except OSError as error:
            self.failure = error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stored.seek(offset, whence)

    def tell(self) -> int:
        return self._stored.tell()

    def close(self) -> None:
        self._stored.close()

    @property
    def closed(self) -> bool:
        return self._stored.closed


def row_groups(stored: BinaryIO) -> tuple[tuple[int, int], ...] | None:
    """Rows and uncompressed bytes of each row group, or None when the file's footer cannot be read."""
    watched = _Watched(stored)
    try:
        metadata = pq.ParquetFile(pa.PythonFile(watched, mode="r")).metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        return tuple((g.num_rows, g.total_byte_size) for g in groups)
    except Exception:
        if watched.failure is not None:
            raise watched.failure from None
        return None


def read_parquet(
    stored: BinaryIO,
    records: RecordReader,
    limits: ReadLimits,
    begin: int = 0,
    end: int | None = None,
    start: int | None = None,
) -> Iterator[Item]:
    """The rows of row groups [begin, end), from row `start` of the file on.

    Memory: one batch of rows (8 MiB by the average row, at most 256 rows). Where a row group breaks off,
    the rest of it is one `unreadable_file`, and reading goes on with the next.
    """
    watched = _Watched(stored)
    try:
        file = pq.ParquetFile(pa.PythonFile(watched, mode="r"), buffer_size=_BUFFER_BYTES, pre_buffer=False)
        metadata = file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        names = _unique(file.schema_arrow.names)
    except Exception as error:
        if watched.failure is not None:
            raise watched.failure from None
        if not start:
            yield Bad(0, None, "unreadable_file", f"the Parquet footer cannot be read: {error}", b"", 1)
        return
    as_text = {way[0] for way in records.plan(tuple(names)).values() if len(way) == 1}
    row = sum(sizes[:begin])
    for group in range(begin, len(sizes) if end is None else min(end, len(sizes))):
        first, row = row, row + sizes[group]
        if start is not None and row <= start:
            continue
        skipped = max(start or 0, first) - first
        for item in _read_group(file, watched, group, first, names, as_text, skipped):
            if isinstance(item, Bad):
                yield item
            else:
                yield _item(*item, records, limits)


def _read_group(
    file: pq.ParquetFile,
    watched: _Watched,
    group: int,
    first: int,
    names: list[str],
    as_text: set[str],
    skipped: int,
) -> Iterator[tuple[int, dict[str, Any], bool] | Bad]:
    """Rows of one group as (row number, record, whether it may hold bytes that are not UTF-8)."""
    info = file.metadata.row_group(group)
    last = first + info.num_rows
    size = int(min(max(_BATCH_BYTES * info.num_rows / max(info.total_byte_size, 1), 1), _MAX_BATCH_ROWS))
    batches = file.iter_batches(batch_size=size, row_groups=[group], use_threads=False)
    row = first
    while row < last:
        try:
            batch = next(batches, None)
            if batch is None or batch.num_rows == 0:
                raise ValueError("there are fewer rows than the footer says")
            passed = min(max(first + skipped - row, 0), batch.num_rows)
            found, damaged = _records(batch.slice(passed), names, as_text)
        except Exception as error:
            if watched.failure is not None:
                raise watched.failure from None
            what = f"rows {row:,} to {last - 1:,}, the rest of row group {group}, cannot be read: {error}"
            yield Bad(row, None, "unreadable_file", what, b"", last)
            return
        for number, record in enumerate(found, row + passed):
            yield number, record, damaged
        row += batch.num_rows


def _item(row: int, record: dict[str, Any], damaged: bool, records: RecordReader, limits: ReadLimits) -> Item:
    def bad(reason: ReadReason, error: str, input_id: str | None) -> Bad:
        raw = json.dumps(without_surrogates(record), ensure_ascii=False)[:MAX_RAW_BYTES]
        return Bad(row, input_id, reason, error, raw.encode()[:MAX_RAW_BYTES], row + 1)

    if damaged and has_surrogates(record):
        return bad("not_utf8", "a string of the row is not UTF-8", records.id_of(without_surrogates(record)))
    text = records.text_of(record)
    if isinstance(text, str) and 4 * len(text) > limits.max_record_bytes:
        size = len(text.encode())
        if size > limits.max_record_bytes:
            error = f"a text of {size:,} bytes is over the limit of {limits.max_record_bytes:,}"
            return bad("too_large", error, records.id_of(record))
    try:
        document = records.document(record, row)
    except NotJson as error:
        return bad("not_json", str(error), None)
    if isinstance(document, Problem):
        return bad(document.reason, document.error, document.input_id)
    return Read(document, row + 1)


def _records(batch: pa.RecordBatch, names: list[str], as_text: set[str]) -> tuple[list[dict[str, Any]], bool]:
    converter = _Converter()
    columns = [
        converter.values(column, name in as_text) for name, column in zip(names, batch.columns, strict=True)
    ]
    if not columns:
        return [{} for _ in range(batch.num_rows)], False
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)], converter.damaged


class _Converter:
    """Turns Arrow columns into values that JSON can say, losing none of them.

    Bytes become base64 (UTF-8 strings in a column that is looked for as text), temporal values and
    decimals strings (instants in UTC), NaN and infinities strings, maps lists of key and value. Bytes of a
    string that are not UTF-8 become lone surrogates, and `damaged` is set.
    """

    def __init__(self) -> None:
        self.damaged = False

    def values(self, column: pa.Array, as_text: bool = False) -> list[Any]:
        """The column's values as Python objects."""
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType):
            return self.values(column.storage, as_text)
        if pa.types.is_dictionary(kind):
            return self.values(column.dictionary_decode(), as_text)
        if pa.types.is_struct(kind):
            return self._structs(column)
        if pa.types.is_map(kind):
            entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
            return self.values(column.cast(pa.list_(entry)))
        if _is_list(kind):
            return self._lists(column)
        if _is_string(kind):
            return self._strings(column)
        if _is_binary(kind):
            return self._bytes(column, as_text)
        if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
            return _as_strings(column)
        values: list[Any] = column.to_pylist()
        if pa.types.is_floating(kind):
            return [v if v is None or math.isfinite(v) else _not_finite(v) for v in values]
        return values

    def _strings(self, column: pa.Array) -> list[Any]:
        try:
            values: list[Any] = column.to_pylist()
        except UnicodeDecodeError:
            values = [self._decoded(v) for v in column.cast(pa.large_binary()).to_pylist()]
        return values

    def _bytes(self, column: pa.Array, as_text: bool) -> list[Any]:
        values = column.to_pylist()
        if as_text:
            return [self._decoded(v) for v in values]
        return [None if v is None else base64.b64encode(v).decode("ascii") for v in values]

    def _decoded(self, value: bytes | None) -> str | None:
        if value is None:
            return None
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            self.damaged = True
            return value.decode("utf-8", "surrogateescape")

    def _structs(self, column: pa.Array) -> list[Any]:
        names = _unique([field.name for field in column.type])
        children = [self.values(child) for child in column.flatten()]
        valid = column.is_valid().to_pylist()
        if not children:
            return [{} if v else None for v in valid]
        rows = zip(*children, strict=True)
        return [dict(zip(names, row, strict=True)) if v else None for v, row in zip(valid, rows, strict=True)]

    def _lists(self, column: pa.Array) -> list[Any]:
        items = self.values(pc.list_flatten(column))
        lists: list[Any] = []
        used = 0
        for length in pc.list_value_length(column).to_pylist():
            lists.append(None if length is None else items[used : used + length])
            used += length or 0
        return lists


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _as_strings(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_duration(kind):
        return [None if v is None else f"{v}{kind.unit}" for v in column.cast(pa.int64()).to_pylist()]
    suffix = ""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Without the time zone database, which differs between machines: the instant itself, in UTC.
        column, suffix = column.cast(pa.timestamp(kind.unit)), "Z"
    values = column.cast(pa.string()).to_pylist()
    if not pa.types.is_timestamp(kind):
        return list(values)
    return [None if v is None else v.replace(" ", "T") + suffix for v in values]


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _unique(names: list[str]) -> list[str]:
    """The names, with a number behind those that come again (Parquet allows that)."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return unique
