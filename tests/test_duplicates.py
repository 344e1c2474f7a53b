"""Exact and near-duplicates: hashes, signatures, candidate pairs, and who is kept."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import unicodedata
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.exact_duplicates import ExactDuplicates, exact_hash, normalise
from filters.near_duplicates import NearDuplicates, minhash, permutations
from pipeline.duplicates import (
    BANDS,
    EDGES,
    EXACT,
    PAIRS,
    band_hashes,
    candidate_pairs,
    exact_entries,
    find_near_duplicates,
    group_exact,
    resolve,
    signature_layout,
    signature_matrix,
    verify_pairs,
)
from schemas.chunk import Chunk
from schemas.records import Document

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("SLUICE_DATA", ROOT / ".." / "shared" / "data"))
CASES = json.loads((Path(__file__).parent / "cases" / "near_duplicates.json").read_text("utf-8"))

untimed = settings(deadline=None)  # the first example compiles a kernel
any_text = st.text(st.characters(codec=None), max_size=60)


def uint64(values: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


def duplicates(texts: list[str], language: str = "en", **knobs: Any) -> dict[int, tuple[int, str, float]]:
    """Both stages over a list of texts: removed -> (keeper, reason, similarity)."""
    exact, near = ExactDuplicates(), NearDuplicates(**knobs)
    chunk = Chunk.of([Document(text, language=language) for text in texts])
    place = np.arange(len(texts), dtype=np.uint64)
    file = np.zeros(len(texts), dtype=np.uint32)
    entries = exact_entries(exact.measure(chunk).columns["exact_hash"], file, place, place)
    found = {int(r): (int(k), "exact_duplicate", 1.0) for r, k in zip(*group_exact(**entries), strict=True)}
    rows, signatures = signature_matrix(near.measure(chunk).columns["signature"])
    left = np.array([row not in found for row in rows.tolist()], dtype=np.bool_)
    ref = rows[left].astype(np.uint64)
    assert near.min_jaccard is not None
    for r, k, s in zip(
        *find_near_duplicates(signatures[left], ref, [ref], near.bands, near.rows_per_band, near.min_jaccard),
        strict=True,
    ):
        found[int(r)] = (int(k), "near_duplicate", float(s))
    for reason, stage in (("exact_duplicate", exact), ("near_duplicate", near)):
        for _, why, similarity in found.values():
            if why == reason:
                verdict = stage.decide({stage.name: similarity})
                assert (verdict.keep, verdict.reason) == (False, reason)
    return found


@pytest.mark.parametrize("case", CASES, ids=[case["label"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    found = duplicates(case["texts"], case.get("language", "en"), **case.get("settings", {}))
    expected = {int(i): tuple(why) for i, why in case["removed"].items()}
    assert {i: (keeper, reason) for i, (keeper, reason, _) in found.items()} == expected


def test_each_reason_has_a_case() -> None:
    seen = {reason for case in CASES for _, reason in case["removed"].values()}
    assert seen == {*ExactDuplicates().reasons, *NearDuplicates().reasons}


# Exact duplicates


@untimed
@given(any_text)
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert not any(line != line.rstrip() for line in once.split("\n"))
    assert "\r" not in once


@untimed
@given(
    any_text, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["", " ", "\t \u3000", "\n\n", "\r\n"])
)
def test_line_ends_trailing_space_and_composition_do_not_count(text: str, end: str, tail: str) -> None:
    lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    other = end.join(unicodedata.normalize("NFD", line) + " " for line in lines) + tail
    assert exact_hash(other) == exact_hash(text)


@pytest.mark.parametrize("other", ["Ab c", "ab  c", " ab c", "ab c.", "ab\nc", "ab c\n\nd", "ａb c"])
def test_what_a_reader_sees_counts(other: str) -> None:
    assert exact_hash(other) != exact_hash("ab c")


def test_exact_hash_is_pinned() -> None:
    assert exact_hash("").hex() == "99aa06d3014798d86001c324468d497f"  # XXH3-128 of no bytes
    assert exact_hash("caf\u00e9\r\n").hex() == "fc88ba8ad8a06b6234b319bdcedd52af"


def test_exact_measures_no_score_and_judges_every_kind() -> None:
    stage = ExactDuplicates()
    measured = stage.measure(Chunk.of([Document("a"), Document("\ud800"), Document("")]))
    assert not measured.scores
    assert measured.columns["exact_hash"].type == pa.binary(16)
    assert measured.columns["exact_hash"].null_count == 0
    assert stage.kinds == {"prose", "code", "mathematics", "mixed"} == NearDuplicates().kinds
    assert stage.judge(Document("a")).keep
    assert stage.decide({"exact_duplicates": 1.0}).thresholds == {"exact_duplicates.min_similarity": 1.0}
    assert stage.decide({}).keep


@untimed
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9)), max_size=40
    ),
    st.randoms(use_true_random=False),
)
def test_group_exact_keeps_the_first_of_each_hash(
    rows: list[tuple[int, ...]], shuffler: random.Random
) -> None:
    documents = [(*row, ref) for ref, row in enumerate(rows)]
    expected = {}
    groups = defaultdict(list)
    for h1, h2, file, locator, ref in documents:
        groups[h1, h2].append((file, locator, ref))
    for members in groups.values():
        expected.update({ref: min(members)[2] for _, _, ref in members if ref != min(members)[2]})
    shuffler.shuffle(documents)
    columns = [uint64([d[i] for d in documents]) for i in range(5)]
    removed, keeper = group_exact(
        columns[0], columns[1], columns[2].astype(np.uint32), columns[3], columns[4]
    )
    assert dict(zip(removed.tolist(), keeper.tolist(), strict=True)) == expected
    assert removed.tolist() == sorted(expected)


# Signatures


def plain_minhash(words: list[int], n: int, num_perm: int, seed: int) -> list[int]:
    """`minhash` of one document in plain integers."""
    mask = (1 << 64) - 1
    factors, increments = permutations(num_perm, seed)
    length = min(n, len(words))
    minima = [(1 << 32) - 1] * num_perm
    for i in range(len(words) - length + 1):
        x = length
        for word in words[i : i + length]:
            x = (x * 0x9E3779B97F4A7C15 + word) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        x ^= x >> 31
        hashes = [((int(a) * x + int(b)) & mask) >> 32 for a, b in zip(factors, increments, strict=True)]
        minima = [min(pair) for pair in zip(minima, hashes, strict=True)]
    return minima


@untimed
@given(
    st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=12), max_size=5),
    st.integers(1, 6),
    st.integers(0, 2**64 - 1),
)
def test_minhash_is_its_definition(documents: list[list[int]], n: int, seed: int) -> None:
    offsets = np.cumsum([0, *map(len, documents)])
    words = uint64([word for document in documents for word in document])
    signatures = minhash(words, offsets, n, *permutations(7, seed))
    for signature, document in zip(signatures.tolist(), documents, strict=True):
        assert signature == (plain_minhash(document, n, 7, seed) if document else [0] * 7)


def test_signatures_are_pinned() -> None:
    """Stored signatures outlive a version of the code: these values may not change unnoticed."""
    offsets = np.array([0, 9, 11], dtype=np.int64)
    words = uint64(range(11)) * np.uint64(0x0123456789ABCDEF)
    assert minhash(words, offsets, 5, *permutations(3, 1)).tolist() == [
        [68016405, 26983576, 558986150],
        [800846904, 2407128769, 3934778009],
    ]
    assert band_hashes(np.array([[0, 0xFFFFFFFF, 7, 8]], dtype=np.uint32), 2, 2).tolist() == [
        [8427512437692321423, 13119576700159354205]
    ]


@settings(deadline=None, max_examples=30)
@given(st.lists(any_text | st.text("ab 1\u0661\u4e00\n", max_size=40), min_size=1, max_size=9), st.booleans())
def test_a_signature_depends_on_its_document_alone(texts: list[str], fold_digits: bool) -> None:
    stage = NearDuplicates(fold_digits=fold_digits, bands=3, rows_per_band=2)
    documents = [Document(text, language=("en", "zh-Hans", "th")[len(text) % 3]) for text in texts]
    whole = stage.measure(Chunk.of(documents))
    assert np.isfinite(whole.scores["near_duplicates.shingles"]).all()
    for size in (1, 7):
        parts = [stage.measure(Chunk.of(documents[i : i + size])) for i in range(0, len(documents), size)]
        columns = pa.concat_arrays([part.columns["signature"] for part in parts])
        assert columns.equals(whole.columns["signature"])
        shingles = np.concatenate([part.scores["near_duplicates.shingles"] for part in parts])
        assert shingles.tolist() == whole.scores["near_duplicates.shingles"].tolist()


def test_signature_column_is_null_where_there_is_no_word() -> None:
    stage = NearDuplicates()
    documents = [Document(t) for t in ("", "a b c d e f", "?!", "a", "\ud800 a")]
    measured = stage.measure(Chunk.of(documents))
    column = measured.columns["signature"]
    assert column.type == pa.binary(4 * 110)
    assert column.is_null().to_pylist() == [True, False, True, False, False]
    assert measured.scores["near_duplicates.shingles"].tolist() == [0, 2, 0, 1, 1]
    for part in (column, column.slice(1), column.slice(2, 2)):
        rows, signatures = signature_matrix(part)
        assert [s.astype("<u4").tobytes() for s in signatures] == [
            v for v in part.to_pylist() if v is not None
        ]
        assert rows.tolist() == [i for i, v in enumerate(part.to_pylist()) if v is not None]
    rows, signatures = signature_matrix(pa.nulls(3, pa.binary(8)))
    assert (rows.tolist(), signatures.shape) == ([], (0, 2))


def test_fold_digits_folds_digits_and_nothing_else() -> None:
    def signatures(fold_digits: bool, *texts: str) -> list[bytes]:
        stage = NearDuplicates(fold_digits=fold_digits)
        column = stage.measure(Chunk.of([Document(t, language="hi") for t in texts])).columns["signature"]
        return column.to_pylist()  # type: ignore[no-any-return]

    alike = ("in 1999 B2b", "in 2024 b3B", "in 0000 b0b", "in १२३४ b9b", "in １９９８ b²b")
    assert len(set(signatures(True, *alike))) == 1
    assert len(set(signatures(False, *alike))) == len(alike)
    unlike = ("in 1999 b2b", "in 199 b2b", "in 1999 b2c", "in x b2b")
    assert len(set(signatures(True, *unlike))) == len(unlike)
    assert signatures(True, "no number here") == signatures(False, "no number here")


@pytest.mark.parametrize(
    ("knobs", "word"),
    [
        ({"min_jaccard": 0.0}, "min_jaccard"),
        ({"min_jaccard": 1.1}, "min_jaccard"),
        ({"min_jaccard": math.nan}, "min_jaccard"),
        ({"ngram_words": 0}, "ngram_words"),
        ({"bands": 0}, "bands"),
        ({"bands": 1000, "rows_per_band": 5}, "product"),
        ({"rows_per_band": 0}, "rows_per_band"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 64}, "seed"),
    ],
)
def test_settings_that_make_no_sense_are_refused(knobs: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        NearDuplicates(**knobs)


def test_the_threshold_is_inclusive_and_can_be_off() -> None:
    stage = NearDuplicates(min_jaccard=0.7)
    assert stage.decide({"near_duplicates": 0.7}).reason == "near_duplicate"
    assert stage.decide({"near_duplicates": 0.6999}).keep
    assert NearDuplicates(min_jaccard=None).decide({"near_duplicates": 1.0}).keep


def random_sets(draws: random.Random, size: int, jaccard: float) -> tuple[list[int], list[int], float]:
    shared = round(2 * size * jaccard / (1 + jaccard))
    words = [draws.getrandbits(64) for _ in range(2 * size - shared)]
    return words[:size], words[size - shared :], shared / len(words)


@pytest.mark.parametrize("size", [5, 40, 600])
@pytest.mark.parametrize("jaccard", [0.1, 0.5, 0.8])
def test_estimates_agree_with_exact_jaccard_and_with_datasketch(size: int, jaccard: float) -> None:
    """Over 120 seeded pairs of sets: no bias beyond 4 standard errors, and the spread of a binomial;
    datasketch's own signatures of the same sets serve as the measure of what is possible."""
    draws = random.Random(f"{size}/{jaccard}")
    num_perm, pairs = 110, 120
    ours, theirs, exact = [], [], 0.0
    for trial in range(pairs):
        a, b, exact = random_sets(draws, size, jaccard)
        signatures = minhash(uint64(a + b), np.array([0, size, 2 * size]), 1, *permutations(num_perm, trial))
        ours.append(float(verify_pairs(signatures[:1], signatures[1:])[0]))
        peers = [MinHash(num_perm=num_perm, seed=trial + 1) for _ in range(2)]
        for peer, words in zip(peers, (a, b), strict=True):
            peer.update_batch([word.to_bytes(8, "little") for word in words])
        theirs.append(peers[0].jaccard(peers[1]))
    spread = math.sqrt(exact * (1 - exact) / num_perm)
    for estimates in (ours, theirs):
        assert abs(np.mean(estimates) - exact) < 4 * spread / math.sqrt(pairs)
        assert 0.75 * spread < np.sqrt(np.mean((np.array(estimates) - exact) ** 2)) < 1.25 * spread


