"""A checked recipe as TOML again, with every setting as it is in force."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pipeline.catalogue import CATALOGUE
from pipeline.recipe import OFF, SECTIONS, Recipe


def recipe_toml(recipe: Recipe) -> str:
    """TOML from which `load_recipe` makes a recipe with the same digests (`--only` is no part of a recipe).

    >>> print(recipe_toml(Recipe("mine", "mine.toml", (), {})).splitlines()[0])
    name = "mine"
    """
    lines = [f"name = {_value(recipe.name)}", f"stages = {_value([s.name for s in recipe.stages])}"]
    for section in SECTIONS:
        lines += ["", f"[{section}]", *_settings(getattr(recipe, section))]
    for stage in recipe.stages:
        lines += ["", f"[{_key(stage.name)}]"]
        use = recipe.uses[stage.name]
        if use != CATALOGUE.get(stage.name):
            lines.append(f"use = {_value(use)}")
        lines += _settings(stage)
    return "\n".join(lines) + "\n"


def _settings(options: Any) -> list[str]:
    return [f"{_key(f.name)} = {_value(getattr(options, f.name))}" for f in dataclasses.fields(options)]


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else _value(name)


def _value(value: Any) -> str:
    if value is None:
        value = OFF
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(v) for v in value)}]"
    if isinstance(value, str):
        # A TOML basic string escapes as JSON does, and DEL as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
