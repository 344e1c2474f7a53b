"""One stage over one chunk: a failing record costs itself alone, kinds are kept apart, edits replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_stages import Digits, Fragile, Ints, Liar, Pairwise, Squeeze

from pipeline.annotate import annotation_table
from pipeline.measure import RAW_BYTES, run_stage
from schemas.chunk import Chunk, Measured
from schemas.edits import apply_edits
from schemas.records import KINDS, Document, Unreadable


def chunk_of(texts: list[str], kinds: list[str] | None = None) -> Chunk:
    kinds = kinds or ["prose"] * len(texts)
    documents = [
        Document(text, f"s/p#{i}", f"id-{i}", "s", "p", i, kind=kind)
        for i, (text, kind) in enumerate(zip(texts, kinds, strict=True))
    ]
    return Chunk.of(documents)


@given(st.lists(st.sampled_from(["", "good", "longer text", "boom", "a boom here"]), max_size=9))
def test_a_record_on_which_a_stage_raises_costs_itself_alone(texts: list[str]) -> None:
    chunk = chunk_of(texts)
    done = run_stage(Fragile(), chunk)
    good = [i for i, t in enumerate(texts) if "boom" not in t]
    bad = [i for i, t in enumerate(texts) if "boom" in t]
    assert [d.locator for d in done] == good
    if good:
        assert done.scores["fragile"].tolist() == [float(len(texts[i])) for i in good]
    assert [(u.row, u.doc_id, u.input_id, u.source, u.source_path, u.locator) for u in done.unreadable] == [
        (i, f"s/p#{i}", f"id-{i}", "s", "p", i) for i in bad
    ]
    assert {(u.stage, u.reason) for u in done.unreadable} <= {("fragile", "stage_failed")}
    assert [u.raw.decode() for u in done.unreadable] == [texts[i] for i in bad]
    # A lone surrogate in the message of an exception can stand in no table.
    assert all(
        u.error.startswith("RuntimeError: cannot bear") and "\\ud800" in u.error for u in done.unreadable
    )
    assert list(chunk.texts) == texts
    table = annotation_table(done)
    assert table.column("row").to_pylist() == list(range(len(texts)))
    assert [b is not None for b in table.column("bad_stage").to_pylist()] == ["boom" in t for t in texts]


def test_what_earlier_stages_measured_stays_with_its_document() -> None:
    chunk = run_stage(Digits(), chunk_of(["1a", "boom", "", "22"]))
    chunk = replace(chunk, unreadable=[Unreadable(9, "s/p#9", None, "s", "p", 9, "read", "torn", "ends")])
    done = run_stage(Fragile(), chunk)
    assert done.scores["digits.count"].tolist() == [1.0, 0.0, 2.0]
    assert done.columns["digits.first"].to_pylist() == ["1", None, "2"]
    assert done.flags == [(), ("no_digits",), ()]
    assert [u.row for u in done.unreadable] == [9, 1]
    assert done.unreadable[1].stage == "fragile"


def test_the_quarantine_gets_the_head_of_a_long_record() -> None:
    (bad,) = run_stage(Fragile(), chunk_of(["boom " + "\N{GREEK SMALL LETTER ALPHA}" * RAW_BYTES])).unreadable
    assert len(bad.raw) == RAW_BYTES
    assert len(bad.error) <= 500 + len("\\ud800")


def test_a_stage_that_fails_for_many_but_not_for_one_loses_nothing() -> None:
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    done = run_stage(Pairwise(), chunk_of(texts))
    assert list(done.texts) == texts
    assert done.scores["pairwise"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert done.unreadable == []


def test_pieces_with_and_without_a_column_are_joined() -> None:
    class Sometimes(Fragile):
        def measure(self, chunk: Chunk) -> Measured:
            super().measure(chunk)
            firsts = pa.array([t[0] if t != "-" else None for t in chunk.texts])
            extra = {"fragile.a": np.ones(len(chunk))} if "a" in chunk.texts else {}
            return Measured({"fragile": np.zeros(len(chunk)), **extra}, {"fragile.first": firsts})

    done = run_stage(Sometimes(), chunk_of(["a", "boom", "-", "-"]))
    assert done.columns["fragile.first"].to_pylist() == ["a", None, None]
    assert done.columns["fragile.first"].type == pa.string()
    np.testing.assert_array_equal(done.scores["fragile.a"], [1.0, np.nan, np.nan])


def test_a_chunk_without_documents_goes_through_every_stage() -> None:
    bad = Unreadable(0, "s/p#0", None, "s", "p", 0, "read", "torn", "ends", b"{")
    empty = replace(chunk_of([]), unreadable=[bad])
    for stage in (Digits(), Squeeze(), Fragile(), Pairwise(), Ints()):
        done = run_stage(stage, empty)
        assert len(done) == 0
        assert done.unreadable == [bad]
        assert stage.name in done.seconds
    assert "digits" in run_stage(Digits(), empty).scores


def test_kinds_that_a_stage_does_not_judge_are_not_measured() -> None:
    texts, kinds = ["1"] * len(KINDS), list(KINDS)
    done = run_stage(Digits(), chunk_of(texts, kinds))
    judged = [k in Digits.kinds for k in kinds]
    assert judged == [True, False, True, True]
    assert [not np.isnan(s) for s in done.scores["digits"]] == judged
    assert [not np.isnan(s) for s in done.scores["digits.count"]] == judged
    assert [c is not None for c in done.columns["digits.first"].to_pylist()] == judged


def test_flags_of_kinds_that_a_stage_does_not_judge_are_dropped() -> None:
    done = run_stage(Digits(), chunk_of(["x", "x"], ["code", "prose"]))
    assert done.flags == [(), ("no_digits",)]


def test_integer_scores_become_floats_and_a_document_not_judged_keeps_its_own_columns() -> None:
    documents = [Document("abc", kind="prose"), Document("def", kind="code", programming_language="go")]
    done = run_stage(Ints(), Chunk.of(documents))
    assert done.scores["ints"].dtype == np.float64
    np.testing.assert_array_equal(done.scores["ints"], [3.0, np.nan])
    assert [d.programming_language for d in done] == ["none", "go"]
    assert run_stage(Ints(), Chunk.of(documents[:1])).scores["ints"].dtype == np.float64


@pytest.mark.parametrize(
    ("measured", "error"),
    [
        (Measured({"fragile": np.zeros(7)}), "fragile has 7 values for 1 documents"),
        (Measured({}, {"fragile.x": pa.array(["a", "b", "c"])}), "fragile.x has 3 values for 1 documents"),
        (Measured({}, {"text_hash": pa.array(["a"])}), "text_hash is not a column that a stage may write"),
        (Measured({}, {"doc_id": pa.array(["a"])}), "doc_id is not a column that a stage may write"),
        (Measured({}, {"kind": pa.array([None], pa.string())}), "kind must be told of every document"),
    ],
)
def test_columns_that_cannot_be_are_a_failure_of_the_stage(measured: Measured, error: str) -> None:
    class Wrong(Fragile):
        def measure(self, chunk: Chunk) -> Measured:
            del chunk
            return measured

    done = run_stage(Wrong(), chunk_of(["one", "two"]))
    assert len(done) == 0
    assert [u.error for u in done.unreadable] == [f"ValueError: {error}"] * 2


@given(
    st.lists(st.text("a b", max_size=12), max_size=5),
    st.lists(st.sampled_from(KINDS), min_size=5, max_size=5),
)
def test_the_edits_of_an_editor_replay(texts: list[str], kinds: list[str]) -> None:
    chunk = chunk_of(texts, kinds[: len(texts)])
    done = run_stage(Squeeze(), chunk)
    for before, after, edits, kind in zip(texts, done.texts, done.edits, kinds, strict=False):
        assert apply_edits(before, edits) == after
        assert ("  " not in after) or kind == "code"
        assert all(before[e.start : e.end] == e.before for e in edits)
    assert len(done.unreadable) == 0
    if not any(done.edits):
        assert done.cache is chunk.cache, "nothing was edited, so the text view stays"


def test_an_editor_whose_edits_do_not_replay_costs_the_record() -> None:
    done = run_stage(Liar(), chunk_of(["abc", "xbc", "ybc"]))
    assert list(done.texts) == ["abc"]
    assert [(u.row, u.raw) for u in done.unreadable] == [(1, b"xbc"), (2, b"ybc")]
    assert "the edits of liar do not give the text" in done.unreadable[0].error
    assert "UnicodeEncodeError" in done.unreadable[1].error


def test_the_time_of_a_stage_adds_up() -> None:
    once = run_stage(Digits(), chunk_of(["1"]))
    twice = run_stage(Digits(), once)
    assert 0 < once.seconds["digits"] < twice.seconds["digits"]
