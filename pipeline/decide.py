"""Decide: rules, duplicates, balance and the shard plan, from narrow columns only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline import duplicates as dup
from pipeline.balance import BINS, Cut, cuts_of, languages_to_cut
from pipeline.decisions import Decisions, partitions_of
from pipeline.engine import Engine
from pipeline.plan import Plan
from pipeline.rules import judge_rows, score_names
from pipeline.store import Store, open_store, parquet_bytes, read_parquet
from pipeline.work import (
    AllUnits,
    UnitDoFn,
    WorkUnit,
    hop_name,
    ordinals_of,
    read_hop,
    refs_of,
    rows_of,
    work_units,
)
from schemas.sampling import sampling_hashes

Keyed = tuple[int, bytes]
EXACT_ENTRY_BYTES, BAND_ENTRY_BYTES = 36, 24

WANTED = dup.Layout((("ref", "<u8", 1), ("part", "<u8", 1)))
"""A document's reference, and who asks for something of it: a partition of pairs, or a unit."""

HISTOGRAM = dup.Layout((("bin", "<i8", 1), ("characters", "<i8", 1)))
DRAWN = dup.Layout((("hash", "<f8", 1), ("characters", "<i8", 1)))


@dataclass(frozen=True)
class Corpus:
    """What the driver knows of the annotated corpus: enough to size shuffles and to name the decision."""

    key: str
    documents: int
    chunks: int


def survey(store: Store, plan: Plan) -> Corpus:
    """Read every unit's manifest; the key names the decisions on exactly these work files."""
    total = hashlib.sha256(f"{plan.digest}\n{plan.recipe.decide_digest}\n".encode())
    documents = chunks = 0
    for unit in work_units(store, plan):
        for chunk in unit.manifest["chunks"]:
            total.update(chunk["files"]["annotations"]["sha256"].encode())
            total.update(chunk["files"]["text"]["sha256"].encode())
            documents += chunk["counts"]["documents"]
            chunks += 1
    return Corpus(total.hexdigest()[:16], documents, chunks)


def decide(store: Store, plan: Plan, engine: Engine) -> Corpus:
    """Run the steps of decide that are not done yet; the decisions lie under `decide/<key>/`."""
    corpus = survey(store, plan)
    steps = _Steps(store, plan, engine, corpus)
    recipe = plan.recipe
    if recipe.judges("exact_duplicates"):
        steps.run_passes("exact", corpus.documents * EXACT_ENTRY_BYTES, _exact)
    if recipe.judges("near_duplicates") and recipe.by_name["near_duplicates"].min_jaccard is not None:
        bands = recipe.by_name["near_duplicates"].bands
        steps.run_passes("pairs", corpus.documents * BAND_ENTRY_BYTES * bands, _pairs)
        steps.run_passes("edges", steps.pair_rows * PAIR_BYTES, _edges)
        steps.run("near", lambda p: _near(p, steps))
    if recipe.judges("balance_languages"):
        _balance(steps)
    steps.run("decisions", lambda p: _decisions(p, steps))
    return corpus


class _Steps:
    """Runs the steps of decide, each once, and knows how a shuffle is divided."""

    def __init__(self, store: Store, plan: Plan, engine: Engine, corpus: Corpus) -> None:
        self.store, self.plan, self.engine, self.corpus = store, plan, engine, corpus
        self.args = (store.url, json.dumps(plan.recipe.to_json()), corpus.key)

    @cached_property
    def pair_rows(self) -> int:
        """Candidate pairs, each counted in every band in which it was found; asked once all are written."""
        return sum(_rows(self.store, n) for n in _files_of(self, "pairs"))

    def done_name(self, step: str) -> str:
        return f"decide/{self.corpus.key}/{step}.done"

    def run(self, step: str, build: Callable[[beam.Pipeline], object]) -> None:
        """Run a step unless it is done; the mark is written after everything the step wrote."""
        if not self.store.exists(self.done_name(step)):
            self.engine.run(build)
            self.store.put(self.done_name(step), b"")

    def run_passes(
        self, hop: str, shuffled_bytes: int, build: Callable[[beam.Pipeline, _Steps, int, int], object]
    ) -> None:
        """Run a shuffle in passes unless all are done: the embedded runner holds a whole pass in memory.

        How many there are depends on the runner. Their names say it, and the mark of the whole does, so
        that a run which goes on with another runner begins the step anew.
        """
        if self.store.exists(self.done_name(hop)):
            return
        parts = _power_of_two(shuffled_bytes / self.plan.recipe.run.pass_bytes) if self.engine.embedded else 1
        for part in range(parts):
            self.run(pass_name(hop, part, parts), lambda p, part=part: build(p, self, part, parts))  # type: ignore[misc]
        self.store.put(self.done_name(hop), str(parts).encode())

    def partitions(self, entry_bytes: int) -> int:
        """A power of two, so that a partition holds about `partition_bytes`."""
        return _power_of_two(self.corpus.documents * entry_bytes / self.plan.recipe.run.partition_bytes)


