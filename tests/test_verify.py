"""`verify` on an untouched run, and on every kind of tampering with checksums and counts made to match."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_run import BAD, DROPPED, EDITED, EXACT, KEPT, NEAR, RULE, TWICE, SmallRun, small_run
from tampering import (
    Row,
    cell,
    change,
    doc_id,
    found,
    has,
    in_corpus,
    number,
    quarantine,
    restamp,
    seal,
    setting,
    shown,
    unrefused,
)

from pipeline import verify_rows
from pipeline.explain import NoTrail, explain
from pipeline.findings import MOST, ROWS_NAMED, Findings
from pipeline.plan import Plan, plan_digest, read_plan, write_plan
from pipeline.store import open_store
from pipeline.verify import PRINTED, NoRun, verify_command
from pipeline.verify_rows import number_columns
from schemas.tables import AUDIT, SCORE_MAP


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return small_run(tmp_path_factory)


def test_an_untouched_run_verifies_clean(run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([str(run.output)]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_restamping_alone_changes_nothing(run: SmallRun, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    restamp(output)
    assert found(output) == []


def deleted(folder: str, input_id: str = KEPT) -> Callable[[Path], None]:
    return lambda out: change(out / folder, input_id, lambda _: [])


def audit(input_id: str, edit: Callable[[Row], Row | Iterable[Row]]) -> Callable[[Path], None]:
    return lambda out: change(out / "audit", input_id, edit)


def shard(input_id: str, edit: Callable[[Row], Row | Iterable[Row]]) -> Callable[[Path], None]:
    return lambda out: change(out / "corpus", input_id, edit)


def gone(pattern: str) -> Callable[[Path], None]:
    def tamper(out: Path) -> None:
        sorted(out.glob(pattern))[0].unlink()

    return tamper


def repeats(input_id: str, other: str) -> Callable[[Path], None]:
    """duplicate_of of a record becomes another record."""

    def tamper(out: Path) -> None:
        change(out / "audit", input_id, setting(duplicate_of=doc_id(out, other)))

    return tamper


def moved(out: Path) -> None:
    """A German row lies among the English ones."""
    (german,) = (out / "corpus/de").glob("*")
    rows = pq.read_table(german)
    english = sorted((out / "corpus/en").glob("*"))[0]
    pq.write_table(pa.concat_tables([pq.read_table(english), rows.slice(0, 1)]), english)
    pq.write_table(rows.slice(1), german)


def once(out: Path) -> None:
    """A document that is written twice is written once, and its row says so."""
    change(out / "audit", TWICE, setting(epochs=1))
    change(out / "corpus", TWICE, lambda r: [] if r["epoch"] else [r])


def whole_language(column: str, name: str, value: float) -> Callable[[Path], None]:
    """A number in every audit row of the survivors in English."""

    def chosen(row: Row) -> bool:
        return row["language"] == "en" and name in dict(row[column])

    return lambda out: change(out / "audit", chosen, number(column, name, value))


def reordered(out: Path) -> None:
    path = sorted((out / "audit").glob("*"))[0]
    table = pq.read_table(path)
    pq.write_table(table.take(pa.array(range(table.num_rows))[::-1]), path)


CUT, HASH = "balance_languages.max_sampling_hash", "balance_languages"
JACCARD, WORDS = "near_duplicates.min_jaccard", "gopher_quality.words"

TAMPERED: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "deleted audit row": (deleted("audit"), "audit/", "has no row here"),
    "doubled audit row": (audit(KEPT, lambda r: [r, r]), "audit/", "has two rows here"),
    "foreign audit row": (
        audit(KEPT, lambda r: [r, {**r, "doc_id": "in/x#1"}]),
        "audit/",
        "a row here and none in",
    ),
    "audit rows in another order": (reordered, "audit/", "not in the order"),
    "deleted audit file": (gone("audit/*"), "audit/", "cannot be read"),
    "deleted unit file": (gone("units/*"), "units/", "is not there, but plan.jsonl has this unit"),
    "deleted text file": (gone("text/*"), "text/", "is listed in units/"),
    "deleted shard row": (deleted("corpus"), "audit/", "copy 0 is in no shard"),
    "deleted second copy": (
        shard(TWICE, lambda r: [] if r["epoch"] else [r]),
        "audit/",
        "epochs is 2, and copy 1 is in no shard",
    ),
    "deleted shard": (gone("corpus/en/*"), "audit/", "copy 0 is in no shard"),
    "doubled shard row": (shard(KEPT, lambda r: [r, r]), "corpus/en/", "stands in the shards twice"),
    "one copy more": (shard(KEPT, lambda r: [r, {**r, "epoch": 1}]), "corpus/en/", "is copy 1"),
    "refused row in a shard": (in_corpus(RULE), "corpus/en/", "the audit asks for 0 copies"),
    "foreign row in a shard": (shard(KEPT, setting(doc_id="in/x#1")), "corpus/en/", "is in no audit row"),
    "row in another folder": (moved, "corpus/en/", "does not belong in en/"),
    "changed text in a shard": (
        shard(KEPT, setting(text="another")),
        "corpus/en/",
        "its text is not the one",
    ),
    "changed score in a shard": (
        shard(KEPT, number("scores", WORDS, 61.0)),
        "corpus/en/",
        "its scores or one",
    ),
    "changed language in a shard": (shard(KEPT, setting(language="fr")), "corpus/en/", "its scores or one"),
    "flipped to kept": (audit(RULE, setting(decision="kept")), "audit/", "decision is 'kept'"),
    "flipped to rejected": (audit(KEPT, setting(decision="rejected")), "audit/", "decision is 'rejected'"),
    "flipped with all that says it": (unrefused(RULE), "audit/", "failed has 0 entries"),
    "a copy that is kept": (unrefused(EXACT, "exact_duplicates"), "audit/", "and it is not refused"),
    "a quarantined record that is kept": (
        audit(BAD, setting(decision="kept")),
        "audit/",
        "decision is 'kept'",
    ),
    "changed reason": (audit(RULE, setting(reason="too_few_words")), "audit/", "reason is"),
    "changed stage": (audit(RULE, setting(stage="near_duplicates")), "audit/", "stage is"),
    "shortened failed": (
        audit(RULE, lambda r: {**r, "failed": r["failed"][:1]}),
        "audit/",
        "failed has 1 entries, 2 in",
    ),
    "changed score": (audit(KEPT, number("scores", WORDS, 61.0)), "audit/", f"score {WORDS} is 61.0"),
    "deleted score": (audit(KEPT, number("scores", WORDS, None)), "audit/", f"score {WORDS} is not there"),
    "invented score": (audit(KEPT, number("scores", "quality", 0.9)), "audit/", "score quality is 0.9"),
    "score that is no number": (audit(KEPT, number("scores", WORDS, float("nan"))), "audit/", "or is none"),
    "changed threshold": (
        audit(RULE, number("thresholds", "gopher_quality.min_words", 1.0)),
        "audit/",
        "threshold gopher_quality.min_words is 1.0, but 5.0 in the recipe",
    ),
    "deleted threshold": (
        audit(RULE, number("thresholds", "gopher_quality.min_words", None)),
        "audit/",
        "threshold gopher_quality.min_words is not there",
    ),
    "changed similarity threshold": (
        audit(NEAR, number("thresholds", JACCARD, 0.99)),
        "audit/",
        f"threshold {JACCARD}",
    ),
    "changed edit": (
        audit(EDITED, lambda r: {**r, "edits": [{**r["edits"][0], "rule": "other"}]}),
        "audit/",
        "edits, entry 0, is",
    ),
    "deleted edit": (audit(EDITED, setting(edits=[])), "audit/", "edits has 0 entries, 1 in"),
    "copy of a later document": (repeats(EXACT, EDITED), "audit/", "and duplicate_of names another"),
    "copy of another document": (repeats(EXACT, KEPT), "audit/", "and duplicate_of names another"),
    "near-copy of another document": (repeats(NEAR, KEPT), "audit/", "similarity is"),
    "near-copy of a later document": (repeats(NEAR, EDITED), "audit/", "which is not an earlier document"),
    "near-copy of a refused document": (repeats(NEAR, EXACT), "audit/", "refused itself"),
    "copy of no document": (
        audit(NEAR, setting(duplicate_of="in/x#1")),
        "audit/",
        "names a document that is in no",
    ),
    "copy without the other": (audit(NEAR, setting(duplicate_of=None)), "audit/", "duplicate_of is null"),
    "kept with a duplicate_of": (repeats("r1", KEPT), "audit/", "no duplicate step refused it"),
    "changed similarity": (
        audit(NEAR, lambda r: number("scores", "near_duplicates", 0.7)({**r, "similarity": 0.7})),
        "audit/",
        "similarity is 0.7",
    ),
    "similarity that is not the score": (
        audit(NEAR, setting(similarity=0.7)),
        "audit/",
        "value similarity is 0.7",
    ),
    "fewer epochs": (once, "audit/", "value epochs is 1.0, but 2.0"),
    "changed sampling hash": (audit(DROPPED, number("scores", HASH, 0.0)), "audit/", f"score {HASH} is 0.0,"),
    "changed cut of one row": (
        audit(DROPPED, number("thresholds", CUT, 0.99)),
        "audit/",
        "the documents of en give",
    ),
    "changed cut of a language": (
        whole_language("thresholds", CUT, 0.7),
        "audit/",
        "the documents of en give",
    ),
    "changed error in quarantine": (
        quarantine(lambda r: {**r, "error": "fine"}),
        "quarantine/",
        "line 1: error is",
    ),
    "changed id in quarantine": (
        quarantine(lambda r: {**r, "doc_id": "in/x#1"}),
        "quarantine/",
        "line 1: doc_id is",
    ),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_tampering_is_found(run: SmallRun, tmp_path: Path, kind: str) -> None:
    tamper, file, problem = TAMPERED[kind]
    output = run.copy(tmp_path)
    tamper(output)
    restamp(output)
    findings = found(output)
    assert has(findings, file, problem), shown(findings)


@pytest.mark.parametrize("column", AUDIT.names)
def test_a_change_in_any_column_of_the_audit_is_found(run: SmallRun, tmp_path: Path, column: str) -> None:
    output = run.copy(tmp_path)
    change(output / "audit", NEAR, cell(AUDIT, column))
    restamp(output)
    assert has(found(output), "audit/", "")


def test_files_that_no_manifest_lists_are_found(run: SmallRun, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    for name in ("corpus/en/more.parquet", "audit/more.parquet"):
        shutil.copy(sorted((output / name).parent.glob("*"))[0], output / name)
    findings = found(output)
    for name in ("corpus/en/more.parquet", "audit/more.parquet"):
        assert has(findings, name, "is not listed in manifest.json")


@pytest.mark.parametrize("folder", ["audit", "annotations", "text", "units"])
def test_files_that_no_unit_of_the_plan_has_are_found(run: SmallRun, tmp_path: Path, folder: str) -> None:
    output = run.copy(tmp_path)
    path = sorted((output / folder).glob("*"))[0]
    shutil.copy(path, path.with_name(f"more{path.suffix}"))
    restamp(output)
    assert has(
        found(output),
        f"{folder}/more",
        "no unit names it" if folder in ("annotations", "text") else "does not have",
    )


def test_a_plan_without_units_does_not_hide_what_lies_there(run: SmallRun, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    store = open_store(str(output))
    recipe = read_plan(store).recipe
    write_plan(store, Plan(recipe, (), plan_digest(recipe, ())))
    shutil.rmtree(output / "units")
    restamp(output)
    findings = found(output)
    assert has(findings, "corpus/", "is in no audit row")
    assert has(findings, "audit/", "does not have")
    assert has(findings, "manifest.json", "accounting is")


@pytest.mark.parametrize("key", ["bytes", "sha256", "rows"])
def test_what_the_manifest_says_of_a_file_is_compared(run: SmallRun, tmp_path: Path, key: str) -> None:
    output = run.copy(tmp_path)
    manifest = json.loads((output / "manifest.json").read_text())
    name = next(n for n in manifest["files"] if n.startswith("corpus/"))
    manifest["files"][name][key] = 1
    seal(output, manifest)
    assert has(found(output), name, f"{key} is")


@pytest.mark.parametrize(
    "key", ["recipe", "models", "annotate_digest", "decide_digest", "plan", "decision", "accounting"]
)
def test_what_the_manifest_says_of_the_run_is_computed_again(run: SmallRun, tmp_path: Path, key: str) -> None:
    output = run.copy(tmp_path)
    manifest = json.loads((output / "manifest.json").read_text())
    value = manifest[key]
    manifest[key] = f"{value}0" if isinstance(value, str) else {**value, next(iter(value)): 99}
    seal(output, manifest)
    assert [f for f in found(output) if key in f.problem]


def test_the_success_mark_names_the_manifest(run: SmallRun, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    with (output / "manifest.json").open("a") as file:
        file.write("\n")
    assert has(found(output), "_SUCCESS", "names another manifest.json")


def test_a_recipe_that_is_not_the_run_s_is_found(run: SmallRun, tmp_path: Path) -> None:
    """A looser threshold in plan and manifest, with all digests made again: the rows say another."""
    output = run.copy(tmp_path)
    head, *units = (output / "plan.jsonl").read_text().splitlines()
    data = json.loads(head)
    stage = next(s for s in data["recipe"]["stages"] if s["name"] == "gopher_quality")
    stage["settings"]["min_words"] = 2
    (output / "plan.jsonl").write_text("\n".join([json.dumps(data), *units]) + "\n")
    restamp(output)
    manifest = json.loads((output / "manifest.json").read_text())
    manifest["decide_digest"] = read_plan(open_store(str(output))).recipe.decide_digest
    seal(output, manifest)
    assert has(found(output), "audit/", "threshold gopher_quality.min_words is 5.0, but 2.0 in the recipe")


def test_a_plan_that_names_no_stage_makes_nothing_run(run: SmallRun, tmp_path: Path) -> None:
    """A folder comes from anyone: what its plan calls a stage is looked at before it is called."""
    output = run.copy(tmp_path)
    head, *units = (output / "plan.jsonl").read_text().splitlines()
    for use in ("subprocess:run", "subprocess:Popen", "small_run:SmallRun"):
        data = json.loads(head)
        settings = {"args": ["touch", str(tmp_path / "ran")]}
        data["recipe"]["stages"].append({"name": "x", "use": use, "settings": settings})
        (output / "plan.jsonl").write_text("\n".join([json.dumps(data), *units]) + "\n")
        assert has(found(output), "plan.jsonl", f"'{use}' must be a frozen dataclass")
        assert not (tmp_path / "ran").exists()
        with pytest.raises(NoTrail, match=use):
            explain(open_store(str(output)), KEPT)


DAMAGED = [
    "manifest.json",
    "_SUCCESS",
    "plan.jsonl",
    "units/*",
    "audit/*",
    "corpus/en/*",
    "annotations/*",
    "text/*",
]


@pytest.mark.parametrize("pattern", DAMAGED)
@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"{}"])
def test_a_damaged_file_is_a_finding_and_no_error(
    run: SmallRun, tmp_path: Path, pattern: str, content: bytes
) -> None:
    output = run.copy(tmp_path)
    sorted(output.glob(pattern))[0].write_bytes(content)
    assert found(output)


def test_exit_status_and_output(run: SmallRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = run.copy(tmp_path)
    change(
        output / "audit",
        lambda _: True,
        setting(flags=["\x1b[31m"], characters=1, error="\x1b[31m", text_hash="0"),
    )
    restamp(output)
    total = len(found(output))
    assert total > PRINTED
    assert verify_command([str(output)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == PRINTED + 2
    assert lines[PRINTED] == f"and {total - PRINTED} more findings"
    assert f"{total} findings" in lines[-1]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("missing", ["_SUCCESS", "manifest.json"])
def test_a_folder_without_a_finished_run(
    run: SmallRun, tmp_path: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run.copy(tmp_path)
    (output / missing).unlink()
    with pytest.raises(NoRun, match=missing):
        found(output)
    assert verify_command([str(output)]) == 2
    assert missing in capsys.readouterr().err


def test_findings_of_one_kind_are_bounded() -> None:
    findings = Findings()
    findings.rows("f", range(ROWS_NAMED + 7), str, lambda _: "wrong")
    assert len(findings.all) == ROWS_NAMED + 1
    assert "7 more rows" in findings.all[-1].problem


MAPS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(allow_nan=True)), max_size=4), max_size=6
)


@given(MAPS, st.integers(0, 3), st.integers(0, 3))
def test_number_columns_are_the_maps_rows(maps: list[list[tuple[str, float]]], skip: int, cut: int) -> None:
    column = pa.chunked_array([pa.array(maps, SCORE_MAP)]).slice(skip, max(0, len(maps) - skip - cut))
    rows = column.to_pylist()
    columns, odd = number_columns(column)
    for i, row in enumerate(rows):
        plain = {k: v for k, v in row if not math.isnan(v)}
        assert odd[i] == (len(dict(row)) < len(row) or len(plain) < len(dict(row)))
        if not odd[i]:
            assert {n: float(v[i]) for n, v in columns.items() if not math.isnan(v[i])} == plain


def test_a_run_of_many_blocks(run: SmallRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are checked block by block; where they are cut changes nothing."""
    monkeypatch.setattr(verify_rows, "BLOCK_ROWS", 2)
    assert found(run.output) == []


def test_findings_past_a_bound_are_counted() -> None:
    findings = Findings()
    for i in range(MOST + 3):
        findings.add("f", str(i))
    assert len(findings.listed()) == MOST + 1
    assert "3 more findings" in findings.listed()[-1].problem
