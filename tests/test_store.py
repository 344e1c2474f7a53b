"""Objects appear whole or not at all, inside the store only, whoever dies or writes beside."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.store import (
    ASIDE,
    FsspecStore,
    LocalStore,
    Store,
    content_name,
    digest_object,
    digest_of,
    open_store,
    parquet_bytes,
    read_parquet,
)


@pytest.fixture(params=["path", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of a new store of each kind."""
    where = {
        "path": str(tmp_path / "out"),
        "file": f"file://{tmp_path}/out",
        "memory": f"memory://{uuid.uuid4().hex}/out",
    }
    return where[request.param]


@pytest.fixture
def store(url: str) -> Store:
    return open_store(url)


def folder_of(store: Store) -> Path | None:
    """The folder of a local store."""
    url = store.url.removeprefix("file://")
    return None if "://" in url else Path(url)


def test_addresses_with_a_scheme_are_fsspec_ones_and_paths_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(open_store("memory://a/b/"), FsspecStore)
    assert open_store("memory://a/b/").url == "memory://a/b"
    monkeypatch.chdir(tmp_path)
    assert open_store("out/../x") == LocalStore(str(tmp_path / "x"))


def test_an_object_is_what_was_put_last(store: Store) -> None:
    assert not store.exists("a/b.bin")
    store.put("a/b.bin", b"one")
    assert store.exists("a/b.bin")
    store.put("a/b.bin", b"\x00two")
    assert store.get("a/b.bin") == b"\x00two"
    assert store.size("a/b.bin") == 4
    with store.open("a/b.bin") as file:
        file.seek(1)
        assert file.read(2) == b"tw"
    store.put("empty", b"")
    assert (store.get("empty"), store.size("empty"), store.exists("empty")) == (b"", 0, True)
    assert digest_object(store, "a/b.bin") == digest_of(b"\x00two")


def test_another_opening_of_the_address_sees_the_same_objects(store: Store) -> None:
    assert store.list("a") == []
    open_store(store.url).put("a/new", b"x")
    assert store.list("a") == ["a/new"]
    assert store.exists("a/new")
    assert store.size("a/new") == 1


def test_what_is_not_there_is_told(store: Store) -> None:
    for ask in (store.get, store.size, store.open):
        with pytest.raises(FileNotFoundError):
            ask("no/such")
    assert store.list("no") == []
    assert store.list("") == []
    store.delete("no/such")
    store.put("folder/object", b"x")
    assert not store.exists("folder")


def test_list_names_every_object_below_a_folder_sorted(store: Store) -> None:
    names = ["b/2", "b/10", "b/deep/er/1", "b.txt", "b-cut/1", "a"]
    for name in names:
        store.put(name, b"x")
    assert store.list("") == sorted(names)
    assert store.list("b") == ["b/10", "b/2", "b/deep/er/1"]
    assert store.list("b/deep") == ["b/deep/er/1"]
    assert store.list("a") == [], "an object is no folder"


def test_delete_removes_one_object(store: Store) -> None:
    store.put("a/1", b"x")
    store.put("a/2", b"x")
    store.delete("a/1")
    store.delete("a/1")
    assert store.list("a") == ["a/2"]


@pytest.mark.parametrize(
    "name",
    ["", "/", "/etc/passwd", "../x", "a/../../x", "a/..", ".", "a//b", "a/", "./a", "a\0b", f"{ASIDE}/x"],
)
def test_names_that_leave_the_folder_are_refused(store: Store, name: str, tmp_path: Path) -> None:
    uses: list[Callable[[str], object]] = [
        lambda n: store.put(n, b"x"),
        store.get,
        store.open,
        store.exists,
        store.size,
        store.delete,
        lambda n: store.writer(n).__enter__(),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="not a name inside the store"):
            use(name)
    if name:
        with pytest.raises(ValueError, match="not a name inside the store"):
            store.list(name)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_writer_makes_the_object_when_its_block_ends(store: Store) -> None:
    with store.writer("a/w") as file:
        file.write(b"one")
        assert not store.exists("a/w")
        assert store.list("") == []
        file.write(b"two")
    assert store.get("a/w") == b"onetwo"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_in_the_block_leaves_what_was_there(store: Store, error: type[BaseException]) -> None:
    def fail(name: str) -> None:
        with store.writer(name) as file:
            file.write(b"half")
            raise error

    store.put("old", b"whole")
    for name in ("old", "new"):
        with pytest.raises(error):
            fail(name)
    assert store.list("") == ["old"]
    assert store.get("old") == b"whole"
    if folder := folder_of(store):
        assert list((folder / ASIDE).iterdir()) == []


