"""Progress of a phase, read from what it commits: a runner may block until its job ends.

A thread lists receipts and marks now and then, reads each new one once, and shows documents, speed and
time left: on a terminal one line drawn over and over, elsewhere a plain line at the start, every ten
seconds and at the end. It shows only: whatever goes wrong in it, the run does not notice.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TextIO

from pipeline.decide import survey
from pipeline.decisions import summary_name
from pipeline.emit import KEY
from pipeline.plan import Plan, Unit
from pipeline.store import Store

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))

WINDOW_SECONDS = 120.0
"""The speed is that of the last two minutes: a chunk of 8 MB may take half a minute."""

MAX_LOOKING_SHARE = 0.1
"""Looking takes at most this share of the time, however slow the store's listing is."""

JOIN_SECONDS = 5.0
"""How long the end of a phase waits for the last line; a store that hangs costs no more than that."""

GUESSED_RATIO = 3.0
"""Decompressed bytes of text per stored byte, by which progress within a compressed file is guessed."""


@dataclass(frozen=True)
class Standing:
    """How far a phase is: `done` of `whole` (in whatever it counts; None = not known), for people
    `documents` of `of_documents` with what was `verb`ed, bytes, and steps."""

    done: float = 0.0
    whole: float | None = None
    documents: int = 0
    of_documents: int | None = None
    verb: str = ""
    bytes: float | None = None
    of_bytes: float | None = None
    steps: int | None = None


class _Watch(Protocol):
    def look(self) -> Standing:
        """The standing now."""
        ...


class _Annotate:
    """Counts chunks by their receipts; bytes are those of the stored input."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self._plan = store, plan
        self._digest = plan.recipe.annotate_digest
        self._units = {u.unit_id: u for u in plan.units}
        self._seen: set[str] = set()
        self._chunks: set[tuple[str, int]] = set()
        self._documents = 0
        self._read: dict[str, tuple[float, tuple[int, int]]] = {}

    def look(self) -> Standing:
        for name in self._store.list("receipts"):
            if name not in self._seen:
                self._count(json.loads(self._store.get(name)))
                self._seen.add(name)
        done = sum(size for size, _ in self._read.values())
        whole = self._plan.bytes
        return Standing(done, whole, self._documents, None, "measured", done, whole)

    def _count(self, receipt: Mapping[str, Any]) -> None:
        unit = self._units.get(receipt["unit"])
        if unit is None or receipt["annotate_digest"] != self._digest:
            return
        if receipt["fingerprint"] != unit.fingerprint or (unit.unit_id, receipt["chunk"]) in self._chunks:
            return
        self._chunks.add((unit.unit_id, receipt["chunk"]))
        self._documents += receipt["counts"]["documents"]
        place = (receipt["chunk"], int(receipt["last"]))
        if place > self._read.get(unit.unit_id, (0.0, (-1, 0)))[1]:
            self._read[unit.unit_id] = (self._bytes_read(unit, receipt), place)

    def _bytes_read(self, unit: Unit, receipt: Mapping[str, Any]) -> float:
        """Stored bytes of the unit up to the end of this chunk; within a compressed file a guess."""
        number, at = receipt["position"]["segment"], receipt["position"]["at"]
        if receipt["last"] or number >= len(unit.segments):
            return float(unit.bytes)
        before = Unit(unit.unit_id, unit.segments[:number]).bytes
        segment = unit.segments[number]
        if at is None:
            return float(before)
        file = segment.file
        end = file.size if segment.end is None else segment.end
        share: float
        if file.compression != "none":
            share = _guessed(at / (GUESSED_RATIO * max(1, file.size)))
        elif file.format == "parquet":
            first, last = (sum(file.rows_by_group[:group]) for group in (segment.begin, end))
            share = (at - first) / max(1, last - first)
        else:
            share = (at - segment.begin) / max(1, end - segment.begin)
        return before + Unit(unit.unit_id, (segment,)).bytes * min(max(share, 0.0), 1.0)


def _guessed(share: float) -> float:
    """A share by a guessed whole: as it is up to 0.8, then ever closer to 1 in case the guess is small."""
    return share if share < 0.8 else 1 - 0.2 * math.exp(4 - 5 * share)


class _Decided:
    """What the phases after annotate share: the decision's key, found once, and the summaries read so far."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self.store, self.plan = store, plan
        self._key: str | None = None
        self._summaries: dict[str, tuple[int, int]] = {}
        self.documents = 0

    def key(self) -> str:
        if self._key is None:
            corpus = survey(self.store, self.plan)
            self._key, self.documents = corpus.key, corpus.documents
        return self._key

    def summaries(self) -> tuple[int, int]:
        """(documents decided, copies to write) of the units whose summary is there."""
        there = set(self.store.list(f"decide/{self.key()}/summary"))
        for unit in self.plan.units:
            name = summary_name(self.key(), unit.unit_id)
            if name in there and name not in self._summaries:
                summary = json.loads(self.store.get(name))
                measured = sum(row[-4] for row in summary["flow"] if row[0] != "quarantined")
                self._summaries[name] = (measured, sum(row[-2] for row in summary["flow"]))
        pairs = self._summaries.values()
        return sum(d for d, _ in pairs), sum(c for _, c in pairs)


