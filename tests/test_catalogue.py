"""Every stage of the catalogue has its four parts, its table of cases holds, and it judges any text."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_tables import Case, judge_case, load_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.balance_languages import BalanceLanguages
from filters.base import RuleSet
from filters.exact_duplicates import ExactDuplicates
from pipeline.balance import BINS, Crossing, cuts_of, languages_to_cut
from pipeline.catalogue import CATALOGUE, SET_STAGES, load_class, stage_class
from pipeline.catalogue_text import filled
from pipeline.duplicates import exact_entries, group_exact
from schemas.chunk import Chunk
from schemas.records import Document

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "cases"
ROW_STAGES = [name for name in CATALOGUE if name not in SET_STAGES]
TABLES = [name for name in ROW_STAGES if name != "identify_language"]
"""Stages whose tables `case_tables` describes; the language of a case is what identify_language finds out."""

NOT_READ = {"label", "text", "texts", "text_repeat", "comment", "source"}


# The four parts -------------------------------------------------------------------------------------------


def strings(value: Any) -> Iterator[str]:
    """Every string of a case table that can be a reason."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in NOT_READ:
                yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def defined(root: Path) -> dict[str, str]:
    """Rule sets in the modules of filters/ and classifiers/: `module:Class` -> stage name."""
    found = {}
    for path in sorted([*root.glob("filters/*.py"), *root.glob("classifiers/*.py")]):
        module = importlib.import_module(f"{path.parent.name}.{path.stem}")
        for cls in vars(module).values():
            if (
                inspect.isclass(cls)
                and issubclass(cls, RuleSet)
                and cls.__module__ == module.__name__
                and cls is not RuleSet
            ):
                found[f"{module.__name__}:{cls.__name__}"] = cls.name
    return found


def missing(catalogue: Mapping[str, str], classes: Mapping[str, str], cases: Path, page: str) -> list[str]:
    """What is missing of the four parts of these stages: each is named with what to do."""
    found = [f"{use}: no line in pipeline/catalogue.py" for use in classes if use not in catalogue.values()]
    for name, use in catalogue.items():
        if classes.get(use) != name:
            found.append(f"{name}: {use} is no rule set of that name in filters/ or classifiers/")
            continue
        path = cases / f"{name}.json"
        told = set(strings(json.loads(path.read_text("utf-8")))) if path.is_file() else set()
        if not path.is_file():
            found.append(f"{name}: no tests/cases/{name}.json")
        reasons = load_class(use)().reasons
        found += [
            f"{name}: tests/cases/{name}.json has no case for {r}"
            for r in reasons
            if path.is_file() and r not in told
        ]
        for part in (
            f"<!-- generated: {name} -->\n",
            f"<!-- end of {name} -->\n",
            f"### Known misses of {name}\n",
        ):
            if part not in page:
                found.append(f"{name}: docs/filters.md lacks {part.strip()}")
    found += [
        f"{p.name}: a case table of no stage" for p in sorted(cases.glob("*.json")) if p.stem not in catalogue
    ]
    return found


def test_no_stage_lacks_a_part() -> None:
    page = (ROOT / "docs" / "filters.md").read_text("utf-8")
    assert missing(CATALOGUE, defined(ROOT), CASES, page) == []


def test_each_missing_part_is_named(tmp_path: Path) -> None:
    (tmp_path / "exact_duplicates.json").write_text('[{"label": "exact_duplicate", "reason": null}]')
    (tmp_path / "other.json").write_text("[]")
    use = CATALOGUE["exact_duplicates"]
    page = "<!-- generated: exact_duplicates -->\n<!-- end of exact_duplicates -->\n"
    classes = {use: "exact_duplicates", "filters.new:New": "new"}
    assert missing({"exact_duplicates": use, "gone": "filters.gone:Gone"}, classes, tmp_path, page) == [
        "filters.new:New: no line in pipeline/catalogue.py",
        "exact_duplicates: tests/cases/exact_duplicates.json has no case for exact_duplicate",
        "exact_duplicates: docs/filters.md lacks ### Known misses of exact_duplicates",
        "gone: filters.gone:Gone is no rule set of that name in filters/ or classifiers/",
        "other.json: a case table of no stage",
    ]
    (tmp_path / "exact_duplicates.json").unlink()
    (tmp_path / "other.json").unlink()
    assert missing({"exact_duplicates": use}, {use: "exact_duplicates"}, tmp_path, "") == [
        "exact_duplicates: no tests/cases/exact_duplicates.json",
        "exact_duplicates: docs/filters.md lacks <!-- generated: exact_duplicates -->",
        "exact_duplicates: docs/filters.md lacks <!-- end of exact_duplicates -->",
        "exact_duplicates: docs/filters.md lacks ### Known misses of exact_duplicates",
    ]


# What a user reads of it ----------------------------------------------------------------------------------

