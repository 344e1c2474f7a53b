"""`verify` on an untouched run, and on every kind of tampering with checksums and counts made to match."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_run import SmallRun, small_run

from pipeline.annotate import text_hash
from pipeline.decide import survey
from pipeline.findings import ROWS_NAMED, Finding, Findings
from pipeline.plan import Plan, read_plan
from pipeline.store import Store, open_store
from pipeline.verify import PRINTED, NoRun, verify, verify_command
from pipeline.verify_deep import changed_inputs, check_again, compare_decided, compare_measured
from pipeline.verify_files import Disk, check_units, plan_digest
from schemas.tables import ANNOTATION_BASE, AUDIT, CORPUS, TEXT

Row = dict[str, Any]

KEPT, TWICE, RULE, EXACT, NEAR, DROPPED, EDITED, BAD = (
    "r0",
    "r24",
    "r30",
    "r28",
    "r29",
    "r9",
    "r31",
    "no-text",
)
"""Input ids of a document of each kind: kept, written twice, refused by a rule, as a copy, as a near-copy,
by balance, with an edit, and quarantined."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    return small_run(tmp_path_factory)


@pytest.fixture(scope="module")
def again(run: SmallRun) -> Store:
    """What a second run writes: the first one's output, as the deep check of the untouched run shows."""
    return open_store(str(run.output))


# Tampering: the files first, then everything that says what the files are.


def change(
    folder: Path, which: str | Callable[[Row], bool], edit: Callable[[Row], Row | Iterable[Row]]
) -> None:
    """Replace the rows of a record, or all that are asked for, in every table of a folder by what `edit`
    gives (nothing: they are deleted)."""
    touched = 0
    for path in sorted(folder.rglob("*.parquet")):
        with path.open("rb") as file:
            table = pq.ParquetFile(file).read()
        rows: list[Row] = []
        for row in table.to_pylist():
            if row["input_id"] == which if isinstance(which, str) else which(row):
                touched += 1
                changed = edit(row)
                rows += [changed] if isinstance(changed, dict) else list(changed)
            else:
                rows.append(row)
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    assert touched, f"{folder} has no row of {which}"


def setting(**columns: Any) -> Callable[[Row], Row]:
    """An edit that sets columns."""
    return lambda row: {**row, **columns}


def number(column: str, name: str, value: float | None) -> Callable[[Row], Row]:
    """An edit that sets one number of a map column, or takes it out."""

    def edit(row: Row) -> Row:
        values = {**dict(row[column]), name: value}
        return {**row, column: sorted((k, v) for k, v in values.items() if v is not None)}

    return edit


def restamp(output: Path) -> None:
    """Make every manifest match the files: sizes, sha256, rows, sums, digests, and the success mark."""
    store = open_store(str(output))
    files: Row = {}
    for path in sorted(output.rglob("*")):
        name = path.relative_to(output).as_posix()
        folders = ("corpus", "audit", "annotations", "text", "quarantine", "report")
        if path.is_file() and (name.split("/")[0] in folders or name == "plan.jsonl"):
            files[name] = stamp(path)
    for path in sorted((output / "units").glob("*.json")):
        unit = json.loads(path.read_text())
        for chunk in unit["chunks"]:
            for entry in chunk["files"].values():
                known = files.get(entry["name"], {})
                entry.update({k: known[k] for k in ("bytes", "sha256", "rows") if k in known})
        path.write_text(json.dumps(unit, sort_keys=True))
        files[f"units/{path.name}"] = stamp(path)
    manifest = json.loads((output / "manifest.json").read_text())
    manifest["files"] = files
    plan = read_plan(store)
    manifest["recipe"] = plan.recipe.to_json()
    manifest["plan"] = {"digest": plan.digest, "units": len(plan.units), "bytes": plan.bytes}
    try:
        corpus = survey(store, plan)
        manifest["decision"] = {"key": corpus.key, "documents": corpus.documents, "chunks": corpus.chunks}
    except RuntimeError:  # a unit is gone
        pass
    decisions = pq.read_table(output / "audit", columns=["decision"]).column("decision").to_pylist()
    for decision in ("kept", "rejected", "quarantined"):
        manifest["accounting"][decision] = decisions.count(decision)
    seal(output, manifest)