class _Decide(_Decided):
    """Counts steps by their marks, and documents by the summaries of the last step."""

    def look(self) -> Standing:
        names = self.store.list(f"decide/{self.key()}")
        steps = sum(name.endswith(".done") for name in names)
        decided, _ = self.summaries()
        return Standing(decided, self.documents, decided, self.documents, "decided", steps=steps)


class _Emit(_Decided):
    """Counts shards by their receipts."""

    def __init__(self, store: Store, plan: Plan) -> None:
        super().__init__(store, plan)
        self._receipts: dict[str, tuple[int, int]] = {}

    def look(self) -> Standing:
        _, copies = self.summaries()
        if not self.store.exists(KEY) or self.store.get(KEY).decode() != self.key():
            return Standing(0, copies, 0, copies, "written", 0)
        for name in self.store.list("emit"):
            if name != KEY and name not in self._receipts:
                entry = json.loads(self.store.get(name))
                shard = entry["name"].startswith("corpus/")
                self._receipts[name] = (entry["rows"], entry["bytes"]) if shard else (0, 0)
        rows = sum(r for r, _ in self._receipts.values())
        size = sum(b for _, b in self._receipts.values())
        return Standing(rows, copies, rows, copies, "written", size)


WATCHES: dict[str, Callable[[Store, Plan], _Watch]] = {
    "annotate": _Annotate,
    "decide": _Decide,
    "emit": _Emit,
}