def pass_name(hop: str, part: int, parts: int) -> str:
    """Name of one pass of a step."""
    return f"{hop}-{part:05d}-of-{parts:05d}"


def pass_names(store: Store, key: str, hop: str) -> list[str]:
    """The passes of a step that is done; none where it was not asked for."""
    mark = f"decide/{key}/{hop}.done"
    if not store.exists(mark):
        return []
    parts = int(store.get(mark))
    return [pass_name(hop, part, parts) for part in range(parts)]


def _power_of_two(at_least: float) -> int:
    n = 1
    while n < at_least:
        n *= 2
    return n


def _split(
    keys: npt.NDArray[Any], layout: dup.Layout, columns: Mapping[str, npt.NDArray[Any]]
) -> Iterable[tuple[int, bytes]]:
    """Rows packed by key: (key, packed columns), keys ascending."""
    if len(keys) == 0:
        return
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
        rows = order[start:end]
        yield int(keys[start]), layout.pack({n: c[rows] for n, c in columns.items()})


def surviving(
    work: WorkUnit, store: Store, recipe: Any, key: str, extra: Sequence[str], after: Sequence[str]
) -> Any:
    """The rows that pass the rules and none of the steps `after` refused: (rows, table of all rows)."""
    base = ["row", "source", "source_path", "locator", "kind", "language", "bad_stage"]
    wanted = dict.fromkeys([*base, *score_names(recipe.row_stages), *extra])
    table = work.annotations(store, list(wanted))
    alive = judge_rows(recipe.row_stages, table).passed.copy()
    for hop in after:
        for refused in removed_rows(store, key, hop, work.ordinal):
            alive[refused.column("row").to_numpy()] = False
    return np.flatnonzero(alive), table


def removed_rows(store: Store, key: str, hop: str, ordinal: int) -> Iterable[pa.Table]:
    """Tables (row, keeper, similarity) that a duplicate step wrote for a unit, pass after pass."""
    hops = ["near"] if hop == "near" else pass_names(store, key, hop)
    tables = (read_hop(store, key, name, ordinal) for name in hops)
    return [table for table in tables if table is not None]


# Exact duplicates: (hash, order, ref) by the top bits of the hash.


def _exact(pipeline: beam.Pipeline, steps: _Steps, part: int, parts: int) -> None:
    partitions = max(parts, steps.partitions(EXACT_ENTRY_BYTES))
    (
        pipeline
        | AllUnits(steps.store.url)
        | "entries"
        >> beam.ParDo(_ExactEntries(*steps.args, part, parts, partitions)).with_output_types(Keyed)
        | "by hash" >> beam.GroupByKey()
        | "first of each" >> beam.ParDo(_GroupExact()).with_output_types(Keyed)
        | "by unit" >> beam.GroupByKey()
        | "write" >> beam.ParDo(_WriteRemoved(*steps.args, pass_name("exact", part, parts)))
    )