def test_memory_does_not_grow_with_permutations_times_words() -> None:
    """A text of 10 MB (2 M words) under 256 permutations: 4 GB if all hashes were held at once."""
    code = (
        "import resource, numpy as np\n"
        "from filters.near_duplicates import minhash, permutations\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "few = np.arange(8, dtype=np.uint64)\n"
        "minhash(few, np.array([0, 8]), 5, *permutations(256, 1))\n"
        "words = np.arange(2_000_000, dtype=np.uint64)\n"
        "before = peak()\n"
        "minhash(words, np.array([0, len(words)]), 5, *permutations(256, 1))\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000  # KiB


# Bands and candidate pairs


@untimed
@given(st.lists(st.lists(st.integers(0, 1) | st.just(2**32 - 1), min_size=6, max_size=6), max_size=8))
def test_band_hashes_are_equal_where_the_rows_are(rows: list[list[int]]) -> None:
    signatures = np.array(rows, dtype=np.uint32).reshape(-1, 6)
    hashes = band_hashes(signatures, 3, 2)
    assert hashes.shape == (len(rows), 3)
    values = defaultdict(set)
    for d, row in enumerate(rows):
        for band in range(3):
            values[band, *row[2 * band : 2 * band + 2]].add(int(hashes[d, band]))
    assert all(len(found) == 1 for found in values.values())
    assert len(set.union(set(), *values.values())) == len(values)


entries = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=80)