class Progress:
    """Context manager around one phase of a run (`annotate`, `decide` or `emit`).

    Work that an earlier run committed counts as done, not as speed. Nothing that happens here is raised,
    and nothing is written after the block's end.
    """

    def __init__(
        self,
        store: Store,
        plan: Plan,
        phase: str,
        stream: TextIO | None = None,
        *,
        interval_seconds: float = 1.0,
        line_seconds: float = 10.0,
    ) -> None:
        self._phase = phase
        self._watch = WATCHES[phase](store, plan)
        self._stream = sys.stderr if stream is None else stream
        self._interval, self._every = interval_seconds, line_seconds
        self._terminal = is_terminal(self._stream)
        self._stop = threading.Event()
        self._silent = False
        self._failed = False
        self._drawn = 0
        self._standing = Standing()
        self._looks: deque[tuple[float, Standing]] = deque()
        self._first: Standing | None = None
        self._began = self._said = 0.0
        self._thread = threading.Thread(target=self._follow, name=f"progress of {phase}", daemon=True)

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._failed = kind is not None
        self._stop.set()
        self._thread.join(JOIN_SECONDS)
        self._silent = True

    def _follow(self) -> None:
        self._show(f"{self._phase}  begins")
        self._said = time.monotonic()
        wait = 0.0
        while not self._stop.wait(wait):
            wait = max(self._interval, self._look() / MAX_LOOKING_SHARE)
            if self._terminal or time.monotonic() - self._said >= self._every:
                self._show(self._line())
                self._said = time.monotonic()
        self._look()
        self._show(self._line(), end="\n")

    def _look(self) -> float:
        """Look once; returns the seconds that it took."""
        began = time.monotonic()
        try:
            self._standing = self._watch.look()
        except Exception:
            # A listing that fails, or an object that is not whole yet: the next look will do.
            return time.monotonic() - began
        now = time.monotonic()
        self._first = self._first or self._standing
        self._looks.append((now, self._standing))
        while len(self._looks) > 2 and self._looks[1][0] < now - WINDOW_SECONDS:
            self._looks.popleft()
        return now - began

    def _line(self) -> str:
        now = time.monotonic()
        if self._stop.is_set():
            ended = "stopped after" if self._failed else "done in"
            whole = self._first or self._standing
            parts = [f"{ended} {duration(now - self._began)}"]
            return describe(self._phase, self._standing, whole, now - self._began, parts)
        began, before = self._looks[0] if self._looks else (now, self._standing)
        return describe(self._phase, self._standing, before, now - began, None)

    def _show(self, text: str, end: str = "") -> None:
        if self._silent:
            return
        try:
            if self._terminal:
                text = fitted(text, _width(self._stream) - 1)
                self._stream.write("\r" + text.ljust(self._drawn) + end)
                self._drawn = len(text)
            else:
                self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._silent = True


def describe(phase: str, now: Standing, before: Standing, seconds: float, ended: list[str] | None) -> str:
    """One line, what matters most first; `before` was the standing `seconds` ago.

    >>> now = Standing(3e6, 9e6, 500, None, "measured", 3e6, 9e6)
    >>> describe("annotate", now, Standing(bytes=0.0), 2.0, None)
    'annotate  33%  4 s left  500 documents measured  1.5 MB/s  3.0 of 9.0 MB'
    """
    parts = list(ended or [])
    speed = (now.done - before.done) / seconds if seconds > 0 else 0.0
    if ended is None and now.whole and now.done:
        parts.append(f"{min(99, int(100 * now.done / now.whole))}%")
        if speed > 0:
            parts.append(f"{duration((now.whole - now.done) / speed)} left")
    of = "" if now.of_documents is None else f" of {now.of_documents:,}"
    parts.append(f"{now.documents:,}{of} documents {now.verb}".rstrip())
    if now.bytes is not None and before.bytes is not None and seconds > 0 and now.bytes > before.bytes:
        parts.append(f"{(now.bytes - before.bytes) / seconds / 1e6:.3g} MB/s")
    elif now.bytes is None and speed > 0:
        parts.append(f"{speed:,.0f} documents/s")
    if now.steps is not None:
        parts.append(f"{now.steps} step{'' if now.steps == 1 else 's'} done")
    if now.bytes is not None and now.of_bytes:
        size, unit = next((s, u) for s, u in UNITS if now.of_bytes >= s)
        parts.append(f"{now.bytes / size:.1f} of {now.of_bytes / size:.1f} {unit}")
    return "  ".join([phase, *parts])


def fitted(text: str, width: int) -> str:
    """As many parts of a line as fit, the first ones; one that does not fit alone is cut.

    >>> fitted("emit  50%  3 s left", 10), fitted("annotate", 4)
    ('emit  50%', 'anno')
    """
    while len(text) > width and "  " in text:
        text = text.rpartition("  ")[0]
    return text[: max(width, 0)]


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(9.6), duration(83), duration(7500)
    ('10 s', '1 min 23 s', '2 h 05 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def is_terminal(stream: TextIO) -> bool:
    """Whether a line of the stream can be drawn over."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        return False


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (AttributeError, OSError, ValueError):
        return 80
