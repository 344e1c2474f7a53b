"""The languages that can be told apart, and the many codes that people write for them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from schemas.records import UNDETERMINED

TRADITIONAL_REGIONS = frozenset({"HK", "MO", "TW"})
"""Regions where Chinese with no script subtag is in traditional characters (CLDR, likely subtags)."""


@dataclass(frozen=True, slots=True)
class Language:
    """One row of `data/language_codes.toml`."""

    code: str
    name: str
    scripts: tuple[str, ...]
    labels: tuple[str, ...]
    also: tuple[str, ...]

    @property
    def several(self) -> bool:
        """Whether the language has several scripts; Kore and Hang name the same one."""
        return len(self.scripts) > 1 and self.code != "ko"


@cache
def languages() -> Mapping[str, Language]:
    """Every language of the table by its BCP 47 code."""
    rows = tomllib.loads(files("classifiers").joinpath("data/language_codes.toml").read_text("utf-8"))
    return {
        code: Language(
            code,
            row["name"],
            tuple(row["scripts"]),
            tuple(row.get("labels", [code])),
            tuple(row.get("also", [])),
        )
        for code, row in rows.items()
    }


@cache
def written_languages() -> tuple[str, ...]:
    """Every value that the `language` column can take: the codes, Chinese once for each script, and `und`."""
    plain = [code for code in languages() if code != "zh"]
    return (*sorted([*plain, "zh-Hans", "zh-Hant"]), UNDETERMINED)


@cache
def _codes() -> Mapping[str, str]:
    """Every code for a language, its own code winning over another language's alias."""
    aliases = {alias: row.code for row in languages().values() for alias in row.also}
    return aliases | {code: code for code in languages()}


def canonical_language(code: str) -> str:
    """The BCP 47 code that this project uses for a language given in any usual form.

    Takes ISO 639-1, 639-2 and 639-3 codes with or without a script (`eng_Latn`) and a region (`en-US`).
    The region only matters for the script of Chinese; `zh` alone stands for both scripts. ValueError for
    a code that is unknown, with the nearest known one, or that names something that is not told apart.

    >>> [canonical_language(c) for c in ("eng", "en-US", "eng_Latn", "zh-TW", "cmn_Hans", "zho", "und")]
    ['en', 'en', 'en', 'zh-Hant', 'zh-Hans', 'zh', 'und']
    """
    match = re.fullmatch(r"([a-z]{2,3})([-_][a-z]{4})?([-_](?:[a-z]{2}|[0-9]{3}))?", code.lower())
    if match is None or match[1] not in _codes():
        if match is not None and match[1] == UNDETERMINED and not match[2] and not match[3]:
            return UNDETERMINED
        merged = next((row for row in languages().values() if match and match[1] in row.labels), None)
        if merged is not None:
            raise ValueError(f"{code!r} is not told apart from {merged.name}: use {merged.code!r}")
        raise ValueError(f"unknown language code {code!r}: the nearest is {_nearest(code)!r}")
    language = languages()[_codes()[match[1]]]
    script = (match[2] or "")[1:].title()
    region = (match[3] or "")[1:].upper()
    if language.code == "zh":
        if not script and region:
            script = "Hant" if region in TRADITIONAL_REGIONS else "Hans"
        if script in ("", "Hani"):
            return "zh"
        if script in language.scripts:
            return f"zh-{script}"
    elif not script or (script in language.scripts and not language.several):
        return language.code
    if script in language.scripts:
        raise ValueError(f"{code!r}: scripts of {language.name} are not told apart: use {language.code!r}")
    raise ValueError(f"{code!r}: {language.name} is known in {' and '.join(language.scripts)} only")


def _nearest(code: str) -> str:
    """The known code that is nearest to this one, by its spelling or by the language's name."""
    names = {row.name.lower(): row.code for row in languages().values()}
    known = {**names, **_codes(), "zh-hans": "zh-Hans", "zh-hant": "zh-Hant"}
    return known[get_close_matches(code.lower(), known, n=1, cutoff=0.0)[0]]
