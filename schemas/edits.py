"""Replaying edits, and carrying spans over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from schemas.records import Edit

Span = tuple[int, int]


def _checked(edits: Iterable[Edit], length: int) -> list[Edit]:
    ordered = sorted(edits, key=lambda e: (e.start, e.end))
    position = 0
    for edit in ordered:
        if not position <= edit.start <= edit.end <= length:
            raise ValueError(f"edit {edit} overlaps another or lies outside a text of {length} characters")
        position = edit.end
    return ordered


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return the text after all edits, stage by stage in the order in which stages first appear.

    Raises ValueError when edits of one stage overlap or lie outside the text that the stage received.

    >>> apply_edits("a  b c", [Edit("x", 1, 3, "squeeze", "  ", " "), Edit("y", 4, 5, "cut", "c", "")])
    'a b '
    """
    for _, group in groupby(edits, key=lambda e: e.stage):
        pieces: list[str] = []
        position = 0
        for edit in _checked(group, len(text)):
            pieces += [text[position : edit.start], edit.after]
            position = edit.end
        text = "".join(pieces) + text[position:]
    return text


def carry_spans(spans: Iterable[Span], edits: Sequence[Edit]) -> list[Span]:
    """Carry half-open code point spans of the text before `edits` over to the text after them.

    A boundary inside a replaced stretch moves to the outer end of the replacement (a start to its
    begin, an end to its end), so that what was marked stays marked; a span whose text is all cut is
    dropped, as is an empty one. `edits` may come from several stages, in stage order.

    >>> carry_spans([(4, 6), (0, 1)], [Edit("x", 1, 3, "squeeze", "  ", " ")])
    [(3, 5), (0, 1)]
    """
    current = [(start, end) for start, end in spans if start < end]
    for _, group in groupby(edits, key=lambda e: e.stage):
        stage_edits = sorted(group, key=lambda e: (e.start, e.end))
        carried = []
        for start, end in current:
            new_start, new_end = _carry(start, stage_edits, False), _carry(end, stage_edits, True)
            if new_end > new_start:
                carried.append((new_start, new_end))
        current = carried
    return current


def _carry(position: int, edits: Sequence[Edit], is_end: bool) -> int:
    shift = 0
    for edit in edits:
        if edit.end <= position and not (edit.start == edit.end == position and is_end):
            shift += len(edit.after) - (edit.end - edit.start)
        elif edit.start < position:
            return edit.start + shift + (len(edit.after) if is_end else 0)
        else:
            break
    return position + shift