def stamp(path: Path) -> Row:
    data = path.read_bytes()
    rows: int | None = None
    if path.suffix == ".parquet":
        rows = pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows
    elif path.suffix == ".jsonl" and path.name != "plan.jsonl":
        rows = len(data.splitlines())
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": rows, "tokens": None}


def seal(output: Path, manifest: Mapping[str, Any]) -> None:
    data = json.dumps(manifest).encode()
    (output / "manifest.json").write_bytes(data)
    (output / "_SUCCESS").write_text(json.dumps({"manifest": hashlib.sha256(data).hexdigest()}))


def found(output: Path) -> list[Finding]:
    return verify(open_store(str(output)))


def has(findings: Iterable[Finding], file: str, problem: str) -> bool:
    return any(f.file.startswith(file) and problem in f.problem for f in findings)


def shown(findings: Iterable[Finding]) -> str:
    return "\n".join(map(str, findings))


# Untouched.


def test_an_untouched_run_verifies_clean(run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([str(run.output)]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_an_untouched_run_verifies_clean_deep(run: SmallRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command([str(run.output), "--deep"]) == 0
    assert "again from the input" in capsys.readouterr().out


def test_restamping_alone_changes_nothing(run: SmallRun, tmp_path: Path) -> None:
    output = run.copy(tmp_path)
    restamp(output)
    assert found(output) == []


# Without --deep.


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


def doc_id(out: Path, input_id: str) -> str:
    rows = pq.read_table(out / "audit", columns=["doc_id", "input_id"]).to_pylist()
    return str(next(r["doc_id"] for r in rows if r["input_id"] == input_id))


def repeats(input_id: str, other: str) -> Callable[[Path], None]:
    """duplicate_of of a record becomes another record."""

    def tamper(out: Path) -> None:
        change(out / "audit", input_id, setting(duplicate_of=doc_id(out, other)))

    return tamper


def unrefused(input_id: str, *names: str) -> Callable[[Path], None]:
    """A refused record becomes a kept one, without the numbers that refused it, and is put in the corpus."""

    def tamper(out: Path) -> None:
        columns: Row = {"decision": "kept", "stage": None, "reason": None, "failed": [], "epochs": 1}
        columns |= {"duplicate_of": None, "similarity": None}
        for name in names:
            change(out / "audit", input_id, number("scores", name, None))
        change(out / "audit", input_id, setting(**columns))
        in_corpus(input_id)(out)

    return tamper


def in_corpus(input_id: str) -> Callable[[Path], None]:
    """A record is written to the first English shard."""

    def tamper(out: Path) -> None:
        rows = [
            r
            for p in (out / "text").glob("*")
            for r in pq.read_table(p).to_pylist()
            if r["input_id"] == input_id
        ]
        path = sorted((out / "corpus/en").glob("*"))[0]
        new = {n: rows[0].get(n) for n in CORPUS.names} | {"epoch": 0}
        table = pq.read_table(path)
        pq.write_table(pa.concat_tables([table, pa.Table.from_pylist([new], CORPUS)]), path)

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


def quarantine(edit: Callable[[Row], Row]) -> Callable[[Path], None]:
    def tamper(out: Path) -> None:
        (path,) = (out / "quarantine").glob("*.jsonl")
        path.write_text(
            "".join(json.dumps(edit(json.loads(x))) + "\n" for x in path.read_text().splitlines())
        )

    return tamper


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


NEW_ENTRY: dict[str, Any] = {
    "edits": {"stage": "s", "start": 0, "end": 0, "rule": "r", "before": None, "after": "x"},
    "loss_mask_spans": {"start": 0, "end": 1},
}


def another(column: str, kind: pa.DataType, value: Any) -> Any:
    """Another value for a column."""
    if pa.types.is_map(kind):
        (name, number), *others = value
        return [(name, number + 1.0), *others]
    if pa.types.is_list(kind):
        return [*value, NEW_ENTRY.get(column, "other")]
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes(reversed(value))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "other" if value is None else f"{value}x"
    return (value or 0) + 1


def cell(schema: pa.Schema, column: str) -> Callable[[Row], Row]:
    return lambda row: {**row, column: another(column, schema.field(column).type, row[column])}


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


# With --deep: the tamperer has changed annotations, texts, audit, corpus and all manifests alike.


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
