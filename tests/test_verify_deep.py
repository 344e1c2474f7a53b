"""`verify --deep`: what is changed in annotations, texts, audit, corpus and all manifests alike is found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small_run import EDITED, KEPT, NEAR, SmallRun, small_run
from tampering import (
    Row,
    cell,
    change,
    doc_id,
    found,
    has,
    number,
    quarantine,
    restamp,
    setting,
    shown,
    unrefused,
)

from pipeline.annotate import text_hash
from pipeline.findings import Finding, Findings
from pipeline.plan import Plan, plan_digest, read_plan
from pipeline.store import Store, open_store
from pipeline.verify import verify_command
from pipeline.verify_deep import changed_inputs, check_again, compare_decided, compare_measured
from pipeline.verify_files import Disk, check_units
from schemas.tables import ANNOTATION_BASE, CORPUS, TEXT

WORDS = "gopher_quality.words"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return small_run(tmp_path_factory)


@pytest.fixture(scope="module")
def again(run: SmallRun) -> Store:
    """What a second run writes: the first one's output, as the deep check of the untouched run shows."""
    return open_store(str(run.output))


def test_an_untouched_run_verifies_clean_deep(run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([str(run.output), "--deep"]) == 0
    assert "again from the input" in capsys.readouterr().out


def deep(output: Path, again: Store) -> list[Finding]:
    store = open_store(str(output))
    plan = read_plan(store)
    works = check_units(Disk(store), plan, json.loads((output / "manifest.json").read_text()), Findings())
    findings = Findings()
    compare_measured(store, works, again, plan, findings)
    compare_decided(store, works, again, findings)
    return findings.all


def everywhere(output: Path, input_id: str, **edits: Callable[[Row], Row]) -> None:
    for folder, edit in edits.items():
        change(output / folder, input_id, edit)
    restamp(output)


def test_a_score_changed_everywhere(run: SmallRun, again: Store, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    in_map = number("scores", WORDS, 61.0)
    everywhere(
        output, KEPT, annotations=setting(**{WORDS: 61.0}), text=in_map, audit=in_map, corpus=in_map
    )  # fmt: skip
    assert found(output) == []
    findings = deep(output, again)
    for folder in ("annotations/", "text/", "audit/", "corpus/"):
        assert has(findings, folder, "61.0"), folder
    assert {f.record for f in findings} == {doc_id(output, KEPT)}


def test_a_text_changed_everywhere(run: SmallRun, again: Store, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    (row,) = [r for r in pq.read_table(output / "corpus").to_pylist() if r["input_id"] == KEPT]
    new = row["text"][:9] + "#" + row["text"][10:]
    text, its_hash = setting(text=new), setting(text_hash=text_hash(new))
    everywhere(output, KEPT, annotations=its_hash, text=text, audit=its_hash, corpus=text)
    assert found(output) == []
    findings = deep(output, again)
    assert has(findings, "text/", "text differs from")
    assert has(findings, "corpus/", "from character 9 on")
    assert has(findings, "annotations/", "text_hash is")
    assert has(findings, "audit/", "text_hash is")
    assert new[:20] not in shown(findings)


def test_an_edit_changed_everywhere(run: SmallRun, again: Store, tmp_path: Path) -> None:
    output = run.copy(tmp_path)

    def edit(row: Row) -> Row:
        return {**row, "edits": [{**row["edits"][0], "before": "x"}]}

    everywhere(output, EDITED, annotations=edit, audit=edit)
    assert found(output) == []
    findings = deep(output, again)
    assert has(findings, "annotations/", "edits, entry 0")
    assert has(findings, "audit/", "edits, entry 0")


def test_a_near_copy_made_to_look_unlike(run: SmallRun, again: Store, tmp_path: Path) -> None:
    """Only a new search finds that a document should have been refused as a near-copy."""
    output = run.copy(tmp_path)
    unrefused(NEAR, "near_duplicates")(output)
    restamp(output)
    assert has(deep(output, again), "audit/", "decision is 'kept', but 'rejected'")


@pytest.mark.parametrize("column", [n for n in CORPUS.names if n not in ("doc_id", "input_id", "epoch")])
def test_a_change_in_any_column_of_a_shard_is_found_deep(
    run: SmallRun, again: Store, tmp_path: Path, column: str
) -> None:
    output = run.copy(tmp_path)
    everywhere(output, KEPT, corpus=cell(CORPUS, column))
    assert has(deep(output, again), "corpus/", column)


@pytest.mark.parametrize(
    "column",
    [n for n in (*ANNOTATION_BASE.names, WORDS, "exact_hash") if n not in ("doc_id", "input_id", "flags")],
)
def test_a_change_in_any_column_of_the_annotations_is_found_deep(
    run: SmallRun, again: Store, tmp_path: Path, column: str
) -> None:
    output = run.copy(tmp_path)
    path = next(
        p for p in (output / "annotations").glob("*") if KEPT in pq.read_table(p)["input_id"].to_pylist()
    )
    everywhere(output, KEPT, annotations=cell(pq.read_schema(path), column))
    assert has(deep(output, again), "annotations/", column)


@pytest.mark.parametrize("column", ["row", "text", "url", "metadata", "language", "scores"])
def test_a_change_in_a_work_file_of_texts_is_found_deep(
    run: SmallRun, again: Store, tmp_path: Path, column: str
) -> None:
    output = run.copy(tmp_path)
    everywhere(output, KEPT, text=cell(TEXT, column))
    assert has(deep(output, again), "text/", column)


def test_a_quarantined_record_changed_is_found_deep(run: SmallRun, again: Store, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    quarantine(lambda r: {**r, "raw": "nothing of interest"})(output)
    restamp(output)
    assert found(output) == []
    assert has(deep(output, again), "quarantine/", "line 1 differs")


def test_a_shard_too_many_or_too_few_is_found_deep(run: SmallRun, again: Store, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    first, *_ = sorted((output / "corpus/en").glob("*"))
    first.rename(first.with_name("other.parquet"))
    restamp(output)
    findings = deep(output, again)
    assert has(findings, "corpus/en/other.parquet", "is not in")
    assert has(findings, f"corpus/en/{first.name}", "is not there")


# The inputs of a deep check.


def with_input(plan: Plan, path: str, url: str) -> Plan:
    """The plan with one of its files lying elsewhere."""
    units = tuple(
        dataclasses.replace(
            u,
            segments=tuple(
                dataclasses.replace(s, file=dataclasses.replace(s.file, url=url))
                if s.file.path == path
                else s
                for s in u.segments
            ),
        )
        for u in plan.units
    )
    return Plan(plan.recipe, units, plan_digest(plan.recipe, units))


def plan_of(run: SmallRun) -> Plan:
    return read_plan(open_store(str(run.output)))


def test_unchanged_inputs(run: SmallRun) -> None:
    findings = Findings()
    assert changed_inputs(plan_of(run), findings) == set()
    assert findings.all == []


def test_a_changed_input_is_its_own_finding(run: SmallRun, tmp_path: Path) -> None:
    """Units of the other file are measured again and hold; nothing is decided again."""
    other = tmp_path / "a.jsonl"
    other.write_bytes((run.inputs / "a.jsonl").read_bytes().replace(b"river", b"RIVER", 1))
    plan = with_input(plan_of(run), "a.jsonl", other.as_uri())
    store = open_store(str(run.output))
    manifest = json.loads((run.output / "manifest.json").read_text())
    works = check_units(Disk(store), plan, manifest, Findings())
    findings = Findings()
    check_again(store, plan, works, 1, findings)
    assert [f.record for f in findings.all] == ["in/a.jsonl", None], shown(findings.all)
    assert "fingerprint is" in findings.all[0].problem
    assert "nothing is decided again" in findings.all[1].problem


def test_a_missing_input_is_its_own_finding(run: SmallRun, tmp_path: Path) -> None:
    findings = Findings()
    plan = with_input(plan_of(run), "b.jsonl", (tmp_path / "b.jsonl").as_uri())
    assert changed_inputs(plan, findings) == {("in", "b.jsonl")}
    assert "cannot be read" in findings.all[0].problem


def test_a_unit_taken_out_of_the_plan_is_found(run: SmallRun) -> None:
    plan = plan_of(run)
    findings = Findings()
    changed_inputs(Plan(plan.recipe, plan.units[1:], plan_digest(plan.recipe, plan.units[1:])), findings)
    assert has(findings.all, "plan.jsonl", "cut again, give other units")
