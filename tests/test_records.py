"""Edits replay, spans are carried, chunks survive their encoding and are never mutated."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.chunk import DOCUMENTS, Chunk, Measured
from schemas.edits import Span, apply_edits, carry_spans
from schemas.records import Document, Edit, Unreadable, Verdict

# Letters of one to four bytes, a combining mark, a right-to-left letter, controls, a line separator.
ODD = "ab \n\r\0\x1f\N{LATIN SMALL LETTER E WITH ACUTE}\N{COMBINING ACUTE ACCENT}\N{HEBREW LETTER ALEF}" + (
    "\N{CJK UNIFIED IDEOGRAPH-6F22}\N{LINE SEPARATOR}\N{ZERO WIDTH JOINER}\N{GRINNING FACE}\uffff\U0010ffff"
)
texts = st.text(st.one_of(st.sampled_from(ODD), st.characters(codec="utf-8")), max_size=20)


# Edits ---------------------------------------------------------------------------------------------


@st.composite
def stage_edits(draw: st.DrawFn, length: int, stage: str) -> list[Edit]:
    """Edits of one stage that do not overlap: sorted cuts of the text, paired off; some are insertions."""
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=8)))
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    edits = [Edit(stage, start, end, "r", None, draw(st.text("XYZ", max_size=3))) for start, end in pairs]
    # At one place at most one insertion, so that a shuffled list has one meaning.
    once = {(e.start, e.end): e for e in edits}
    return list(once.values())


@st.composite
def edited(draw: st.DrawFn) -> tuple[str, list[Edit], list[str]]:
    """A text, the edits of up to three stages in stage order, and the text after each stage."""
    text = draw(texts)
    before, edits, after = text, [], [text]
    for stage in ("one", "two", "three")[: draw(st.integers(0, 3))]:
        own = draw(stage_edits(len(text), stage))
        text = apply_one_by_one(text, own)
        edits += draw(st.permutations(own))
        after.append(text)
    return before, edits, after


def apply_one_by_one(text: str, edits: list[Edit]) -> str:
    """The reference: from the last edit to the first, so that no offset moves."""
    for edit in sorted(edits, key=lambda e: (e.start, e.end), reverse=True):
        text = text[: edit.start] + edit.after + text[edit.end :]
    return text


@given(edited())
def test_edits_replay_stage_by_stage(case: tuple[str, list[Edit], list[str]]) -> None:
    before, edits, after = case
    assert apply_edits(before, edits) == after[-1]


def carried_by_marking(length: int, span: Span, edits: list[Edit]) -> Span | None:
    """The reference, character by character: mark the span, move the marks, and read them off.

    A character of a replacement is marked when a character that it replaces was; an insertion is marked
    when both its neighbours are.
    """
    start, end = span
    if start == end:
        return None
    for stage in dict.fromkeys(e.stage for e in edits):
        own = sorted((e for e in edits if e.stage == stage), key=lambda e: (e.start, e.end))
        marks: list[bool] = []
        position = 0
        for edit in own:
            marks += [start <= i < end for i in range(position, edit.start)]
            if edit.start == edit.end:
                marked = start < edit.start < end
            else:
                marked = any(start <= i < end for i in range(edit.start, edit.end))
            marks += [marked] * len(edit.after)
            position = edit.end
        marks += [start <= i < end for i in range(position, length)]
        if True not in marks:
            return None
        start, end = marks.index(True), len(marks) - marks[::-1].index(True)
        length = len(marks)
    return start, end


@given(edited(), st.data())
def test_spans_are_carried_as_marks_would_be(
    case: tuple[str, list[Edit], list[str]], data: st.DataObject
) -> None:
    before, edits, after = case
    bounds = st.integers(0, len(before))
    spans = data.draw(st.lists(st.tuples(bounds, bounds).map(lambda p: (min(p), max(p))), max_size=4))
    expected = [c for s in spans if (c := carried_by_marking(len(before), s, edits)) is not None]
    assert carry_spans(spans, edits) == expected
    assert all(0 <= start < end <= len(after[-1]) for start, end in expected)


@pytest.mark.parametrize(
    ("spans", "edits", "expected"),
    [
        ([(2, 4)], [], [(2, 4)]),
        ([(2, 2)], [], []),
        ([(2, 2)], [Edit("a", 1, 3, "r", None, "xyz")], []),
        ([(2, 4)], [Edit("a", 2, 4, "r", None, "")], []),
        ([(2, 4)], [Edit("a", 2, 4, "r", None, "xyz")], [(2, 5)]),
        ([(2, 4)], [Edit("a", 3, 6, "r", None, "xyz")], [(2, 6)]),
        ([(2, 4)], [Edit("a", 0, 3, "r", None, "xyz")], [(0, 4)]),
        ([(2, 4)], [Edit("a", 2, 2, "r", None, "xyz")], [(5, 7)]),
        ([(2, 4)], [Edit("a", 4, 4, "r", None, "xyz")], [(2, 4)]),
        ([(2, 4)], [Edit("a", 3, 3, "r", None, "xyz")], [(2, 7)]),
        ([(2, 4)], [Edit("a", 0, 1, "r", None, ""), Edit("b", 0, 2, "r", None, "xyz")], [(0, 4)]),
        ([(2, 4), (0, 9)], [Edit("a", 0, 9, "r", None, "")], []),
    ],
)
def test_carried_spans(spans: list[Span], edits: list[Edit], expected: list[Span]) -> None:
    assert carry_spans(spans, edits) == expected


@pytest.mark.parametrize(
    "edits",
    [
        [Edit("a", 0, 3, "r", None, ""), Edit("a", 2, 4, "r", None, "")],
        [Edit("a", 2, 9, "r", None, "")],
        [Edit("a", 3, 2, "r", None, "")],
        [Edit("a", -1, 2, "r", None, "")],
        [Edit("a", 0, 4, "r", None, ""), Edit("b", 1, 2, "r", None, "")],
    ],
)
def test_edits_that_overlap_or_lie_outside_are_refused(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="overlaps another or lies outside"):
        apply_edits("abcd", edits)


# Records -------------------------------------------------------------------------------------------


def test_a_verdict_has_a_reason_exactly_when_it_refuses() -> None:
    assert Verdict("s", True).reason is None
    assert Verdict("s", False, ("first", "second")).reason == "first"
    with pytest.raises(ValueError, match="s: a kept document has no reason"):
        Verdict("s", True, ("first",))
    with pytest.raises(ValueError, match="s: a refused document needs a reason"):
        Verdict("s", False)


# Chunks --------------------------------------------------------------------------------------------

maybe = st.none() | texts
documents = st.builds(
    Document,
    text=texts,
    doc_id=texts,
    input_id=maybe,
    source=texts,
    source_path=texts,
    locator=st.integers(0, 2**64 - 1),
    url=maybe,
    date=maybe,
    kind=st.sampled_from(["prose", "code", "mathematics", "mixed"]),
    language=st.sampled_from(["und", "en", "zh-Hant"]),
    programming_language=maybe,
    licence=maybe,
    metadata=texts,
)
any_text = st.text(max_size=10)  # lone surrogates too
unreadable = st.builds(
    Unreadable,
    row=st.integers(0, 2**32 - 1),
    doc_id=texts,
    input_id=maybe,
    source=texts,
    source_path=texts,
    locator=st.integers(0, 2**64 - 1),
    stage=texts,
    reason=texts,
    error=any_text,
    raw=st.binary(max_size=20),
)
numbers = st.floats(width=64)  # NaN and infinities too
edits_of_a_document = st.lists(
    st.builds(
        Edit,
        stage=texts,
        start=st.integers(0, 2**32 - 1),
        end=st.integers(0, 2**32 - 1),
        rule=texts,
        before=maybe,
        after=texts,
    ),
    max_size=3,
).map(tuple)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    own = draw(st.lists(documents, max_size=4))
    n = len(own)

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    return replace(
        Chunk.of(own, unit=draw(texts), index=draw(st.integers(0, 99))),
        last=draw(st.booleans()),
        scores={
            name: np.array(column(numbers), dtype=np.float64) for name in draw(st.sets(texts, max_size=2))
        },
        columns={
            "hash": pa.array(column(st.none() | st.binary(min_size=4, max_size=4)), pa.binary(4)),
            "words": pa.array(column(st.none() | st.integers(-9, 9)), pa.int16()),
            "list": pa.array(column(st.none() | st.lists(maybe, max_size=2)), pa.list_(pa.string())),
        },
        flags=column(st.lists(texts, max_size=2).map(tuple)),
        edits=column(edits_of_a_document),
        unreadable=draw(st.lists(unreadable, max_size=2)),
        counts=draw(st.dictionaries(texts, st.integers(0, 2**60), max_size=2)),
        seconds=draw(st.dictionaries(texts, st.floats(0, 9), max_size=2)),
        position={
            "segment": draw(st.integers(0, 9)),
            "at": draw(st.none() | st.integers(0, 2**60)),
            "row": n,
        },
    )


def content(chunk: Chunk) -> dict[str, Any]:
    """All that a chunk says, in values that compare (NaN equals NaN, bit for bit)."""
    return {
        "head": (chunk.unit, chunk.index, chunk.last),
        "schema": chunk.documents.schema,
        "documents": chunk.documents.to_pylist(),
        "texts": list(chunk.texts),
        "scores": {n: (s.dtype, s.tobytes()) for n, s in chunk.scores.items()},
        "columns": {n: (c.type, c.to_pylist()) for n, c in chunk.columns.items()},
        "flags": list(chunk.flags),
        "edits": list(chunk.edits),
        "unreadable": list(chunk.unreadable),
        "maps": [dict(m) for m in (chunk.counts, chunk.seconds, chunk.position)],
    }


@given(chunks())
def test_a_chunk_survives_its_encoding(chunk: Chunk) -> None:
    decoded = Chunk.decode(chunk.encode())
    assert content(decoded) == content(chunk)
    assert list(decoded) == list(chunk)
    assert all(isinstance(c, pa.Array) for c in decoded.columns.values())


def test_an_empty_chunk_survives_its_encoding_with_its_columns() -> None:
    bad = Unreadable(0, "s/p#0", None, "s", "p", 0, "read", "torn", "ends at \udcff", b"\xff\x00")
    empty = replace(
        Chunk.of([]),
        scores={"a.b": np.zeros(0)},
        columns={"hash": pa.array([], pa.binary(16))},
        unreadable=[bad],
    )
    assert content(Chunk.decode(empty.encode())) == content(empty)


@given(chunks(), st.data())
def test_no_step_changes_the_chunk_that_it_was_given(chunk: Chunk, data: st.DataObject) -> None:
    before = copy.deepcopy(content(chunk))
    n = len(chunk)
    chunk.cache["view"] = "of these texts"

    measured = Measured(
        scores={"new": np.arange(n, dtype=np.float64)},
        columns={"language": pa.array(["ja"] * n, pa.string()), "own": pa.array([1] * n, pa.int8())},
        flags=dict.fromkeys(range(n), ("seen",)),
    )
    with_language = chunk.with_measured(measured)
    assert with_language.languages == ["ja"] * n
    assert "language" not in with_language.columns
    assert "own" in with_language.columns
    assert with_language.documents.schema == DOCUMENTS
    assert all("seen" in f for f in with_language.flags)
    assert with_language.cache == {}, "the view of a text depends on the language"

    scored = chunk.with_measured(Measured(scores={"new": np.zeros(n)}))
    assert scored.cache is chunk.cache, "the same texts share one view"

    edit = Edit("s", 0, 0, "r", None, "x")
    edited = chunk.with_texts([f"x{t}" for t in chunk.texts], [(edit,)] * n)
    assert edited.cache == {}
    assert all(e[-1] == edit for e in edited.edits)

    timed = chunk.with_seconds("s", 1.5).with_seconds("s", 1.0)
    assert timed.seconds["s"] == pytest.approx(chunk.seconds.get("s", 0.0) + 2.5)

    rows = data.draw(st.lists(st.integers(0, n - 1), max_size=4, unique=True)) if n else []
    taken = chunk.take(rows)
    assert list(taken) == [chunk.document(i) for i in rows]
    assert [taken.edits, taken.flags] == [[chunk.edits[i] for i in rows], [chunk.flags[i] for i in rows]]
    assert {k: c.to_pylist() for k, c in taken.columns.items()} == {
        k: [c[i].as_py() for i in rows] for k, c in chunk.columns.items()
    }
    assert taken.unreadable == chunk.unreadable
    assert taken.cache == {}

    assert content(chunk) == before
    with pytest.raises(FrozenInstanceError):
        chunk.texts = []  # type: ignore[misc]


def test_flags_are_listed_once_in_the_order_in_which_they_were_raised() -> None:
    chunk = Chunk.of([Document("a"), Document("b")])
    once = chunk.with_measured(Measured(flags={1: ("late", "early", "late")}))
    twice = once.with_measured(Measured(flags={1: ("early", "last")}))
    assert twice.flags == [(), ("late", "early", "last")]


@given(st.lists(documents, max_size=4))
def test_documents_come_back_from_a_chunk(own: list[Document]) -> None:
    assert list(Chunk.of(own)) == own