def as_pairs(pairs: tuple[Any, Any]) -> list[tuple[int, int]]:
    return list(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))


def plain_pairs(rows: list[tuple[int, int]]) -> set[tuple[int, int]]:
    buckets = defaultdict(set)
    for value, ref in rows:
        buckets[value].add(ref)
    return {pair for bucket in buckets.values() for pair in combinations(sorted(bucket), 2)}


@untimed
@given(entries, st.randoms(use_true_random=False))
def test_candidate_pairs_are_all_pairs_of_small_buckets(
    rows: list[tuple[int, int]], shuffler: random.Random
) -> None:
    expected = sorted(plain_pairs(rows))
    shuffler.shuffle(rows)
    hashes, refs = uint64([h for h, _ in rows]), uint64([r for _, r in rows])
    assert as_pairs(candidate_pairs(hashes, refs)) == expected
    split = hashes % np.uint64(2) == 0
    parts = [as_pairs(candidate_pairs(hashes[part], refs[part])) for part in (split, ~split)]
    assert sorted({*parts[0], *parts[1]}) == expected


@untimed
@given(entries, st.integers(0, 12))
def test_candidate_pairs_of_large_buckets_are_pairs_of_the_bucket(
    rows: list[tuple[int, int]], most: int
) -> None:
    hashes, refs = uint64([h for h, _ in rows]), uint64([r for _, r in rows])
    found = as_pairs(candidate_pairs(hashes, refs, max_bucket_members=most))
    assert found == sorted(set(found))
    assert set(found) <= plain_pairs(rows)
    buckets = defaultdict(set)
    for value, ref in rows:
        buckets[value].add(ref)
    for bucket in buckets.values():
        members = sorted(bucket)
        assert {(members[0], other) for other in members[1:]} <= set(found)
        assert {(members[i - d], members[i]) for i in range(4, len(members)) for d in (1, 2, 3, 4)} <= set(
            found
        )
        assert {(a, b) for a in members[:8] for b in members if a < b} <= set(found)


