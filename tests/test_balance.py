"""Budgets and cuts of languages against tables made by hand and against a search by brute force."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.balance_languages import BalanceLanguages
from pipeline.balance import BINS, Crossing, Cut, cuts_of, languages_to_cut

# Budgets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "max_epochs", "characters", "budgets"),
    [
        # alpha 1 keeps the corpus as it is, whatever may be repeated.
        (1.0, 1, {"en": 900, "de": 100}, {"en": 900, "de": 100}),
        (1.0, 3, {"en": 900, "de": 100}, {"en": 900, "de": 100}),
        # alpha 0 evens out: 1000 / 2 each; of de there are 100.
        (0.0, 1, {"en": 900, "de": 100}, {"en": 500, "de": 100}),
        (0.0, 3, {"en": 900, "de": 100}, {"en": 500, "de": 300}),
        (0.0, 9, {"en": 900, "de": 100}, {"en": 500, "de": 500}),
        # alpha 1/2: shares as 30 to 10, so 750 to 250.
        (0.5, 1, {"en": 900, "de": 100}, {"en": 750, "de": 100}),
        (0.5, 2, {"en": 900, "de": 100}, {"en": 750, "de": 200}),
        (0.5, 3, {"en": 900, "de": 100}, {"en": 750, "de": 250}),
        # Three languages as 40 : 20 : 10 of 2100: 1200, 600, 300.
        (0.5, 4, {"en": 1600, "de": 400, "th": 100}, {"en": 1200, "de": 600, "th": 300}),
        (0.5, 1, {"en": 1600, "de": 400, "th": 100}, {"en": 1200, "de": 400, "th": 100}),
        # One language is the whole corpus; one without characters has no share.
        (0.3, 3, {"en": 10}, {"en": 10}),
        (0.0, 3, {"en": 10, "und": 0}, {"en": 10}),
        (0.5, 3, {}, {}),
        # Rounded down: 10 * 1 / 3.
        (0.0, 1, {"a": 8, "b": 1, "c": 1}, {"a": 3, "b": 1, "c": 1}),
    ],
)
def test_budgets(alpha: float, max_epochs: int, characters: dict[str, int], budgets: dict[str, int]) -> None:
    stage = BalanceLanguages(alpha=alpha, max_epochs=max_epochs)
    assert stage.budgets(characters) == budgets
    assert stage.budgets(dict(reversed(characters.items()))) == budgets


sizes = st.dictionaries(st.sampled_from(["en", "de", "ja", "th", "ru"]), st.integers(0, 10**12))
alphas = st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.999])


@given(sizes, alphas, st.integers(1, 4))
def test_budgets_repeat_no_more_than_allowed_and_never_grow_the_corpus(
    characters: dict[str, int], alpha: float, max_epochs: int
) -> None:
    budgets = BalanceLanguages(alpha=alpha, max_epochs=max_epochs).budgets(characters)
    whole = sum(characters.values())
    assert sum(budgets.values()) <= whole * (1 + 1e-12)
    assert all(0 <= budgets[k] <= characters[k] * max_epochs for k in budgets)
    assert set(budgets) == {k for k, n in characters.items() if n}
    largest = max(characters, key=lambda k: characters[k], default=None)
    if largest in budgets:
        assert budgets[largest] <= characters[largest], "the largest language is never repeated"


# Cuts --------------------------------------------------------------------------------------------

Documents = list[tuple[float, int]]
"""(keyed hash, characters) of each document of a language."""


def histogram(documents: Documents) -> Any:
    bins = np.zeros(BINS, dtype=np.int64)
    for drawn, characters in documents:
        bins[int(drawn * BINS)] += characters
    return bins


def cut_of(stage: BalanceLanguages, corpus: dict[str, Documents]) -> dict[str, Cut]:
    """Both steps as decide makes them: the crossing bins, then the exact cuts within them."""
    crossings = languages_to_cut(stage, {g: histogram(d) for g, d in corpus.items()})
    exact = {}
    for group, crossing in crossings.items():
        inside = sorted(d for d in corpus[group] if int(d[0] * BINS) == crossing.bin)
        if inside:
            exact[group] = {"hashes": [h for h, _ in inside], "characters": [n for _, n in inside]}
    return cuts_of(crossings, exact)


def copies_by_brute_force(documents: Documents, budget: int) -> list[int]:
    """Whole copies of all while the budget has room for them, then documents by hash until it is met."""
    whole = sum(n for _, n in documents)
    base, wanted = divmod(budget, whole)
    copies = [base] * len(documents)
    for i in sorted(range(len(documents)), key=lambda i: documents[i][0]):
        if wanted <= 0:
            break
        copies[i] += 1
        wanted -= documents[i][1]
    return copies


hashes = st.one_of(
    st.integers(0, 2**53 - 1),
    st.integers(0, 40),  # many in the first bin
    st.integers(2**53 - 40, 2**53 - 1),
    st.sampled_from([k << 37 for k in (0, 1, 2, BINS - 1)]),  # at the edges of bins
).map(lambda k: k / 2**53)
languages = st.lists(st.tuples(hashes, st.integers(0, 30)), max_size=12, unique_by=lambda d: d[0])


@given(
    st.dictionaries(st.sampled_from(["en", "de", "ja", "code/c", "code/go"]), languages),
    alphas,
    st.integers(1, 3),
)
def test_documents_are_taken_by_hash_until_the_budget_is_met(
    corpus: dict[str, Documents], alpha: float, max_epochs: int
) -> None:
    stage = BalanceLanguages(alpha=alpha, max_epochs=max_epochs)
    sizes = {g: sum(n for _, n in d) for g, d in corpus.items()}
    prose = {g: n for g, n in sizes.items() if not g.startswith("code/")}
    code = {g: n for g, n in sizes.items() if g.startswith("code/")}
    budgets = stage.budgets(prose) | stage.budgets(code)
    cuts = cut_of(stage, corpus)
    for group, documents in corpus.items():
        if group not in budgets:  # it has no characters
            assert group not in cuts
            continue
        expected = copies_by_brute_force(documents, budgets[group])
        if group in cuts:
            assert Cut.from_json(json.loads(json.dumps(cuts[group].to_json()))) == cuts[group]
            found = cuts[group].epochs(np.array([h for h, _ in documents])).tolist()
        else:
            found = [1] * len(documents)
        # Documents without a character after the cut are of no consequence to the budget.
        assert [f for f, (_, n) in zip(found, documents, strict=True) if n] == [
            e for e, (_, n) in zip(expected, documents, strict=True) if n
        ]
        written = sum(f * n for f, (_, n) in zip(found, documents, strict=True))
        assert budgets[group] <= written <= budgets[group] + max((n for _, n in documents), default=0)
        assert max(found, default=0) <= max_epochs


@given(languages, st.data())
def test_a_larger_budget_keeps_a_superset(documents: Documents, data: st.DataObject) -> None:
    whole = sum(n for _, n in documents)
    if not whole:
        return
    budgets = sorted(data.draw(st.tuples(st.integers(0, 3 * whole), st.integers(0, 3 * whole))))
    drawn = np.array([h for h, _ in documents])

    class Fixed(BalanceLanguages):
        wanted: int

        def budgets(self, characters: Any) -> dict[str, int]:
            return dict.fromkeys(characters, self.wanted)

    copies = []
    for budget in budgets:
        Fixed.wanted = budget
        cut = cut_of(Fixed(), {"en": documents}).get("en")
        copies.append(np.ones(len(documents), np.uint32) if cut is None else cut.epochs(drawn))
    assert (copies[0] <= copies[1]).all()


def test_three_epochs_of_a_small_language() -> None:
    """en 1600 of 2000 characters, de 400: alpha 0 wants 1000 of each, so de twice and half of it again."""
    corpus = {
        "en": [(i / 16, 100) for i in range(16)],
        "de": [(0.9, 100), (0.1, 100), (0.7, 100), (0.3, 100)],
    }
    cuts = cut_of(BalanceLanguages(alpha=0.0, max_epochs=3), corpus)
    assert cuts == {"de": Cut(2, 0.3), "en": Cut(0, 9 / 16)}
    assert cuts["de"].epochs(np.array([0.9, 0.1, 0.7, 0.3])).tolist() == [2, 3, 2, 3]
    assert cut_of(BalanceLanguages(alpha=0.0, max_epochs=2), corpus)["de"] == Cut(2, -1.0)
    assert "de" not in cut_of(BalanceLanguages(alpha=0.0, max_epochs=1), corpus)


def test_code_is_balanced_by_itself() -> None:
    """However large the prose, the programming languages share what code there is."""
    code = {"code/c": [(0.25, 30), (0.75, 30)], "code/go": [(0.5, 20)]}
    stage = BalanceLanguages(alpha=0.0)
    alone = cut_of(stage, code)
    assert alone == {"code/c": Cut(0, 0.75)}, "80 characters are 40 each"
    beside = cut_of(stage, {**code, "en": [(0.5, 1000)], "de": [(0.5, 10)]})
    assert {g: c for g, c in beside.items() if g.startswith("code/")} == alone
    assert "en" in beside


def test_a_corpus_that_is_kept_as_it_is_has_no_cuts() -> None:
    corpus = {"en": [(0.1, 5), (0.2, 5)], "de": [(0.3, 7)], "und": [(0.4, 0)]}
    assert cut_of(BalanceLanguages(), corpus) == {}
    assert cut_of(BalanceLanguages(max_epochs=3), corpus) == {}
    assert cut_of(BalanceLanguages(alpha=0.0), {}) == {}


def test_a_language_whose_budget_is_nothing_is_left_out_whole() -> None:
    """alpha 0 over many languages of one character: 3 / 4 is rounded down to nothing."""
    bins = {g: histogram([(0.5, 1)]) for g in ("a", "b", "c")}

    class Nothing(BalanceLanguages):
        def budgets(self, characters: Any) -> dict[str, int]:
            return dict.fromkeys(characters, 0)

    crossings = languages_to_cut(Nothing(), bins)
    assert crossings == {g: Crossing(0, -1, 0) for g in bins}
    cuts = cuts_of(crossings, {})
    assert cuts["a"].epochs(np.array([0.0, 0.5])).tolist() == [0, 0]


def test_hashes_are_compared_exactly() -> None:
    cut = Cut(0, 0.5)
    assert cut.epochs(np.array([math.nextafter(0.5, 0), 0.5, math.nextafter(0.5, 1)])).tolist() == [1, 1, 0]


def test_the_verdict_of_one_document_follows_from_its_row() -> None:
    stage = BalanceLanguages()
    assert stage.thresholds("en") == {}
    assert stage.decide({"balance_languages": 0.9}).keep
    (rule,) = stage.rules
    assert rule.failing(np.array([0.5, 0.6]), np.array([0.5, 0.5])).tolist() == [False, True]
