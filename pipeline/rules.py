"""Rules over the rows of a unit, by column: which rows fail what, by which thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """What the row stages say of a table of annotations.

    `failures` holds (stage, reason, rows that fail) in decide's order; `thresholds` a column per bound,
    NaN where a row is not judged by it; `passed` the measured rows that fail nothing.
    """

    failures: tuple[tuple[str, str, Bools], ...]
    thresholds: dict[str, Floats]
    passed: Bools


def score_column(table: pa.Table, name: str) -> Floats:
    """A score of every row; NaN where it was not measured."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    values: Floats = table.column(name).to_numpy()
    return values


def threshold_columns(stage: Any, languages: Sequence[str | None], applies: Bools) -> dict[str, Floats]:
    """The stage's bounds for each row by its language; NaN where the stage does not judge the row."""
    found: dict[str, Floats] = {}
    names, codes = np.unique(np.array([x or "" for x in languages], dtype=object), return_inverse=True)
    for code, language in enumerate(names):
        rows = applies & (codes == code)
        if not rows.any():
            continue
        for name, value in stage.thresholds(language).items():
            found.setdefault(name, np.full(len(codes), np.nan))[rows] = value
    return found


def judge_rows(stages: Sequence[Any], table: pa.Table) -> Judged:
    """Apply the row stages to a table of annotations (needs kind, language, bad_stage and the scores)."""
    kinds = table.column("kind").to_pylist()
    languages = table.column("language").to_pylist()
    measured = np.array([b is None for b in table.column("bad_stage").to_pylist()], dtype=bool)
    passed = measured.copy()
    failures: list[tuple[str, str, Bools]] = []
    thresholds: dict[str, Floats] = {}
    for stage in stages:
        applies = measured & np.array([k in stage.kinds for k in kinds], dtype=bool)
        bounds = threshold_columns(stage, languages, applies)
        thresholds.update(bounds)
        by_reason: dict[str, Bools] = {}
        for rule in stage.rules:
            if rule.threshold not in bounds:
                continue
            failing = rule.failing(score_column(table, rule.score), bounds[rule.threshold]) & applies
            by_reason[rule.reason] = by_reason.get(rule.reason, np.zeros_like(failing)) | failing
        for reason, failing in by_reason.items():
            failures.append((stage.name, reason, failing))
            passed &= ~failing
    return Judged(tuple(failures), thresholds, passed)


def score_names(stages: Sequence[Any]) -> list[str]:
    """Every score that the rules of these stages read."""
    return list(dict.fromkeys(rule.score for stage in stages for rule in stage.rules))