class _ExactEntries(UnitDoFn):
    def __init__(self, url: str, recipe: str, key: str, part: int, parts: int, partitions: int) -> None:
        super().__init__(url, recipe, key)
        self._part, self._parts, self._partitions = part, parts, partitions

    def process(self, line: bytes) -> Iterable[Keyed]:
        work = self.work_unit(line)
        rows, table = surviving(work, self.store, self.recipe, self.key, ["exact_hash"], [])
        if "exact_hash" not in table.column_names:
            return
        valid = table.column("exact_hash").is_valid().to_numpy(zero_copy_only=False)
        rows = rows[valid[rows]]
        files, locators = work.order(table)
        hashes = table.column("exact_hash").combine_chunks().take(pa.array(rows, pa.int64()))
        entries = dup.exact_entries(hashes, files[rows], locators[rows], refs_of(work.ordinal, rows))
        yield from self.mine(entries["h1"], dup.EXACT, entries)

    def mine(
        self, hashes: npt.NDArray[np.uint64], layout: dup.Layout, columns: Mapping[str, npt.NDArray[Any]]
    ) -> Iterable[Keyed]:
        """The rows of this pass, by partition of their hash."""
        where = (hashes % np.uint64(self._partitions)).astype(np.int64)
        rows = where % self._parts == self._part
        yield from _split(where[rows], layout, {n: c[rows] for n, c in columns.items()})


class _GroupExact(beam.DoFn):  # type: ignore[misc]
    def process(self, grouped: tuple[int, Iterable[bytes]]) -> Iterable[Keyed]:
        removed, keeper = dup.group_exact(**dup.EXACT.unpack_all(sorted(grouped[1])))
        yield from _removed_by_unit(removed, keeper, np.ones(len(removed), dtype=np.float64))


def _removed_by_unit(
    removed: npt.NDArray[np.uint64], keeper: npt.NDArray[np.uint64], similarity: npt.NDArray[np.float64]
) -> Iterable[Keyed]:
    columns = {"removed": removed, "keeper": keeper, "similarity": similarity}
    return _split(ordinals_of(removed), dup.REMOVED, columns)


class _WriteHop(UnitDoFn):
    """Base of DoFns that write what a step found, a file a key."""

    def __init__(self, url: str, recipe: str, key: str, hop: str) -> None:
        super().__init__(url, recipe, key)
        self._hop = hop

    def put(self, key: int, table: pa.Table) -> None:
        """Write the step's table for this key."""
        self.store.put(hop_name(self.key, self._hop, key), parquet_bytes(table))


class _WriteRemoved(_WriteHop):
    """Writes the rows of a unit that a duplicate step refuses, each with its keeper and the similarity."""

    def process(self, grouped: tuple[int, Iterable[bytes]]) -> None:
        columns = dup.REMOVED.unpack_all(grouped[1])
        order = np.argsort(columns["removed"], kind="stable")
        rows = rows_of(columns["removed"][order])
        kept = {n: columns[n][order] for n in ("keeper", "similarity")}
        table = pa.table({"row": rows, **kept})
        self.put(grouped[0], table)


# Near duplicates, first: candidate pairs from the bands of survivors.


def _pairs(pipeline: beam.Pipeline, steps: _Steps, part: int, parts: int) -> None:
    bands = steps.plan.recipe.by_name["near_duplicates"].bands
    partitions = max(parts, steps.partitions(BAND_ENTRY_BYTES * bands))
    (
        pipeline
        | AllUnits(steps.store.url)
        | "bands" >> beam.ParDo(_BandEntries(*steps.args, part, parts, partitions)).with_output_types(Keyed)
        | "by band" >> beam.GroupByKey()
        | "candidates" >> beam.ParDo(_Candidates(*steps.args, pass_name("pairs", part, parts)))
    )


