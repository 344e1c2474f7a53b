"""Listing inputs: which files there are, what they hold, and how to cut them into segments."""

from __future__ import annotations

import codecs
import glob
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, Literal, get_args

import fsspec

from pipeline.compression import (
    MAGIC_BYTES,
    ByteStream,
    Compression,
    DamagedStream,
    compression_of,
    local_url,
    open_stored,
)
from pipeline.readers_http import is_text_like
from pipeline.readers_json import NotJson, parse
from pipeline.readers_jsonl import BYTE_ORDER_MARK
from pipeline.readers_parquet import row_groups
from pipeline.readers_whole import JSON_ARRAY

Format = Literal["jsonl", "parquet", "warc", "text", "binary", "empty"]
FORMATS: tuple[str, ...] = get_args(Format)
"""What a file can hold. `binary` is anything that cannot be read: it becomes one quarantined record;
`empty` holds no bytes and no record."""

_SAMPLE_BYTES = 64 << 10
_BLOCK_BYTES = 1 << 20
# Object stores answer slowly and in parallel; a batch bounds what a million paths keep waiting.
_LISTING_THREADS = 16
_LISTING_BATCH = 4096
_SNIFFED_LINES = 5
_WARC = re.compile(rb"[\r\n]*WARC/\d{1,3}\.\d")
_OPEN_OBJECT = re.compile(rb'[ \t]*\{[ \t]*"(?:[^"\\\n]|\\.)*"[ \t]*:')
_GLOB = re.compile(r"[*?\[]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\udc80-\udcff]")

logger = logging.getLogger(__name__)


