"""Near-duplicates on a corpus of English documents and edited copies: recall, losses, speed, on one core.

    SLUICE_DATA=../shared/data python benchmarks/bench_near_duplicates.py

The judge shares no code with what it judges: its Jaccard similarity is exact, over 5-grams of lower-cased
`\\w+` words. A pair of an original and its copy counts as found unless both texts are kept. A removal is
false if no kept document has a Jaccard similarity of at least 0.5 to the removed one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from near_duplicate_corpus import EDIT_RATES, write_corpus

from filters.near_duplicates import NearDuplicates
from filters.text_view import view_of
from pipeline.duplicates import find_near_duplicates, signature_matrix
from schemas.chunk import Chunk
from schemas.records import Document

DATATROVE_RECALL = {0.005: 0.998, 0.02: 0.949, 0.05: 0.514}
"""Pair recall of datatrove 0.10.1 (14 bands of 8 rows, 64-bit hashes) on a corpus of this make-up."""

CHUNK_CHARS = 4_000_000
FALSE_REMOVAL_JACCARD = 0.5
MAX_LOST_SHOWN = 40


class Judge:
    """Exact Jaccard similarity of word 5-grams."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._shingles: dict[int, frozenset[str]] = {}

    def shingles(self, document: int) -> frozenset[str]:
        """The 5-grams of a document, of lower-cased words."""
        found = self._shingles.get(document)
        if found is None:
            words = re.findall(r"\w+", self._texts[document].lower())
            grams = (" ".join(words[i : i + 5]) for i in range(max(1, len(words) - 4)))
            found = self._shingles[document] = frozenset(grams)
        return found

    def jaccard(self, a: int, b: int) -> float:
        """Shared 5-grams over all 5-grams of the two."""
        first, second = self.shingles(a), self.shingles(b)
        return len(first & second) / len(first | second)

    def nearest(self, document: int, others: Iterable[int]) -> tuple[float, int]:
        """The highest similarity to any of the others, and whose it is."""
        return max(((self.jaccard(document, other), other) for other in others), default=(0.0, -1))


def chunks(texts: Sequence[str]) -> list[Chunk]:
    """The texts as chunks of about `CHUNK_CHARS` characters."""
    found: list[Chunk] = []
    batch: list[Document] = []
    size = 0
    for text in texts:
        batch.append(Document(text, language="en"))
        size += len(text)
        if size >= CHUNK_CHARS:
            found.append(Chunk.of(batch))
            batch, size = [], 0
    return [*found, Chunk.of(batch)] if batch else found


