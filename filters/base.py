"""What every stage shares: rules over scores, resolved thresholds, verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from schemas.chunk import Chunk, Measured
from schemas.records import Document, Edit, Verdict

Direction = Literal["below", "above", "reaches"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One way in which a document can fail: `score` lies below, above, or reaches `threshold`.

    `score` and `threshold` are full names (`gopher_quality.words`, `gopher_quality.min_words`). A score
    that was not measured (NaN) or a threshold that is off (None) fails nothing. Bounds are inclusive:
    a score at `min_` or `max_` passes, a similarity at its threshold (`reaches`) is a match.
    """

    reason: str
    score: str
    threshold: str
    fails: Direction
    plain: str = ""

    def failing(
        self, score: npt.NDArray[np.float64], threshold: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Which rows fail, by column; NaN in either array fails nothing."""
        with np.errstate(invalid="ignore"):
            if self.fails == "below":
                return score < threshold
            if self.fails == "above":
                return score > threshold
            return score >= threshold


def knob(default: Any, *, phase: Literal["annotate", "decide"] = "decide", doc: str, source: str = "") -> Any:
    """A recipe key of a stage: its default, whether it acts while measuring or deciding, what it means
    (with its unit), and where the default comes from."""
    if isinstance(default, (list, dict)):
        return field(
            default_factory=lambda: type(default)(default),
            metadata={"phase": phase, "doc": doc, "source": source},
        )
    return field(default=default, metadata={"phase": phase, "doc": doc, "source": source})


@runtime_checkable
class Stage(Protocol):
    """A step of a recipe. Its dataclass fields are its recipe keys (made by `knob`)."""

    name: ClassVar[str]
    kinds: ClassVar[frozenset[str]]
    requires: ClassVar[tuple[str, ...]]
    rules: ClassVar[tuple[Rule, ...]]
    scores: ClassVar[Mapping[str, str]]


@runtime_checkable
class Measuring(Protocol):
    """A stage that measures a chunk while annotating."""

    def measure(self, chunk: Chunk) -> Measured:
        """Scores and columns for every document; a score depends on its document alone, bit for bit."""
        ...


@runtime_checkable
class Editor(Protocol):
    """A stage that changes texts while annotating."""

    def apply(self, document: Document) -> tuple[Document, tuple[Edit, ...]]:
        """The document after the stage, and the edits that turn the old text into the new one."""
        ...


class RuleSet:
    """Shared behaviour of stages that judge by thresholds: subclass as a frozen dataclass.

    Class attributes: `name`; `kinds` it judges; `requires`, stages measured before it; `scores`, full
    name -> one line of meaning with unit; `rules` in the order in which reasons are reported;
    `per_language`, language -> threshold field -> value, where a language differs from the default.
    A field named `min_x`/`max_x` set in the recipe to a value other than its default wins over
    `per_language`. `reasons` is the closed set of reasons.
    """

    name: ClassVar[str]
    kinds: ClassVar[frozenset[str]] = frozenset({"prose", "mathematics", "mixed"})
    requires: ClassVar[tuple[str, ...]] = ()
    rules: ClassVar[tuple[Rule, ...]] = ()
    scores: ClassVar[Mapping[str, str]] = {}

    @property
    def per_language(self) -> Mapping[str, Mapping[str, float | None]]:
        """Thresholds by language that replace the default ones."""
        return {}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason that this stage can give, in the order in which they are tried."""
        return tuple(dict.fromkeys(rule.reason for rule in self.rules))

    def thresholds(self, language: str) -> dict[str, float]:
        """The thresholds in force for a language, by full name; those that are off are left out."""
        own = self.per_language.get(language, {})
        found: dict[str, float] = {}
        for rule in self.rules:
            short = rule.threshold.removeprefix(f"{self.name}.")
            spec = next((f for f in fields(self) if f.name == short), None)  # type: ignore[arg-type]
            value = getattr(self, short)
            if short in own and (spec is None or value == spec.default):
                value = own[short]
            if value is not None:
                found[rule.threshold] = float(value)
        return found

    def decide(self, scores: Mapping[str, float], language: str = "und") -> Verdict:
        """The verdict that follows from these scores: pure, and the same for a stored row."""
        thresholds = self.thresholds(language)
        failed: list[str] = []
        for rule in self.rules:
            score = np.array([scores.get(rule.score, math.nan)], dtype=np.float64)
            limit = np.array([thresholds.get(rule.threshold, math.nan)], dtype=np.float64)
            if rule.reason not in failed and rule.failing(score, limit)[0]:
                failed.append(rule.reason)
        own = {n: float(scores[n]) for n in self.scores if n in scores and not math.isnan(scores[n])}
        return Verdict(self.name, not failed, tuple(failed), own, thresholds)

    def judge(self, document: Document) -> Verdict:
        """Measure and decide one document."""
        if document.kind not in self.kinds:
            return Verdict(self.name, True)
        measured = self.measure(Chunk.of([document]))  # type: ignore[attr-defined]
        return self.decide({n: float(v[0]) for n, v in measured.scores.items()}, document.language)