class _BandEntries(_ExactEntries):
    def process(self, line: bytes) -> Iterable[Keyed]:
        work = self.work_unit(line)
        rows, table = surviving(work, self.store, self.recipe, self.key, ["signature"], ["exact"])
        stage = self.recipe.by_name["near_duplicates"]
        signatures, rows = _signatures(table, rows, stage)
        files, locators = work.order(table)
        # Only to choose hubs in hot buckets: files past 2^24 and offsets past 2^40 share a rank.
        ranks = (files[rows].astype(np.uint64) << np.uint64(40)) | np.minimum(
            locators[rows], np.uint64((1 << 40) - 1)
        )
        columns = {
            "hash": dup.band_hashes(signatures, stage.bands, stage.rows_per_band).ravel(),
            "ref": np.repeat(refs_of(work.ordinal, rows), stage.bands),
            "rank": np.repeat(ranks, stage.bands),
        }
        yield from self.mine(columns["hash"], dup.BANDS, columns)


def _signatures(table: pa.Table, rows: Any, stage: Any) -> tuple[npt.NDArray[np.uint32], Any]:
    """Signatures (n, num_perm) of those rows that have one, and the rows."""
    if "signature" not in table.column_names:
        return np.zeros((0, stage.num_perm), np.uint32), rows[:0]
    column = table.column("signature").combine_chunks().take(pa.array(rows, pa.int64()))
    have, signatures = dup.signature_matrix(column)
    return signatures, rows[have]


class _Candidates(_WriteHop):
    """Writes the candidate pairs of one partition of bands."""

    def process(self, grouped: tuple[int, Iterable[bytes]]) -> None:
        columns = dup.BANDS.unpack_all(sorted(grouped[1]))
        a, b = dup.candidate_pairs(columns["hash"], columns["ref"], columns["rank"])
        if len(a):
            self.put(grouped[0], pa.table({"a": a, "b": b}))


# Near duplicates, then: signatures join the pairs, and the pairs that are alike become edges.

PAIR_BYTES = 1 << 10
"""Bytes that one pair and its two signatures take at most."""


def _files_of(steps: _Steps, hop: str) -> list[str]:
    """What the passes of a step wrote."""
    key = steps.corpus.key
    return [n for name in pass_names(steps.store, key, hop) for n in steps.store.list(f"decide/{key}/{name}")]


def _edges(pipeline: beam.Pipeline, steps: _Steps, part: int, parts: int) -> None:
    url = steps.store.url
    whole = steps.pair_rows * PAIR_BYTES
    partitions = max(parts, _power_of_two(whole / steps.plan.recipe.run.partition_bytes))
    read = (
        pipeline
        | "pair files" >> beam.Create(_files_of(steps, "pairs"))
        | "spread pairs" >> beam.Reshuffle()
        | "pairs" >> beam.ParDo(_ReadPairs(url, part, parts, partitions)).with_outputs("wanted", main="pairs")
    )
    wanted = read.wanted | "wanted" >> beam.Map(lambda kv: kv).with_output_types(Keyed)
    units = pipeline | AllUnits(url) | "keyed" >> beam.Map(_by_ordinal).with_output_types(Keyed)
    signatures = (
        {"unit": units, "wanted": wanted}
        | "ask units" >> beam.CoGroupByKey()
        | "signatures" >> beam.ParDo(_Signatures(*steps.args)).with_output_types(Keyed)
    )
    (
        {
            "pairs": read.pairs | "own" >> beam.Map(lambda kv: kv).with_output_types(Keyed),
            "signatures": signatures,
        }
        | "join" >> beam.CoGroupByKey()
        | "verify" >> beam.ParDo(_Verify(*steps.args, pass_name("edges", part, parts)))
    )


def _near(pipeline: beam.Pipeline, steps: _Steps) -> None:
    (
        pipeline
        | "edge files" >> beam.Create(_files_of(steps, "edges"))
        | "spread edges" >> beam.Reshuffle()
        | "edges" >> beam.ParDo(_ReadEdges(steps.store.url)).with_output_types(Keyed)
        | "all edges" >> beam.GroupByKey()
        | "resolve" >> beam.ParDo(_Resolve()).with_output_types(Keyed)
        | "by unit" >> beam.GroupByKey()
        | "write" >> beam.ParDo(_WriteRemoved(*steps.args, "near"))
    )


def _by_ordinal(line: bytes) -> Keyed:
    return json.loads(line)["ordinal"], line