UNITS = re.compile(
    r"\b(0 to 1|words?|letters|code points|number of|list of codes|true or false|integer|times)\b"
)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_text_of_a_stage_is_there(name: str) -> None:
    cls = stage_class(name)
    assert cls.name == name
    assert cls.__doc__
    assert cls.__doc__.split("\n")[0].endswith(".")
    for key in dataclasses.fields(cls):
        assert UNITS.search(key.metadata["doc"]), (
            f"{name}.{key.name}: the unit is missing: {key.metadata['doc']}"
        )
        assert key.metadata["source"], f"{name}.{key.name}: where does the default come from?"
        assert key.metadata["phase"] in ("annotate", "decide")
    assert all(cls.scores.values())
    assert all(rule.plain for rule in cls.rules)
    assert {rule.score for rule in cls.rules} <= set(cls.scores)
    assert all(
        hasattr(cls(), rule.threshold.removeprefix(f"{name}."))
        for rule in cls.rules
        if name != "balance_languages"
    )


def test_pages_name_only_what_is_generated() -> None:
    with pytest.raises(ValueError, match="gopher_qualitty"):
        filled("<!-- generated: gopher_qualitty -->\n<!-- end of gopher_qualitty -->\n")


# Case tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "case"), [pytest.param(n, c, id=f"{n}-{c['label']}") for n in TABLES for c in load_cases(n)]
)
def test_case(name: str, case: Case) -> None:
    judge_case(stage_class(name), case)


def table(name: str) -> list[Any]:
    cases = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    return [pytest.param(case, id=case["label"]) for case in cases]


@pytest.mark.parametrize("case", table("exact_duplicates"))
def test_exact_duplicates_case(case: dict[str, Any]) -> None:
    stage = ExactDuplicates()
    hashes = stage.measure(Chunk.of([Document(text) for text in case["texts"]])).columns["exact_hash"]
    place = np.arange(len(hashes), dtype=np.uint64)
    entries = exact_entries(hashes, np.zeros(len(hashes), dtype=np.uint32), place, place)
    keepers: list[int | None] = [None] * len(hashes)
    for removed, keeper in zip(*group_exact(**entries), strict=True):
        keepers[int(removed)] = int(keeper)
    assert keepers == case["keepers"]
    verdicts = [stage.decide({} if keeper is None else {stage.name: 1.0}) for keeper in keepers]
    assert [verdict.reason for verdict in verdicts] == case["reasons"]


@pytest.mark.parametrize("case", table("balance_languages"))
def test_balance_languages_case(case: dict[str, Any]) -> None:
    stage = BalanceLanguages(**case["settings"])
    documents = case["documents"]
    histograms: dict[str, Any] = {}
    for group, characters, drawn in documents:
        histograms.setdefault(group, np.zeros(BINS, dtype=np.int64))[int(drawn * BINS)] += characters
    crossings = {} if stage.alpha == 1.0 else languages_to_cut(stage, histograms)
    cuts = cuts_of(crossings, {g: crossing_bin(documents, g, c) for g, c in crossings.items()})
    written, reasons = [], []
    for group, _, drawn in documents:
        copies = int(cuts[group].epochs(np.array([drawn]))[0]) if group in cuts else 1
        written.append(copies)
        reasons.append(None if copies else stage.reasons[0])
    assert (written, reasons) == (case["written"], case["reasons"])


def crossing_bin(documents: list[Any], group: str, crossing: Crossing) -> dict[str, list[Any]]:
    """The documents of the bin in which a language's budget is met, in hash order."""
    mine = sorted((d, n) for g, n, d in documents if g == group and int(d * BINS) == crossing.bin)
    return {"hashes": [d for d, _ in mine], "characters": [n for _, n in mine]}


# Any text -------------------------------------------------------------------------------------------------

texts = st.one_of(
    st.text(st.characters(codec=None), max_size=60),
    st.builds(lambda t, n: t * n, st.text("aé! 好か\n\r\t.#\u0301\ud800\0", max_size=8), st.integers(1, 60)),
)


@pytest.mark.parametrize("name", ROW_STAGES)
@settings(max_examples=40)
@given(st.lists(st.tuples(texts, st.sampled_from(["en", "zh-Hans", "ja", "th", "und", "xx"])), max_size=6))
def test_any_texts_are_judged_each_by_itself(name: str, pairs: list[tuple[str, str]]) -> None:
    stage = stage_class(name)()
    documents = [Document(text, language=language) for text, language in pairs]
    together = stage.measure(Chunk.of(documents)).scores
    assert set(together) == set(stage.scores)
    for i, document in enumerate(documents):
        verdict = stage.judge(document)
        assert set(verdict.reasons) <= set(stage.reasons)
        assert all(math.isfinite(score) for score in verdict.scores.values())
        alone = stage.measure(Chunk.of([document])).scores
        for score, column in together.items():
            assert column[i].tobytes() == alone[score][0].tobytes(), (score, document)