WRITER = """
import sys
from pipeline.store import open_store
with open_store(sys.argv[1]).writer("a/object") as file:
    for _ in range(64):
        file.write(b"new" * 10_000)
    file.flush()
    print("half written", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_killed_writer_leaves_nothing_but_what_sweep_removes(scheme: str, tmp_path: Path) -> None:
    store = open_store(f"{scheme}{tmp_path}")
    store.put("a/object", b"old")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, store.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"half written\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert store.list("") == ["a/object"]
    assert store.get("a/object") == b"old"
    assert len(list((tmp_path / ASIDE).iterdir())) == 1
    store.sweep()
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    store.put("a/object", b"again")
    assert store.get("a/object") == b"again"


def test_sweep_of_a_store_without_leftovers_does_nothing(store: Store) -> None:
    store.sweep()
    store.put("a", b"x")
    store.sweep()
    assert store.get("a") == b"x"


def test_private_objects_are_for_their_owner_alone(store: Store) -> None:
    store.put("q/secret", b"x", private=True)
    store.put("q/open", b"x")
    assert store.get("q/secret") == b"x"
    if folder := folder_of(store):
        modes = {n: stat.S_IMODE((folder / "q" / n).stat().st_mode) for n in ("secret", "open")}
        assert modes == {"secret": 0o600, "open": 0o644}


def test_two_writers_at_once_leave_one_whole_object(store: Store) -> None:
    """Several threads and openings write one name again and again; whoever reads it finds one of them.

    Not while an upload to memory:// goes on: unlike an object store's PUT, it can be seen half done.
    """
    bodies = [bytes([c]) * 200_000 for c in b"abcd"]
    store.put("a/object", bodies[0])
    torn: list[bytes] = []
    done = threading.Event()

    def write(body: bytes) -> None:
        own = open_store(store.url)
        for i in range(20):
            if i % 2:
                own.put("a/object", body)
            else:
                with own.writer("a/object") as file:
                    file.write(body[: len(body) // 2])
                    file.write(body[len(body) // 2 :])

    def read() -> None:
        while not done.is_set():
            data = store.get("a/object")
            if data not in bodies:
                torn.append(data[:1] + b"...")

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(body,)) for body in bodies]
    reader.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert torn == [] or folder_of(store) is None
    assert store.get("a/object") in bodies
    assert store.list("") == ["a/object"]


def test_two_stores_make_one_new_folder_at_once(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def write(i: int) -> None:
        try:
            open_store(str(tmp_path / "out")).put(f"a/b/c/{i}", b"x")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(open_store(str(tmp_path / "out")).list("a")) == 16


def test_content_names_tell_contents_apart() -> None:
    name, sha = content_name("text/unit-00000", b"x", ".parquet")
    assert name == f"text/unit-00000-{sha[:16]}.parquet"
    assert sha == digest_of(b"x") == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert content_name("text/unit-00000", b"y", ".parquet")[0] != name


def test_tables_go_through_a_store(store: Store) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    data = parquet_bytes(table)
    assert data == parquet_bytes(table)
    store.put("t/x.parquet", data)
    assert read_parquet(store, "t/x.parquet").equals(table)
    assert read_parquet(store, "t/x.parquet", ["b"]).column_names == ["b"]
