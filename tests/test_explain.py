"""`explain`: the trail of every kind of record, found by either id, with nothing that a terminal obeys."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_run import BAD, DROPPED, EDITED, KEPT, NEAR, RULE, TWICE, SmallRun, small_run

from pipeline.explain import NoTrail, UnknownId, explain, explain_command
from pipeline.plan import Plan, read_plan, write_plan
from pipeline.store import open_store


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return small_run(tmp_path_factory)


@pytest.fixture(scope="module")
def rows(run: SmallRun) -> dict[str, dict[str, Any]]:
    return {r["input_id"]: r for r in pq.read_table(run.output / "audit").to_pylist()}


def trail(output: Path, wanted: str, text: bool = False) -> str:
    return explain(open_store(str(output)), wanted, text)


def section(text: str, title: str) -> list[str]:
    """The lines of the section that begins with this word."""
    parts = [part.splitlines() for part in text.rstrip("\n").split("\n\n")]
    return next(lines for lines in parts if lines[0].split()[0] == title)


def test_every_record_has_a_trail_that_agrees_with_its_row(
    run: SmallRun, rows: Mapping[str, Mapping[str, Any]]
) -> None:
    for row in rows.values():
        text = trail(run.output, row["doc_id"])
        assert text.startswith(f"{row['doc_id']}\n")
        marked = [line for line in text.splitlines() if line.startswith("  FAIL")]
        assert bool(marked) == bool(row["failed"])
        for failed in row["failed"]:
            stage, _, reason = failed.partition(".")
            (shown,) = [
                x for x in section(text, stage) if x.startswith("  FAIL") and _reason(x, stage) == reason
            ]
            assert shown
        for digest in ("annotate_digest", "decide_digest"):
            assert row[digest] in text


def _reason(line: str, stage: str) -> str:
    return "over_budget" if stage == "balance_languages" else line.rpartition(": ")[2]


def test_a_kept_document(run: SmallRun, rows: Mapping[str, Mapping[str, Any]]) -> None:
    text = trail(run.output, rows[KEPT]["doc_id"])
    assert "\nKept: no stage refused it.\n" in text
    assert "  pass  words                     60       at least 5 (min_words)" in section(
        text, "gopher_quality"
    )
    assert "  -     identify_language" in "\n".join(section(text, "identify_language"))
    assert "(no min_probability)" in text
    (shard,) = [line.split()[1] for line in section(text, "Where") if line.startswith("  shard")]
    assert rows[KEPT]["doc_id"] in pq.read_table(run.output / shard)["doc_id"].to_pylist()
    (work,) = [line.split()[2] for line in section(text, "Where") if line.startswith("  work file")]
    assert rows[KEPT]["doc_id"] in pq.read_table(run.output / work)["doc_id"].to_pylist()


def test_a_document_written_twice(run: SmallRun) -> None:
    text = trail(run.output, TWICE)
    assert "Kept, written 2 times" in text
    assert section(text, "balance_languages")[1].startswith("  pass  keyed hash")
    assert section(text, "balance_languages")[1].endswith(", 2 in all")


def test_a_document_that_rules_refused(run: SmallRun) -> None:
    text = trail(run.output, RULE)
    assert "\nRejected by gopher_quality: empty (it holds no word).\n" in text
    assert "\nIt also fails gopher_quality.too_few_words.\n" in text
    lines = section(text, "gopher_quality")
    assert lines[2] == "  FAIL  words                     0             at least 5 (min_words): too_few_words"
    assert lines[4].split(maxsplit=2)[:2] == ["-", "mean_word_chars"]
    assert "not measured" in lines[4]
    assert (
        section(text, "near_duplicates")[0] == "near_duplicates (not asked: gopher_quality refused it before)"
    )


def test_a_near_copy(run: SmallRun, rows: Mapping[str, Mapping[str, Any]]) -> None:
    text = trail(run.output, NEAR)
    row = rows[NEAR]
    assert section(text, "Repeats") == [
        f"Repeats {row['duplicate_of']}",
        f"  similarity {row['similarity']:.6g}",
    ]
    assert section(text, "near_duplicates")[1].startswith("  FAIL  near_duplicates")
    assert "none" in section(text, "exact_duplicates")[1]


def test_texts_are_shown_only_when_asked_for(run: SmallRun) -> None:
    words = (run.inputs / "a.jsonl").read_text().splitlines()[5]
    begin = json.loads(words)["text"][:60]
    assert begin not in trail(run.output, NEAR)
    shown = trail(run.output, NEAR, text=True)
    assert shown.count(begin) == 2
    assert "The text it repeats\n" in shown


def test_a_document_that_balance_left_out(run: SmallRun, rows: Mapping[str, Mapping[str, Any]]) -> None:
    text = trail(run.output, DROPPED)
    (line,) = [x for x in section(text, "balance_languages") if x.startswith("  FAIL")]
    assert f"{dict(rows[DROPPED]['scores'])['balance_languages']:.6g}" in line
    assert line.endswith("(max_sampling_hash): over_budget")
    assert " above " in line


def test_edits_and_flags(run: SmallRun) -> None:
    text = trail(run.output, EDITED)
    assert section(text, "1") == [
        "1 edit of the text",
        "  read.lone_surrogate at 0-1: (not stored) -> '\N{REPLACEMENT CHARACTER}'",
    ]
    assert "  flags       lone_surrogate\n" in text


def test_a_quarantined_record(run: SmallRun, rows: Mapping[str, Mapping[str, Any]]) -> None:
    text = trail(run.output, BAD)
    assert f"Quarantined: read could not take it: no_text: {rows[BAD]['error']}" in text
    (where,) = [line for line in section(text, "Where") if line.startswith("  raw record")]
    name, _, line = where.removeprefix("  raw record").strip().partition(", line ")
    stored = (run.output / name).read_text().splitlines()[int(line) - 1]
    assert json.loads(stored)["doc_id"] == rows[BAD]["doc_id"]


def test_an_input_id_finds_its_record(run: SmallRun, rows: Mapping[str, Mapping[str, Any]]) -> None:
    assert trail(run.output, KEPT) == trail(run.output, rows[KEPT]["doc_id"])


def test_an_input_id_of_two_records(
    run: SmallRun, rows: Mapping[str, Mapping[str, Any]], tmp_path: Path
) -> None:
    output = run.copy(tmp_path)
    for path in (output / "audit").glob("*"):
        table = pq.read_table(path).to_pylist()
        renamed = [{**r, "input_id": KEPT} if r["input_id"] == DROPPED else r for r in table]
        pq.write_table(pa.Table.from_pylist(renamed, pq.read_schema(path)), path)
    with pytest.raises(UnknownId, match="2 records have the input_id r0") as error:
        trail(output, KEPT)
    assert rows[KEPT]["doc_id"] in str(error.value)
    assert rows[DROPPED]["doc_id"] in str(error.value)


def test_unknown_ids_name_the_nearest(run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    near = {
        "in/b.jsonl#1": "in/b.jsonl#0",
        "in/bb.jsonl#0": "in/b.jsonl#0",
        "r244": "r24",
        "no-txt": "no-text",
    }
    for wanted, nearest in near.items():
        assert explain_command([str(run.output), wanted]) == 1
        assert nearest in capsys.readouterr().err.partition("the nearest: ")[2]
    assert explain_command([str(run.output), "\x1b[31m"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_only_audits_that_can_hold_the_record_are_read(
    run: SmallRun, rows: Mapping[str, Mapping[str, Any]], tmp_path: Path
) -> None:
    output = run.copy(tmp_path)
    plan = read_plan(open_store(str(output)))
    for unit in plan.units:
        if all(s.file.path != "a.jsonl" for s in unit.segments):
            (output / f"audit/{unit.unit_id}.parquet").write_bytes(b"")
    assert trail(output, rows[KEPT]["doc_id"]) == trail(run.output, rows[KEPT]["doc_id"])


def test_a_damaged_audit(run: SmallRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = run.copy(tmp_path)
    for path in (output / "audit").glob("*"):
        path.write_bytes(b"PAR1 nothing")
    assert explain_command([str(output), KEPT]) == 1
    assert "damaged" in capsys.readouterr().err


def test_nothing_that_a_terminal_obeys_is_printed(run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_command([str(run.output), "evil\x1b[31m\u202e", "--text"]) == 0
    out = capsys.readouterr().out
    assert r"evil\x1b[31m\u202e" in out
    assert all(c.isprintable() or c == "\n" for c in out)


def test_a_folder_without_a_run(tmp_path: Path, run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_command([str(tmp_path), KEPT]) == 2
    assert "plan.jsonl" in capsys.readouterr().err
    store = open_store(str(tmp_path / "planned"))
    write_plan(store, read_plan(open_store(str(run.output))))
    with pytest.raises(NoTrail, match="no audit"):
        explain(store, KEPT)


def test_stages_that_did_not_judge(run: SmallRun, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    store = open_store(str(output))
    plan = read_plan(store)
    only = dataclasses.replace(plan.recipe, only=("gopher_quality", "near_duplicates"))
    write_plan(store, Plan(only, plan.units, plan.digest))
    text = trail(output, KEPT)
    assert section(text, "identify_language")[0] == "identify_language (measured only)"
    for path in (output / "audit").glob("*"):
        code = [{**r, "kind": "code"} for r in pq.read_table(path).to_pylist()]
        pq.write_table(pa.Table.from_pylist(code, pq.read_schema(path)), path)
    assert section(trail(output, KEPT), "gopher_quality")[0] == "gopher_quality (does not judge code)"
