"""Keyed hashes: every random choice is one, so that it is the same on every runner."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

UNIT = float(2**53)


def sampling_hash(seed: int, purpose: str, doc_id: str) -> float:
    """A number in [0, 1) drawn by (seed, purpose, doc_id): the top 53 bits of a keyed BLAKE2b, over 2^53.

    A larger rate selects a superset of a smaller one (`hash < rate`).

    >>> sampling_hash(0, "sample", "a/b#0") == sampling_hash(0, "sample", "a/b#0")
    True
    """
    key = f"{seed}:{purpose}".encode()[:64]
    digest = hashlib.blake2b(doc_id.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
    return (int.from_bytes(digest, "big") >> 11) / UNIT


def sampling_hashes(seed: int, purpose: str, doc_ids: Iterable[str]) -> npt.NDArray[np.float64]:
    """`sampling_hash` of each document, as float64."""
    return np.array([sampling_hash(seed, purpose, d) for d in doc_ids], dtype=np.float64)