class InputError(ValueError):
    """The inputs cannot be used as given; the message names the path and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file. `source` and `path` name it in document ids; `url` says where it is.

    `size` is in stored bytes. `fingerprint` is `sha256:<hex>` of the stored bytes, or
    `etag:<etag>:<size>` where the store has one. Parquet: rows and uncompressed bytes by row group (empty
    when the footer cannot be read).
    """

    source: str
    path: str
    url: str
    size: int
    fingerprint: str
    format: Format
    compression: Compression = "none"
    rows_by_group: tuple[int, ...] = ()
    bytes_by_group: tuple[int, ...] = ()

    def doc_id(self, locator: int) -> str:
        """The id of the record at a locator.

        >>> InputFile("web", "a.jsonl", "file:///a.jsonl", 1, "", "jsonl").doc_id(17)
        'web/a.jsonl#17'
        """
        return f"{self.source}/{self.path}#{locator}"

    def to_json(self) -> dict[str, Any]:
        """The file as a dict that JSON can hold."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {n: list(values[n]) for n in ("rows_by_group", "bytes_by_group")}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> InputFile:
        """The file that `to_json` wrote."""
        return cls(**{**values, **{n: tuple(values[n]) for n in ("rows_by_group", "bytes_by_group")}})


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a file that is read as one piece: [begin, end) in stored bytes (plain JSONL), in row groups
    (Parquet), else the whole file (0, None). A JSONL record belongs to the segment of its first byte."""

    file: InputFile
    begin: int = 0
    end: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The segment as a dict that JSON can hold."""
        return {"file": self.file.to_json(), "begin": self.begin, "end": self.end}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Segment:
        """The segment that `to_json` wrote."""
        return cls(InputFile.from_json(values["file"]), values["begin"], values["end"])


@dataclass(frozen=True, slots=True)
class _Found:
    """A file that an argument names: its id, where it is, and what the store says of it."""

    argument: str
    source: str
    path: str
    url: str
    real: str
    size: int | None = None
    etag: str | None = None


def list_inputs(
    paths: Sequence[str], *, exclude: Sequence[str] = (), source_names: Mapping[str, str] | None = None
) -> list[InputFile]:
    """All input files that the paths name, sorted by (source, path).

    A path is a file, a folder (walked through; hidden names and links that lead out of it are left out), a
    shell glob, or an fsspec URL of one. `source` is the name that `source_names` gives for the path as it
    stands in `paths`, else the folder's base name; for a file its parent folder's, so that DIR and DIR/*
    give the same ids. `exclude` holds shell globs, matched against the relative path and the base name.
    Every local file is read once for its fingerprint.

    Raises InputError for a path that is not there or cannot be read, and for two files with one id.
    """
    names = source_names or {}
    found: dict[str, _Found] = {}
    for argument in paths:
        for item in _expand(argument, names.get(argument)):
            base = item.path.rpartition("/")[2]
            if any(fnmatchcase(item.path, p) or fnmatchcase(base, p) for p in exclude):
                continue
            other = found.setdefault(f"{item.source}/{item.path}", item)
            if other.real != item.real:
                raise InputError(
                    f"two inputs would give their records the same id {item.source}/{item.path}: "
                    f"{other.url} (from {other.argument}) and {item.url} (from {item.argument}); "
                    "name the sources apart in the recipe"
                )
    ordered = sorted(found.values(), key=lambda f: (f.source, f.path))
    files: list[InputFile] = []
    with ThreadPoolExecutor(_LISTING_THREADS) as pool:
        for begin in range(0, len(ordered), _LISTING_BATCH):
            files += pool.map(_describe, ordered[begin : begin + _LISTING_BATCH])
    return files


def segments_of(file: InputFile, unit_bytes: int) -> list[Segment]:
    """Cut a file into segments of about `unit_bytes`, by its size alone.

    Plain JSONL is cut every `unit_bytes` bytes, Parquet between row groups (as many in one segment as fit
    in `unit_bytes`, at least one); other files are one segment, and an empty file has none.
    """
    if unit_bytes < 1:
        raise ValueError(f"unit_bytes must be at least 1, got {unit_bytes}")
    if file.format == "empty":
        return []
    if file.format == "jsonl" and file.compression == "none" and file.size > unit_bytes:
        return [Segment(file, b, min(b + unit_bytes, file.size)) for b in range(0, file.size, unit_bytes)]
    segments: list[Segment] = []
    begin = held = 0
    for group, size in enumerate(file.bytes_by_group):
        if group > begin and held + size > unit_bytes:
            segments.append(Segment(file, begin, group))
            begin, held = group, 0
        held += size
    if not segments:
        return [Segment(file)]
    return [*segments, Segment(file, begin, len(file.bytes_by_group))]


def format_of(sample: bytes, whole: bool) -> Format:
    """Tell what a file holds from the begin of its decompressed bytes (64 KiB, or all if `whole`).

    JSONL: one of the first five lines that are not blank is a JSON object, or a line that goes beyond the
    sample begins like one. Text: UTF-8 without NUL and with next to no control characters.

    >>> [format_of(sample, True) for sample in (b'{"text": "a"}', b"WARC/1.0", b"words", b"\\xff")]
    ['jsonl', 'warc', 'text', 'binary']
    """
    if not sample:
        return "empty"
    if _WARC.match(sample):
        return "warc"
    if JSON_ARRAY.match(sample) and not _is_json(sample.lstrip().partition(b"\n")[0]):
        return "binary"
    if _is_jsonl(sample, whole):
        return "jsonl"
    if _is_text(sample, whole):
        return "binary" if JSON_ARRAY.match(sample) else "text"
    return "parquet" if sample.startswith(b"PAR1") else "binary"


def _is_jsonl(sample: bytes, whole: bool) -> bool:
    *lines, last = sample.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    first = [line for line in ([*lines, last] if whole else lines) if line.strip()][:_SNIFFED_LINES]
    for line in first:
        try:
            value, _ = parse(line.decode("utf-8", "replace").encode())
        except NotJson:
            continue
        if isinstance(value, dict):
            return True
    # Else the last line may be cut off: by the end of the sample, or by that of a file torn in its only one.
    if len(first) >= _SNIFFED_LINES or (whole and first != [last]):
        return False
    return _OPEN_OBJECT.match(last) is not None


def _is_json(line: bytes) -> bool:
    try:
        parse(line.decode("utf-8", "replace").encode())
    except NotJson:
        return False
    return True


def _is_text(sample: bytes, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=whole)
    except UnicodeDecodeError:
        return False
    return b"\0" not in sample and is_text_like(sample)


def _describe(found: _Found) -> InputFile:
    try:
        with open_stored(found.url) as stored:
            compression = compression_of(stored.read(MAGIC_BYTES))
            if found.etag is not None and found.size is not None:
                size, fingerprint = found.size, f"etag:{found.etag}:{found.size}"
            else:
                stored.seek(0)
                size, fingerprint = _sha256(stored)
            file_format = _sniff(found.url, compression)
            groups = None
            if file_format == "parquet" and compression == "none":
                stored.seek(0)
                groups = row_groups(stored)
    except OSError as error:
        raise InputError(f"{found.argument}: {found.url} cannot be read: {error}") from error
    return InputFile(
        source=found.source,
        path=found.path,
        url=found.url,
        size=size,
        fingerprint=fingerprint,
        format=file_format,
        compression=compression,
        rows_by_group=tuple(rows for rows, _ in groups or ()),
        bytes_by_group=tuple(size for _, size in groups or ()),
    )


def _sniff(url: str, compression: Compression) -> Format:
    sample, whole = bytearray(), False
    with ByteStream(url, compression) as stream:
        try:
            while len(sample) < _SAMPLE_BYTES and not whole:
                block = stream.read(_SAMPLE_BYTES - len(sample))
                sample += block
                whole = not block
        except DamagedStream:
            if not sample:
                return "binary"
    return format_of(bytes(sample), whole)


def _sha256(stored: BinaryIO) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    while block := stored.read(_BLOCK_BYTES):
        digest.update(block)
        size += len(block)
    return size, f"sha256:{digest.hexdigest()}"


# --- finding files --------------------------------------------------------------------------------------


def _expand(path: str, name: str | None) -> Iterator[_Found]:
    argument = _printable(path)
    path = path.removeprefix("file://").removeprefix("local://")
    if "://" in path:
        yield from _expand_remote(argument, path, name)
        return
    if os.path.lexists(path):
        yield from _local(argument, path, name)
        return
    if not _GLOB.search(path):
        raise InputError(f"{argument}: no such file or folder")
    matches = sorted(glob.glob(path, recursive=True))
    if "**" in path:
        # It matches a folder and also all that is in it.
        matches = [m for m in matches if not os.path.isdir(m)]
    if not matches:
        raise InputError(f"{argument}: no file or folder matches")
    for match in matches:
        if name is None:
            yield from _local(argument, match, None)
        else:
            yield from _local(argument, match, name, os.path.relpath(match, _literal_folder(path)))


def _literal_folder(pattern: str) -> str:
    """The folder above the first part of a glob that has a wildcard."""
    return os.path.dirname(_GLOB.split(pattern, maxsplit=1)[0]) or "."


def _local(argument: str, path: str, name: str | None, below: str = "") -> Iterator[_Found]:
    """The files of one local path; `below` is put before (for a file: in place of) their relative paths."""
    full = os.path.abspath(path)
    if os.path.isdir(full):
        source = name or os.path.basename(full) or "root"
        for relative, real in _walk(argument, full):
            where = os.path.join(below, relative)
            yield _Found(argument, _printable(source), _printable(where), local_url(real), real)
    elif os.path.isfile(full):
        source = name or os.path.basename(os.path.dirname(full)) or "root"
        where = below or os.path.basename(full)
        real = os.path.realpath(full)
        yield _Found(argument, _printable(source), _printable(where), local_url(real), real)
    else:
        raise InputError(f"{argument}: {_printable(path)} is no file or folder (or a link to nothing)")


def _walk(argument: str, folder: str) -> Iterator[tuple[str, str]]:
    """Relative and real paths of the regular files below a folder; linked folders are not entered."""

    def fail(error: OSError) -> None:
        where = _printable(str(error.filename))
        raise InputError(f"{argument}: {where} cannot be listed: {error.strerror}") from error

    root = os.path.realpath(folder)
    left_out: list[str] = []
    read = 0
    for parent, folders, files in os.walk(root, onerror=fail):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        left_out += [p for f in folders if _leads_out(p := os.path.join(parent, f), root)]
        for file in sorted(files):
            path = os.path.join(parent, file)
            if file.startswith("."):
                continue
            if _leads_out(path, root) or not stat.S_ISREG(os.stat(path).st_mode):
                left_out.append(path)
                continue
            read += 1
            real = os.path.realpath(path) if os.path.islink(path) else path
            yield os.path.relpath(path, root), real
    if left_out:
        first = _printable(min(left_out))
        if not read:
            raise InputError(f"{argument}: all it holds are links that lead out of it, like {first}")
        what = "links that lead out of it (or special files) are left out, like"
        logger.warning("%s: %d %s %s", argument, len(left_out), what, first)


def _leads_out(path: str, root: str) -> bool:
    """Whether a path is a link to something that is not there or not below the root."""
    if not os.path.islink(path):
        return False
    real = os.path.realpath(path)
    return not os.path.exists(real) or os.path.commonpath([real, root]) != root


def _printable(text: str) -> str:
    """The text with control characters and bytes that are not UTF-8 percent-escaped.

    >>> _printable("caf\\udce9.txt")
    'caf%E9.txt'
    """
    return _UNPRINTABLE.sub(lambda m: f"%{ord(m.group()) & 0xFF:02X}", text)


def _expand_remote(argument: str, url: str, name: str | None) -> Iterator[_Found]:
    try:
        store, path = fsspec.core.url_to_fs(url)
        if store.isfile(path):
            yield _remote_file(argument, store, path, store.info(path), name, path.rpartition("/")[2])
        elif store.isdir(path):
            yield from _remote_folder(argument, store, path, name)
        elif _GLOB.search(path):
            yield from _remote_matches(argument, store, path, name)
        else:
            raise InputError(f"{argument}: no such file or folder")
    except InputError:
        raise
    # A store raises errors of its client library's own making.
    except Exception as error:
        raise InputError(f"{argument}: cannot be listed: {error}") from error


def _remote_matches(argument: str, store: Any, pattern: str, name: str | None) -> Iterator[_Found]:
    matches = store.glob(pattern, detail=True)
    if not matches:
        raise InputError(f"{argument}: no file or folder matches")
    root = pattern[: _GLOB.search(pattern).start()].rpartition("/")[0]  # type: ignore[union-attr]
    for path, info in sorted(matches.items()):
        below = path[len(root) :].strip("/") if name else ""
        if info["type"] != "directory":
            relative = below or path.rpartition("/")[2]
            yield _remote_file(argument, store, path, info, name, relative)
        elif "**" not in pattern:
            yield from _remote_folder(argument, store, path, name, below)


def _remote_folder(
    argument: str, store: Any, folder: str, name: str | None, below: str = ""
) -> Iterator[_Found]:
    root = folder.rstrip("/")
    source = name or root.rpartition("/")[2] or "root"
    for path, info in sorted(store.find(root, detail=True).items()):
        relative = path[len(root) :].strip("/")
        if info["type"] == "directory" or any(p.startswith(".") for p in relative.split("/")):
            continue
        where = f"{below}/{relative}" if below else relative
        yield _remote_file(argument, store, path, info, source, where)


def _remote_file(
    argument: str, store: Any, path: str, info: Mapping[str, Any], name: str | None, relative: str
) -> _Found:
    source = name or path.rpartition("/")[0].rpartition("/")[2] or "root"
    url = store.unstrip_protocol(path)
    etag = next((str(v).strip('"') for k, v in info.items() if k.lower() == "etag" and v), None)
    size = info.get("size")
    return _Found(argument, _printable(source), _printable(relative), url, url, size, etag)
