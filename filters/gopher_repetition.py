"""Repetition within a document: the second half of Gopher's Table A1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from filters.base import Rule, RuleSet, knob
from filters.language_data import language_thresholds
from filters.text_view import Positions, blocks_with_word, view_of
from schemas.chunk import Chunk, Measured

_PAPER = "Rae et al. 2021, Table A1"
_NAME = "gopher_repetition"
_SEED = np.uint64(0x13198A2E03707344)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def _mix(state, value):  # type: ignore[no-untyped-def]
    """One step of a 64-bit hash over a sequence: a bijection of `state` for each `value`."""
    state = (state ^ value) * _MULTIPLIER
    return state ^ (state >> np.uint64(32))


@njit(cache=True, nogil=True)
def _table_size(items):  # type: ignore[no-untyped-def]
    """The power of two that leaves a table of `items` keys at most two thirds full."""
    size = 16
    while 2 * size < 3 * items:
        size *= 2
    return size


@njit(cache=True, nogil=True)
def _count(keys, items, size, table_keys, table_counts, slots):  # type: ignore[no-untyped-def]
    """Count equal keys among the first `items`: `table_counts[slots[i]]` is how often `keys[i]` occurs."""
    mask = size - 1
    for slot in range(size):
        table_counts[slot] = 0
    for item in range(items):
        key = keys[item]
        slot = np.int64(_mix(key, _SEED)) & mask
        while table_counts[slot] and table_keys[slot] != key:
            slot = (slot + 1) & mask
        table_keys[slot] = key
        table_counts[slot] += 1
        slots[item] = slot


@njit(cache=True, nogil=True)
def _duplicate_blocks(  # type: ignore[no-untyped-def]
    with_word, starts, ends, hashes, offsets, largest, scores, row
):
    """Into `scores[row]` the fraction of blocks with an equal in their document, into `scores[row + 1]`
    the fraction of characters in them; only blocks `with_word` count."""
    size = _table_size(largest)
    table_keys, table_counts = np.empty(size, np.uint64), np.empty(size, np.int32)
    keys, slots = np.empty(largest, np.uint64), np.empty(largest, np.int32)
    for document in range(len(offsets) - 1):
        items = 0
        characters = 0
        for block in range(offsets[document], offsets[document + 1]):
            if with_word[block]:
                keys[items] = hashes[block]
                characters += ends[block] - starts[block]
                items += 1
        scores[row, document] = scores[row + 1, document] = 0.0
        if items < 2:
            continue
        _count(keys, items, _table_size(items), table_keys, table_counts, slots)
        equal = equal_characters = item = 0
        for block in range(offsets[document], offsets[document + 1]):
            if with_word[block]:
                if table_counts[slots[item]] > 1:
                    equal += 1
                    equal_characters += ends[block] - starts[block]
                item += 1
        scores[row, document] = equal / items
        scores[row + 1, document] = equal_characters / characters


@njit(cache=True, nogil=True)
def _n_grams(starts, ends, hashes, offsets, largest, scores, row):  # type: ignore[no-untyped-def]
    """Into `scores[row : row + 9]` the shares of the top 2..4-gram and of the duplicate 5..10-grams.

    An n-gram can only occur twice where the (n - 1)-gram at its first word does, so each n looks at
    what the one before left over; in ordinary prose little is left from the 5-grams on.
    """
    size = _table_size(largest)
    table_keys, table_counts = np.empty(size, np.uint64), np.empty(size, np.int32)
    table_characters = np.empty(size, np.int32)
    keys, slots, at = np.empty(largest, np.uint64), np.empty(largest, np.int32), np.empty(largest, np.int32)
    characters_to = np.empty(largest + 1, np.int64)
    for document in range(len(offsets) - 1):
        first = offsets[document]
        words = offsets[document + 1] - first
        characters_to[0] = 0
        for word in range(words):
            keys[word] = _mix(_SEED, hashes[first + word])
            at[word] = word
            characters_to[word + 1] = characters_to[word] + ends[first + word] - starts[first + word]
        total = characters_to[words]
        items = words
        for n in range(2, 11):
            kept = 0
            for item in range(items):
                word = at[item]
                if word + n <= words:
                    keys[kept] = _mix(keys[item], hashes[first + word + n - 1])
                    at[kept] = word
                    kept += 1
            items = kept
            _count(keys, items, _table_size(items), table_keys, table_counts, slots)
            most = 1
            for item in range(items):
                most = max(most, table_counts[slots[item]])
            marked = 0
            if most > 1 and n <= 4:
                for item in range(items):
                    table_characters[slots[item]] = 0
                for item in range(items):
                    slot = slots[item]
                    if table_counts[slot] == most:
                        table_characters[slot] += characters_to[at[item] + n] - characters_to[at[item]]
                        marked = max(marked, table_characters[slot])
            elif most > 1:
                reached = 0
                for item in range(items):
                    if table_counts[slots[item]] > 1:
                        word = at[item]
                        marked += characters_to[word + n] - characters_to[max(word, reached)]
                        reached = word + n
            scores[row + n - 2, document] = min(1.0, marked / total) if marked else 0.0
            kept = 0
            for item in range(items):
                if table_counts[slots[item]] > 1:
                    keys[kept], at[kept] = keys[item], at[item]
                    kept += 1
            items = kept


@dataclass(frozen=True)
class GopherRepetition(RuleSet):
    """Refuse documents that repeat their own lines, paragraphs or word n-grams.

    Source: Rae et al. 2021 (https://arxiv.org/abs/2112.11446), Table A1, whose text leaves the counting
    open; tools count in four ways. Here, as in RedPajama-V2 and DCLM:

    - every member of a group of equal lines (or paragraphs) counts, not only those after the first; a
      document with a single line or paragraph has fraction 0;
    - the top n-gram is the one that occurs most often, at least twice, and of those the one with most
      characters; its share is its occurrences' characters, overlaps included, at most 1;
    - duplicate n-grams mark every word they cover once;
    - character shares of n-grams are of the characters in words, those of lines and paragraphs of the
      characters in stripped lines and paragraphs.

    Words, and thus n-grams, compare folded as in the text view (case, width and the accents of Latin, Greek
    and Cyrillic letters do not matter), in sequence: "a bc" is not "ab c". Lines and paragraphs compare as
    they stand, stripped; indentation and kind of line break inside a paragraph do not matter.

    Blank lines are no lines. Nor, unlike in those tools, is a line without a letter or digit: rules,
    fences and comment frames ("----", "* * *") repeat in good text; the same holds for paragraphs.

    Where words are single characters or short pieces (Chinese, Japanese, Thai, ...) five of them say less
    than five English words, and a language has thresholds of its own, in `filters/data/languages.toml`.
    """

    name: ClassVar[str] = _NAME
    scores: ClassVar[Mapping[str, str]] = {
        f"{_NAME}.duplicate_line_fraction": "share of the non-blank lines that occur twice or more, 0 to 1",
        f"{_NAME}.duplicate_line_char_fraction": "share of the lines' characters in them, 0 to 1",
        f"{_NAME}.duplicate_paragraph_fraction": "share of the paragraphs that occur twice or more, 0 to 1",
        f"{_NAME}.duplicate_paragraph_char_fraction": "share of the paragraphs' characters in them, 0 to 1",
        f"{_NAME}.top_2_gram_char_fraction": "share of word characters in the most frequent 2-gram, 0 to 1",
        f"{_NAME}.top_3_gram_char_fraction": "share of word characters in the most frequent 3-gram, 0 to 1",
        f"{_NAME}.top_4_gram_char_fraction": "share of word characters in the most frequent 4-gram, 0 to 1",
        f"{_NAME}.duplicate_5_gram_char_fraction": "share of word characters in repeated 5-grams, 0 to 1",
        f"{_NAME}.duplicate_6_gram_char_fraction": "share of word characters in repeated 6-grams, 0 to 1",
        f"{_NAME}.duplicate_7_gram_char_fraction": "share of word characters in repeated 7-grams, 0 to 1",
        f"{_NAME}.duplicate_8_gram_char_fraction": "share of word characters in repeated 8-grams, 0 to 1",
        f"{_NAME}.duplicate_9_gram_char_fraction": "share of word characters in repeated 9-grams, 0 to 1",
        f"{_NAME}.duplicate_10_gram_char_fraction": "share of word characters in repeated 10-grams, 0 to 1",
    }
    rules: ClassVar[tuple[Rule, ...]] = tuple(
        Rule(reason, f"{_NAME}.{score}", f"{_NAME}.max_{score}", "above", plain)
        for reason, score, plain in (
            ("duplicate_lines", "duplicate_line_fraction", "too many of its lines repeat"),
            ("duplicate_paragraphs", "duplicate_paragraph_fraction", "too many of its paragraphs repeat"),
            (
                "duplicate_line_characters",
                "duplicate_line_char_fraction",
                "too much of its text is in repeated lines",
            ),
            (
                "duplicate_paragraph_characters",
                "duplicate_paragraph_char_fraction",
                "too much of its text is in repeated paragraphs",
            ),
            ("top_2_gram", "top_2_gram_char_fraction", "one pair of words makes up too much of it"),
            ("top_3_gram", "top_3_gram_char_fraction", "one run of 3 words makes up too much of it"),
            ("top_4_gram", "top_4_gram_char_fraction", "one run of 4 words makes up too much of it"),
            *(
                (
                    f"duplicate_{n}_grams",
                    f"duplicate_{n}_gram_char_fraction",
                    f"too much of it is repeated runs of {n} words",
                )
                for n in range(5, 11)
            ),
        )
    )

    max_duplicate_line_fraction: float | None = knob(
        0.30, doc="largest share of lines that repeat, 0 to 1", source=_PAPER
    )
    max_duplicate_paragraph_fraction: float | None = knob(
        0.30, doc="largest share of paragraphs that repeat, 0 to 1", source=_PAPER
    )
    max_duplicate_line_char_fraction: float | None = knob(
        0.20, doc="largest share of characters in lines that repeat, 0 to 1", source=_PAPER
    )
    max_duplicate_paragraph_char_fraction: float | None = knob(
        0.20, doc="largest share of characters in paragraphs that repeat, 0 to 1", source=_PAPER
    )
    max_top_2_gram_char_fraction: float | None = knob(
        0.20, doc="largest share of word characters in the top 2-gram, 0 to 1", source=_PAPER
    )
    max_top_3_gram_char_fraction: float | None = knob(
        0.18, doc="largest share of word characters in the top 3-gram, 0 to 1", source=_PAPER
    )
    max_top_4_gram_char_fraction: float | None = knob(
        0.16, doc="largest share of word characters in the top 4-gram, 0 to 1", source=_PAPER
    )
    max_duplicate_5_gram_char_fraction: float | None = knob(
        0.15, doc="largest share of word characters in repeated 5-grams, 0 to 1", source=_PAPER
    )
    max_duplicate_6_gram_char_fraction: float | None = knob(
        0.14, doc="largest share of word characters in repeated 6-grams, 0 to 1", source=_PAPER
    )
    max_duplicate_7_gram_char_fraction: float | None = knob(
        0.13, doc="largest share of word characters in repeated 7-grams, 0 to 1", source=_PAPER
    )
    max_duplicate_8_gram_char_fraction: float | None = knob(
        0.12, doc="largest share of word characters in repeated 8-grams, 0 to 1", source=_PAPER
    )
    max_duplicate_9_gram_char_fraction: float | None = knob(
        0.11, doc="largest share of word characters in repeated 9-grams, 0 to 1", source=_PAPER
    )
    max_duplicate_10_gram_char_fraction: float | None = knob(
        0.10, doc="largest share of word characters in repeated 10-grams, 0 to 1", source=_PAPER
    )

    @property
    def per_language(self) -> Mapping[str, Mapping[str, float | None]]:
        """Thresholds of languages whose words are not like English ones, by language."""
        return language_thresholds(_NAME)

    def measure(self, chunk: Chunk) -> Measured:
        """Measure the thirteen shares of every document; a document without words or lines has 0."""
        view = view_of(chunk)
        scores = np.empty((len(self.scores), len(chunk)), np.float64)
        lines = (view.line_starts, view.line_ends, view.line_hashes, view.line_offsets)
        paragraphs = (
            view.paragraph_starts,
            view.paragraph_ends,
            view.paragraph_hashes,
            view.paragraph_offsets,
        )
        words = (view.word_starts, view.word_ends, view.word_hashes, view.word_offsets)
        for row, blocks in ((0, lines), (2, paragraphs)):
            with_word = blocks_with_word(view, blocks[0], blocks[1])
            _duplicate_blocks(with_word, *blocks, _largest(blocks[3]), scores, row)
        _n_grams(*words, _largest(words[3]), scores, 4)
        return Measured(scores=dict(zip(self.scores, scores, strict=True)))


def _largest(offsets: Positions) -> int:
    """How many items the document with the most of them has."""
    return int(np.diff(offsets).max(initial=0))
