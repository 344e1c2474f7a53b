"""Every built-in stage, one line each, in the order in which decide asks them."""

from __future__ import annotations

import importlib
from typing import Any

CATALOGUE: dict[str, str] = {
    "identify_language": "classifiers.language:IdentifyLanguage",
    "gopher_quality": "filters.gopher_quality:GopherQuality",
    "gopher_repetition": "filters.gopher_repetition:GopherRepetition",
    "exact_duplicates": "filters.exact_duplicates:ExactDuplicates",
    "near_duplicates": "filters.near_duplicates:NearDuplicates",
    "balance_languages": "filters.balance_languages:BalanceLanguages",
}
"""Stage name -> `module:Class`."""

SET_STAGES = ("exact_duplicates", "near_duplicates", "balance_languages")
"""Stages whose decision needs other documents; they run after every rule, in this order."""


def load_class(use: str) -> Any:
    """The class that `module:Class` names; ImportError or AttributeError when there is none."""
    module, _, name = use.partition(":")
    if not module or not name:
        raise ImportError(f"{use!r} is not of the form module:Class")
    return getattr(importlib.import_module(module), name)


def stage_class(name: str) -> Any:
    """The class of a built-in stage."""
    return load_class(CATALOGUE[name])
