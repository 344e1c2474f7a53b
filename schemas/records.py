"""What a document, an edit and a verdict are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("prose", "code", "mathematics", "mixed")
"""The kinds of document that a stage can say it judges."""

UNDETERMINED = "und"
"""BCP 47 for a language that could not be told."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document as it travels through the stages.

    `doc_id` is `source/relative-path#locator`; the locator is the byte offset of the record in the
    decompressed stream (JSONL, WARC), the row number (Parquet), else 0. `language` is BCP 47 with
    script where it matters (zh-Hans, zh-Hant). `metadata` is a JSON object of every input field that
    has no column of its own.
    """

    text: str
    doc_id: str = ""
    input_id: str | None = None
    source: str = ""
    source_path: str = ""
    locator: int = 0
    url: str | None = None
    date: str | None = None
    kind: str = "prose"
    language: str = UNDETERMINED
    programming_language: str | None = None
    licence: str | None = None
    metadata: str = "{}"


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the text by one stage.

    `start` and `end` are code points of the text as that stage received it; `before` is null where the
    old text must not be kept (masked personal data) or cannot be (a lone surrogate).
    """

    stage: str
    start: int
    end: int
    rule: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one stage decided about one document, with the numbers that it decided by."""

    stage: str
    keep: bool
    reasons: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.keep and self.reasons:
            raise ValueError(f"{self.stage}: a kept document has no reason, got {self.reasons}")
        if not self.keep and not self.reasons:
            raise ValueError(f"{self.stage}: a refused document needs a reason")

    @property
    def reason(self) -> str | None:
        """The first reason in the order of the stage's rules, or None for a kept document."""
        return self.reasons[0] if self.reasons else None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that could hold a document but could not be read or measured.

    `raw` is what was read of it (at most 64 KiB); it goes to the quarantine folder only.
    """

    row: int
    doc_id: str
    input_id: str | None
    source: str
    source_path: str
    locator: int
    stage: str
    reason: str
    error: str
    raw: bytes = b""
