"""Progress of a phase: what it says while real work is committed, and that it harms nothing."""

from __future__ import annotations

import bz2
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import struct
import termios
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import progress
from pipeline.annotate import commit_chunk, unit_chunks
from pipeline.decide import decide
from pipeline.emit import emit
from pipeline.engine import Engine
from pipeline.measure import run_stage
from pipeline.plan import Plan, make_plan, write_plan
from pipeline.progress import Progress, Standing, describe
from pipeline.receipts import put_receipt, put_unit_manifest, unit_manifest
from pipeline.recipe import load_recipe
from pipeline.store import LocalStore, Store, open_store

DOCUMENTS = 60
RECIPE = """
stages = ["exact_duplicates"]
[run]
unit_bytes = {unit_bytes}
chunk_bytes = 2000
"""


def _texts() -> list[str]:
    return [
        f"Document {i}: " + " ".join(hashlib.sha256(f"{i} {k}".encode()).hexdigest() for k in range(6))
        for i in range(DOCUMENTS)
    ]


def _jsonl() -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in _texts()).encode()


def _write_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": _texts()}), path, row_group_size=20)


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.jsonl": lambda p: p.write_bytes(_jsonl()),
    "a.jsonl.gz": lambda p: p.write_bytes(gzip.compress(_jsonl())),
    "a.jsonl.bz2": lambda p: p.write_bytes(bz2.compress(_jsonl())),
    "a.parquet": _write_parquet,
}


def _planned(folder: Path, name: str = "a.jsonl", unit_bytes: int = 6000) -> tuple[Store, Plan]:
    (folder / "in").mkdir()
    WRITERS[name](folder / "in" / name)
    (folder / "own.toml").write_text(RECIPE.format(unit_bytes=unit_bytes))
    plan = make_plan([str(folder / "in")], load_recipe(str(folder / "own.toml")))
    store = open_store(str(folder / "out"))
    write_plan(store, plan)
    return store, plan


def _annotating(store: Store, plan: Plan) -> Iterator[dict[str, Any]]:
    """Commits chunk after chunk as annotate does, and each unit's manifest after its last."""
    for unit in plan.units:
        receipts = []
        for chunk in unit_chunks(unit, plan.recipe):
            measured = reduce(lambda c, stage: run_stage(stage, c), plan.recipe.measured, chunk)
            receipts.append(commit_chunk(store, measured, plan.recipe.annotate_digest))
            yield receipts[-1]
        manifest = unit_manifest(receipts)
        assert manifest is not None
        put_unit_manifest(store, manifest)


@contextmanager
def _terminal(columns: int) -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A real terminal of this width: the stream to write to, and what has been written so far."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    os.set_blocking(ours, False)
    taken: list[bytes] = []

    def read() -> str:
        try:
            while piece := os.read(ours, 1 << 16):
                taken.append(piece)
        except BlockingIOError:
            pass
        return b"".join(taken).decode("ascii")

    with open(theirs, "w", encoding="ascii") as stream:
        yield stream, read
    os.close(ours)


def _until(condition: Callable[[], bool]) -> None:
    """Waits for what must come; the test's own time-out says when it does not."""
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("waited in vain")


def test_plain_lines_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    store, plan = _planned(tmp_path)
    stream = io.StringIO()
    with Progress(store, plan, "annotate", stream, interval_seconds=0.01, line_seconds=3600):
        assert len(list(_annotating(store, plan))) > len(plan.units) > 1
    lines = stream.getvalue().splitlines()
    assert lines[0] == "annotate  begins"
    assert len(lines) == 2
    size = f"{plan.bytes / 1000:.1f}"
    ending = rf"  {DOCUMENTS} documents measured  \S+ MB/s  {size} of {size} kB"
    assert re.fullmatch(rf"annotate  done in \d+ s{ending}", lines[1])
    assert stream.getvalue().isascii()
    assert stream.getvalue().replace("\n", " ").isprintable()


