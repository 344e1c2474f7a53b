"""The arithmetic of balance: from characters by language and hash to the cut of each language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from filters.balance_languages import BalanceLanguages

BINS = 1 << 16
"""Bins of the keyed hash: the cut is found within one of them, so 1 in 65,536 documents is compared."""


@dataclass(frozen=True)
class Cut:
    """How a language is sampled: `base` copies of every document, one more up to `max_sampling_hash`."""

    base: int
    max_sampling_hash: float

    def to_json(self) -> dict[str, Any]:
        """A JSON object from which `from_json` makes an equal cut."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Cut:
        """The cut that `to_json` wrote."""
        return Cut(data["base"], data["max_sampling_hash"])

    def epochs(self, hashes: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
        """How often each document is written."""
        return (self.base + (hashes <= self.max_sampling_hash)).astype(np.uint32)


@dataclass(frozen=True)
class Crossing:
    """Where the budget of a language is met: the bin, the characters still wanted in it, base copies."""

    base: int
    bin: int
    wanted: int


def languages_to_cut(
    stage: BalanceLanguages, histograms: Mapping[str, npt.NDArray[np.int64]]
) -> dict[str, Crossing]:
    """The bin in which each language's budget is met; languages kept as they are are left out."""
    characters = {group: int(bins.sum()) for group, bins in histograms.items()}
    prose = {g: n for g, n in characters.items() if not g.startswith("code/")}
    code = {g: n for g, n in characters.items() if g.startswith("code/")}
    budgets = {**stage.budgets(prose), **stage.budgets(code)}
    found = {}
    for group, budget in sorted(budgets.items()):
        base, wanted = divmod(budget, characters[group])
        if (base, wanted) == (1, 0):
            continue
        running = np.cumsum(histograms[group])
        where = int(np.searchsorted(running, wanted)) if wanted else -1
        before = int(running[where - 1]) if where > 0 else 0
        found[group] = Crossing(base, where, wanted - before)
    return found


def cuts_of(crossings: Mapping[str, Crossing], exact: Mapping[str, Any]) -> dict[str, Cut]:
    """The exact cut of each language: documents are taken in hash order until the budget is met.

    `exact` holds, by language, the sorted hashes of the documents of the crossing bin and their
    characters.
    """
    cuts = {}
    for group, crossing in crossings.items():
        if crossing.bin < 0:
            cuts[group] = Cut(crossing.base, -1.0)
            continue
        running = np.cumsum(np.array(exact[group]["characters"], dtype=np.int64))
        last = int(np.searchsorted(running, crossing.wanted))
        cuts[group] = Cut(crossing.base, float(exact[group]["hashes"][last]))
    return cuts
