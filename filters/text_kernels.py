"""The compiled inner loops of the text view, and the constants that they share with its tables.

All of it is in one file, and compiled functions call only compiled functions of their own file: numba's
cache on disk sees when a function's own file has changed, not when one that it calls or takes constants
from has.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Properties of a code point: bits of a uint16.
SPACE = 1
"""White space (`str.isspace`) or a control character: ends a token."""
FORMAT = 2
"""Invisible (category Cf, variation selectors, fillers): skipped inside a word, stripped from a line."""
BASE = 4
"""A letter or a number: can begin a word."""
MARK = 8
"""A combining mark: can only go on with a word."""
LETTER = 16
APOSTROPHE = 32
NEWLINE = 64
"""Ends a line, as in `str.splitlines`."""
TRAILING = 1 << 11
"""Stays with what is before it: Thai and Lao vowels written behind their consonant, the kana length mark."""
LEADING = 1 << 12
"""A Thai or Lao vowel written before its consonant: begins a piece, and the consonant stays with it."""
JOINER = 1 << 13
"""A sign that stacks the next consonant under this one (Khmer coeng, Burmese virama)."""
KILLER = 1 << 14
"""A sign that makes its consonant end the syllable before it (Burmese asat and virama)."""

SCRIPT_SHIFT = 8
SPACED, HAN, HIRAGANA, KATAKANA, SYLLABLES, SIGNS = range(6)
"""Script classes (three bits of the properties from SCRIPT_SHIFT on): written with spaces; Han; kana;
South-East Asian scripts that write no spaces between words; other scripts of signs (Yi, Tangut, ...)."""

# Entries of the fold table: a code point with flags, or where in `expansions` a longer folding lies.
FOLD_CODE = (1 << 21) - 1
FOLD_MARK = 1 << 21
FOLD_REORDERS = 1 << 22
"""A mark whose canonical combining class is not 0: its order among its neighbours means nothing."""
FOLD_DROPS_MARKS = 1 << 23
"""A Latin, Greek or Cyrillic letter: the combining marks on it are dropped."""
FOLD_EXPANDED = 1 << 24

NO_WORD_BEGINS, WORD_BEGINS, KANJI, UNKNOWN_HAN = range(4)
"""What is known of a Han character: the segmenter's answer (0 or 1), that kanji are cut by count, or that
the segmenter does not know it."""
MAX_HAN, MAX_KANJI, MAX_HIRAGANA, MAX_KATAKANA, MAX_SIGNS = 8, 2, 3, 8, 2
"""Characters of the longest word or piece; jieba's model can run on over characters that it never saw."""
MIN_SYLLABLES_CODE_POINTS, MAX_SYLLABLES_CODE_POINTS = 4, 16

