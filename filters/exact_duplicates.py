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

    Before it is compared a text is normalised by a rule that changes nothing to be read: NFC, one kind of
    line break, no white space at the end of a line or of the text. Case, punctuation and inner white space
    count. Two documents are the same if their 128-bit hashes (XXH3) are: among 10^10 documents the chance
    that any two different texts collide is below 10^-18. The first by source, path and locator is kept, of
    those that no rule refused.
    """

    name: ClassVar[str] = "exact_duplicates"
    kinds: ClassVar[frozenset[str]] = frozenset(KINDS)
    scores: ClassVar[Mapping[str, str]] = {
        "exact_duplicates": "1 for a document with the normalised text of `duplicate_of`; others have none",
    }
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "exact_duplicate",
            "exact_duplicates",
            "exact_duplicates.min_similarity",
            "reaches",
            "its text is that of an earlier document",
        ),
    )
    min_similarity: ClassVar[float] = 1.0

    def measure(self, chunk: Chunk) -> Measured:
        """The column `exact_hash` (16 bytes a document); the score is known only when all are compared."""
        hashes = pa.array([exact_hash(text) for text in chunk.texts], pa.binary(HASH_BYTES))
        return Measured(columns={"exact_hash": hashes})