def _rows(store: Store, name: str) -> int:
    with store.open(name) as file:
        return int(pa.parquet.ParquetFile(file).metadata.num_rows)


class _ReadPairs(beam.DoFn):  # type: ignore[misc]
    def __init__(self, url: str, part: int, parts: int, partitions: int) -> None:
        self._url, self._part, self._parts, self._partitions = url, part, parts, partitions

    def process(self, name: str) -> Iterable[Any]:
        table = read_parquet(open_store(self._url), name)
        a, b = table.column("a").to_numpy(), table.column("b").to_numpy()
        # The same pair comes from several bands: it must meet itself in one partition.
        mixed = (a * np.uint64(0x9E3779B97F4A7C15)) ^ (b * np.uint64(0xC2B2AE3D27D4EB4F))
        where = ((mixed >> np.uint64(33)) % np.uint64(self._partitions)).astype(np.int64)
        mine = where % self._parts == self._part
        a, b, where = a[mine], b[mine], where[mine]
        yield from _split(where, dup.PAIRS, {"a": a, "b": b})
        wanted = {"ref": np.concatenate([a, b]), "part": np.concatenate([where, where]).astype(np.uint64)}
        wanted = _distinct(wanted)
        for keyed in _split(ordinals_of(wanted["ref"]), WANTED, wanted):
            yield beam.pvalue.TaggedOutput("wanted", keyed)