HAN_BLOCK = 1 << 16
"""Han characters given to the segmenter at once: bounds its memory (a Python string per word)."""
JIEBA_FIRST, JIEBA_LAST = 0x4E00, 0x9FD5
"""The ideographs that jieba's dictionary and model know; others stand alone."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x243F6A8885A308D3)
_SHIFT = np.uint64(32)
_NONE = np.uint64(0)


@njit(cache=True, nogil=True)
def _mix(state, value):  # type: ignore[no-untyped-def]
    """One step of the 64-bit hash: a bijection of `state` for each `value`, so nothing is forgotten."""
    state = (state ^ value) * _MULTIPLIER
    return state ^ (state >> _SHIFT)


@njit(cache=True, nogil=True)
def _fold_step(entry, state, marks, drops):  # type: ignore[no-untyped-def]
    """Take one entry of the fold table into the hash.

    Marks that Unicode may reorder are summed until the next other character, so that canonically
    equivalent spellings hash alike without being sorted.
    """
    if entry & FOLD_MARK:
        if drops:
            return state, marks, drops
        if entry & FOLD_REORDERS:
            return state, marks + _mix(_SEED, np.uint64(entry & FOLD_CODE)), drops
    else:
        drops = (entry & FOLD_DROPS_MARKS) != 0
    if marks != _NONE:
        state = _mix(state, marks)
    return _mix(state, np.uint64(entry & FOLD_CODE)), _NONE, drops


@njit(cache=True, nogil=True)
def _begins_word(now, script, bases, length, before, after, han):  # type: ignore[no-untyped-def]
    """Whether a letter or number with properties `now` begins a new word after a word of `script`.

    `bases` and `length` are that word's letters and numbers, and code points, so far; `before` and `after`
    are the properties of the neighbouring characters, `han` is what is known of a Han character.
    """
    own = now >> SCRIPT_SHIFT & 7
    if own == KATAKANA and script == HIRAGANA and now & TRAILING:
        own = HIRAGANA
    if own != script:
        return True
    if script == SPACED:
        return False
    if script == HAN:
        return bases >= MAX_KANJI if han == KANJI else han != NO_WORD_BEGINS or bases >= MAX_HAN
    if script == HIRAGANA and not now & TRAILING:
        return bases >= MAX_HIRAGANA
    if script in (HIRAGANA, KATAKANA):
        return bases >= MAX_KATAKANA
    if script == SIGNS:
        return bases >= MAX_SIGNS
    if length >= MAX_SYLLABLES_CODE_POINTS:
        return True
    if before & (JOINER | LEADING) or now & TRAILING or after & KILLER:
        return False
    return (now & LEADING) != 0 or length >= MIN_SYLLABLES_CODE_POINTS


@njit(cache=True, nogil=True)
def count_bounds(code_points, offsets, properties, words, lines, han):  # type: ignore[no-untyped-def]
    """How many words a document can have at most, how many lines it has, and its Han characters."""
    for document in range(len(offsets) - 1):
        n_words = n_lines = n_han = 0
        before = False
        line_end = 0
        for position in range(offsets[document], offsets[document + 1]):
            now = properties[code_points[position]]
            script = now >> SCRIPT_SHIFT & 7
            if now & BASE and (script != SPACED or not before):
                n_words += 1
            code = code_points[position]
            if now & NEWLINE and not (code == 10 and line_end == 13):
                n_lines += 1
            line_end = code if now & NEWLINE else 0
            if script == HAN:
                n_han += 1
            before = (now & BASE) != 0 and script == SPACED
        words[document] = n_words
        lines[document] = n_lines + (line_end == 0 and offsets[document + 1] > offsets[document])
        han[document] = n_han


@njit(cache=True, nogil=True)
def scan_words(  # type: ignore[no-untyped-def]
    code_points,
    offsets,
    japanese,
    han_begins,
    properties,
    folds,
    expansions,
    starts,
    ends,
    hashes,
    has_letter,
    word_offsets,
    symbol_tokens,
):
    """Fill the word arrays; `word_offsets[-1]` is then the number of words."""
    count = 0
    word_offsets[0] = 0
    for document in range(len(offsets) - 1):
        end = offsets[document + 1]
        position = offsets[document]
        symbols = 0
        in_token = False
        token_has_word = False
        while position < end:
            now = properties[code_points[position]]
            if now & SPACE:
                if in_token and not token_has_word:
                    symbols += 1
                in_token = token_has_word = False
                position += 1
                continue
            if not now & BASE:
                if not now & FORMAT:
                    in_token = True
                position += 1
                continue
            in_token = token_has_word = True
            script = now >> SCRIPT_SHIFT & 7
            state, marks, drops, letter = _SEED, _NONE, False, False
            bases = 0
            start = last = position
            before = 0
            while position < end:
                code = code_points[position]
                now = properties[code]
                if now & BASE:
                    if bases and (script != SPACED or now >> SCRIPT_SHIFT & 7 != SPACED):
                        after = properties[code_points[position + 1]] if position + 1 < end else 0
                        han = KANJI if japanese[document] else UNKNOWN_HAN
                        if script == HAN and han != KANJI and JIEBA_FIRST <= code <= JIEBA_LAST:
                            han = int(han_begins[position])
                        if _begins_word(now, script, bases, position - start, before, after, han):
                            break
                    bases += 1
                    if now & LETTER:
                        letter = True
                elif now & FORMAT:
                    position += 1
                    continue
                elif now & APOSTROPHE:
                    if script != SPACED or last != position or position + 1 >= end:
                        break
                    after = properties[code_points[position + 1]]
                    if not after & BASE or after >> SCRIPT_SHIFT & 7 != SPACED:
                        break
                elif not now & MARK:
                    break
                entry = folds[code]
                if entry & FOLD_EXPANDED:
                    index = entry & FOLD_CODE
                    for i in range(index + 1, index + 1 + expansions[index]):
                        state, marks, drops = _fold_step(expansions[i], state, marks, drops)
                else:
                    state, marks, drops = _fold_step(entry, state, marks, drops)
                before = now
                position += 1
                last = position
            starts[count] = start
            ends[count] = last
            hashes[count] = _mix(_mix(state, marks), _SEED)
            has_letter[count] = letter
            count += 1
        if in_token and not token_has_word:
            symbols += 1
        symbol_tokens[document] = symbols
        word_offsets[document + 1] = count


@njit(cache=True, nogil=True)
def scan_lines(  # type: ignore[no-untyped-def]
    code_points,
    offsets,
    properties,
    starts,
    ends,
    hashes,
    line_offsets,
    paragraph_starts,
    paragraph_ends,
    paragraph_hashes,
    paragraph_offsets,
):
    """Fill the line and paragraph arrays; the last offsets are the numbers of lines and paragraphs."""
    lines = paragraphs = 0
    line_offsets[0] = paragraph_offsets[0] = 0
    for document in range(len(offsets) - 1):
        end = offsets[document + 1]
        position = offsets[document]
        in_paragraph = False
        while position < end:
            start = last = position
            state = _SEED
            while position < end:
                code = code_points[position]
                now = properties[code]
                if now & NEWLINE:
                    break
                position += 1
                if not now & (SPACE | FORMAT):
                    if last == start:
                        start = position - 1
                    last = position
            for i in range(start, last):
                state = _mix(state, np.uint64(code_points[i]))
            starts[lines] = start
            ends[lines] = last
            hashes[lines] = state
            lines += 1
            if last > start:
                if not in_paragraph:
                    paragraph_starts[paragraphs] = start
                    paragraph_hashes[paragraphs] = _SEED
                    paragraphs += 1
                    in_paragraph = True
                paragraph_ends[paragraphs - 1] = last
                paragraph_hashes[paragraphs - 1] = _mix(paragraph_hashes[paragraphs - 1], state)
            else:
                in_paragraph = False
            if position < end:
                carriage_return = code_points[position] == 13
                position += 1
                if carriage_return and position < end and code_points[position] == 10:
                    position += 1
        line_offsets[document + 1] = lines
        paragraph_offsets[document + 1] = paragraphs


@njit(cache=True, nogil=True)
def mark_blocks_with_word(code_points, starts, ends, properties, with_word):  # type: ignore[no-untyped-def]
    """Set `with_word[i]` to whether block i (a line, a paragraph) holds a letter or a number."""
    for block in range(len(starts)):
        with_word[block] = False
        for position in range(starts[block], ends[block]):
            if properties[code_points[position]] & BASE:
                with_word[block] = True
                break


@njit(cache=True, nogil=True)
def copy_han_runs(code_points, position, end, properties, simplified, codes, positions):  # type: ignore[no-untyped-def]
    """Copy Han runs from `position` on, parted by spaces, until a run ends past half of HAN_BLOCK, or
    `codes` is full. Returns where to go on, and how many codes there are."""
    count = 0
    in_run = False
    while position < end and count < len(codes):
        code = code_points[position]
        if properties[code] >> SCRIPT_SHIFT & 7 == HAN and JIEBA_FIRST <= code <= JIEBA_LAST:
            codes[count] = simplified[code - JIEBA_FIRST]
            positions[count] = position
            count += 1
            in_run = True
        elif in_run:
            codes[count] = 32
            positions[count] = position
            count += 1
            in_run = False
            if count > HAN_BLOCK // 2:
                return position, count
        position += 1
    return position, count
