"""The only thing that writes: named objects, each appearing whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol

import fsspec

PRIVATE_MODE = 0o600
"""File mode of quarantined raw records."""


class Store(Protocol):
    """A folder of named objects, local or remote. Names are relative, with `/` between folders.

    A `put` object appears whole or not at all, and an equal second `put` changes nothing: two attempts
    at one piece of work may both write it. Readers open only what a manifest lists.
    """

    @property
    def url(self) -> str:
        """Where the store is: `open_store` of it opens the same one."""
        ...

    def put(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Write one object durably; `private` objects are readable by their owner only."""
        ...

    def writer(self, name: str) -> Any:
        """Context manager: a binary file that becomes the object when the block ends without error."""
        ...

    def get(self, name: str) -> bytes:
        """The bytes of an object; FileNotFoundError when there is none."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """A seekable binary file of an object."""
        ...

    def exists(self, name: str) -> bool:
        """Whether the object is there."""
        ...

    def size(self, name: str) -> int:
        """Bytes of the object."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Names of all objects below the folder `prefix`, sorted; none when the folder is not there."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object; nothing happens when it is not there."""
        ...

    def sweep(self) -> None:
        """Remove what a killed writer left half written; called when nothing else writes."""
        ...


@dataclass(frozen=True)
class LocalStore:
    """A folder of the local file system: write aside, fsync, rename, fsync the folder."""

    url: str

    def _path(self, name: str) -> str:
        return os.path.join(self.url, *_parts(name))

    def put(self, name: str, data: bytes, *, private: bool = False) -> None:
        with self._aside(name, PRIVATE_MODE if private else 0o644) as file:
            file.write(data)

    @contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        with self._aside(name, 0o644) as file:
            yield file

    @contextmanager
    def _aside(self, name: str, mode: int) -> Iterator[IO[bytes]]:
        path = self._path(name)
        folder = os.path.dirname(path)
        _make_folder(folder)
        os.makedirs(os.path.join(self.url, ASIDE), exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=os.path.join(self.url, ASIDE))
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException as error:
            if os.path.exists(aside):
                os.unlink(aside)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = path  # a full disk is told by write or fsync, which know no name
            raise
        _sync_folder(folder)

    def get(self, name: str) -> bytes:
        with open(self._path(name), "rb") as file:
            return file.read()

    def open(self, name: str) -> IO[bytes]:
        return open(self._path(name), "rb")

    def exists(self, name: str) -> bool:
        return os.path.isfile(self._path(name))

    def size(self, name: str) -> int:
        return os.path.getsize(self._path(name))

    def list(self, prefix: str) -> list[str]:
        top = self._path(prefix) if prefix else self.url
        found = []
        for folder, folders, files in os.walk(top):
            if ASIDE in folders:
                folders.remove(ASIDE)
            base = os.path.relpath(folder, self.url)
            found += [f if base == "." else f"{base}/{f}" for f in files]
        return sorted(name.replace(os.sep, "/") for name in found)

    def delete(self, name: str) -> None:
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            return

    def sweep(self) -> None:
        shutil.rmtree(os.path.join(self.url, ASIDE), ignore_errors=True)


@dataclass(frozen=True)
class FsspecStore:
    """A prefix of any fsspec file system (object stores): one PUT makes one object visible."""

    url: str

    def _fs(self) -> tuple[Any, str]:
        # Other processes write too: a listing of a while ago would hide what they wrote.
        fs, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        return fs, root.rstrip("/")

    def _path(self, root: str, name: str) -> str:
        return "/".join([root, *_parts(name)])

    def put(self, name: str, data: bytes, *, private: bool = False) -> None:
        fs, root = self._fs()
        path = self._path(root, name)
        fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        if _is_local(fs):
            # fsspec's local writer writes in place; the local commit protocol holds there too.
            LocalStore(root).put(name, data, private=private)
        else:
            fs.pipe_file(path, data)

    @contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        fs, root = self._fs()
        if _is_local(fs):
            with LocalStore(root).writer(name) as file:
                yield file
            return
        path = self._path(root, name)
        with tempfile.NamedTemporaryFile() as aside:
            yield aside
            aside.flush()
            fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            fs.put_file(aside.name, path)

    def get(self, name: str) -> bytes:
        fs, root = self._fs()
        data: bytes = fs.cat_file(self._path(root, name))
        return data

    def open(self, name: str) -> IO[bytes]:
        fs, root = self._fs()
        file: IO[bytes] = fs.open(self._path(root, name), "rb")
        return file

    def exists(self, name: str) -> bool:
        fs, root = self._fs()
        return bool(fs.isfile(self._path(root, name)))

    def size(self, name: str) -> int:
        fs, root = self._fs()
        return int(fs.size(self._path(root, name)))

    def list(self, prefix: str) -> list[str]:
        fs, root = self._fs()
        top = self._path(root, prefix) if prefix else root
        fs.invalidate_cache()
        if not fs.exists(top):
            return []
        names = [path[len(root) + 1 :] for path in fs.find(top)]
        below = f"{prefix}/" if prefix else ""
        return sorted(n for n in names if n.startswith(below) and not n.startswith(f"{ASIDE}/"))

    def delete(self, name: str) -> None:
        fs, root = self._fs()
        try:
            fs.rm_file(self._path(root, name))
        except FileNotFoundError:
            return

    def sweep(self) -> None:
        fs, root = self._fs()
        if _is_local(fs):
            LocalStore(root).sweep()


ASIDE = ".aside"
"""Folder of a local store in which files are written before they get their names; listed by nothing."""


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(p in ("", ".", "..") for p in parts) or parts[0] == ASIDE or "\0" in name:
        raise ValueError(f"not a name inside the store: {name!r}")
    return parts


def _make_folder(path: str) -> None:
    """Make a folder and those above it; each new one is on disk before something is put into it."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    _make_folder(above)
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    _sync_folder(above)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_local(fs: Any) -> bool:
    protocol = fs.protocol if isinstance(fs.protocol, (tuple, list)) else (fs.protocol,)
    return "file" in protocol


def open_store(url: str) -> Store:
    """The store at a local path or an fsspec URL (`s3://bucket/prefix`, `file:///folder`)."""
    if "://" in url:
        return FsspecStore(url.rstrip("/"))
    return LocalStore(os.path.abspath(url))


def digest_of(data: bytes) -> str:
    """sha256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest_object(store: Store, name: str) -> str:
    """sha256 of a stored object, read in pieces."""
    total = hashlib.sha256()
    with store.open(name) as file:
        while piece := file.read(1 << 20):
            total.update(piece)
    return total.hexdigest()


def content_name(prefix: str, data: bytes, ending: str) -> tuple[str, str]:
    """`prefix-<first 16 of sha256>ending`, and the whole sha256: equal bytes, equal name."""
    sha = digest_of(data)
    return f"{prefix}-{sha[:16]}{ending}", sha


def read_parquet(store: Store, name: str, columns: list[str] | None = None) -> Any:
    """A whole Parquet object as a pyarrow table."""
    import pyarrow.parquet as pq

    with store.open(name) as file:
        return pq.ParquetFile(file).read(columns=columns)


def parquet_bytes(table: Any, **options: Any) -> bytes:
    """The table as the bytes of one zstd Parquet file."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()
