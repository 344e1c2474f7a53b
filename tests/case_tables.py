"""Case tables: tests/cases/<stage>.json holds documents with the verdict that a rule set must reach.

A case is an object with `label`, `text` (or `text_repeat`: [text, times] pairs, joined), `language`,
`verdict` ("keep" or "reject"), `reason` (the first one, null when kept), `source` (the fault elsewhere that
it comes from, or "synthetic") and, where of use, `kind`, `scores` (by short name, worked out by hand),
`settings` (thresholds that differ from the defaults) and `comment`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from filters.base import RuleSet
from schemas.records import Document, Verdict

Case = dict[str, Any]
FIELDS = {"label", "text", "text_repeat", "language", "kind", "settings", "verdict", "reason", "scores"} | {
    "source",
    "comment",
}


def load_cases(stage: str) -> list[Case]:
    """The case table of a stage; refuses unknown fields and labels used twice."""
    path = Path(__file__).parent / "cases" / f"{stage}.json"
    cases: list[Case] = json.loads(path.read_text("utf-8"))
    labels = [case["label"] for case in cases]
    assert len(set(labels)) == len(labels), f"{path.name}: a label is used twice"
    for case in cases:
        assert set(case) <= FIELDS, f"{path.name}: {case['label']}: unknown fields {set(case) - FIELDS}"
        assert ("text" in case) != ("text_repeat" in case), (
            f"{path.name}: {case['label']}: one text is needed"
        )
    return cases


def case_parameters(stage: str) -> list[Any]:
    """The cases of a stage for `pytest.mark.parametrize`."""
    return [pytest.param(case, id=case["label"]) for case in load_cases(stage)]


def document_of(case: Case) -> Document:
    """The document of a case."""
    text = case["text"] if "text" in case else "".join(part * times for part, times in case["text_repeat"])
    return Document(text, language=case["language"], kind=case.get("kind", "prose"))


def judge_case(stage: type[RuleSet], case: Case) -> Verdict:
    """Judge the document of a case, and fail unless verdict, first reason and scores are as it says."""
    verdict = stage(**case.get("settings", {})).judge(document_of(case))
    assert verdict.reason == case["reason"], (verdict.reasons, dict(verdict.scores))
    assert verdict.keep == (case["verdict"] == "keep")
    expected = {f"{stage.name}.{name}": score for name, score in case.get("scores", {}).items()}
    assert {name: verdict.scores.get(name) for name in expected} == pytest.approx(expected, rel=1e-12)
    return verdict


def untested_reasons(stage: RuleSet, cases: Sequence[Case]) -> set[str]:
    """The reasons of a stage that are no case's first reason."""
    return set(stage.reasons) - {case["reason"] for case in cases}


def untested_thresholds(stage: RuleSet, cases: Sequence[Case]) -> set[str]:
    """The thresholds for which no kept case has a score that is equal to them."""
    met: set[str] = set()
    for case in cases:
        if case["verdict"] == "keep":
            limits = stage.thresholds(case["language"])
            scores = {f"{stage.name}.{name}": score for name, score in case.get("scores", {}).items()}
            met |= {r.threshold for r in stage.rules if scores.get(r.score) == limits.get(r.threshold)}
    return {rule.threshold for rule in stage.rules} - met
