"""Groups of duplicates from hashes and signatures: functions on arrays, to be joined by columnar shuffles.

A document is named by its `ref`, `unit ordinal << 32 | row`. Where one of several documents is kept, it
is the smallest in the order of documents: `(file ordinal, locator)` where files are numbered by source
and path. No function depends on the order of its rows, and any split of the rows by hash gives the same
result.

    exact:  exact_entries -> [by h1] group_exact -> removed, keeper
    near:   band_hashes -> [by hash] candidate_pairs -> [by ref, twice] signatures joined
            -> verify_pairs -> edges at or above min_jaccard -> resolve -> removed, keeper, similarity
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from numba import njit

Array = npt.NDArray[Any]
Uint64s = npt.NDArray[np.uint64]
Uint32s = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]

MAX_BUCKET_MEMBERS = 32
HUBS = 8
NEIGHBOURS = 4


# Packing -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """How columns of equal length are packed into one value of a shuffle.

    `columns` holds (name, little-endian numpy type, values per row). A packed value is the XXH3-64 of
    the layout and the number of rows (two little-endian uint64), then each column whole.
    """

    columns: tuple[tuple[str, str, int], ...]

    def pack(self, columns: Mapping[str, Array]) -> bytes:
        """The columns as bytes; raises ValueError where lengths or values per row differ."""
        rows = len(columns[self.columns[0][0]])
        parts = [struct.pack("<QQ", self._digest, rows)]
        for name, dtype, width in self.columns:
            column = np.ascontiguousarray(columns[name], dtype=dtype)
            if column.shape != ((rows,) if width == 1 else (rows, width)):
                raise ValueError(f"column {name} has shape {column.shape}, expected {rows} rows of {width}")
            parts.append(column.tobytes())
        return b"".join(parts)

    def unpack(self, data: bytes) -> dict[str, Array]:
        """The columns that `pack` wrote; raises ValueError for a torn value or one of another layout."""
        if len(data) < 16:
            raise ValueError(f"packed value of {len(data)} bytes has no head of 16 bytes")
        digest, rows = struct.unpack_from("<QQ", data)
        if digest != self._digest:
            names = ", ".join(name for name, _, _ in self.columns)
            raise ValueError(f"packed value is not one of the columns {names}")
        expected = 16 + rows * sum(np.dtype(dtype).itemsize * width for _, dtype, width in self.columns)
        if len(data) != expected:
            raise ValueError(f"packed value of {len(data)} bytes, expected {expected} for {rows} rows")
        found: dict[str, Array] = {}
        position = 16
        for name, dtype, width in self.columns:
            column = np.frombuffer(data, dtype, rows * width, position)
            found[name] = column if width == 1 else column.reshape(rows, width)
            position += column.nbytes
        return found

    def unpack_all(self, values: Iterable[bytes]) -> dict[str, Array]:
        """The columns of many packed values, one after another (empty columns where there are none)."""
        parts = [self.unpack(self.pack(self._empty())), *(self.unpack(value) for value in values)]
        return {name: np.concatenate([part[name] for part in parts]) for name, _, _ in self.columns}

    def _empty(self) -> dict[str, Array]:
        return {n: np.empty(0 if w == 1 else (0, w), dtype) for n, dtype, w in self.columns}

    @property
    def _digest(self) -> int:
        return xxhash.xxh3_64_intdigest(repr(self.columns).encode())


EXACT = Layout(
    (("h1", "<u8", 1), ("h2", "<u8", 1), ("file", "<u4", 1), ("locator", "<u8", 1), ("ref", "<u8", 1))
)
"""One row per document: the halves of its exact hash, its place in the order of documents, its ref."""

BANDS = Layout((("hash", "<u8", 1), ("ref", "<u8", 1), ("rank", "<u8", 1)))
"""One row per document and band; the rank ascends with the order of documents."""

PAIRS = Layout((("a", "<u8", 1), ("b", "<u8", 1)))
"""One row per candidate pair of refs, a < b."""

EDGES = Layout(
    (
        ("a", "<u8", 1),
        ("a_file", "<u4", 1),
        ("a_locator", "<u8", 1),
        ("b", "<u8", 1),
        ("b_file", "<u4", 1),
        ("b_locator", "<u8", 1),
        ("similarity", "<f8", 1),
    )
)
"""One row per verified pair of refs, with the order of both documents."""

REMOVED = Layout((("removed", "<u8", 1), ("keeper", "<u8", 1), ("similarity", "<f8", 1)))
"""One row per removed document."""


def signature_layout(num_perm: int) -> Layout:
    """One row per document: its ref, its place in the order of documents, its signature."""
    return Layout(
        (("ref", "<u8", 1), ("file", "<u4", 1), ("locator", "<u8", 1), ("signature", "<u4", num_perm))
    )


def signature_matrix(column: pa.Array) -> tuple[Indices, Uint32s]:
    """The rows of a `signature` column that are not null, and their signatures [rows, num_perm]."""
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    width = column.type.byte_width
    values = np.frombuffer(column.buffers()[1] or b"", "<u4", len(column) * width // 4, column.offset * width)
    return rows, values.reshape(len(column), width // 4)[rows]


# Exact duplicates --------------------------------------------------------------------------------


def exact_entries(exact_hash: pa.Array, file: Array, locator: Array, ref: Array) -> dict[str, Array]:
    """The columns of `EXACT` for documents with these hashes (16 bytes each, big-endian, none null)."""
    halves = np.frombuffer(
        exact_hash.buffers()[1] or b"", ">u8", 2 * len(exact_hash), exact_hash.offset * 16
    ).reshape(-1, 2)
    h1, h2 = halves[:, 0].astype(np.uint64), halves[:, 1].astype(np.uint64)
    return {"h1": h1, "h2": h2, "file": file, "locator": locator, "ref": ref}


def group_exact(
    h1: Uint64s, h2: Uint64s, file: Uint32s, locator: Uint64s, ref: Uint64s
) -> tuple[Uint64s, Uint64s]:
    """The documents whose 128-bit hash an earlier one has: (removed_ref, keeper_ref) by ascending
    removed_ref; the keeper is the earliest of its group."""
    rows = _repeated(h1)
    h1, h2, file, locator, ref = h1[rows], h2[rows], file[rows], locator[rows], ref[rows]
    order = np.lexsort((ref, locator, file, h2, h1))
    h1, h2, ref = h1[order], h2[order], ref[order]
    first = np.ones(len(ref), dtype=np.bool_)
    first[1:] = (h1[1:] != h1[:-1]) | (h2[1:] != h2[:-1])
    keeper = ref[np.flatnonzero(first)[np.cumsum(first) - 1]] if len(ref) else ref
    removed, keeper = ref[~first], keeper[~first]
    by_ref = np.argsort(removed, kind="stable")
    return removed[by_ref], keeper[by_ref]


def _repeated(values: Uint64s) -> Indices:
    """The positions of values that occur more than once."""
    order = np.argsort(values)
    ordered = values[order]
    same = ordered[1:] == ordered[:-1]
    repeated = np.zeros(len(values), dtype=np.bool_)
    repeated[1:] |= same
    repeated[:-1] |= same
    return order[repeated]


# Near-duplicates: candidate pairs ----------------------------------------------------------------


@njit(cache=True, nogil=True)
def band_hashes(signatures: Uint32s, bands: int, rows: int) -> Uint64s:
    """uint64 [documents, bands]: a hash of each band's number and of its `rows` minima."""
    documents = len(signatures)
    hashes = np.empty((documents, bands), dtype=np.uint64)
    for d in range(documents):
        for band in range(bands):
            x = np.uint64(band + 1)
            for k in range(band * rows, (band + 1) * rows):
                x = (x ^ (x >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(signatures[d, k])
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            hashes[d, band] = x ^ (x >> np.uint64(31))
    return hashes


def candidate_pairs(
    hashes: Uint64s,
    refs: Uint64s,
    ranks: Uint64s | None = None,
    *,
    max_bucket_members: int = MAX_BUCKET_MEMBERS,
) -> tuple[Uint64s, Uint64s]:
    """The pairs of refs (a, b), a < b, each once and in ascending order, that share a bucket.

    A bucket is the set of refs with one hash. Within a bucket of at most `max_bucket_members` all pairs
    are proposed, at most 15.5 a member. In a larger one, which may hold most of a corpus, the members
    stand in ascending order of `ranks` (refs where None), and each is paired with the first `HUBS` members
    and with the `NEIGHBOURS` right before it: at most 12 pairs a member.

    What this loses: two duplicates that meet in large buckets only, both later than the hubs, not near
    each other, and unlike every hub that is kept. That is rare: documents of Jaccard similarity s share
    one band with the chance s^rows, so that those of a large bucket are mostly near-duplicates of each
    other, and of its hubs; and two duplicates among unlike documents share several bands, of which the
    others share few. `ranks` must ascend with the order of documents that `resolve` is given: only then
    are hubs the earliest members, which are kept, and their copies removed in their favour.
    """
    rows = _repeated(hashes)
    hashes, refs = hashes[rows], refs[rows]
    ranks = refs if ranks is None else ranks[rows]
    order = np.lexsort((refs, ranks, hashes))
    hashes, refs = hashes[order], refs[order]
    once = np.ones(len(refs), dtype=np.bool_)
    once[1:] = (hashes[1:] != hashes[:-1]) | (refs[1:] != refs[:-1])
    hashes, refs = hashes[once], refs[once]
    documents, members = np.unique(refs, return_inverse=True)
    starts = np.append(np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(refs)]), len(refs))
    keys = _bucket_pairs(members.astype(np.int64), starts, max_bucket_members, HUBS, NEIGHBOURS)
    keys.sort()
    if len(starts) > 2:
        once = np.ones(len(keys), dtype=np.bool_)
        once[1:] = keys[1:] != keys[:-1]
        keys = keys[once]
    return documents[keys >> np.uint64(32)], documents[keys & np.uint64(0xFFFFFFFF)]


