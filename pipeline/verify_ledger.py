"""Every record of a run as arrays, for the checks of `verify` that look at more than one record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline import duplicates as dup
from pipeline.decisions import KEPT, QUARANTINED, REJECTED
from pipeline.findings import Findings
from pipeline.store import Store
from pipeline.verify_files import audit_name
from pipeline.verify_rows import (
    BALANCE,
    BASE,
    CUT,
    EXACT,
    NEAR,
    REFUSED_EXACT,
    REFUSED_NEAR,
    SURVIVES,
    UnitRows,
    number_columns,
)
from pipeline.work import WorkUnit

Indices = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

SHARED = ("input_id", "source", "language", "kind", "programming_language", "flags")
"""Columns that a shard and the audit have in common, beside the measured scores and the text's hash."""


def keys_of(values: Iterable[str | None]) -> Keys:
    """[n, 2]: a 128-bit BLAKE2b of each string (null as the empty one)."""
    digests = [
        hashlib.blake2b((v or "").encode("utf-8", "surrogatepass"), digest_size=16).digest() for v in values
    ]
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)


def shared_keys(table: pa.Table) -> Keys:
    """[n, 2]: a hash of what a shard row and its audit row must have in common beside the text."""
    numbers, _ = number_columns(table.column("scores"))
    total = np.zeros(table.num_rows, dtype=np.uint64)
    for name, values in numbers.items():
        if name in (EXACT, NEAR, BALANCE):
            continue  # known only when all documents are compared: not in the shards
        seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
        mixed = (values.view(np.uint64) ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        total += np.where(np.isnan(values), np.uint64(0), mixed ^ (mixed >> np.uint64(32)))
    columns = (table.column(n).to_pylist() for n in SHARED)
    return keys_of(repr(row) for row in zip(*columns, total.tolist(), strict=True))


NO_ROWS: dict[str, npt.NDArray[Any]] = {
    **{n: np.zeros((0, 2), np.uint64) for n in ("ids", "texts", "shared", "exact", "named")},
    **{n: np.zeros(0, np.uint64) for n in ("group", "locator")},
    **{n: np.zeros(0, np.int64) for n in ("epochs", "characters", "annotation_row")},
    **{n: np.zeros(0, np.bool_) for n in ("has_exact", "kept")},
    **{n: np.zeros(0, np.float64) for n in ("hash", "similarity")},
    "file": np.zeros(0, np.uint32),
    "state": np.zeros(0, np.uint8),
}
"""The columns of `BlockKeys`, without a row."""


@dataclass(frozen=True)
class BlockKeys:
    """Audit rows of a unit as arrays: all that the checks between records need, about 130 bytes a record.

    `columns`, a row a record: ids, texts, shared, exact, named (128-bit hashes of doc_id, text_hash, what a
    shard row shares, the normalised text, duplicate_of), has_exact, group (hash of the corpus folder), file,
    locator (the order of documents), state, hash (of sampling), kept, epochs, characters, similarity,
    annotation_row. `cuts` holds each (group, cut, base copies) that stands in a row, with one such document.
    """

    work: WorkUnit
    file: str
    columns: dict[str, npt.NDArray[Any]]
    cuts: dict[tuple[str, float | None, float | None], str]
    group_names: dict[int, str]
    decisions: dict[str, int]


def block_keys(rows: UnitRows) -> BlockKeys:
    """The arrays of a block of audit rows."""
    n = len(rows.doc_ids)
    audit, annotations = rows.audit, rows.annotations
    files, locators = rows.work.order(annotations)
    has_exact, exact = np.zeros(n, dtype=bool), np.zeros((n, 2), dtype=np.uint64)
    if "exact_hash" in annotations.column_names:
        column = annotations.column("exact_hash").combine_chunks()
        has_exact = column.is_valid().to_numpy(zero_copy_only=False).astype(bool)
        entries = dup.exact_entries(column.drop_null(), *(np.zeros(0),) * 3)
        exact[has_exact] = np.stack([entries["h1"], entries["h2"]], axis=1)
    decisions = audit.column("decision").to_pylist()
    groups = {g: int(keys_of([g])[0, 0]) for g in sorted({g for g in rows.groups if g is not None})}
    nothing = np.full(n, np.nan)
    cut, base = (rows.thresholds.get(name, nothing) for name in (CUT, BASE))
    cuts: dict[tuple[str, float | None, float | None], str] = {}
    for i in np.flatnonzero((rows.state == SURVIVES) | ~np.isnan(cut) | ~np.isnan(base)):
        value = (str(rows.groups[i]), _or_none(cut[i]), _or_none(base[i]))
        cuts.setdefault(value, rows.doc_ids[i])
    columns = {
        "ids": keys_of(rows.doc_ids),
        "texts": keys_of(audit.column("text_hash").to_pylist()),
        "shared": shared_keys(audit),
        "exact": exact,
        "named": keys_of(audit.column("duplicate_of").to_pylist()),
        "has_exact": has_exact,
        "group": np.array([groups.get(g, 0) for g in rows.groups], dtype=np.uint64),
        "file": files,
        "locator": locators,
        "state": rows.state,
        "hash": rows.hashes,
        "kept": np.array([d == KEPT for d in decisions], dtype=bool),
        "epochs": audit.column("epochs").fill_null(0).to_numpy().astype(np.int64),
        "characters": annotations.column("characters").fill_null(0).to_numpy().astype(np.int64),
        "similarity": np.asarray(audit.column("similarity").to_numpy(), dtype=np.float64),
        "annotation_row": rows.annotation_row,
    }
    counts = {d: decisions.count(d) for d in (KEPT, REJECTED, QUARANTINED)}
    return BlockKeys(rows.work, rows.file, columns, cuts, {key: name for name, key in groups.items()}, counts)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


class Ledger:
    """Every record of the run, numbered through the blocks, to be found by the hash of its doc_id.

    It takes over the blocks' arrays. `units` holds each unit with its first record and the one after its
    last; `named` is the record that each one's duplicate_of names, -1 for none.
    """

    def __init__(self, store: Store, blocks: Sequence[BlockKeys]) -> None:
        self.store, self.blocks = store, list(blocks)
        ends = np.cumsum([0, *(len(b.columns["ids"]) for b in blocks)])
        self.units: list[tuple[WorkUnit, int, int]] = []
        for block, begin, end in zip(self.blocks, ends, ends[1:], strict=False):
            same = self.units and self.units[-1][0] is block.work
            self.units.append((block.work, self.units.pop()[1] if same else int(begin), int(end)))
        self._starts = np.array([start for _, start, _ in self.units], dtype=np.int64)
        self._columns = {
            name: np.concatenate([none, *(b.columns.pop(name) for b in self.blocks)])
            for name, none in NO_ROWS.items()
        }
        self._order = np.lexsort((self["ids"][:, 1], self["ids"][:, 0]))
        self._first = self["ids"][self._order, 0]
        self._names: tuple[int, list[str]] = (-1, [])
        self.named = np.full(len(self), -1, dtype=np.int64)
        refused = self.refused
        self.named[refused] = self.find(self["named"][refused])

    def __len__(self) -> int:
        return len(self["ids"])

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    @property
    def refused(self) -> Indices:
        """The records that a duplicate step refused."""
        return np.flatnonzero(np.isin(self["state"], (REFUSED_EXACT, REFUSED_NEAR)))

    def find(self, keys: Keys) -> Indices:
        """The record of each doc_id's hash; -1 where there is none."""
        found = np.full(len(keys), -1, dtype=np.int64)
        at = np.searchsorted(self._first, keys[:, 0])
        todo = np.arange(len(keys))
        while len(todo):
            todo = todo[at[todo] < len(self)]
            todo = todo[self._first[at[todo]] == keys[todo, 0]]
            here = self._order[at[todo]]
            hit = self["ids"][here, 1] == keys[todo, 1]
            found[todo[hit]] = here[hit]
            todo = todo[~hit]
            at[todo] += 1
        return found

    def repeated(self) -> Indices:
        """Records whose doc_id an earlier record has too."""
        ids = self["ids"][self._order]
        repeated: Indices = np.sort(self._order[1:][(ids[1:] == ids[:-1]).all(axis=1)])
        return repeated

    def _unit_number(self, record: int) -> int:
        return int(np.searchsorted(self._starts, record, side="right")) - 1

    def name(self, record: int) -> str:
        """The doc_id of a record, read again from the annotations."""
        number = self._unit_number(record)
        if self._names[0] != number:
            table = self.units[number][0].annotations(self.store, ["doc_id"])
            self._names = (number, table.column("doc_id").to_pylist())
        return str(self._names[1][self["annotation_row"][record]])

    def report(self, found: Findings, records: Iterable[int], problem: Callable[[int], str]) -> None:
        """Findings on records, each under its audit file."""
        by_unit: dict[int, list[int]] = {}
        for record in records:
            by_unit.setdefault(self._unit_number(int(record)), []).append(int(record))
        for number, own in sorted(by_unit.items()):
            found.rows(audit_name(self.units[number][0].unit_id), own, self.name, problem)