@pytest.mark.parametrize("most", [4, 32])
def test_every_copy_of_a_hub_is_removed_whatever_the_refs(most: int) -> None:
    """A bucket of 3,000 copies whose refs do not ascend with the order of documents."""
    draws = random.Random(1)
    refs = uint64(draws.sample(range(10**6), 3000))
    place = np.arange(3000, dtype=np.uint64)
    order_of = dict(zip(refs.tolist(), place.tolist(), strict=True))
    a, b = candidate_pairs(np.zeros(3000, np.uint64), refs, place, max_bucket_members=most)
    orders = [uint64([order_of[r] for r in end.tolist()]) for end in (a, b)]
    removed, keeper, _ = resolve(a, b, orders[:1], orders[1:], np.ones(len(a)))
    assert len(removed) == 2999
    assert set(keeper.tolist()) == {int(refs[0])}


def test_families_that_share_a_template_are_told_apart_in_large_buckets() -> None:
    """400 copies of each of five texts of which two thirds are a common template, in random order: some
    of the buckets are large and mixed, yet one copy of each text is kept."""
    draws = random.Random(2)
    template = [draws.getrandbits(64) for _ in range(200)]
    bodies = [[draws.getrandbits(64) for _ in range(100)] for _ in range(5)]
    family = np.repeat(np.arange(5), 400)
    draws.shuffle(family)  # type: ignore[arg-type]
    texts = [
        [w if draws.random() > 0.002 else draws.getrandbits(64) for w in template + bodies[f]] for f in family
    ]
    signatures = minhash(
        uint64([word for text in texts for word in text]),
        np.arange(0, 300 * 2001, 300),
        5,
        *permutations(110, 1),
    )
    hashes = band_hashes(signatures, 22, 5)
    mixed = 0
    for band in hashes.T:
        for value in np.unique(band):
            members = family[band == value]
            mixed += len(members) > 32 and len(set(members.tolist())) > 1
    assert mixed > 0
    ref = np.arange(2000, dtype=np.uint64)
    removed, keeper, _ = find_near_duplicates(signatures, ref, [ref], 22, 5, 0.62)
    assert len(removed) == 1995
    assert (family[removed] == family[keeper]).all()


