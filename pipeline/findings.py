"""What a check of an output folder found: collected, bounded, and safe to print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Indices = npt.NDArray[np.int64]

ROWS_NAMED = 20
"""Rows of one file named for one fault; more are counted in one further finding."""

MOST = 10_000
"""Findings that are kept; further ones are counted."""

SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: the file, the record (doc_id, or None for the whole file), and what."""

    file: str
    record: str | None
    problem: str

    def __str__(self) -> str:
        where = self.file if self.record is None else f"{self.file}: {self.record}"
        return f"{printable(where)}: {printable(self.problem)}"


@dataclass
class Findings:
    """Findings in the order in which they were made; `more` counts those past the first `MOST`."""

    all: list[Finding] = field(default_factory=list)
    more: int = 0

    def add(self, file: str, problem: str, record: str | None = None) -> None:
        """Add one finding."""
        if len(self.all) < MOST:
            self.all.append(Finding(file, record, problem))
        else:
            self.more += 1

    def listed(self) -> list[Finding]:
        """All findings that are kept, and one that counts the others."""
        rest = [Finding("", None, f"{self.more} more findings are not listed")] if self.more else []
        return [*self.all, *rest]

    def rows(
        self,
        file: str,
        rows: Iterable[int],
        record: Callable[[int], str | None],
        problem: Callable[[int], str],
    ) -> None:
        """Rows that share a fault: a finding for each of the first ones, and one that counts the others."""
        found = [int(i) for i in rows]
        for i in found[:ROWS_NAMED]:
            self.add(file, problem(i), record(i))
        if len(found) > ROWS_NAMED:
            self.add(file, f"and {len(found) - ROWS_NAMED} more rows like the last one named")


def printable(text: str) -> str:
    """The text with everything that a terminal could act on escaped: controls, direction marks, surrogates.

    >>> printable("a\\x1b[31mb\\u202ec\\nd 汉")
    'a\\\\x1b[31mb\\\\u202ec\\\\nd 汉'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: Any) -> str:
    """A value as a message shows it: short, printable."""
    text = printable(repr(value))
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."


def align(
    found: Findings, file: str, got: Sequence[str], expected: Sequence[str], source: str
) -> tuple[Indices, Indices]:
    """Positions in `got` and in `expected` of the rows that both have, in the expected order; rows that are
    missing, foreign, there twice or out of order are findings."""
    if list(got) == list(expected):
        same = np.arange(len(expected))
        return same, same
    place = {key: i for i, key in reversed(list(enumerate(got)))}
    known = set(expected)
    missing = [i for i, k in enumerate(expected) if k not in place]
    foreign = [i for i, k in enumerate(got) if k not in known]
    twice = [i for i, k in enumerate(got) if k in known and place[k] != i]
    found.rows(file, missing, lambda i: expected[i], lambda _: f"has no row here, but one in {source}")
    found.rows(file, foreign, lambda i: got[i], lambda _: f"has a row here and none in {source}")
    found.rows(file, twice, lambda i: got[i], lambda _: "has two rows here")
    if not (missing or foreign or twice):
        found.add(file, f"its rows are not in the order of {source}")
    theirs = np.array([i for i, k in enumerate(expected) if k in place], dtype=np.int64)
    mine = np.array([place[expected[i]] for i in theirs], dtype=np.int64)
    return mine, theirs


def compare_columns(
    found: Findings,
    file: str,
    got: pa.Table,
    expected: pa.Table,
    columns: Sequence[str],
    records: Sequence[str | None],
    source: str,
) -> None:
    """Compare columns of two tables with equal rows; `records` names the rows, `source` what is expected."""
    for name in columns:
        mine, theirs = got.column(name), expected.column(name)
        if mine.type != theirs.type:
            found.add(file, f"column {name} has type {mine.type}, {theirs.type} in {source}")
            continue
        if mine.equals(theirs):
            continue
        a, b = mine.to_pylist(), theirs.to_pylist()
        bad = [i for i in range(len(a)) if not _same(a[i], b[i])]
        found.rows(
            file,
            bad,
            lambda i: records[i],
            lambda i, a=a, b=b, name=name: _difference(name, a[i], b[i], source),  # type: ignore[misc]
        )


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (isinstance(a, float) and isinstance(b, float) and a != a and b != b)


def _difference(name: str, got: Any, expected: Any, source: str) -> str:
    if name == "text" and isinstance(got, str) and isinstance(expected, str):
        shared = min(len(got), len(expected))
        at = next((i for i in range(shared) if got[i] != expected[i]), shared)
        return (
            f"text differs from {source} from character {at} on ({len(got)} and {len(expected)} characters)"
        )
    if isinstance(got, list) and isinstance(expected, list):
        if len(got) != len(expected):
            return f"{name} has {len(got)} entries, {len(expected)} in {source}"
        at = next(i for i in range(len(got)) if not _same(got[i], expected[i]))
        return f"{name}, entry {at}, is {shown(got[at])}, but {shown(expected[at])} in {source}"
    return f"{name} is {shown(got)}, but {shown(expected)} in {source}"


def mismatches(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> Indices:
    """Positions at which two arrays differ; NaN equals NaN."""
    return np.flatnonzero(~((a == b) | (np.isnan(a) & np.isnan(b))))