@njit(cache=True, nogil=True)
def _bucket_pairs(
    members: Indices, starts: Indices, max_bucket_members: int, hubs: int, neighbours: int
) -> Uint64s:
    """Pairs of document numbers below 2^32, packed as smaller << 32 | larger, unsorted. Bucket i is
    `members[starts[i]:starts[i + 1]]`, distinct and in order."""
    keys = np.empty(0, dtype=np.uint64)
    for fill in (False, True):  # count, then write
        n = 0
        for bucket in range(len(starts) - 1):
            start, size = starts[bucket], starts[bucket + 1] - starts[bucket]
            for position in range(1, size):
                b = members[start + position]
                first, nearest = 0, 0
                if size > max_bucket_members:
                    nearest = max(0, position - neighbours)
                    first = min(hubs, nearest)
                for k in range(first + position - nearest):
                    if fill:
                        a = members[start + (k if k < first else nearest + k - first)]
                        keys[n] = np.uint64(min(a, b)) << np.uint64(32) | np.uint64(max(a, b))
                    n += 1
        if not fill:
            keys = np.empty(n, dtype=np.uint64)
    return keys


# Near-duplicates: verified pairs -----------------------------------------------------------------


def verify_pairs(signatures_a: Uint32s, signatures_b: Uint32s) -> Similarities:
    """The estimated Jaccard similarity of each pair of rows: the share of equal minima, rounded to 1e-4.

    Raises ValueError where the shapes differ."""
    if signatures_a.shape != signatures_b.shape:
        shapes = f"{signatures_a.shape} and {signatures_b.shape}"
        raise ValueError(f"signatures of shapes {shapes} cannot be compared")
    share = _equal_minima(signatures_a, signatures_b) / np.float64(max(1, signatures_a.shape[1]))
    rounded: Similarities = np.round(share, 4)
    return rounded