def test_a_bucket_of_200_000_is_bounded() -> None:
    n = 200_000
    a, b = candidate_pairs(np.zeros(n, np.uint64), np.arange(n, dtype=np.uint64))
    assert (a < b).all()
    assert 11 * n < len(a) <= 12 * n


def test_no_entries_no_pairs() -> None:
    none = np.empty(0, np.uint64)
    assert as_pairs(candidate_pairs(none, none)) == []
    assert as_pairs(group_exact(none, none, none.astype(np.uint32), none, none)) == []
    assert [len(x) for x in resolve(none, none, [none], [none], np.empty(0))] == [0, 0, 0]


# Verified pairs and who is kept


def test_verified_similarity_is_the_share_of_equal_minima() -> None:
    a = np.array([[1, 2, 3], [0, 0, 0], [2**32 - 1] * 3], dtype=np.uint32)
    b = np.array([[1, 2, 4], [1, 1, 1], [2**32 - 1] * 3], dtype=np.uint32)
    assert verify_pairs(a, b).tolist() == [0.6667, 0.0, 1.0]
    with pytest.raises(ValueError, match="cannot be compared"):
        verify_pairs(a, b[:2])


def plain_resolve(
    edges: list[tuple[int, int, float]], order: dict[int, tuple[int, int]]
) -> dict[int, tuple[int, float]]:
    keeper: dict[int, tuple[int, float]] = {}
    key = {ref: (*order[ref], ref) for a, b, _ in edges for ref in (a, b)}
    for ref in sorted(key, key=key.__getitem__):
        others = [(s, b if a == ref else a) for a, b, s in edges if ref in (a, b) and a != b]
        kept = [(-s, key[o], o) for s, o in others if key[o] < key[ref] and o not in keeper]
        if kept:
            similarity, _, other = min(kept)
            keeper[ref] = (other, -similarity)
    return keeper


@untimed
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from([0.5, 0.7, 0.9])), max_size=40
    ),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=13, max_size=13),
    st.randoms(use_true_random=False),
)
def test_resolve_is_greedy_in_order(
    edges: list[tuple[int, int, float]], places: list[tuple[int, int]], shuffler: random.Random
) -> None:
    order = dict(enumerate(places))
    expected = plain_resolve(edges, order)
    again = [(b, a, s) if shuffler.random() < 0.5 else (a, b, s) for a, b, s in edges + edges[::2]]
    shuffler.shuffle(again)
    a, b = uint64([e[0] for e in again]), uint64([e[1] for e in again])
    orders = [[uint64([order[int(r)][i] for r in end]) for i in (0, 1)] for end in (a, b)]
    removed, keeper, similarity = resolve(a, b, orders[0], orders[1], np.array([e[2] for e in again]))
    found = dict(zip(removed.tolist(), zip(keeper.tolist(), similarity.tolist(), strict=True), strict=True))
    assert found == expected
    assert removed.tolist() == sorted(expected)
    assert not set(removed.tolist()) & set(keeper.tolist())
    direct = {frozenset((x, y)) for x, y, _ in edges}
    assert all(frozenset((r, k)) in direct for r, (k, _) in found.items())


