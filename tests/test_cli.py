"""The command line: exit statuses, messages, and what each option of `run` does to the output."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from own_runs import RECIPE, accounting, rows, sentence, sluice, tree, write_corpus, write_jsonl

from pipeline.catalogue import CATALOGUE, stage_class
from pipeline.cli import COMMANDS
from schemas.sampling import sampling_hash

TESTS = Path(__file__).parent
WEB = ["run", "web", "--input", "IN", "--output", "OUT"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, inputs, and a finished run of them in `out`; tests copy what they change."""
    top = tmp_path_factory.mktemp("small")
    (top / "small.toml").write_text(RECIPE)
    write_corpus(top / "in")
    ended = sluice("run", top / "small.toml", "--input", top / "in", "--output", top / "out")
    assert (ended.status, ended.err.count("Traceback")) == (0, 0), ended.err
    (top / "printed").write_text(ended.out)
    return top


# Wrong use ---------------------------------------------------------------------------------------


def test_no_command_prints_the_usage_as_wrong_use() -> None:
    for arguments, status in (((), 2), (("--help",), 0), (("-h",), 0)):
        ended = sluice(*arguments)
        assert ended.status == status
        assert all(f"  {name} " in ended.out for name in COMMANDS)


def test_the_version_is_that_of_the_distribution() -> None:
    assert sluice("--version").out == f"sluice {metadata.version('sluice-corpus')}\n"
    assert sluice("-V").status == 0


