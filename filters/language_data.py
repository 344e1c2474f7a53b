"""What differs by language: function words and thresholds, from data/languages.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any


@lru_cache(maxsize=1)
def _languages() -> Mapping[str, Mapping[str, Any]]:
    """Every language tag with its table; a table may name several tags."""
    text = resources.files("filters").joinpath("data/languages.toml").read_text(encoding="utf-8")
    return {tag: table for table in tomllib.loads(text).values() for tag in table["tags"]}


@lru_cache
def language_thresholds(stage: str) -> Mapping[str, Mapping[str, float | None]]:
    """The thresholds of a stage that differ from its defaults: language tag -> field -> value."""
    return {tag: table[stage] for tag, table in _languages().items() if stage in table}


@lru_cache(maxsize=1)
def function_words() -> Mapping[str, tuple[str, ...]]:
    """Frequent function words by language tag; languages that have no list are left out.

    >>> function_words()["en"]
    ('the', 'be', 'to', 'of', 'and', 'that', 'have', 'with')
    """
    return {tag: tuple(table["words"]) for tag, table in _languages().items() if table.get("words")}