@pytest.mark.parametrize(
    ("edges", "removed"),
    [
        ([(0, 1, 0.85), (1, 2, 0.85)], {1: 0}),  # A ~ B ~ C, A unlike C
        ([(0, 1, 0.9), (2, 3, 0.9)], {1: 0, 3: 2}),  # one bucket of four, two true pairs
        ([(0, 2, 0.7), (1, 2, 0.9)], {2: 1}),  # the most similar is named
        ([(0, 2, 0.9), (1, 2, 0.9)], {2: 0}),  # of equally similar ones the earliest
    ],
)
def test_resolve_cases(edges: list[tuple[int, int, float]], removed: dict[int, int]) -> None:
    a, b = uint64([e[0] for e in edges]), uint64([e[1] for e in edges])
    found = resolve(a, b, [a], [b], np.array([e[2] for e in edges]))
    assert dict(zip(found[0].tolist(), found[1].tolist(), strict=True)) == removed


def test_one_document_has_one_place() -> None:
    with pytest.raises(ValueError, match="two places"):
        resolve(uint64([1, 1]), uint64([2, 3]), [uint64([1, 9])], [uint64([2, 3])], np.ones(2))


def test_a_chain_of_100_000_dated_versions_ends() -> None:
    """Each version resembles the next three only: every fourth is kept, each other one for one of them."""
    n = 100_000
    a = np.concatenate([np.arange(n - d) for d in (1, 2, 3)]).astype(np.uint64)
    b = np.concatenate([np.arange(d, n) for d in (1, 2, 3)]).astype(np.uint64)
    removed, keeper, _ = resolve(a, b, [a], [b], np.ones(len(a)))
    assert len(removed) == n - n // 4
    assert (keeper % np.uint64(4) == 0).all()
    assert (removed - keeper < 4).all()


def test_versions_of_one_page_stay_apart_where_they_grew_apart() -> None:
    """300 versions, each with a tenth of its sentences new: what is removed resembles what is kept."""
    sentences = [f"on day {i} the council of ward {i * 7} met about matter {i * i} again" for i in range(700)]
    texts = [" ".join(sentences[2 * v : 2 * v + 40]) for v in range(300)]
    found = duplicates(texts, min_jaccard=0.62)
    assert 40 <= 300 - len(found) <= 150
    for i, (keeper, _, _) in found.items():
        assert keeper not in found
        assert abs(i - keeper) <= 6


def test_a_template_with_other_content_stays() -> None:
    """1,000 calls of one tool with other arguments are 1,000 documents."""
    draws = random.Random(3)
    cities = ["Lagos", "Quito", "Osaka", "Turin", "Perth", "Izmir", "Leeds", "Hanoi", "Accra", "Davao"]
    texts = [
        json.dumps(
            {
                "name": "find_trains",
                "arguments": {
                    "from": f"{draws.choice(cities)} {i}",
                    "to": f"{draws.choice(cities)} {draws.randrange(10**6)}",
                    "date": f"2025-{draws.randrange(1, 13):02}-{draws.randrange(1, 29):02}",
                    "passengers": draws.randrange(1, 9),
                },
            }
        )
        for i in range(1000)
    ]
    assert duplicates(texts) == {}


