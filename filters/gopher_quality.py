"""Length, symbols, line shapes and function words: the first half of Gopher's Table A1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numba import njit

from filters.base import Direction, Rule, RuleSet, knob
from filters.language_data import function_words, language_thresholds
from filters.text_view import Hashes, Positions, blocks_with_word, text_view, view_of
from schemas.chunk import Chunk, Measured

_PAPER = "Rae et al. 2021, Table A1"
_NAME = "gopher_quality"

_FULL_STOP, _IDEOGRAPHIC_FULL_STOP = 0x2E, 0x3002
_STOPS = (_FULL_STOP, _IDEOGRAPHIC_FULL_STOP)
_ELLIPSES = (0x2026, 0x22EF)
"""HORIZONTAL ELLIPSIS, and the MIDLINE one that traditional Chinese uses."""
_HASH_SIGNS = (0x23, 0xFF03)
_BULLETS = tuple(ord(c) for c in "•-*‣●○■□▪・※·–—+")
_MAX_FUNCTION_WORDS = 64


@njit(cache=True, nogil=True)
def _symbols(code_points, start, end):  # type: ignore[no-untyped-def]
    """The hash signs and the ellipses of a document; a run of stops counts as one ellipsis.

    A run is of full stops and ellipsis characters, and is an ellipsis if it holds such a character or
    three stops in a row; three ideographic full stops (as in "。。。") are one too.
    """
    hash_signs = ellipses = 0
    position = start
    while position < end:
        code = code_points[position]
        if code in _HASH_SIGNS:
            hash_signs += 1
        elif code in _STOPS or code in _ELLIPSES:
            stops = ideographic = 0
            found = False
            while position < end:
                code = code_points[position]
                stops = stops + 1 if code == _FULL_STOP else 0
                ideographic = ideographic + 1 if code == _IDEOGRAPHIC_FULL_STOP else 0
                if not stops and not ideographic and code not in _ELLIPSES:
                    break
                if (not stops and not ideographic) or stops == 3 or ideographic == 3:
                    found = True
                position += 1
            ellipses += found
            continue
        position += 1
    return hash_signs, ellipses


@njit(cache=True, nogil=True)
def _ends_with_ellipsis(code_points, start, end):  # type: ignore[no-untyped-def]
    last = code_points[end - 1]
    if last in _ELLIPSES:
        return True
    if last not in _STOPS:
        return False
    return end - start >= 3 and code_points[end - 2] == last and code_points[end - 3] == last


@njit(cache=True, nogil=True)
def _begins_with_bullet(code_points, start, end):  # type: ignore[no-untyped-def]
    """Whether the line begins with a single bullet.

    A repeated sign ("--", "**bold**") is no bullet, nor is a sign right before a digit ("-5 °C").
    """
    bullet = code_points[start]
    if bullet not in _BULLETS or end - start < 2:
        return False
    after = code_points[start + 1]
    return after != bullet and not 0x30 <= after <= 0x39


@njit(cache=True, nogil=True)
def _measure(  # type: ignore[no-untyped-def]
    code_points,
    document_offsets,
    word_starts,
    word_ends,
    word_hashes,
    word_has_letter,
    word_offsets,
    line_starts,
    line_ends,
    line_offsets,
    line_has_word,
    symbol_tokens,
    function_hashes,
    function_offsets,
    scores,
):
    seen = np.zeros(_MAX_FUNCTION_WORDS, np.bool_)
    for document in range(len(document_offsets) - 1):
        first, last = word_offsets[document], word_offsets[document + 1]
        words = last - first
        scores[0, document] = words
        for row in range(1, 8):
            scores[row, document] = np.nan
        lines = bullets = ellipsis_lines = 0
        for line in range(line_offsets[document], line_offsets[document + 1]):
            start, end = line_starts[line], line_ends[line]
            if start == end:
                continue
            lines += 1
            bullets += line_has_word[line] and _begins_with_bullet(code_points, start, end)
            ellipsis_lines += _ends_with_ellipsis(code_points, start, end)
        if lines:
            scores[4, document] = bullets / lines
            scores[5, document] = ellipsis_lines / lines
        if not words:
            continue
        characters = with_letter = 0
        for word in range(first, last):
            characters += word_ends[word] - word_starts[word]
            with_letter += word_has_letter[word]
        hash_signs, ellipses = _symbols(
            code_points, document_offsets[document], document_offsets[document + 1]
        )
        scores[1, document] = characters / words
        scores[2, document] = hash_signs / words
        scores[3, document] = ellipses / words
        scores[6, document] = with_letter / (words + symbol_tokens[document])
        known = function_hashes[function_offsets[document, 0] : function_offsets[document, 1]]
        if len(known):
            seen[: len(known)] = False
            distinct = 0
            for word in range(first, last):
                for i in range(len(known)):
                    if word_hashes[word] == known[i] and not seen[i]:
                        seen[i] = True
                        distinct += 1
                if distinct == len(known):
                    break
            scores[7, document] = distinct


@lru_cache(maxsize=1)
def _function_hashes() -> tuple[Hashes, Mapping[str, tuple[int, int]]]:
    """The folded hashes of all languages' function words, and where each language's lie."""
    hashes: list[int] = []
    spans: dict[str, tuple[int, int]] = {}
    for language, words in function_words().items():
        view = text_view(words, [language] * len(words))
        if len(view.word_hashes) != len(words) or len(words) > _MAX_FUNCTION_WORDS:
            raise ValueError(f"languages.toml: {language}: each entry must be one word, {words}")
        spans[language] = (len(hashes), len(hashes) + len(words))
        hashes += view.word_hashes.tolist()
    return np.array(hashes, np.uint64), spans


def _function_offsets(languages: list[str], spans: Mapping[str, tuple[int, int]]) -> Positions:
    return np.array([spans.get(x, (0, 0)) for x in languages], np.int64).reshape(len(languages), 2)


_RULES: tuple[tuple[str, str, str, Direction, str], ...] = (
    ("empty", "words", "min_any_words", "below", "it holds no word"),
    ("too_few_words", "words", "min_words", "below", "it has too few words"),
    ("too_many_words", "words", "max_words", "above", "it has too many words"),
    ("words_too_short", "mean_word_chars", "min_mean_word_chars", "below", "its words are too short"),
    ("words_too_long", "mean_word_chars", "max_mean_word_chars", "above", "its words are too long"),
    ("too_many_hash_signs", "hash_sign_ratio", "max_hash_sign_ratio", "above", "it is full of hash signs"),
    ("too_many_ellipses", "ellipsis_ratio", "max_ellipsis_ratio", "above", "it is full of ellipses"),
    (
        "too_many_bullet_lines",
        "bullet_line_fraction",
        "max_bullet_line_fraction",
        "above",
        "nearly all its lines are list items",
    ),
    (
        "too_many_ellipsis_lines",
        "ellipsis_line_fraction",
        "max_ellipsis_line_fraction",
        "above",
        "too many of its lines end with an ellipsis, as if cut off",
    ),
    (
        "too_few_alphabetic_words",
        "alphabetic_word_fraction",
        "min_alphabetic_word_fraction",
        "below",
        "too many of its words hold no letter",
    ),
    (
        "too_few_stop_words",
        "stop_words",
        "min_stop_words",
        "below",
        "it lacks the function words of running text",
    ),
)


@dataclass(frozen=True)
class GopherQuality(RuleSet):
    """Refuse documents that are too short or long, or made of symbols, list items or cut-off lines.

    Source: Rae et al. 2021 (https://arxiv.org/abs/2112.11446), Table A1 and the text before it. Symbol
    ratios are per word. Where the paper leaves it open or assumes English:

    - words are those of the text view (`filters.text_view`): no language needs spaces, and stand-alone
      symbols ("--", "=>") are no words, but count in the denominator of the alphabetic share;
    - stop words are counted as distinct words of a list, compared folded (case does not matter): the
      paper's eight for English, frequent function words for other languages; a language without a list
      (Chinese, Japanese and Korean among them) is not measured;
    - a language whose prose lies outside the bounds on word length or stop words has its own ones, in
      `filters/data/languages.toml`; a bound set in the recipe to another value than its default holds for
      every language;
    - blank lines are no lines; a bullet is one of •-*‣●○■□▪・※·–—+ with text after it; a run of full stops
      or ellipses is one ellipsis.

    A document without any word is `empty`; its ratios are not measured.
    """

    name: ClassVar[str] = _NAME
    scores: ClassVar[Mapping[str, str]] = {
        f"{_NAME}.words": "words in the text",
        f"{_NAME}.mean_word_chars": "mean length of a word in code points",
        f"{_NAME}.hash_sign_ratio": "hash signs per word",
        f"{_NAME}.ellipsis_ratio": "ellipses per word",
        f"{_NAME}.bullet_line_fraction": "share of non-blank lines that begin with a bullet, 0 to 1",
        f"{_NAME}.ellipsis_line_fraction": "share of non-blank lines that end with an ellipsis, 0 to 1",
        f"{_NAME}.alphabetic_word_fraction": "share of words with a letter among words and symbols, 0 to 1",
        f"{_NAME}.stop_words": "distinct words of the language's list of function words",
    }
    rules: ClassVar[tuple[Rule, ...]] = tuple(
        Rule(reason, f"{_NAME}.{score}", f"{_NAME}.{threshold}", fails, plain)
        for reason, score, threshold, fails, plain in _RULES
    )

    min_any_words: int | None = knob(
        1,
        doc="fewest words of a document that is not empty",
        source="ours: says so of a text without any word",
    )
    min_words: int | None = knob(50, doc="fewest words of a document", source=_PAPER)
    max_words: int | None = knob(100_000, doc="most words of a document", source=_PAPER)
    min_mean_word_chars: float | None = knob(
        3.0, doc="smallest mean length of a word, code points", source=_PAPER
    )
    max_mean_word_chars: float | None = knob(
        10.0, doc="largest mean length of a word, code points", source=_PAPER
    )
    max_hash_sign_ratio: float | None = knob(0.1, doc="most hash signs per word", source=_PAPER)
    max_ellipsis_ratio: float | None = knob(0.1, doc="most ellipses per word", source=_PAPER)
    max_bullet_line_fraction: float | None = knob(
        0.9, doc="largest share of lines that begin with a bullet, 0 to 1", source=_PAPER
    )
    max_ellipsis_line_fraction: float | None = knob(
        0.3, doc="largest share of lines that end with an ellipsis, 0 to 1", source=_PAPER
    )
    min_alphabetic_word_fraction: float | None = knob(
        0.8, doc="smallest share of words with a letter among words and symbols, 0 to 1", source=_PAPER
    )
    min_stop_words: int | None = knob(2, doc="fewest distinct function words", source=_PAPER)

    @property
    def per_language(self) -> Mapping[str, Mapping[str, float | None]]:
        """Thresholds of languages whose words are not like English ones, by language."""
        return language_thresholds(_NAME)

    def measure(self, chunk: Chunk) -> Measured:
        """Measure the eight scores of every document."""
        view = view_of(chunk)
        hashes, spans = _function_hashes()
        scores = np.empty((len(self.scores), len(chunk)), np.float64)
        _measure(
            view.code_points,
            view.document_offsets,
            view.word_starts,
            view.word_ends,
            view.word_hashes,
            view.word_has_letter,
            view.word_offsets,
            view.line_starts,
            view.line_ends,
            view.line_offsets,
            blocks_with_word(view, view.line_starts, view.line_ends),
            view.symbol_tokens,
            hashes,
            _function_offsets(chunk.languages, spans),
            scores,
        )
        return Measured(scores=dict(zip(self.scores, scores, strict=True)))