def main() -> None:
    """Build the corpus, find its near-duplicates, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = os.environ.get("SLUICE_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default), help="folder with text/*.jsonl.gz")
    parser.add_argument("--bands", type=int, default=NearDuplicates().bands)
    parser.add_argument("--rows-per-band", type=int, default=NearDuplicates().rows_per_band)
    parser.add_argument("--min-jaccard", type=float, default=NearDuplicates().min_jaccard)
    parser.add_argument("--seed", type=int, default=NearDuplicates().seed)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        lines = write_corpus(arguments.data, Path(folder)).read_text("utf-8").split("\n")
        records = [json.loads(line) for line in lines if line]
    stage = NearDuplicates(
        bands=arguments.bands,
        rows_per_band=arguments.rows_per_band,
        min_jaccard=arguments.min_jaccard,
        seed=arguments.seed,
    )
    texts = [record["text"] for record in records]
    removed, keeper, similarity = find(stage, texts)
    report(records, Judge(texts), removed, keeper, similarity)


def find(stage: NearDuplicates, texts: Sequence[str]) -> tuple[list[int], list[int], list[float]]:
    """Removed documents, their keepers and similarities; prints what it took."""
    warm = Chunk.of([Document("one two three four five six", language="en")] * 2)
    rows, signatures = signature_matrix(stage.measure(warm).columns["signature"])
    find_near_duplicates(signatures, rows.astype(np.uint64), [rows], stage.bands, stage.rows_per_band, 0.5)

    seconds = {"text view": 0.0, "signatures": 0.0}
    refs, columns, before = [], [], 0
    for chunk in chunks(texts):
        started = time.perf_counter()
        view_of(chunk)
        viewed = time.perf_counter()
        column = stage.measure(chunk).columns["signature"]
        seconds["text view"] += viewed - started
        seconds["signatures"] += time.perf_counter() - viewed
        rows, signatures = signature_matrix(column)
        refs.append(rows.astype(np.uint64) + np.uint64(before))
        columns.append(signatures)
        before += len(chunk)
    started = time.perf_counter()
    ref = np.concatenate(refs)
    assert stage.min_jaccard is not None
    removed, keeper, similarity = find_near_duplicates(
        np.concatenate(columns), ref, [ref], stage.bands, stage.rows_per_band, stage.min_jaccard
    )
    seconds["bands to resolve"] = time.perf_counter() - started

    size = sum(map(len, texts))
    print(f"{len(texts)} documents, {size / 1e6:.1f} M characters, {size / len(texts):.0f} each")
    print(f"{stage.bands} bands of {stage.rows_per_band} rows, min_jaccard {stage.min_jaccard}\n")
    print(f"{'step':<22}{'documents/s':>12}{'ms/document':>13}")
    steps = dict(seconds)
    steps["view and signatures"] = steps["text view"] + steps["signatures"]
    steps["all"] = sum(seconds.values())
    for step, taken in steps.items():
        print(f"{step:<22}{len(texts) / taken:>12,.0f}{1000 * taken / len(texts):>13.3f}")
    return removed.tolist(), keeper.tolist(), similarity.tolist()


def report(
    records: Sequence[dict[str, str | float]],
    judge: Judge,
    removed: Sequence[int],
    keeper: Sequence[int],
    similarity: Sequence[float],
) -> None:
    """Print recall by edit rate, excess, false removals and the clusters of which nothing is kept."""
    keeper_of = dict(zip(removed, zip(keeper, similarity, strict=True), strict=True))
    clusters: dict[str, list[int]] = defaultdict(list)
    for i, record in enumerate(records):
        clusters[str(record["cluster"])].append(i)
    pairs: Counter[float] = Counter()
    found: Counter[float] = Counter()
    for original, *copies in clusters.values():
        for copy in copies:
            rate = float(records[copy]["rate"])
            pairs[rate] += 1
            found[rate] += original in keeper_of or copy in keeper_of
    print(f"\n{'words edited':<14}{'pairs':>8}{'recall':>9}{'datatrove':>11}")
    for rate in EDIT_RATES:
        recall = found[rate] / max(1, pairs[rate])
        other = f"{DATATROVE_RECALL[rate]:.3f}" if rate in DATATROVE_RECALL else ""
        print(f"{100 * rate:<5g}%{'':<8}{pairs[rate]:>8}{recall:>9.3f}{other:>11}")

    lost = [members[0] for members in clusters.values() if all(i in keeper_of for i in members)]
    kept = [i for i in range(len(records)) if i not in keeper_of]
    excess = len(kept) - (len(clusters) - len(lost))
    alike = still = 0
    for original, *copies in clusters.values():
        for copy in copies:
            near = judge.jaccard(original, copy) >= FALSE_REMOVAL_JACCARD + 0.1
            alike += near
            still += near and original not in keeper_of and copy not in keeper_of
    print(f"\nkept {len(kept)} of {len(records)}; clusters {len(clusters)}; excess {excess}")
    print(f"both kept though their exact Jaccard is at least 0.6: {still} of {alike} pairs")
    errors = np.array([judge.jaccard(i, k) - s for i, (k, s) in keeper_of.items()])
    print(f"estimate less exact Jaccard: mean {-errors.mean():+.4f}, standard deviation {errors.std():.4f}")
    false = [
        i
        for i, (k, _) in keeper_of.items()
        if judge.jaccard(i, k) < FALSE_REMOVAL_JACCARD and judge.nearest(i, kept)[0] < FALSE_REMOVAL_JACCARD
    ]
    print(f"false removals: {len(false)} of {len(keeper_of)}")
    for i in false:
        k = keeper_of[i][0]
        print(f"  {records[i]['id']} for {records[k]['id']}: {judge.jaccard(i, k):.3f}")
    print(f"clusters of which nothing is kept: {len(lost)}; each original, and what it was removed for:")
    for i in lost[:MAX_LOST_SHOWN]:
        k, estimate = keeper_of[i]
        exact = judge.jaccard(i, k)
        print(f"  {records[i]['id']} for {records[k]['id']}: Jaccard {exact:.3f}, estimated {estimate:.3f}")


if __name__ == "__main__":
    main()