def test_the_order_of_the_input_and_its_split_change_nothing() -> None:
    """Same removed, keepers and similarities from shuffled rows, and from two shuffles' worth of parts."""
    draws = random.Random(4)
    base = [[draws.randrange(400) for _ in range(60)] for _ in range(40)]
    texts = []
    for words in base:
        texts.append(" ".join(f"w{w}" for w in words))
        for _ in range(draws.randrange(3)):
            texts.append(" ".join(f"w{w}" if draws.random() > 0.02 else "new" for w in words))
    stage = NearDuplicates()
    column = stage.measure(Chunk.of([Document(t, language="en") for t in texts])).columns["signature"]
    rows, signatures = signature_matrix(column)
    refs = rows.astype(np.uint64) << np.uint64(32)
    arguments = (stage.bands, stage.rows_per_band, 0.62)
    expected = [x.tolist() for x in find_near_duplicates(signatures, refs, [rows], *arguments)]
    assert 15 < len(expected[0]) < len(texts) - 40 + 1
    for _ in range(3):
        mixed = np.array(draws.sample(range(len(rows)), len(rows)))
        shuffled = find_near_duplicates(signatures[mixed], refs[mixed], [rows[mixed]], *arguments)
        assert [x.tolist() for x in shuffled] == expected
    hashes = band_hashes(signatures, stage.bands, stage.rows_per_band).ravel()
    of_band = np.repeat(refs, stage.bands)
    parts = [candidate_pairs(hashes[p], of_band[p]) for p in (hashes >> np.uint64(62) == k for k in range(4))]
    a, b = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    at = np.uint64(32)
    similarity = verify_pairs(signatures[a >> at], signatures[b >> at])
    match = similarity >= 0.62
    split = resolve(a[match], b[match], [a[match]], [b[match]], similarity[match])
    assert [x.tolist() for x in split] == expected


# Packing


@untimed
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=6), st.data())
def test_packed_columns_come_back_and_torn_values_raise(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    columns = {"a": uint64([r[0] for r in rows]), "b": uint64([r[1] for r in rows])}
    packed = PAIRS.pack(columns)
    assert len(packed) == 16 + 16 * len(rows)
    assert {n: c.tolist() for n, c in PAIRS.unpack(packed).items()} == {
        n: c.tolist() for n, c in columns.items()
    }
    both = PAIRS.unpack_all([packed, packed])
    assert both["a"].tolist() == columns["a"].tolist() * 2
    cut = data.draw(st.integers(0, len(packed) - 1))
    for torn in (packed[:cut], packed + b"\0"):
        with pytest.raises(ValueError, match="packed value"):
            PAIRS.unpack(torn)
    with pytest.raises(ValueError, match="hash, ref"):
        BANDS.unpack(packed)


def test_packing_wide_and_mixed_columns() -> None:
    layout = signature_layout(3)
    columns: dict[str, np.ndarray[Any, Any]] = {
        "ref": uint64([1, 2]),
        "file": np.array([3, 4], np.uint32),
        "locator": uint64([5, 2**64 - 1]),
        "signature": np.arange(6, dtype=np.uint32).reshape(2, 3),
    }
    back = layout.unpack_all([layout.pack(columns)])
    assert {n: c.tolist() for n, c in back.items()} == {n: c.tolist() for n, c in columns.items()}
    assert layout.unpack_all([])["signature"].shape == (0, 3)
    assert EDGES.unpack_all([])["similarity"].dtype == np.float64
    with pytest.raises(ValueError, match="file has shape"):
        layout.pack({**columns, "file": np.zeros(1, np.uint32)})
    with pytest.raises(ValueError, match="signature has shape"):
        layout.pack({**columns, "signature": np.zeros((2, 4), np.uint32)})
    assert EXACT.pack({n: np.zeros(0) for n, _, _ in EXACT.columns})[8:] == bytes(8)


# The peers' corpus


def test_recall_on_edited_copies_is_no_lower_than_datatroves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the benchmark corpus; both texts of a pair kept is a miss."""
    if not (DATA / "text" / "en_wikitext2.jsonl.gz").exists():
        pytest.skip(f"no real data in {DATA} (set SLUICE_DATA)")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from near_duplicate_corpus import documents

    records = list(documents(DATA, ("en_wikitext2", "en_austen", "en_nltk")))
    found = duplicates([str(record["text"]) for record in records])
    place = {record["id"]: i for i, record in enumerate(records)}
    missed: Counter[float] = Counter()
    pairs: Counter[float] = Counter()
    for i, record in enumerate(records):
        if record["cluster"] != record["id"]:
            rate = float(record["rate"])
            pairs[rate] += 1
            missed[rate] += i not in found and place[record["cluster"]] not in found
    recall = {rate: 1 - missed[rate] / pairs[rate] for rate in pairs}
    assert min(pairs.values()) > 200
    assert recall[0.0] == 1.0
    assert recall[0.005] >= 0.998
    assert recall[0.02] >= 0.949
    assert recall[0.05] >= 0.514
