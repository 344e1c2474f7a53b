"""Near-duplicates: MinHash signatures of word n-grams, and the rule over their similarity."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from filters.base import Rule, RuleSet, knob
from filters.text_view import TextView, text_view, view_of
from schemas.chunk import Chunk, Measured
from schemas.records import KINDS

Uint64s = npt.NDArray[np.uint64]
Signatures = npt.NDArray[np.uint32]

MAX_NUM_PERM = 4096
MAX_NGRAM_WORDS = 64


@cache
def permutations(num_perm: int, seed: int) -> tuple[Uint64s, Uint64s]:
    """The factors a_i (odd) and increments b_i of the hash functions: the outputs 2i and 2i + 1 of
    SplitMix64 started at `seed`, so that they are the same in every version of every library.

    Source: Steele, Lea, Flood 2014, Fast splittable pseudorandom number generators, figure 14;
    https://prng.di.unimi.it/splitmix64.c

    >>> [int(b) for b in permutations(2, 1234567)[1]]
    [3203168211198807973, 4593380528125082431]
    """
    mask = (1 << 64) - 1
    outputs = []
    for i in range(1, 2 * num_perm + 1):
        z = (seed + i * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        outputs.append(z ^ (z >> 31))
    drawn = np.array(outputs, dtype=np.uint64).reshape(num_perm, 2)
    factors, increments = drawn[:, 0] | np.uint64(1), drawn[:, 1].copy()
    factors.flags.writeable = increments.flags.writeable = False
    return factors, increments


@njit(cache=True, nogil=True)
def minhash(
    word_hashes: Uint64s,
    word_offsets: npt.NDArray[np.int64],
    ngram_words: int,
    factors: Uint64s,
    increments: Uint64s,
) -> Signatures:
    """MinHash signatures, uint32 [documents, permutations], of the word n-grams of each document.

    The words of document d are `word_hashes[word_offsets[d]:word_offsets[d + 1]]`. A shingle is a run of
    `ngram_words` words, or the whole document where it has fewer; its hash x is a polynomial of its
    word hashes mixed by SplitMix64's finaliser. Minimum i of a document is the smallest
    (a_i * x + b_i mod 2^64) >> 32 over its shingles. A document with no word has a row of zeros, which
    says nothing: `NearDuplicates` writes null for it. Memory does not grow with the document.

    Source: Broder 1997, On the resemblance and containment of documents; multiply-shift hashing after
    Dietzfelbinger et al. 1997.
    """
    documents = len(word_offsets) - 1
    num_perm = len(factors)
    signatures = np.zeros((documents, num_perm), dtype=np.uint32)
    for d in range(documents):
        start = word_offsets[d]
        words = word_offsets[d + 1] - start
        if words == 0:
            continue
        length = min(ngram_words, words)
        minima = signatures[d]
        minima[:] = np.uint32(0xFFFFFFFF)
        for shingle in range(start, start + words - length + 1):
            x = np.uint64(length)
            for k in range(length):
                x = x * np.uint64(0x9E3779B97F4A7C15) + word_hashes[shingle + k]
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
            for i in range(num_perm):
                value = np.uint32((factors[i] * x + increments[i]) >> np.uint64(32))
                minima[i] = min(minima[i], value)
    return signatures


@cache
def _zeros_for_digits() -> npt.NDArray[np.uint32]:
    """For each code point ASCII zero if it is a digit of any script, else itself."""
    codes = np.arange(sys.maxunicode + 1, dtype=np.uint32)
    digits = [c for c in range(sys.maxunicode + 1) if unicodedata.digit(chr(c), None) is not None]
    codes[digits] = ord("0")
    return codes


def digit_folded_hashes(view: TextView) -> Uint64s:
    """The word hashes of the view with every digit taken for 0 ("1506" as "0000"); words without other
    digits keep theirs. Only words with digits are hashed again."""
    folded = _zeros_for_digits()[view.code_points]
    changed = np.zeros(len(folded) + 1, dtype=np.int64)
    np.cumsum(folded != view.code_points, out=changed[1:])
    rows = np.flatnonzero(changed[view.word_ends] > changed[view.word_starts])
    if len(rows) == 0:
        return view.word_hashes
    spans = zip(view.word_starts[rows].tolist(), view.word_ends[rows].tolist(), strict=True)
    words = [folded[start:end].tobytes().decode("utf-32-le", "surrogatepass") for start, end in spans]
    again = text_view(words, ["und"] * len(words))
    hashes = view.word_hashes.copy()
    hashes[rows] = np.add.reduceat(again.word_hashes, again.word_offsets[:-1])
    return hashes


@dataclass(frozen=True)
class NearDuplicates(RuleSet):
    """Of documents that share most of their word n-grams, keep the first.

    A document is a set of shingles, runs of `ngram_words` words; a signature of `bands` times
    `rows_per_band` minima stands for the set. Words are those of the text view: segmented by the language's
    rules and folded (case, width, compatibility forms), digits kept, so that texts that differ in their
    numbers stay apart. A text of fewer than `ngram_words` words is one shingle of all its words; a text with
    no word has no signature and is no one's duplicate.

    The bands only propose pairs: two documents of Jaccard similarity s are compared with the chance
    1 - (1 - s^rows)^bands, by an estimate with the standard error sqrt(s (1 - s) / (bands * rows)). Of the
    documents that no rule refused, taken by source, path and locator, one is removed if its similarity to a
    document that is *kept*, its `duplicate_of`, reaches `min_jaccard`; never because both resemble a third.

    Source: MinHash (Broder 1997) with locality-sensitive hashing by bands (Leskovec, Rajaraman, Ullman,
    Mining of Massive Datasets, 3.4).
    """

    name: ClassVar[str] = "near_duplicates"
    kinds: ClassVar[frozenset[str]] = frozenset(KINDS)
    requires: ClassVar[tuple[str, ...]] = ("identify_language",)
    scores: ClassVar[Mapping[str, str]] = {
        "near_duplicates": "estimated Jaccard similarity of word n-grams to `duplicate_of`, 0 to 1",
        "near_duplicates.shingles": "word n-grams in the text; one that repeats counts each time",
    }
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "near_duplicate",
            "near_duplicates",
            "near_duplicates.min_jaccard",
            "reaches",
            "it shares most of its word n-grams with an earlier document that is kept",
        ),
    )

    min_jaccard: float | None = knob(
        0.62,
        doc="smallest estimated Jaccard similarity of a duplicate, above 0 to 1",
        source="0.5 and 2.5 standard errors of an estimate from 110 minima",
    )
    ngram_words: int = knob(
        5,
        phase="annotate",
        doc="words in a shingle, 1 to 64",
        source="datatrove and FineWeb use word 5-grams",
    )
    bands: int = knob(
        22,
        phase="annotate",
        doc="number of bands; a pair that agrees in one is compared",
        source="22 x 5 proposes 83 % of pairs at Jaccard 0.6, FineWeb's 14 x 8 21 %",
    )
    rows_per_band: int = knob(
        5, phase="annotate", doc="number of minima in a band; with bands at most 4096", source="see `bands`"
    )
    fold_digits: bool = knob(
        False,
        phase="annotate",
        doc="true or false: take every digit for 0, so that texts that differ in numbers alone are alike",
        source="datatrove folds digits; here off, so that different facts stay apart",
    )
    seed: int = knob(
        1,
        phase="annotate",
        doc="start of the generator of hash functions, an integer of 0 to 2^64 - 1",
        source="any will do",
    )

    def __post_init__(self) -> None:
        if self.min_jaccard is not None and not 0.0 < self.min_jaccard <= 1.0:
            raise ValueError(f"min_jaccard must be above 0 and at most 1, got {self.min_jaccard}")
        if not 1 <= self.ngram_words <= MAX_NGRAM_WORDS:
            raise ValueError(f"ngram_words must be 1 to {MAX_NGRAM_WORDS}, got {self.ngram_words}")
        if self.bands < 1 or self.rows_per_band < 1 or self.num_perm > MAX_NUM_PERM:
            raise ValueError(
                f"bands and rows_per_band must be at least 1 and their product at most {MAX_NUM_PERM}, "
                f"got {self.bands} and {self.rows_per_band}"
            )
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed must be 0 to 2^64 - 1, got {self.seed}")

    @property
    def num_perm(self) -> int:
        """The number of minima in a signature."""
        return self.bands * self.rows_per_band

    def measure(self, chunk: Chunk) -> Measured:
        """The column `signature` (num_perm little-endian uint32; null for a text with no word) and the
        number of shingles."""
        view = view_of(chunk)
        words = np.diff(view.word_offsets)
        shingles = np.where(words > 0, np.maximum(words - self.ngram_words + 1, 1), 0)
        hashes = digit_folded_hashes(view) if self.fold_digits else view.word_hashes
        factors, increments = permutations(self.num_perm, self.seed)
        signatures = minhash(hashes, view.word_offsets, self.ngram_words, factors, increments)
        return Measured(
            scores={"near_duplicates.shingles": shingles.astype(np.float64)},
            columns={"signature": signature_column(signatures, words > 0)},
        )


def signature_column(signatures: Signatures, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """The signatures as fixed-size binary values, null where not valid."""
    rows, num_perm = signatures.shape
    validity = np.packbits(valid, bitorder="little").tobytes()
    data = np.ascontiguousarray(signatures, dtype="<u4").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(4 * num_perm), rows, [pa.py_buffer(validity), pa.py_buffer(data)]
    )