def test_plain_lines_between_say_how_far_it_is(tmp_path: Path) -> None:
    store, plan = _planned(tmp_path)
    stream = io.StringIO()
    with Progress(store, plan, "annotate", stream, interval_seconds=0.001, line_seconds=0.001):
        for receipt in _annotating(store, plan):
            count = receipt["counts"]["documents"]
            before = stream.getvalue().count("\n")
            _until(lambda before=before: stream.getvalue().count("\n") > before + 1)  # type: ignore[misc]
            assert count > 0
    lines = stream.getvalue().splitlines()
    counts = [int(n) for line in lines for n in re.findall(r"(\d+) documents", line)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 5
    assert counts[-1] == DOCUMENTS
    shares = [int(n) for line in lines for n in re.findall(r"(\d+)%", line)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 99
    assert any(re.search(r"% {2}\d+ s left {2}", line) for line in lines)


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_one_line_within_the_terminal(tmp_path: Path, columns: int) -> None:
    store, plan = _planned(tmp_path)
    with _terminal(columns) as (stream, read):
        with Progress(store, plan, "annotate", stream, interval_seconds=0.001):
            for _ in _annotating(store, plan):
                drawn = read().count("\r")
                _until(lambda drawn=drawn: read().count("\r") > drawn + 1)  # type: ignore[misc]
        written = read()
    assert written.endswith("\n")
    assert written.count("\n") == 1
    assert "\x1b" not in written
    drawings = written.removesuffix("\n").split("\r")[1:]
    assert len(drawings) > 10
    assert all(len(line) < columns for line in drawings)
    assert drawings[-1].startswith("annotate  done in")
    for shown, over in pairwise(drawings):
        assert len(over) >= len(shown.rstrip()), "something of the last line is left standing"


def test_a_terminal_that_cannot_go_back_gets_plain_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    store, plan = _planned(tmp_path)
    with _terminal(80) as (stream, read):
        with Progress(store, plan, "annotate", stream, line_seconds=3600):
            pass
        assert read().count("\n") == 2
        assert "\r" not in read()


def test_what_an_earlier_run_did_is_done_but_no_speed(tmp_path: Path) -> None:
    store, plan = _planned(tmp_path)
    work = _annotating(store, plan)
    earlier = sum(next(work)["counts"]["documents"] for _ in range(4))
    stream = io.StringIO()
    with Progress(store, plan, "annotate", stream, interval_seconds=0.001, line_seconds=0.001):
        _until(lambda: f"{earlier} documents" in stream.getvalue())
    lines = stream.getvalue().splitlines()
    assert all("/s" not in line and " left" not in line for line in lines)
    assert re.search(rf"  \d+%  {earlier} documents measured  \d", lines[-2])
    assert earlier < DOCUMENTS

    rest = io.StringIO()
    with Progress(store, plan, "annotate", rest, interval_seconds=0.001, line_seconds=0.001):
        _until(lambda: f"{earlier} documents" in rest.getvalue())
        list(work)
    assert re.search(rf"  {DOCUMENTS} documents measured  \S+ MB/s", rest.getvalue().splitlines()[-1])


def test_speed_is_of_what_came_since() -> None:
    before = Standing(4e6, 10e6, 400, None, "measured", 4e6, 10e6)
    now = Standing(6e6, 10e6, 600, None, "measured", 6e6, 10e6)
    line = "annotate  60%  4 s left  600 documents measured  1 MB/s  6.0 of 10.0 MB"
    assert describe("annotate", now, before, 2.0, None) == line
    assert describe("annotate", before, before, 2.0, None) == (
        "annotate  40%  400 documents measured  4.0 of 10.0 MB"
    )
    assert describe("annotate", Standing(), Standing(), 0.0, None) == "annotate  0 documents"


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("unit_bytes", [6000, 1_000_000])
def test_bytes_grow_with_each_chunk_up_to_the_input(tmp_path: Path, name: str, unit_bytes: int) -> None:
    store, plan = _planned(tmp_path, name, unit_bytes)
    watch = progress._Annotate(store, plan)
    seen = [watch.look()]
    for _ in _annotating(store, plan):
        seen.append(watch.look())
    sizes = [s.done for s in seen]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert sizes[-1] == plan.bytes == pytest.approx((tmp_path / "in" / name).stat().st_size, abs=10)
    assert len(set(sizes)) > 5
    assert seen[-1].documents == DOCUMENTS
    for smaller, larger in pairwise(sizes[:-1]):
        assert larger - smaller < plan.bytes / 2


def test_only_this_runs_receipts_count_and_each_once(tmp_path: Path) -> None:
    store, plan = _planned(tmp_path)
    receipts = list(_annotating(store, plan))
    whole = progress._Annotate(store, plan).look()
    receipt = receipts[1]
    attempt = json.loads(json.dumps(receipt))
    attempt["files"]["annotations"]["sha256"] = "0" * 64
    changes: list[dict[str, str]] = [{}, {"annotate_digest": "x"}, {"fingerprint": "x"}, {"unit": "x"}]
    for i, change in enumerate(changes):
        put_receipt(store, {**attempt, **change, "chunk": receipt["chunk"] + (50 + i if change else 0)})
    assert len(store.list("receipts")) == len(receipts) + 4
    assert progress._Annotate(store, plan).look() == whole


class _CountingStore(LocalStore):
    """A store that remembers what was read."""

    reads: ClassVar[Counter[str]] = Counter()

    def get(self, name: str) -> bytes:
        self.reads[name] += 1
        return super().get(name)


def test_no_receipt_is_read_twice(tmp_path: Path) -> None:
    _, plan = _planned(tmp_path)
    store = _CountingStore(str(tmp_path / "out"))
    store.reads.clear()
    watch = progress._Annotate(store, plan)
    for _ in _annotating(store, plan):
        watch.look()
        watch.look()
    reads = {n: k for n, k in store.reads.items() if n.startswith("receipts/")}
    assert reads == dict.fromkeys(store.list("receipts"), 1)


def test_decide_and_emit(tmp_path: Path) -> None:
    store, plan = _planned(tmp_path)
    list(_annotating(store, plan))
    engine = Engine(workers=1)
    stream = io.StringIO()
    with Progress(store, plan, "decide", stream, line_seconds=3600):
        corpus = decide(store, plan, engine)
    steps = sum(name.endswith(".done") for name in store.list("decide"))
    assert steps > 1
    assert re.fullmatch(
        rf"decide  done in \d+ s  {DOCUMENTS} of {DOCUMENTS} documents decided  [\d,]+ documents/s  "
        f"{steps} steps done",
        stream.getvalue().splitlines()[-1],
    )
    emitted = io.StringIO()
    with Progress(store, plan, "emit", emitted, line_seconds=3600):
        emit(store, plan, corpus, engine)
    assert re.fullmatch(
        rf"emit  done in \d+ s  {DOCUMENTS} of {DOCUMENTS} documents written  \S+ MB/s",
        emitted.getvalue().splitlines()[-1],
    )
    again = io.StringIO()
    with Progress(store, plan, "emit", again, line_seconds=3600):
        pass
    assert re.fullmatch(
        rf"emit  done in \d+ s  {DOCUMENTS} of {DOCUMENTS} documents written",
        again.getvalue().splitlines()[-1],
    )
    store.put("emit/key", b"another decision")
    other = io.StringIO()
    with Progress(store, plan, "emit", other, line_seconds=3600):
        pass
    assert f"0 of {DOCUMENTS} documents written" in other.getvalue()


class _BrokenStore(LocalStore):
    """A store of which nothing can be listed."""

    def list(self, prefix: str) -> list[str]:
        raise OSError(f"no listing of {prefix}")


class _BrokenStream(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(text)


@pytest.mark.parametrize("phase", ["annotate", "decide", "emit"])
def test_a_store_that_fails_is_not_the_runs_business(tmp_path: Path, phase: str) -> None:
    _, plan = _planned(tmp_path)
    stream = io.StringIO()
    with Progress(_BrokenStore(str(tmp_path / "out")), plan, phase, stream, line_seconds=3600):
        done = True
    assert done
    assert re.fullmatch(rf"{phase}  done in \d+ s  0 documents", stream.getvalue().splitlines()[-1])


@pytest.mark.parametrize("closed", [False, True])
def test_a_stream_that_fails_is_not_the_runs_business(
    tmp_path: Path, closed: bool, recwarn: pytest.WarningsRecorder
) -> None:
    store, plan = _planned(tmp_path)
    stream = io.StringIO() if closed else _BrokenStream()
    if closed:
        stream.close()
    shown = Progress(store, plan, "annotate", stream, interval_seconds=0.001, line_seconds=0.001)
    with shown:
        list(_annotating(store, plan))
    assert not shown._thread.is_alive()
    assert not [w for w in recwarn if issubclass(w.category, pytest.PytestUnhandledThreadExceptionWarning)]


def test_a_run_that_fails_is_told_so_and_raises(tmp_path: Path) -> None:
    store, plan = _planned(tmp_path)
    stream = io.StringIO()
    with pytest.raises(RuntimeError, match="the run's own"), Progress(store, plan, "annotate", stream):
        raise RuntimeError("the run's own")
    assert "annotate  stopped after" in stream.getvalue().splitlines()[-1]


class _HangingStore(LocalStore):
    """A store whose listing comes back only when it is let go."""

    let_go: ClassVar[threading.Event] = threading.Event()

    def list(self, prefix: str) -> list[str]:
        self.let_go.wait()
        return super().list(prefix)


def test_nothing_is_written_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "JOIN_SECONDS", 0.05)
    _, plan = _planned(tmp_path)
    stream = io.StringIO()
    store = _HangingStore(str(tmp_path / "out"))
    shown = Progress(store, plan, "annotate", stream, interval_seconds=0.001)
    with shown:
        _until(lambda: "begins" in stream.getvalue())
    assert shown._thread.daemon
    assert shown._thread.is_alive()
    store.let_go.set()
    shown._thread.join()
    assert stream.getvalue() == "annotate  begins\n"


def test_the_thread_ends_with_the_block(tmp_path: Path) -> None:
    store, plan = _planned(tmp_path)
    shown = Progress(store, plan, "annotate", io.StringIO(), interval_seconds=3600)
    with shown:
        assert shown._thread.is_alive()
    assert not shown._thread.is_alive()
