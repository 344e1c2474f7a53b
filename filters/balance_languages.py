"""Balance of languages: how many characters of each language are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from filters.base import Rule, RuleSet, knob


@dataclass(frozen=True)
class BalanceLanguages(RuleSet):
    """Even out the languages: sample them with p ~ n^alpha, n in characters, without a larger corpus.

    n counts the characters of the documents that no earlier stage refused. The share that a language should
    have is n^alpha by the sum over all languages. One that has more is cut: its documents are taken in the
    order of a keyed hash until the budget of characters is met, the one that meets it included. One that has
    less is kept whole and written up to `max_epochs` times. Languages are BCP 47 with script, so zh-Hans and
    zh-Hant are apart; code is balanced by itself, among programming languages.

    Source: temperature sampling as in XLM-R (Conneau et al. 2020, section 3.1), https://aclanthology.org/2020.acl-main.747
    """

    name: ClassVar[str] = "balance_languages"
    kinds: ClassVar[frozenset[str]] = frozenset({"prose", "mathematics", "mixed", "code"})
    requires: ClassVar[tuple[str, ...]] = ("identify_language",)
    scores: ClassVar[Mapping[str, str]] = {
        "balance_languages": "keyed hash of the document, 0 to below 1; small ones are taken first",
    }
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "over_budget",
            "balance_languages",
            "balance_languages.max_sampling_hash",
            "above",
            "its language has met its share of the corpus, and the keyed draw left this document out",
        ),
    )

    alpha: float = knob(
        1.0,
        doc="exponent of each language's size, 0 to 1: 1 keeps shares as they are, 0 evens them out",
        source="XLM-R uses 0.3, mT5 0.3; 1 here, so that nothing is dropped unasked",
    )
    max_epochs: int = knob(
        1,
        doc="most times that a document of a small language is written, 1 or more",
        source="1, so that nothing is repeated unasked",
    )

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha must lie between 0 and 1, got {self.alpha}")
        if self.max_epochs < 1:
            raise ValueError(f"max_epochs must be at least 1, got {self.max_epochs}")

    def thresholds(self, language: str) -> dict[str, float]:  # noqa: ARG002
        """None before the corpus is counted: the cut by language comes from `pipeline.balance`."""
        return {}

    def budgets(self, characters: Mapping[str, int]) -> dict[str, int]:
        """Characters to emit of each language, from the characters that there are.

        The target of language i is N * n_i^alpha / sum n_j^alpha with N the whole corpus, at most
        `max_epochs` times n_i.
        """
        present = {k: n for k, n in sorted(characters.items()) if n > 0}
        whole = sum(present.values())
        weights = {k: float(n) ** self.alpha for k, n in present.items()}
        total = sum(weights.values())
        if self.alpha == 1.0:
            return dict(present)
        return {k: min(n * self.max_epochs, int(whole * weights[k] / total)) for k, n in present.items()}