def test_the_module_is_the_console_script() -> None:
    done = subprocess.run([sys.executable, "-m", "pipeline", "rnu"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "sluice: unknown command 'rnu'; did you mean 'run'?\n"


def test_an_unknown_command_lists_the_known_ones() -> None:
    ended = sluice("xyzzy")
    assert ended.status == 2
    assert all(name in ended.err for name in COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str) -> None:
    ended = sluice(command, "--help")
    assert ended.status == 0
    assert "usage:" in ended.out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run"], ["recipe", "--output"]),
        (["run", "web", "--input", "IN"], ["--output"]),
        (["run", "web", "--output", "OUT"], ["--input: name at least one file, folder, glob or URL"]),
        (["run", "web", "--input", "--output", "OUT"], ["--input"]),
        (["run", "wbe", "--input", "IN", "--output", "OUT"], ["wbe: no such file", "did you mean 'web'?"]),
        (["run", "web", "--inptu", "IN", "--output", "OUT"], ["--inptu (did you mean --input?)"]),
        ([*WEB, "--xyzzy"], ["unknown argument --xyzzy"]),
        ([*WEB, "--workers", "0"], ["--workers 0: expected at least 1"]),
        ([*WEB, "--workers", "many"], ["--workers", "many"]),
        ([*WEB, "--sample", "0"], ["--sample 0.0: expected a rate"]),
        ([*WEB, "--sample", "1.5"], ["--sample 1.5: expected a rate"]),
        ([*WEB, "--sample", "nan"], ["--sample nan: expected a rate"]),
        ([*WEB, "--phase", "decied"], ["--phase", "decied"]),
        ([*WEB, "--only", "gopher"], ["--only gopher", "gopher_"]),
        ([*WEB, "--set", "x"], ["--set x: expected stage.key=value"]),
        (
            [*WEB, "--set", "run.unit_bytes=262,144"],
            ["web: run.unit_bytes: expected an integer, got '262,144'"],
        ),
        (["run", "web", "--input", "IN/none", "--output", "OUT"], ["IN/none", "no such file or folder"]),
        (["run", "web", "--input", "IN/*.none", "--output", "OUT"], ["IN/*.none", "no file or folder"]),
        (["run", "web", "--output", "OUT", "--phase", "annotate"], ["no plan.jsonl there", "--phase plan"]),
        (["run", "web", "--output", "OUT", "--phase", "emit"], ["no plan.jsonl there", "--phase plan"]),
        (["decide"], ["OUT"]),
        (["decide", "OUT"], ["no plan.jsonl there"]),
        (["decide", "OUT", "--dry"], ["unknown argument --dry (did you mean --dry-run?)"]),
        (["filters", "gopher_qualty"], ["unknown stage 'gopher_qualty'", "'gopher_quality'"]),
        (["filters", "--all"], ["--all"]),
        (["models", "fecth"], ["fecth"]),
        (["verify"], ["OUT"]),
        (["explain"], ["OUT"]),
    ],
)  # fmt: skip
def test_wrong_use_is_told_and_writes_nothing(arguments: list[str], parts: list[str], tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "a"}])
    names = {"IN": str(tmp_path / "in"), "OUT": str(tmp_path / "out")}
    for short, long in names.items():
        arguments = [a.replace(short, long) for a in arguments]
        parts = [p.replace(short, long) if "/" in p else p for p in parts]
    ended = sluice(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert "Traceback" not in ended.err
    for part in parts:
        assert part.lower() in ended.err.lower()
    assert not (tmp_path / "out").exists()


def test_two_inputs_that_would_give_one_id_are_wrong_use(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "x" / "in" / "a.jsonl", [{"text": "a"}])
    write_jsonl(tmp_path / "y" / "in" / "a.jsonl", [{"text": "b"}])
    ended = sluice(
        "run", "web", "--input", tmp_path / "x/in", tmp_path / "y/in", "--output", tmp_path / "out"
    )
    assert ended.status == 2
    assert "in/a.jsonl" in ended.err
    assert str(tmp_path / "x/in") in ended.err
    assert str(tmp_path / "y/in") in ended.err


def test_a_phase_before_the_one_that_it_needs_is_wrong_use(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    recipe = small / "small.toml"
    assert sluice("run", recipe, "--input", small / "in", "--output", out, "--phase", "plan").status == 0
    for phase in ("decide", "emit"):
        ended = sluice("run", recipe, "--output", out, "--phase", phase)
        assert (ended.status, ended.out) == (2, "")
        assert "is not annotated; run --phase annotate first" in ended.err
    ended = sluice("decide", out)
    assert ended.status == 2
    assert "is not annotated" in ended.err
    # Other annotate settings than those of the plan.
    ended = sluice("run", recipe, "--output", out, "--phase", "annotate", "--set", "run.chunk_bytes=500")
    assert ended.status == 2
    assert "planned with other annotate settings; run --phase plan again" in ended.err


# The catalogue -----------------------------------------------------------------------------------


def test_filters_lists_every_stage_key_default_score_and_reason() -> None:
    ended = sluice("filters")
    assert ended.status == 0
    parts = ended.out.split("\n## ")
    assert [p.removeprefix("## ").split("\n", 1)[0] for p in parts] == list(CATALOGUE)
    for name, part in zip(CATALOGUE, parts, strict=True):
        cls = stage_class(name)
        lines = part.splitlines()
        for spec in dataclasses.fields(cls):
            (line,) = [x for x in lines if x.startswith(f"| `{spec.name}` |")]
            assert f"| {default_of(spec)} |" in line
            assert f"| {spec.metadata['phase']} |" in line
        for score in cls.scores:
            assert any(x.startswith(f"| `{score}` |") for x in lines)
        for rule in cls.rules:
            assert any(x.startswith(f"| `{rule.reason}` |") and f"`{rule.threshold}`" in x for x in lines)


def default_of(spec: dataclasses.Field[Any]) -> str:
    if callable(spec.default_factory):
        return f"`{spec.default_factory()}`"
    value = str(spec.default).lower() if isinstance(spec.default, bool) else spec.default
    return "off" if value is None else f"`{value}`"


def test_filters_of_one_stage_prints_it_alone() -> None:
    assert sluice("filters", "exact_duplicates").out.count("## ") == 1
    assert sluice("filters").out.count("\n## ") == len(CATALOGUE) - 1


# Runs --------------------------------------------------------------------------------------------


def test_a_run_accounts_for_every_record(small: Path) -> None:
    out = small / "out"
    sums = accounting(out)
    assert sums == {
        "records": 46,
        "not_documents": 0,
        "not_sampled": 0,
        "kept": 34,
        "rejected": 10,
        "quarantined": 2,
        "keeper_dropped": 0,
    }
    assert (small / "printed").read_text() == (
        f"46 records: 34 kept, 10 rejected, 2 quarantined; 1 shard in {out}\n"
        "quarantined: 1 no_text, 1 not_json; see quarantine/\n"
    )
    assert (out / "_SUCCESS").exists()
    audit = {r["doc_id"]: r for r in rows(out, "audit")}
    assert len(audit) == 46
    reasons = sorted(f"{r['stage']}.{r['reason']}" for r in audit.values() if r["decision"] == "rejected")
    assert reasons == ["exact_duplicates.exact_duplicate"] * 3 + ["gopher_quality.too_few_words"] * 7
    bad = sorted((r["source_path"], r["reason"]) for r in audit.values() if r["decision"] == "quarantined")
    assert bad == [("a.jsonl", "not_json"), ("deep/b.jsonl", "no_text")]
    kept = rows(out, "corpus")
    assert sorted(r["doc_id"] for r in kept) == sorted(i for i, r in audit.items() if r["decision"] == "kept")
    assert {r["text"] for r in kept} == {sentence(i, 5 + i) for i in range(7, 40)} | {sentence("c", 30)}
    for row in audit.values():
        if row["stage"] == "exact_duplicates":
            assert audit[row["duplicate_of"]]["decision"] == "kept"
            assert (row["similarity"], dict(row["scores"])["exact_duplicates"]) == (1.0, 1.0)
        if row["reason"] == "too_few_words":
            scores, thresholds = dict(row["scores"]), dict(row["thresholds"])
            assert scores["gopher_quality.words"] < thresholds["gopher_quality.min_words"] == 12.0


def test_the_manifest_names_every_file_that_a_reader_opens(small: Path) -> None:
    out = small / "out"
    files = json.loads((out / "manifest.json").read_text())["files"]
    assert {n: f["sha256"] for n, f in files.items()}.items() <= tree(out).items()
    assert tree(out, "corpus", "audit", "report", "quarantine", "plan.jsonl").keys() <= files.keys()
    assert [p.stat().st_mode & 0o777 for p in (out / "quarantine").iterdir()] == [0o600] * 2


def test_the_same_command_again_measures_nothing_and_ends_the_same(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(small / "out", out)
    work = [p for f in ("text", "annotations", "receipts", "units", "decide") for p in (out / f).rglob("*.*")]
    before = {p: p.stat().st_mtime_ns for p in work}
    files = tree(out, "corpus", "audit", "manifest.json", "_SUCCESS")
    ended = sluice("run", small / "small.toml", "--input", small / "in", "--output", out)
    assert ended.status == 0
    assert {p: p.stat().st_mtime_ns for p in work} == before
    assert tree(out, "corpus", "audit", "_SUCCESS").keys() == files.keys() - {"manifest.json"}
    assert tree(out, "corpus", "audit").items() <= files.items()


def test_phases_one_by_one_give_what_a_whole_run_gives(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for phase in ("plan", "annotate", "decide", "emit"):
        given = ("--input", small / "in") if phase == "plan" else ()
        ended = sluice("run", small / "small.toml", *given, "--output", out, "--phase", phase)
        assert ended.status == 0, ended.err
        assert (out / "_SUCCESS").exists() is (phase == "emit")
    assert tree(out, "corpus", "audit") == tree(small / "out", "corpus", "audit")
    assert accounting(out) == accounting(small / "out")


def test_a_phase_with_another_recipe_takes_the_success_mark_away(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(small / "out", out)
    changed = ["--set", "gopher_quality.min_words=20"]
    assert sluice("run", small / "small.toml", "--output", out, "--phase", "decide", *changed).status == 0
    assert not (out / "_SUCCESS").exists(), "the corpus is still that of the earlier recipe"
    assert sluice("run", small / "small.toml", "--output", out, "--phase", "emit", *changed).status == 0
    assert accounting(out)["kept"] == 34 - 8
    assert (out / "_SUCCESS").exists()


def test_only_of_nothing_reads_and_writes(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = sluice("run", small / "small.toml", "--input", small / "in", "--output", out, "--only", "")
    assert ended.status == 0, ended.err
    sums = accounting(out)
    assert (sums["kept"], sums["rejected"], sums["quarantined"]) == (44, 0, 2)
    audit = [r for r in rows(out, "audit") if r["decision"] == "kept"]
    assert all(r["scores"] == r["thresholds"] == r["edits"] == r["failed"] == [] for r in audit)
    assert {r["language"] for r in audit} == {"und"}
    texts = sorted(r["text"] for r in rows(out, "corpus"))
    copies = [30, 31, 32]
    assert texts == sorted([*(sentence(i, 5 + i) for i in [*range(40), *copies]), sentence("c", 30)])


def test_only_lets_the_named_stages_judge(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("--input", small / "in", "--output", out, "--only", "exact_duplicates")
    assert sluice("run", small / "small.toml", *arguments).status == 0
    assert accounting(out)["rejected"] == 3
    assert {r["stage"] for r in rows(out, "audit") if r["decision"] == "rejected"} == {"exact_duplicates"}


def test_sample_reads_a_share_by_keyed_hash(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("--input", small / "in", "--output", out, "--sample", "0.5", "--only", "")
    assert sluice("run", small / "small.toml", *arguments).status == 0
    every = [r["doc_id"] for r in rows(small / "out", "audit")]
    chosen = [i for i in every if sampling_hash(0, "sample", i) < 0.5]
    assert 5 < len(chosen) < 41
    assert sorted(r["doc_id"] for r in rows(out, "audit")) == sorted(chosen)
    sums = accounting(out)
    assert sums["records"] == len(chosen) == sums["kept"] + sums["quarantined"]
    assert sums["not_sampled"] == 46 - len(chosen)


def test_strict_fails_where_a_record_is_quarantined(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(small / "out", out)
    ended = sluice("run", small / "small.toml", "--input", small / "in", "--output", out, "--strict")
    assert (ended.status, ended.out) == (1, "")
    assert "--strict: 2 records are quarantined: 1 no_text, 1 not_json; see quarantine/" in ended.err
    assert not (out / "_SUCCESS").exists()
    assert sluice("run", small / "small.toml", "--input", small / "in", "--output", out).status == 0
    assert (out / "_SUCCESS").exists()
    good = ("--input", small / "in" / "c.txt", "--output", tmp_path / "good", "--strict")
    assert sluice("run", small / "small.toml", *good).status == 0


def test_an_output_folder_used_again_with_other_inputs_holds_nothing_of_the_earlier_ones(
    small: Path, tmp_path: Path
) -> None:
    inputs, out, fresh = tmp_path / "in", tmp_path / "out", tmp_path / "fresh"
    shutil.copytree(small / "in", inputs)
    run = ("run", small / "small.toml", "--input", inputs, "--output")
    assert sluice(*run, out).status == 0
    # One file is gone, one has other content of the same size, one is new.
    (inputs / "c.txt").unlink()
    text = (inputs / "a.jsonl").read_text()
    (inputs / "a.jsonl").write_text(text.replace("brand", "bland").replace("{ torn", "{ worn"))
    write_jsonl(inputs / "new.jsonl", [{"text": sentence("new", 40)}])
    assert sluice(*run, out).status == 0
    assert sluice(*run, fresh).status == 0
    for folder in ("corpus", "audit", "quarantine"):
        assert tree(out, folder) == tree(fresh, folder)
    assert accounting(out) == accounting(fresh)
    assert not [r for r in rows(out, "audit") if r["source_path"] == "c.txt"]


def test_other_settings_in_the_same_folder_leave_nothing_of_the_earlier_ones(
    small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(small / "out", out)
    run = ("run", small / "small.toml", "--input", small / "in", "--output")
    for i, settings in enumerate(
        (
            ["--set", "run.unit_bytes=100000", "--set", "run.chunk_bytes=2000"],
            ["--set", "run.shard_bytes=2000", "--set", "gopher_quality.min_words=40"],
        )
    ):
        fresh = tmp_path / f"fresh{i}"
        for folder in (out, fresh):
            ended = sluice(*run, folder, *settings)
            assert ended.status == 0, ended.err
        for name in ("corpus", "audit", "quarantine"):
            assert tree(out, name) == tree(fresh, name)
    assert sluice(*run, out).status == 0
    assert tree(out, "corpus", "audit", "quarantine") == tree(small / "out", "corpus", "audit", "quarantine")


def test_inputs_without_a_document_end_well(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "bad" / "a.jsonl", ['{"text": 3}', '{"no": "text"}'])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "nothing.jsonl").write_text("")
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    for name, quarantined, stages in (("bad", 2, "web"), ("empty", 0, recipe)):
        out = tmp_path / f"out-{name}"
        ended = sluice("run", stages, "--input", tmp_path / name, "--output", out)
        assert ended.status == 0, ended.err
        sums = accounting(out)
        assert (sums["records"], sums["kept"], sums["quarantined"]) == (quarantined, 0, quarantined)
        assert rows(out, "corpus") == []
        assert len(rows(out, "audit")) == quarantined


def test_an_input_inside_the_output_folder_is_wrong_use(small: Path, tmp_path: Path) -> None:
    """It would be a stale file of the output, and be deleted."""
    shutil.copytree(small / "in", tmp_path / "in")
    run = ("run", small / "small.toml", "--input")
    ended = sluice(*run, tmp_path / "in", "--output", tmp_path / "in" / "deep")
    assert ended.status == 2
    assert "lies in the input folder" in ended.err
    ended = sluice(*run, tmp_path / "in" / "deep" / "b.jsonl", "--output", tmp_path / "in" / "deep")
    assert ended.status == 2
    assert "deep/b.jsonl lies in the output folder" in ended.err
    ended = sluice(*run, tmp_path / "in" / "c.txt", "--output", tmp_path / "in")
    assert ended.status == 2
    assert tree(tmp_path / "in") == tree(small / "in")
    ended = sluice(*run, tmp_path / "in", "--output", tmp_path / "in-out")
    assert ended.status == 0, ended.err


def test_a_plan_that_cannot_be_used_is_wrong_use(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(small / "out", out)
    plan = (out / "plan.jsonl").read_text()
    use = "filters.gopher_quality:GopherQuality"
    for text in (
        plan.replace(use, "no_such_module:Stage"),
        plan.replace(use, "os:no_such"),
        "{}\n",
        "x\n",
        "",
    ):
        (out / "plan.jsonl").write_text(text)
        ended = sluice("decide", out)
        assert (ended.status, ended.out) == (2, "")
        assert f"{out}: its plan.jsonl cannot be used here" in ended.err
    run = ("run", small / "small.toml", "--input", small / "in", "--output", out)
    assert sluice(*run).status == 0, "a whole run makes a new one"


def test_a_failed_write_ends_the_run_with_status_one(small: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("in the way of the folder of texts")
    ended = sluice("run", small / "small.toml", "--input", small / "in", "--output", tmp_path)
    assert (ended.status, ended.out) == (1, "")
    assert "the run failed" in ended.err
    assert "Traceback" not in ended.err


def test_an_output_that_cannot_be_written_is_wrong_use(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for output in (tmp_path / "file", tmp_path / "file" / "out"):
        ended = sluice("run", small / "small.toml", "--input", small / "in", "--output", output)
        assert (ended.status, ended.out) == (2, "")
        assert f"--output {output}: cannot be written: " in ended.err


OWN = """
stages = ["digits", "squeeze", "fragile", "exact_duplicates"]
[digits]
use = "own_stages:Digits"
max_fraction = 0.3
[squeeze]
use = "own_stages:Squeeze"
[fragile]
use = "own_stages:Fragile"
[run]
unit_bytes = 200
chunk_bytes = 300
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a recipe of own stages and their inputs."""
    (tmp_path / "own.toml").write_text(OWN)
    texts = ["plain text", "12 of 3", "two  spaces   here", "go boom now", "two spaces here", "", "1"]
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": t} for t in texts])
    write_jsonl(tmp_path / "in" / "b.jsonl", [{"text": f"filler {'x' * i}"} for i in range(20)])
    return tmp_path


def test_own_stages_measure_edit_and_refuse(own: Path) -> None:
    """One that raises costs the record alone."""
    ended = sluice("run", own / "own.toml", "--input", own / "in", "--output", own / "out")
    assert ended.status == 0, ended.err
    check_own_stages(own)


@pytest.mark.slow
def test_own_stages_are_imported_in_worker_processes(own: Path) -> None:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pipeline",
            "run",
            "own.toml",
            "--input",
            "in",
            "--output",
            "out",
            "--workers",
            "2",
        ],
        cwd=own,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    check_own_stages(own)


def check_own_stages(top: Path) -> None:
    audit = {r["doc_id"]: r for r in rows(top / "out", "audit")}
    own = [
        audit[i] for i in sorted((i for i in audit if "/a.jsonl" in i), key=lambda i: int(i.split("#")[1]))
    ]
    assert [(r["decision"], r["stage"], r["reason"]) for r in own] == [
        ("kept", None, None),
        ("rejected", "digits", "too_many_digits"),
        ("kept", None, None),
        ("quarantined", "fragile", "stage_failed"),
        ("rejected", "exact_duplicates", "exact_duplicate"),
        ("kept", None, None),
        ("rejected", "digits", "too_many_digits"),
    ]
    assert own[4]["duplicate_of"] == own[2]["doc_id"], "compared as edited"
    assert [(e["stage"], e["start"], e["end"], e["after"]) for e in own[2]["edits"]] == [
        ("squeeze", 3, 5, " "),
        ("squeeze", 11, 14, " "),
    ]
    assert own[0]["flags"] == ["no_digits"]
    assert dict(own[1]["thresholds"])["digits.max_fraction"] == 0.3
    assert set(dict(own[0]["scores"])) == {"digits", "digits.count", "fragile"}
    assert "\\ud800" in own[3]["error"]
    kept = {r["doc_id"]: r["text"] for r in rows(top / "out", "corpus")}
    assert kept[own[2]["doc_id"]] == "two spaces here"
    (line,) = [x for p in (top / "out/quarantine").iterdir() for x in p.read_text().splitlines()]
    assert json.loads(line)["raw"] == "go boom now"


def test_code_of_any_name_gets_a_folder_of_its_own_inside_the_corpus(tmp_path: Path) -> None:
    names = [
        "python",
        "C++",
        "../../out of here",
        "a/b",
        "..",
        ".",
        "",
        "x" * 300,
        "\N{CJK UNIFIED IDEOGRAPH-6613}",
    ]
    (tmp_path / "own.toml").write_text('stages = ["exact_duplicates"]')
    records = [{"text": f"code {i}", "programming_language": n, "kind": "code"} for i, n in enumerate(names)]
    write_jsonl(
        tmp_path / "in" / "a.jsonl", [*records, {"text": "code none", "kind": "code"}, {"text": "prose"}]
    )
    ended = sluice("run", tmp_path / "own.toml", "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert ended.status == 0, ended.err
    folders = sorted(
        str(p.parent.relative_to(tmp_path / "out/corpus")) for p in tmp_path.rglob("part-*.parquet")
    )
    assert [f[:20] for f in folders] == sorted(
        [
            "code/python",
            "code/cpp",
            "code/out-of-here",
            "code/a-b",
            "code/unknown",
            f"code/{'x' * 15}",
            "und",
            "code/易",
        ]
    )
    texts = [r["text"] for r in rows(tmp_path / "out", "corpus")]
    assert sorted(texts) == sorted([*(f"code {i}" for i in range(len(names))), "code none", "prose"])
