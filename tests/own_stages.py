"""Stages of a user's own, as small as they can be: what `use = "own_stages:Digits"` in a recipe names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from filters.base import Rule, RuleSet, knob
from schemas.chunk import Chunk, Measured
from schemas.records import Document, Edit


@dataclass(frozen=True)
class Digits(RuleSet):
    """Refuse texts with a large share of digits, and marks those without any."""

    name: ClassVar[str] = "digits"
    scores: ClassVar[Mapping[str, str]] = {
        "digits": "digits among all characters, 0-1",
        "digits.count": "digits in the text",
    }
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("too_many_digits", "digits", "digits.max_fraction", "above"),
        Rule("too_few_digits", "digits.count", "digits.min_count", "below"),
    )

    max_fraction: float | None = knob(0.5, doc="largest share of digits")
    min_count: int | None = knob(None, doc="smallest number of digits")
    signs: str = knob("0123456789", phase="annotate", doc="characters that are taken for digits")

    @property
    def per_language(self) -> Mapping[str, Mapping[str, float | None]]:
        """Japanese texts may hold more."""
        return {"ja": {"max_fraction": 0.75}, "de": {"max_fraction": None}}

    def measure(self, chunk: Chunk) -> Measured:
        """Digits of every text; typed columns that are no scores, too."""
        counts = np.array([sum(c in self.signs for c in t) for t in chunk.texts], dtype=np.float64)
        sizes = np.array([len(t) for t in chunk.texts], dtype=np.float64)
        fractions = np.divide(counts, sizes, out=np.full(len(chunk), np.nan), where=sizes > 0)
        return Measured(
            {"digits": fractions, "digits.count": counts},
            {"digits.first": pa.array([next((c for c in t if c in self.signs), None) for t in chunk.texts])},
            {int(i): ("no_digits",) for i in np.flatnonzero(counts == 0)},
        )


@dataclass(frozen=True)
class Squeeze(RuleSet):
    """An editor: runs of spaces become one space."""

    name: ClassVar[str] = "squeeze"

    def apply(self, document: Document) -> tuple[Document, tuple[Edit, ...]]:
        """The document with single spaces, and an edit for each run."""
        edits = tuple(
            Edit("squeeze", m.start(), m.end(), "spaces", m.group(), " ")
            for m in re.finditer("  +", document.text)
        )
        return replace(document, text=re.sub("  +", " ", document.text)), edits


@dataclass(frozen=True)
class Fragile(RuleSet):
    """Raises for a text with the word that it cannot bear, and for a chunk without texts."""

    name: ClassVar[str] = "fragile"
    scores: ClassVar[Mapping[str, str]] = {"fragile": "characters in the text"}

    word: str = knob("boom", phase="annotate", doc="the word that it cannot bear")

    def measure(self, chunk: Chunk) -> Measured:
        """The length of every text."""
        if not len(chunk):
            raise ValueError("no texts")
        for text in chunk.texts:
            if self.word in text:
                raise RuntimeError(f"cannot bear {text!r}, nor \ud800")
        return Measured({"fragile": np.array([len(t) for t in chunk.texts], dtype=np.float64)})


@dataclass(frozen=True)
class Pairwise(RuleSet):
    """Raises for two texts at once, though for none alone: a fault of the stage, not of a record."""

    name: ClassVar[str] = "pairwise"
    scores: ClassVar[Mapping[str, str]] = {"pairwise": "characters in the text"}

    def measure(self, chunk: Chunk) -> Measured:
        """The length of one text."""
        if len(chunk) > 1:
            raise RuntimeError("one at a time")
        return Measured({"pairwise": np.array([len(t) for t in chunk.texts], dtype=np.float64)})


@dataclass(frozen=True)
class Liar(RuleSet):
    """An editor whose edits do not give the text that it returns."""

    name: ClassVar[str] = "liar"

    def apply(self, document: Document) -> tuple[Document, tuple[Edit, ...]]:
        """The first character is cut where it is an x, and nothing is said of it; a y becomes a surrogate."""
        if document.text.startswith("x"):
            return replace(document, text=document.text[1:]), ()
        if document.text.startswith("y"):
            edit = Edit("liar", 0, 1, "r", "y", "\ud800")
            return replace(document, text="\ud800" + document.text[1:]), (edit,)
        return document, ()


@dataclass(frozen=True)
class Ints(RuleSet):
    """Integer scores, of every kind but code."""

    name: ClassVar[str] = "ints"
    scores: ClassVar[Mapping[str, str]] = {"ints": "characters in the text"}

    def measure(self, chunk: Chunk) -> Measured:
        """The length of every text, and a programming language where there is none."""
        return Measured(
            {"ints": np.array([len(t) for t in chunk.texts])},
            {"programming_language": pa.array(["none"] * len(chunk), pa.string())},
        )
