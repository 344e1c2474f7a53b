"""Exact duplicates: a 128-bit hash of the normalised text."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import xxhash

from filters.base import Rule, RuleSet
from schemas.chunk import Chunk, Measured
from schemas.records import KINDS

HASH_BYTES = 16


def normalise(text: str) -> str:
    """The text by which exact duplicates are told: NFC, CRLF and CR as LF, and no white space (as
    `str.isspace` has it) at the end of a line or of the text.

    >>> normalise("Cafe\\u0301  \\r\\n\\tau lait\\t\\n\\n")
    'Café\\n\\tau lait'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join([line.rstrip() for line in text.split("\n")]).rstrip()


def exact_hash(text: str) -> bytes:
    """XXH3-128 (16 bytes, big-endian) of the normalised text in UTF-8; a lone surrogate, which UTF-8
    does not have, is hashed as its three-byte form."""
    return xxhash.xxh3_128_digest(normalise(text).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class ExactDuplicates(RuleSet):
    """Of the documents with the same normalised text, keep the first.

    The text is normalised by a rule that changes nothing to be read (see `normalise`): case, punctuation
    and inner white space count. Two documents are the same if their 128-bit hashes are: among 10^10
    documents the chance that any two texts collide is below 10^-18. The groups are found in
    `pipeline.duplicates`; the first document by source, path and locator is kept.
    """

    name: ClassVar[str] = "exact_duplicates"
    kinds: ClassVar[frozenset[str]] = frozenset(KINDS)
    scores: ClassVar[Mapping[str, str]] = {
        "exact_duplicates": "1 for a document whose normalised text is that of the kept `duplicate_of`",
    }
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "exact_duplicate",
            "exact_duplicates",
            "exact_duplicates.min_similarity",
            "reaches",
            "the text is that of an earlier document",
        ),
    )
    min_similarity: ClassVar[float] = 1.0

    def measure(self, chunk: Chunk) -> Measured:
        """The column `exact_hash` (16 bytes a document); the score is known only when all are compared."""
        hashes = pa.array([exact_hash(text) for text in chunk.texts], pa.binary(HASH_BYTES))
        return Measured(columns={"exact_hash": hashes})
