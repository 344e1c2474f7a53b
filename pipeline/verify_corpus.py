"""What `verify` checks between records: duplicates, balance, and that the shards hold what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import duplicates as dup
from pipeline.annotate import text_hash
from pipeline.balance import BINS, Cut, cuts_of, languages_to_cut
from pipeline.decisions import KEPT, QUARANTINED, REJECTED
from pipeline.findings import Findings, shown
from pipeline.recipe import Recipe
from pipeline.store import Store
from pipeline.verify_ledger import SHARED, Ledger, keys_of, shared_keys
from pipeline.verify_rows import BALANCE, BASE, CUT, EXACT, NEAR, REFUSED_EXACT, REFUSED_NEAR, SURVIVES
from pipeline.work import WorkUnit
from schemas.tables import CORPUS

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

PAIRS_AT_ONCE = 1 << 16
"""Pairs of signatures compared at once."""


def check_duplicates(ledger: Ledger, recipe: Recipe, found: Findings) -> None:
    """Exact duplicates are found again from the hashes; of near ones the named pair is compared again."""
    ledger.report(found, ledger.repeated(), lambda _: "its doc_id stands in two audit rows")
    refused = ledger.refused
    unknown = refused[ledger.named[refused] < 0]
    ledger.report(found, unknown, lambda _: "duplicate_of names a document that is in no audit row")
    if recipe.judges(EXACT):
        _check_exact(ledger, found)
    if recipe.judges(NEAR):
        _check_near(ledger, found)


def _check_exact(ledger: Ledger, found: Findings) -> None:
    judged = np.flatnonzero((ledger["state"] >= REFUSED_EXACT) & ledger["has_exact"])
    h1, h2 = ledger["exact"][judged].T
    places = ledger["file"][judged], ledger["locator"][judged]
    removed, keeper = dup.group_exact(h1, h2, *places, judged.astype(np.uint64))
    first = np.full(len(ledger), -1, dtype=np.int64)
    first[removed.astype(np.int64)] = keeper.astype(np.int64)
    refused = ledger["state"] == REFUSED_EXACT
    copies = first >= 0

    def say(records: Bools, what: str) -> None:
        ledger.report(
            found,
            np.flatnonzero(records),
            lambda i: f"the first document with its text is {ledger.name(int(first[i]))}, and {what}",
        )

    say(copies & ~refused, "it is not refused")
    say(copies & refused & (ledger.named >= 0) & (ledger.named != first), "duplicate_of names another")
    ledger.report(
        found,
        np.flatnonzero(refused & ~copies),
        lambda _: (
            "is refused as an exact duplicate, but no earlier document that passed the rules has its text"
        ),
    )


def _check_near(ledger: Ledger, found: Findings) -> None:
    near = np.flatnonzero((ledger["state"] == REFUSED_NEAR) & (ledger.named >= 0))
    keeper = ledger.named[near]
    files, locators = ledger["file"], ledger["locator"]
    earlier = (files[keeper] < files[near]) | (
        (files[keeper] == files[near]) & (locators[keeper] < locators[near])
    )

    def say(records: Indices, what: str) -> None:
        ledger.report(
            found, records, lambda i: f"duplicate_of is {ledger.name(int(ledger.named[i]))}, {what}"
        )

    say(near[~earlier], "which is not an earlier document")
    say(near[ledger["state"][keeper] != SURVIVES], "which a rule or a duplicate step refused itself")
    said = ledger["similarity"]
    for start in range(0, len(near), PAIRS_AT_ONCE):
        a, b = near[start : start + PAIRS_AT_ONCE], keeper[start : start + PAIRS_AT_ONCE]
        wanted = np.unique(np.concatenate([a, b]))
        matrix = np.concatenate(list(_signatures(ledger, wanted)))
        got = dup.verify_pairs(matrix[np.searchsorted(wanted, a)], matrix[np.searchsorted(wanted, b)])
        values = dict(zip(a.tolist(), got.tolist(), strict=True))
        ledger.report(
            found,
            a[got != said[a]],
            lambda i, v=values: (
                f"similarity is {shown(float(said[i]))}, but the signatures of it and of "  # type: ignore[misc]
                f"{ledger.name(int(ledger.named[i]))} give {shown(v[i])}"
            ),
        )


def _signatures(ledger: Ledger, wanted: Indices) -> Iterator[npt.NDArray[np.uint32]]:
    """The signatures of these records (ascending), unit by unit; zeros for a record that has none."""
    for work, start, end in ledger.units:
        mine = wanted[(wanted >= start) & (wanted < end)]
        if not len(mine):
            continue
        column = work.annotations(ledger.store, ["signature"]).column("signature").combine_chunks()
        rows = column.take(pa.array(ledger["annotation_row"][mine], pa.int64()))
        have, signatures = dup.signature_matrix(rows)
        matrix = np.zeros((len(mine), column.type.byte_width // 4), dtype=np.uint32)
        matrix[have] = signatures
        yield matrix


def check_balance(ledger: Ledger, recipe: Recipe, found: Findings) -> None:
    """The cut of each language is the one that the documents before balance give, in every row."""
    group, hashes, characters = (ledger[c] for c in ("group", "hash", "characters"))
    survives = ledger["state"] == SURVIVES
    names = {k: v for b in ledger.blocks for k, v in b.group_names.items()}
    cuts: dict[str, Cut] = {}
    if recipe.judges(BALANCE):
        drawn = {}
        for key in np.unique(group[survives]):
            mine = survives & (group == key)
            order = np.lexsort((characters[mine], hashes[mine]))
            drawn[names[int(key)]] = hashes[mine][order], characters[mine][order]
        cuts = _cuts(recipe, drawn)
    for block in ledger.blocks:
        for (name, cut, base), doc_id in block.cuts.items():
            expected = cuts.get(name)
            if (cut, base) == (
                (None, None) if expected is None else (expected.max_sampling_hash, expected.base)
            ):
                continue
            want = "none" if expected is None else f"{expected.max_sampling_hash!r} and {expected.base}"
            found.add(
                block.file,
                f"thresholds {CUT} and {BASE} are {cut} and {base}, but the documents of {name} give {want}",
                doc_id,
            )


def _cuts(recipe: Recipe, drawn: dict[str, tuple[Floats, Indices]]) -> dict[str, Cut]:
    histograms = {}
    for name, (hashes, characters) in drawn.items():
        histograms[name] = np.zeros(BINS, dtype=np.int64)
        np.add.at(histograms[name], (hashes * BINS).astype(np.int64), characters)
    wanted = languages_to_cut(recipe.by_name[BALANCE], histograms)
    exact = {}
    for name, crossing in wanted.items():
        hashes, characters = drawn[name]
        inside = (hashes * BINS).astype(np.int64) == crossing.bin
        exact[name] = {"hashes": hashes[inside], "characters": characters[inside]}
    return cuts_of(wanted, exact)


def check_shards(ledger: Ledger, store: Store, recipe: Recipe, found: Findings) -> int:
    """Every kept document stands in its folder's shards as often as the audit says, with its text and scores.

    Returns the first copies that the shards hold.
    """
    most = recipe.by_name[BALANCE].max_epochs if recipe.judges(BALANCE) else 1
    shelf = _Shelf(ledger, np.minimum(ledger["epochs"], most))
    first_copies = 0
    for name in store.list("corpus"):
        try:
            with store.open(name) as file:
                reader = pq.ParquetFile(file)
                if not reader.schema_arrow.equals(CORPUS):
                    found.add(name, "its columns are not those of a shard")
                    continue
                for group in range(reader.num_row_groups):
                    first_copies += shelf.take(name, reader.read_row_group(group), found)
        except Exception as error:  # what a broken file makes a reader raise is no closed set
            found.add(name, f"cannot be read: {type(error).__name__}: {error}")
    shelf.report_missing(found)
    return first_copies


class _Shelf:
    """A place for every copy that the audit asks for, filled from the shards."""

    def __init__(self, ledger: Ledger, copies: Indices) -> None:
        self._ledger, self._copies = ledger, copies
        self._ends = np.cumsum(copies)
        self._begins = self._ends - copies
        self._filled = np.zeros(int(copies.sum()), dtype=bool)

    def take(self, name: str, table: pa.Table, found: Findings) -> int:
        """Check a row group of a shard; returns its first copies."""
        first_copies = int(pa.compute.sum(pa.compute.equal(table.column("epoch"), 0)).as_py() or 0)
        doc_ids = table.column("doc_id").to_pylist()
        record = self._ledger.find(keys_of(doc_ids))
        unknown = np.flatnonzero(record < 0)
        found.rows(name, unknown, lambda i: doc_ids[i], lambda _: "is in no audit row")
        rows = np.flatnonzero(record >= 0)
        self._take_known(name, table.take(pa.array(rows)), record[rows], found)
        return first_copies

    def _take_known(self, name: str, table: pa.Table, record: Indices, found: Findings) -> None:
        ledger = self._ledger
        doc_ids = table.column("doc_id").to_pylist()
        epoch = table.column("epoch").fill_null(0).to_numpy().astype(np.int64)
        copies = self._copies[record]

        def say(rows: Bools, problem: Callable[[int], str]) -> None:
            found.rows(name, np.flatnonzero(rows), lambda i: doc_ids[i], problem)

        say(epoch >= copies, lambda i: f"is copy {epoch[i]}, but the audit asks for {copies[i]} copies")
        rows = np.flatnonzero(epoch < copies)
        place = self._begins[record[rows]] + epoch[rows]
        again = self._filled[place]
        earliest = np.zeros(len(place), dtype=bool)
        earliest[np.unique(place, return_index=True)[1]] = True
        self._filled[place] = True
        twice = np.zeros(len(record), dtype=bool)
        twice[rows[again | ~earliest]] = True
        say(twice, lambda i: f"copy {epoch[i]} stands in the shards twice")
        texts = keys_of(text_hash(t or "") for t in table.column("text").to_pylist())
        say(
            (texts != ledger["texts"][record]).any(axis=1),
            lambda _: "its text is not the one that the audit's text_hash names",
        )
        say(
            (shared_keys(table) != ledger["shared"][record]).any(axis=1),
            lambda _: f"its scores or one of {', '.join(SHARED)} are not those of the audit",
        )
        folder = "/".join(name.split("/")[1:-1])
        say(ledger["group"][record] != keys_of([folder])[0, 0], lambda _: f"does not belong in {folder}/")

    def report_missing(self, found: Findings) -> None:
        """Findings on copies that the audit asks for and no shard holds."""
        missing = np.flatnonzero(~self._filled)
        owner = np.searchsorted(self._ends, missing, side="right")
        which = dict(zip(owner.tolist(), (missing - self._begins[owner]).tolist(), strict=True))
        self._ledger.report(
            found,
            np.unique(owner),
            lambda i: f"epochs is {self._ledger['epochs'][i]}, and copy {which[i]} is in no shard",
        )


def check_accounting(
    ledger: Ledger,
    works: Sequence[WorkUnit],
    first_copies: int,
    said: Mapping[str, Any],
    manifest_name: str,
    found: Findings,
) -> None:
    """The manifest's accounting against a recount, and that every record read has exactly one end."""
    total = {"records": 0, "not_documents": 0, "not_sampled": 0}
    quarantined = 0
    for work in works:
        for name in total:
            total[name] += work.manifest["counts"].get(name, 0)
        for chunk in work.manifest["chunks"]:
            if "quarantine" in chunk["files"]:
                with ledger.store.open(chunk["files"]["quarantine"]["name"]) as file:
                    quarantined += sum(1 for _ in file)
    audited = {d: sum(b.decisions[d] for b in ledger.blocks) for d in (KEPT, REJECTED, QUARANTINED)}
    counted = {KEPT: first_copies, REJECTED: audited[REJECTED], QUARANTINED: quarantined}
    keepers = ledger.named[ledger.refused]
    dropped = int((~ledger["kept"][keepers] | (keepers < 0)).sum())
    recount = {**total, **counted, "keeper_dropped": dropped}
    if dict(said) != recount:
        found.add(manifest_name, f"accounting is {dict(said)}, but counted again it is {recount}")
    if total["records"] != sum(counted.values()) or counted != audited:
        found.add(
            manifest_name,
            f"{total['records']} records were read; the files hold {counted}, the audit says {audited}",
        )
