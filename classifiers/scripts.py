"""Which script each character belongs to, and what a Han character says about who writes it."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt
import opencc

BLANK, KEPT, OTHER_LETTER, FORM = 0, 1, 2, 3
"""Classes of characters that carry no language (spaces, digits, signs, controls); that belong to whatever
surrounds them (marks, apostrophes, joiners); letters of scripts that no known language uses; and letters in
compatibility forms (full or half width, ligatures, Arabic presentation forms), which NFKC undoes."""

_NAMED = {
    "LATIN": "Latn",
    "CYRILLIC": "Cyrl",
    "ARABIC": "Arab",
    "DEVANAGARI": "Deva",
    "GREEK": "Grek",
    "HEBREW": "Hebr",
    "ARMENIAN": "Armn",
    "GEORGIAN": "Geor",
    "BENGALI": "Beng",
    "GURMUKHI": "Guru",
    "GUJARATI": "Gujr",
    "ORIYA": "Orya",
    "TAMIL": "Taml",
    "TELUGU": "Telu",
    "KANNADA": "Knda",
    "MALAYALAM": "Mlym",
    "SINHALA": "Sinh",
    "THAI": "Thai",
    "LAO": "Laoo",
    "TIBETAN": "Tibt",
    "MYANMAR": "Mymr",
    "ETHIOPIC": "Ethi",
    "KHMER": "Khmr",
    "THAANA": "Thaa",
    "HANGUL": "Hang",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "KATAKANA-HIRAGANA": "Kana",
    "CJK": "Hani",
    "IDEOGRAPHIC": "Hani",
}
"""First word of a letter's Unicode name -> its script (ISO 15924; both kana count as Kana)."""

HAN_SIGNS = ("Hani-Hans", "Hani-Hans-zh", "Hani-Hant", "Hani-Hant-zh", "Hani-ja")
"""Classes of Han characters written in one way only: simplified or traditional Chinese (shared with
Japanese, or `zh`: not used in Japanese), or Japanese only. All others are plain `Hani`."""

CLASSES = ("blank", "kept", "other", "form", *dict.fromkeys(_NAMED.values()), *HAN_SIGNS)
"""Names of the classes, in the order of their numbers."""

SCRIPTS = tuple(c for c in CLASSES[4:] if c not in ("Hang", "Kana", "Hani", *HAN_SIGNS))
"""Scripts that are told apart by letters alone; Han, kana and Hangul make up one group, `CJK`."""


def number(name: str) -> int:
    """The number of a class."""
    return CLASSES.index(name)


_HAN_BLOCKS = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0x20000, 0x323B0))
_HANGUL_SYLLABLES = (0xAC00, 0xD7A4)


@cache
def character_classes() -> npt.NDArray[np.uint8]:
    """The class of every code point (shape 0x110000), made once per process (about 0.4 seconds)."""
    table = np.zeros(0x110000, dtype=np.uint8)
    scripts = {word: number(script) for word, script in _NAMED.items()}
    for point in (*range(0x3400), *range(0xA000, 0xAC00), *range(0xD7A4, 0x20000)):
        character = chr(point)
        category = unicodedata.category(character)
        if category in ("Mn", "Mc"):
            table[point] = KEPT
        elif category[0] == "L":
            word = unicodedata.name(character, "").split(" ", 1)[0]
            if word == "MODIFIER":
                table[point] = KEPT
            elif point >= 0xFB00 and unicodedata.decomposition(character).startswith("<"):
                table[point] = BLANK if word == "MATHEMATICAL" else FORM
            elif word not in ("FEMININE", "MASCULINE", "MICRO"):
                table[point] = scripts.get(word, OTHER_LETTER)
    for character in "'\N{RIGHT SINGLE QUOTATION MARK}\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}":
        table[ord(character)] = KEPT
    table[0xFE00:0xFE10] = BLANK  # variation selectors: they follow signs and emoji, not letters
    table[slice(*_HANGUL_SYLLABLES)] = number("Hang")
    for block in _HAN_BLOCKS:
        table[slice(*block)] = number("Hani")
    for name, characters in _han_signs().items():
        table[[ord(c) for c in characters]] = number(name)
    table.flags.writeable = False
    return table


def _han_signs() -> dict[str, set[str]]:
    """Han characters that only one way of writing uses.

    OpenCC's tables say what simplifying or modernising changes, the national character sets what is in
    use all the same: s2t changes U+540E to U+5F8C, but Big5 has both, so it tells nothing.
    """
    han = [chr(point) for block in _HAN_BLOCKS[:2] for point in range(*block)]

    def changed(config: str) -> set[str]:
        """Characters that the conversion changes; one a line, so that no phrase applies."""
        converted = opencc.OpenCC(config).convert("\n".join(han)).split("\n")
        return {old for old, new in zip(han, converted, strict=True) if old != new}

    def within(charset: str) -> set[str]:
        return {c for c in han if c.encode(charset, "ignore")}

    from_simplified, from_traditional = changed("s2t"), changed("t2s")
    big5, gb2312, jis = within("big5"), within("gb2312"), within("shift_jis")
    hans = from_simplified - from_traditional - big5
    hant = from_traditional - from_simplified - gb2312
    japanese = (changed("jp2t") & jis) - big5 - gb2312
    shared = jis - changed("t2jp")
    return {
        "Hani-Hans": hans & jis - japanese,
        "Hani-Hans-zh": hans - jis,
        "Hani-Hant": hant & shared - japanese,
        "Hani-Hant-zh": hant - shared,
        "Hani-ja": japanese,
    }
