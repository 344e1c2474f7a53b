"""Deciding again from stored scores: which recipe keys may change, and what changes sides."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipeline.decisions import audit_work_name
from pipeline.plan import Plan
from pipeline.recipe import SECTIONS, Recipe, RecipeError, checked_section, nearest, setting_parts
from pipeline.store import Store, read_parquet


def changed(recipe: Recipe, settings: Sequence[str], only: str | None) -> Recipe:
    """The recipe with decide keys replaced; RecipeError for an unknown key or one that acts in annotate."""
    stages = {s.name: s for s in recipe.stages}
    parts: dict[str, Any] = {"input": recipe.input, "run": recipe.run}
    for setting in settings:
        section, name, value = setting_parts(setting)
        known = [*stages, *SECTIONS]
        if section not in known:
            raise RecipeError(f"--set {setting}: no stage {section!r} in this run{nearest(section, known)}")
        owner = stages[section] if section in stages else parts[section]
        names = [f.name for f in dataclasses.fields(owner)]
        if name not in names:
            raise RecipeError(f"--set {setting}: unknown key{nearest(name, names)}")
        if recipe.phase_of(f"{section}.{name}") == "annotate":
            raise RecipeError(
                f"--set {setting}: {section}.{name} acts while measuring; run the recipe again with it"
            )
        current = {f.name: getattr(owner, f.name) for f in dataclasses.fields(owner)}
        current[name] = value
        fresh = checked_section("--set", section, type(owner), current)
        if section in stages:
            stages[section] = fresh
        else:
            parts[section] = fresh
    asked, annotated = recipe.only, recipe.annotated
    if only is not None:
        asked = tuple(n for n in (p.strip() for p in only.split(",")) if n)
        annotated = tuple(s.name for s in recipe.measured)
        for name in asked:
            if name not in annotated:
                raise RecipeError(f"--only {name}: no stage that this run measured{nearest(name, annotated)}")
    ordered = tuple(stages[s.name] for s in recipe.stages)
    return dataclasses.replace(recipe, stages=ordered, run=parts["run"], only=asked, annotated=annotated)


def print_changes(store: Store, plan: Plan, before: str, after: str) -> None:
    """Print how many documents change sides between two decisions, by stage and reason."""
    moves: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    total = 0
    for unit in plan.units:
        names = ["doc_id", "decision", "stage", "reason"]
        old, new = (read_parquet(store, audit_work_name(k, unit.unit_id), names) for k in (before, after))
        for a, b in zip(old.to_pylist(), new.to_pylist(), strict=True):
            total += 1
            sides = (_side(a), _side(b))
            if sides[0] != sides[1]:
                moves[sides] += 1
                examples.setdefault(sides, a["doc_id"])
    print(f"{sum(moves.values())} of {total} records would change")
    for (old_side, new_side), n in sorted(moves.items(), key=lambda kv: (-kv[1], kv[0])):
        print(f"{n:>8}  {old_side} -> {new_side}   (as {examples[old_side, new_side]})")


def _side(row: dict[str, str | None]) -> str:
    return (
        str(row["decision"])
        if row["stage"] is None
        else f"{row['decision']} by {row['stage']}.{row['reason']}"
    )
