"""Rules by column say what each stage says of each row by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_stages import Digits

from filters.base import Rule, RuleSet
from pipeline.catalogue import CATALOGUE, SET_STAGES, stage_class
from pipeline.decisions import score_map
from pipeline.rules import judge_rows, score_column, score_names
from schemas.records import KINDS

STAGES: list[Any] = [
    *(stage_class(n)() for n in CATALOGUE if n not in SET_STAGES),
    stage_class("identify_language")(languages=["zh", "de"]),
    stage_class("gopher_quality")(min_words=3, max_hash_sign_ratio=None),
    Digits(),
    Digits(max_fraction=None, min_count=2),
]
LANGUAGES = ["en", "de", "ja", "zh-Hans", "zh-Hant", "th", "und"]


def bounds_of(stage: Any) -> list[float]:
    """Every threshold that the stage has in some language."""
    return sorted({v for x in LANGUAGES for v in stage.thresholds(x).values()})


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Any], pa.Table]:
    """Some stages, and rows whose scores lie at, around and far from their thresholds, or are missing."""
    stages = draw(st.lists(st.sampled_from(STAGES), max_size=3, unique_by=lambda s: s.name))
    n = draw(st.integers(0, 6))
    columns: dict[str, Any] = {
        "kind": pa.array(draw(st.lists(st.sampled_from(KINDS), min_size=n, max_size=n)), pa.string()),
        "language": pa.array(draw(st.lists(st.sampled_from(LANGUAGES), min_size=n, max_size=n)), pa.string()),
        "bad_stage": pa.array(
            draw(st.lists(st.sampled_from([None, None, None, "read"]), min_size=n, max_size=n)), pa.string()
        ),
    }
    # A quarantined record has neither kind nor language.
    for name in ("kind", "language"):
        columns[name] = pa.array(
            [
                v if bad is None else None
                for v, bad in zip(columns[name].to_pylist(), columns["bad_stage"].to_pylist(), strict=True)
            ],
            pa.string(),
        )
    for stage in stages:
        near = bounds_of(stage) or [0.0]
        values = st.one_of(
            st.none(),
            st.sampled_from(near),
            st.sampled_from([math.nextafter(v, d) for v in near for d in (-math.inf, math.inf)]),
            st.floats(-1, 2000),
        )
        for score in stage.scores:
            if draw(st.integers(0, 9)):  # a column may be missing
                columns[score] = pa.array(draw(st.lists(values, min_size=n, max_size=n)), pa.float64())
    return stages, pa.table(columns)


@given(tables())
def test_columns_are_judged_as_their_rows_are(case: tuple[list[Any], pa.Table]) -> None:
    stages, table = case
    judged = judge_rows(stages, table)
    listed = score_map(judged.thresholds, table.num_rows).to_pylist()
    for i, row in enumerate(table.to_pylist()):
        failed: list[tuple[str, str]] = []
        thresholds: dict[str, float] = {}
        if row["bad_stage"] is None:
            for stage in stages:
                if row["kind"] not in stage.kinds:
                    continue
                scores = {n: row[n] for n in stage.scores if row.get(n) is not None}
                verdict = stage.decide(scores, row["language"])
                failed += [(stage.name, reason) for reason in verdict.reasons]
                thresholds |= verdict.thresholds
        assert [(s, r) for s, r, rows in judged.failures if rows[i]] == failed
        assert dict(listed[i]) == thresholds
        assert bool(judged.passed[i]) is (row["bad_stage"] is None and not failed)


@pytest.mark.parametrize(
    ("fails", "score", "refused"),
    [
        ("below", 1.0, False),
        ("below", math.nextafter(1.0, 0), True),
        ("above", 1.0, False),
        ("above", math.nextafter(1.0, 2), True),
        ("reaches", 1.0, True),
        ("reaches", math.nextafter(1.0, 0), False),
        ("below", math.nan, False),
        ("above", math.nan, False),
        ("reaches", math.nan, False),
    ],
)
def test_bounds_are_inclusive_and_what_is_not_measured_fails_nothing(
    fails: Any, score: float, refused: bool
) -> None:
    rule = Rule("r", "s", "s.t", fails)
    assert rule.failing(np.array([score]), np.array([1.0])).tolist() == [refused]
    assert rule.failing(np.array([score]), np.array([math.nan])).tolist() == [False]


def table_of(**columns: list[Any]) -> pa.Table:
    n = len(next(iter(columns.values())))
    return pa.table(
        {"kind": ["prose"] * n, "language": ["en"] * n, "bad_stage": pa.nulls(n, pa.string()), **columns}
    )


def test_a_reason_with_two_rules_is_given_once_and_in_the_order_of_the_rules() -> None:
    class Twice(RuleSet):
        name = "twice"
        rules = (
            Rule("short", "twice.words", "twice.min_words", "below"),
            Rule("odd", "twice.signs", "twice.max_signs", "above"),
            Rule("short", "twice.letters", "twice.min_letters", "below"),
        )
        scores: ClassVar[Mapping[str, str]] = {"twice.words": "", "twice.signs": "", "twice.letters": ""}
        min_words, max_signs, min_letters = 2, 0.5, 9

        def thresholds(self, language: str) -> dict[str, float]:
            del language
            return {"twice.min_words": 2.0, "twice.max_signs": 0.5, "twice.min_letters": 9.0}

    table = table_of(
        **{"twice.words": [1.0, 2.0, 2.0], "twice.signs": [0.0, 1.0, 0.5], "twice.letters": [1.0, 1.0, 9.0]}
    )
    judged = judge_rows([Twice()], table)
    assert [(s, r, rows.tolist()) for s, r, rows in judged.failures] == [
        ("twice", "short", [True, True, False]),
        ("twice", "odd", [False, True, False]),
    ]
    assert judged.passed.tolist() == [False, False, True]
    assert Twice().decide({"twice.words": 1.0, "twice.signs": 1.0, "twice.letters": 1.0}).reasons == (
        "short",
        "odd",
    )
    assert Twice().reasons == ("short", "odd")


def test_a_bound_of_one_language_stands_in_its_rows_alone() -> None:
    table = pa.table(
        {
            "kind": ["prose", "prose", "prose", "code", "prose"],
            "language": ["en", "ja", "de", "en", "fr"],
            "bad_stage": [None, None, None, None, None],
            "digits": [0.6, 0.6, 0.9, 0.9, None],
            "digits.count": [1.0] * 5,
        }
    )
    judged = judge_rows([Digits()], table)
    np.testing.assert_array_equal(judged.thresholds["digits.max_fraction"], [0.5, 0.75, np.nan, np.nan, 0.5])
    assert judged.failures[0][2].tolist() == [True, False, False, False, False]
    assert judged.passed.tolist() == [False, True, True, True, True]
    # A value that the recipe sets wins over that of the language; one that it switches off is off for all.
    assert judge_rows([Digits(max_fraction=0.3)], table).passed.tolist() == [False, False, False, True, True]
    assert judge_rows([Digits(max_fraction=None)], table).passed.tolist() == [True] * 5


def test_no_stages_refuse_nothing_and_quarantined_rows_pass_nothing() -> None:
    table = table_of(digits=[9.0, 9.0]).set_column(2, "bad_stage", pa.array([None, "read"]))
    judged = judge_rows([], table)
    assert (judged.failures, judged.thresholds) == ((), {})
    assert judged.passed.tolist() == [True, False]
    assert judge_rows([Digits()], table).failures[0][2].tolist() == [True, False]


def test_score_columns_hold_nan_for_what_is_missing() -> None:
    table = pa.table({"a": pa.chunked_array([[1.0, None], [], [2.0]])})
    np.testing.assert_array_equal(score_column(table, "a"), [1.0, np.nan, 2.0])
    np.testing.assert_array_equal(score_column(table, "b"), [np.nan] * 3)


def test_score_names_are_those_that_rules_read() -> None:
    assert score_names([Digits(), Digits()]) == ["digits", "digits.count"]
    assert score_names([]) == []


def test_score_maps_leave_out_nan_and_stand_in_the_order_of_names() -> None:
    columns = {"b": np.array([1.0, np.nan]), "a": np.array([2.0, np.nan]), "c": np.array([np.inf, 0.0])}
    assert score_map(columns, 2).to_pylist() == [[("a", 2.0), ("b", 1.0), ("c", math.inf)], [("c", 0.0)]]
    assert score_map({}, 2).to_pylist() == [[], []]
    assert score_map({"a": np.zeros(0)}, 0).to_pylist() == []