@njit(cache=True, nogil=True)
def _equal_minima(signatures_a: Uint32s, signatures_b: Uint32s) -> Indices:
    pairs, num_perm = signatures_a.shape
    counts = np.empty(pairs, dtype=np.int64)
    for pair in range(pairs):
        equal = 0
        for i in range(num_perm):
            equal += signatures_a[pair, i] == signatures_b[pair, i]
        counts[pair] = equal
    return counts


def resolve(
    a_ref: Uint64s,
    b_ref: Uint64s,
    a_order: Sequence[Array],
    b_order: Sequence[Array],
    similarity: Similarities,
) -> tuple[Uint64s, Uint64s, Similarities]:
    """Who is removed, in favour of whom, and how alike the two are: by ascending removed_ref.

    The documents are taken in their order (`a_order` and `b_order`: keys of each end, the most
    significant first; ties by ref). One is removed if it shares an edge with an earlier one that is
    kept; of several it names the most similar, and of those the earliest. So a document is removed only
    for a kept one that it was compared with itself: of A ~ B ~ C with A unlike C, A and C are kept.
    Takes edges in any order, in either direction and more than once (the largest similarity counts);
    an edge from a document to itself is passed over. Time and memory are linear but for one sort.

    Raises ValueError where one ref comes with two orders.
    """
    ends = np.concatenate([a_ref, b_ref])
    refs, inverse = np.unique(ends, return_inverse=True)
    keys = []
    for a_key, b_key in zip(a_order, b_order, strict=True):
        key_of_end = np.concatenate([a_key, b_key])
        key = np.zeros(len(refs), dtype=key_of_end.dtype)
        key[inverse] = key_of_end
        if np.any(key[inverse] != key_of_end):
            raise ValueError("one document comes with two places in the order of documents")
        keys.append(key)
    by_order = np.lexsort((refs, *reversed(keys)))
    place = np.empty(len(refs), dtype=np.int64)
    place[by_order] = np.arange(len(refs))
    ends_place = place[inverse]
    a, b = ends_place[: len(a_ref)], ends_place[len(a_ref) :]
    keeper, best = _greedy(np.minimum(a, b), np.maximum(a, b), similarity, len(refs))
    in_order = refs[by_order]
    gone = np.flatnonzero(keeper >= 0)
    gone = gone[np.argsort(in_order[gone])]
    return in_order[gone], in_order[keeper[gone]], best[gone]