def _distinct(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The distinct rows of two columns, ascending by the first, then the second."""
    first, second = columns
    order = np.lexsort((columns[second], columns[first]))
    ordered = {n: c[order] for n, c in columns.items()}
    once = np.ones(len(order), dtype=bool)
    once[1:] = (ordered[first][1:] != ordered[first][:-1]) | (ordered[second][1:] != ordered[second][:-1])
    return {n: c[once] for n, c in ordered.items()}


class _Signatures(UnitDoFn):
    def process(self, grouped: tuple[int, dict[str, Iterable[bytes]]]) -> Iterable[Keyed]:
        wanted = list(grouped[1]["wanted"])
        if not wanted:
            return
        work = self.work_unit(next(iter(grouped[1]["unit"])))
        stage = self.recipe.by_name["near_duplicates"]
        distinct = _distinct(WANTED.unpack_all(wanted))
        refs, parts = distinct["ref"], distinct["part"]
        table = work.annotations(self.store, ["source", "source_path", "locator", "signature"])
        rows = rows_of(refs).astype(np.int64)
        signatures, _ = _signatures(table, rows, stage)
        files, locators = work.order(table)
        columns = {"ref": refs, "file": files[rows], "locator": locators[rows], "signature": signatures}
        yield from _split(parts, dup.signature_layout(stage.num_perm), columns)


class _Verify(_WriteHop):
    """Compares the signatures of candidate pairs; writes those that reach the threshold, as edges."""

    def process(self, grouped: tuple[int, dict[str, Iterable[bytes]]]) -> None:
        values = list(grouped[1]["pairs"])
        if not values:
            return
        stage = self.recipe.by_name["near_duplicates"]
        pairs = _distinct(dup.PAIRS.unpack_all(values))
        known = dup.signature_layout(stage.num_perm).unpack_all(grouped[1]["signatures"])
        order = np.argsort(known["ref"], kind="stable")
        a, b = (order[np.searchsorted(known["ref"], x, sorter=order)] for x in (pairs["a"], pairs["b"]))
        similarity = dup.verify_pairs(known["signature"][a], known["signature"][b])
        edge = similarity >= stage.min_jaccard
        columns = {
            "a": pairs["a"], "a_file": known["file"][a], "a_locator": known["locator"][a],
            "b": pairs["b"], "b_file": known["file"][b], "b_locator": known["locator"][b],
            "similarity": similarity,
        }  # fmt: skip
        if edge.any():
            self.put(grouped[0], pa.table({n: c[edge] for n, c in columns.items()}))


class _ReadEdges(beam.DoFn):  # type: ignore[misc]
    """All edges go to one worker, 44 bytes each, which resolves them in the order of documents."""

    def __init__(self, url: str) -> None:
        self._url = url

    def process(self, name: str) -> Iterable[Keyed]:
        table = read_parquet(open_store(self._url), name)
        yield 0, dup.EDGES.pack({n: table.column(n).to_numpy() for n in table.column_names})


class _Resolve(beam.DoFn):  # type: ignore[misc]
    def process(self, grouped: tuple[int, Iterable[bytes]]) -> Iterable[Keyed]:
        e = dup.EDGES.unpack_all(grouped[1])
        orders = ((e["a_file"], e["a_locator"]), (e["b_file"], e["b_locator"]))
        yield from _removed_by_unit(*dup.resolve(e["a"], e["b"], *orders, e["similarity"]))


# Balance: a histogram of characters over the keyed hash, then the exact cut within one bin.


def _balance(steps: _Steps) -> None:
    stage = steps.plan.recipe.by_name["balance_languages"]
    name = f"decide/{steps.corpus.key}/balance.json"
    if steps.store.exists(name):
        return
    if stage.alpha == 1.0:
        steps.store.put(name, b"{}")
        return
    folder = f"decide/{steps.corpus.key}/balance"
    steps.run("balance-count", lambda p: _count(p, steps))
    histograms = {}
    for entry in steps.store.list(folder):
        data = json.loads(steps.store.get(entry))
        if "bins" in data:
            histograms[data["group"]] = np.array(data["bins"], dtype=np.int64)
    wanted = languages_to_cut(stage, histograms)
    exact: dict[str, Any] = {}
    if wanted:
        bins = {group: cut.bin for group, cut in wanted.items()}
        steps.run("balance-cut", lambda p: _cut(p, steps, bins))
        for entry in steps.store.list(f"{folder}-cut"):
            data = json.loads(steps.store.get(entry))
            exact[data["group"]] = data
    cuts = cuts_of(wanted, exact)
    steps.store.put(name, json.dumps({g: c.to_json() for g, c in sorted(cuts.items())}).encode())


def read_cuts(store: Store, key: str) -> dict[str, Cut]:
    """The cut of each language that has one; empty when the recipe does not balance."""
    name = f"decide/{key}/balance.json"
    if not store.exists(name):
        return {}
    return {g: Cut.from_json(c) for g, c in json.loads(store.get(name)).items()}


def _count(pipeline: beam.Pipeline, steps: _Steps) -> None:
    (
        pipeline
        | AllUnits(steps.store.url)
        | "draw" >> beam.ParDo(_Draw(*steps.args, None)).with_output_types(tuple[str, bytes])
        | "by language" >> beam.GroupByKey()
        | "histogram" >> beam.ParDo(_Histogram(*steps.args))
    )


def _cut(pipeline: beam.Pipeline, steps: _Steps, bins: dict[str, int]) -> None:
    (
        pipeline
        | AllUnits(steps.store.url)
        | "draw" >> beam.ParDo(_Draw(*steps.args, bins)).with_output_types(tuple[str, bytes])
        | "by language" >> beam.GroupByKey()
        | "exact cut" >> beam.ParDo(_ExactCut(*steps.args))
    )


class _Draw(UnitDoFn):
    """Characters by bin of the keyed hash for each language of a unit, or the rows of one bin."""

    def __init__(self, url: str, recipe: str, key: str, bins: dict[str, int] | None) -> None:
        super().__init__(url, recipe, key)
        self._bins = bins

    def process(self, line: bytes) -> Iterable[tuple[str, bytes]]:
        work = self.work_unit(line)
        extra = ["doc_id", "characters", "programming_language"]
        rows, table = surviving(work, self.store, self.recipe, self.key, extra, ["exact", "near"])
        groups = partitions_of(table)
        table = table.take(pa.array(rows, pa.int64()))
        hashes = sampling_hashes(self.recipe.run.seed, "balance", table.column("doc_id").to_pylist())
        characters = table.column("characters").to_numpy().astype(np.int64)
        bins = (hashes * BINS).astype(np.int64)
        groups = groups[rows]
        for group in sorted(set(groups)):
            mine = groups == group
            if self._bins is None:
                filled, where = np.unique(bins[mine], return_inverse=True)
                sums = np.zeros(len(filled), dtype=np.int64)
                np.add.at(sums, where, characters[mine])
                yield group, HISTOGRAM.pack({"bin": filled, "characters": sums})
            elif group in self._bins:
                mine &= bins == self._bins[group]
                if mine.any():
                    yield group, DRAWN.pack({"hash": hashes[mine], "characters": characters[mine]})


def _group_name(folder: str, group: str) -> str:
    return f"{folder}/{hashlib.sha256(group.encode()).hexdigest()[:16]}.json"


class _Histogram(UnitDoFn):
    def process(self, grouped: tuple[str, Iterable[bytes]]) -> None:
        parts = HISTOGRAM.unpack_all(grouped[1])
        bins = np.zeros(BINS, dtype=np.int64)
        np.add.at(bins, parts["bin"], parts["characters"])
        data = json.dumps({"group": grouped[0], "bins": bins.tolist()}).encode()
        self.store.put(_group_name(f"decide/{self.key}/balance", grouped[0]), data)


class _ExactCut(UnitDoFn):
    def process(self, grouped: tuple[str, Iterable[bytes]]) -> None:
        drawn = DRAWN.unpack_all(grouped[1])
        order = np.lexsort((drawn["characters"], drawn["hash"]))
        data = {
            "group": grouped[0],
            "hashes": drawn["hash"][order].tolist(),
            "characters": drawn["characters"][order].tolist(),
        }
        self.store.put(_group_name(f"decide/{self.key}/balance-cut", grouped[0]), json.dumps(data).encode())


# Decisions: one audit row a record, what is kept of each row group, and counts for the report.


def _decisions(pipeline: beam.Pipeline, steps: _Steps) -> None:
    cuts = {g: c.to_json() for g, c in read_cuts(steps.store, steps.corpus.key).items()}
    units = pipeline | AllUnits(steps.store.url) | "keyed" >> beam.Map(_by_ordinal).with_output_types(Keyed)
    asked = units | "keepers" >> beam.ParDo(_Keepers(*steps.args)).with_output_types(Keyed)
    named = (
        {"unit": units, "asked": asked}
        | "ask keepers" >> beam.CoGroupByKey()
        | "names" >> beam.ParDo(_Names(*steps.args)).with_output_types(Keyed)
    )
    (
        {"unit": units, "names": named}
        | "join names" >> beam.CoGroupByKey()
        | "decisions" >> beam.ParDo(Decisions(*steps.args, cuts))
    )


class _Keepers(UnitDoFn):
    """Asks the unit of each keeper for its doc_id."""

    def process(self, keyed: Keyed) -> Iterable[Keyed]:
        ordinal = keyed[0]
        keepers = [
            t.column("keeper").to_numpy()
            for hop in ("exact", "near")
            for t in removed_rows(self.store, self.key, hop, ordinal)
        ]
        if keepers:
            refs = np.unique(np.concatenate(keepers))
            askers = np.full(len(refs), ordinal, dtype=np.uint64)
            yield from _split(ordinals_of(refs), WANTED, {"ref": refs, "part": askers})


class _Names(UnitDoFn):
    def process(self, grouped: tuple[int, dict[str, Iterable[bytes]]]) -> Iterable[Keyed]:
        asked = list(grouped[1]["asked"])
        if not asked:
            return
        work = self.work_unit(next(iter(grouped[1]["unit"])))
        names = work.annotations(self.store, ["doc_id"]).column("doc_id")
        questions = WANTED.unpack_all(asked)
        refs, askers = questions["ref"], questions["part"]
        for asker in np.unique(askers):
            mine = np.unique(refs[askers == asker])
            own = names.take(pa.array(rows_of(mine).astype(np.int64)))
            sink = pa.BufferOutputStream()
            table = pa.table({"ref": mine, "doc_id": own})
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            yield int(asker), sink.getvalue().to_pybytes()