@njit(cache=True, nogil=True)
def _greedy(
    earlier: Indices, later: Indices, similarity: Similarities, documents: int
) -> tuple[Indices, Similarities]:
    """The keeper of each document, or -1, and the similarity to it; documents are numbered in order."""
    offsets = np.zeros(documents + 1, dtype=np.int64)
    for edge in range(len(later)):
        offsets[later[edge] + 1] += 1
    for document in range(documents):
        offsets[document + 1] += offsets[document]
    edges = np.empty(len(later), dtype=np.int64)
    filled = offsets[:-1].copy()
    for edge in range(len(later)):
        edges[filled[later[edge]]] = edge
        filled[later[edge]] += 1
    keeper = np.full(documents, -1, dtype=np.int64)
    best = np.full(documents, -1.0)
    for document in range(documents):
        for k in range(offsets[document], offsets[document + 1]):
            edge = edges[k]
            other, alike = earlier[edge], similarity[edge]
            if other == document or keeper[other] >= 0:
                continue
            if alike > best[document] or (alike == best[document] and other < keeper[document]):
                keeper[document], best[document] = other, alike
    return keeper, best


def find_near_duplicates(
    signatures: Uint32s, refs: Uint64s, order: Sequence[Array], bands: int, rows: int, min_jaccard: float
) -> tuple[Uint64s, Uint64s, Similarities]:
    """All steps at once for documents that fit in memory: (removed_ref, keeper_ref, similarity).

    `order` holds the keys of the order of documents, the most significant first; the refs are distinct.
    """
    ranks = np.empty(len(refs), dtype=np.uint64)
    ranks[np.lexsort((refs, *reversed(order)))] = np.arange(len(refs), dtype=np.uint64)
    positions = np.arange(len(refs), dtype=np.uint64)
    a, b = candidate_pairs(
        band_hashes(signatures, bands, rows).ravel(), np.repeat(positions, bands), np.repeat(ranks, bands)
    )
    similarity = verify_pairs(signatures[a], signatures[b])
    match = similarity >= min_jaccard
    a, b = a[match], b[match]
    return resolve(refs[a], refs[b], [k[a] for k in order], [k[b] for k in order], similarity[match])
