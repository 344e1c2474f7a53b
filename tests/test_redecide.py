"""Deciding again from stored scores: no text is touched, and the result is that of a fresh run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from own_runs import Ended, accounting, rows, sentence, sluice, tree, write_corpus, write_jsonl

RECIPE = """
name = "again"
stages = ["identify_language", "gopher_quality", "exact_duplicates", "near_duplicates", "balance_languages"]
[gopher_quality]
min_words = 12
[near_duplicates]
bands = 4
[balance_languages]
max_epochs = 2
[run]
unit_bytes = 3000
chunk_bytes = 1000
shard_bytes = 3000
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, inputs in two languages, and a finished run in `out`; tests work on copies."""
    top = tmp_path_factory.mktemp("again")
    (top / "again.toml").write_text(RECIPE)
    write_corpus(top / "in")
    nearly = f"{sentence(39, 44)} More."
    german = "Der schnelle braune Fuchs springt über den faulen Hund, und die Leute schauen dabei zu."
    write_jsonl(top / "in" / "n.jsonl", [{"text": nearly}, {"text": german}, {"text": german[::-1]}])
    ended = sluice("run", top / "again.toml", "--input", top / "in", "--output", top / "out")
    assert ended.status == 0, ended.err
    refused = {r["stage"] for r in rows(top / "out", "audit") if r["decision"] == "rejected"}
    assert {"gopher_quality", "exact_duplicates", "near_duplicates"} <= refused
    return top


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run's output."""
    shutil.copytree(finished / "out", tmp_path / "out")
    return tmp_path / "out"


def decide(out: Path, *arguments: str) -> Ended:
    return sluice("decide", out, *arguments)


MEASURED = ("text", "annotations", "receipts", "units", "quarantine")


@pytest.mark.parametrize(
    "settings",
    [
        ["gopher_quality.min_words=30", "run.shard_bytes=1500"],
        ["gopher_quality.min_words=off", "near_duplicates.min_jaccard=0.99", "balance_languages.alpha=0.2"],
    ],
)
def test_deciding_again_gives_the_files_of_a_fresh_run(
    finished: Path, out: Path, tmp_path: Path, settings: list[str]
) -> None:
    times = {p: p.stat().st_mtime_ns for f in MEASURED for p in (out / f).rglob("*") if p.is_file()}
    setting = [part for s in settings for part in ("--set", s)]
    ended = decide(out, *setting)
    assert ended.status == 0, ended.err
    assert {p: p.stat().st_mtime_ns for p in times} == times, "no text is measured or written again"
    fresh = tmp_path / "fresh"
    run = sluice("run", finished / "again.toml", "--input", finished / "in", "--output", fresh, *setting)
    assert run.status == 0, run.err
    assert tree(out, "corpus", "audit") == tree(fresh, "corpus", "audit")
    # Receipts tell the time that each stage took.
    assert tree(out, "text", "annotations", "units") == tree(fresh, "text", "annotations", "units")
    assert accounting(out) == accounting(fresh)
    assert accounting(out)["kept"] != accounting(finished / "out")["kept"]
    assert (out / "_SUCCESS").exists()


def test_shuffles_in_many_passes_and_partitions_give_the_same_files(finished: Path, tmp_path: Path) -> None:
    many = ["--set", "run.pass_bytes=1600", "--set", "run.partition_bytes=100"]
    run = ("run", finished / "again.toml", "--input", finished / "in", "--output", tmp_path / "out")
    ended = sluice(*run, *many)
    assert ended.status == 0, ended.err
    (work,) = (tmp_path / "out" / "decide").iterdir()
    marks = sorted(p.name for p in work.glob("*.done"))
    assert sum(m.startswith("exact-") for m in marks) > 1
    assert sum(m.startswith("pairs-") for m in marks) > 1
    expected = tree(finished / "out", "corpus", "audit")
    assert tree(tmp_path / "out", "corpus", "audit") == expected
    # Killed after a pass that found some, then run again by a runner that shuffles all at once.
    first = min(p.name for p in work.glob("exact-*") if p.is_dir())
    for path in work.iterdir():
        if not path.name.startswith(first):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(tmp_path / "out" / "emit")
    assert sluice(*run).status == 0
    assert (work / "exact-00000-of-00001.done").exists()
    assert tree(tmp_path / "out", "corpus", "audit") == expected


def test_deciding_back_gives_the_first_files_again(finished: Path, out: Path) -> None:
    assert decide(out, "--set", "gopher_quality.min_words=30").status == 0
    assert tree(out, "audit") != tree(finished / "out", "audit")
    assert decide(out, "--set", "gopher_quality.min_words=12").status == 0
    assert tree(out, "corpus", "audit") == tree(finished / "out", "corpus", "audit")
    # A whole run of the recipe in the same folder is at its end at once, and the same.
    assert decide(out, "--set", "gopher_quality.min_words=30").status == 0
    ended = sluice("run", finished / "again.toml", "--input", finished / "in", "--output", out)
    assert ended.status == 0, ended.err
    assert tree(out, "corpus", "audit") == tree(finished / "out", "corpus", "audit")


def test_settings_add_up(finished: Path, out: Path) -> None:
    """`decide` starts from the recipe that the folder was decided by last."""
    assert decide(out, "--set", "gopher_quality.min_words=30").status == 0
    kept = accounting(out)["kept"]
    assert decide(out, "--set", "gopher_quality.max_words=40").status == 0
    assert accounting(out)["kept"] < kept < accounting(finished / "out")["kept"]
    for row in rows(out, "audit"):
        if row["decision"] != "quarantined":
            thresholds = dict(row["thresholds"])
            assert (thresholds["gopher_quality.min_words"], thresholds["gopher_quality.max_words"]) == (
                30,
                40,
            )


def test_dry_run_says_what_would_change_and_changes_nothing(out: Path) -> None:
    before = tree(out)
    ended = decide(out, "--dry-run", "--set", "gopher_quality.min_words=30")
    assert ended.status == 0, ended.err
    after = tree(out)
    assert {n: h for n, h in after.items() if not n.startswith("decide/")} == {
        n: h for n, h in before.items() if not n.startswith("decide/")
    }
    assert before.items() <= after.items()
    old = {r["doc_id"]: (r["decision"], r["stage"], r["reason"]) for r in rows(out, "audit")}
    assert decide(out, "--set", "gopher_quality.min_words=30").status == 0
    new = {r["doc_id"]: (r["decision"], r["stage"], r["reason"]) for r in rows(out, "audit")}
    moved = [i for i in old if old[i] != new[i]]
    assert len(moved) > 10
    first, *lines = ended.out.splitlines()
    assert first == f"{len(moved)} of {len(old)} records would change"
    assert sum(int(line.split()[0]) for line in lines) == len(moved)
    (kept,) = [x for x in lines if " kept -> rejected by gopher_quality.too_few_words " in x]
    refused = [
        i for i in moved if old[i][0] == "kept" and new[i] == ("rejected", "gopher_quality", "too_few_words")
    ]
    assert int(kept.split()[0]) == len(refused)
    assert any(f"(as {i})" in kept for i in refused)
    assert [int(x.split()[0]) for x in lines] == sorted((int(x.split()[0]) for x in lines), reverse=True)


def test_dry_run_of_the_same_settings_changes_nothing(out: Path) -> None:
    ended = decide(out, "--dry-run")
    assert ended.out.startswith("0 of ")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--set", "near_duplicates.bands=5"], ["bands acts while measuring", "run the recipe again"]),
        (["--set", "run.unit_bytes=4"], ["run.unit_bytes acts while measuring"]),
        (["--set", "run.seed=4"], ["run.seed acts while measuring"]),
        (["--set", "input.text=body"], ["input.text acts while measuring"]),
        (["--set", "gopher_quality.min_word=4"], ["unknown key", "'min_words'"]),
        (["--set", "gopher_qualty.min_words=4"], ["no stage 'gopher_qualty'", "'gopher_quality'"]),
        (["--set", "gopher_repetition.x=4"], ["no stage 'gopher_repetition' in this run"]),
        (["--set", "gopher_quality.min_words=many"], ["gopher_quality.min_words: expected", "got 'many'"]),
        (["--set", "gopher_quality.min_words=true"], ["gopher_quality.min_words: expected", "got True"]),
        (["--set", "balance_languages.alpha=2"], ["alpha must lie between 0 and 1"]),
        (["--set", "gopher_quality.min_words"], ["expected stage.key=value"]),
        (["--set", "gopher_quality.use=x:Y"], ["unknown key"]),
        (["--only", "gopher_qualty"], ["no stage that this run measured", "'gopher_quality'"]),
        (["--workers", "0"], ["--workers 0: expected at least 1"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_wrong_use_is_told_and_changes_nothing(
    finished: Path, arguments: list[str], parts: list[str], dry: list[str]
) -> None:
    before = tree(finished / "out")
    ended = decide(finished / "out", *arguments, *dry)
    assert (ended.status, ended.out) == (2, "")
    for part in parts:
        assert part in ended.err
    assert tree(finished / "out") == before


def test_only_lets_the_named_stages_judge_by_the_scores_that_are_there(finished: Path, out: Path) -> None:
    ended = decide(out, "--only", "exact_duplicates")
    assert ended.status == 0, ended.err
    assert {r["stage"] for r in rows(out, "audit") if r["decision"] == "rejected"} == {"exact_duplicates"}
    assert all("gopher_quality.words" in dict(r["scores"]) for r in rows(out, "audit") if r["language"])
    # Every stage is still measured, so that all of them can judge again.
    all_stages = "identify_language,gopher_quality,exact_duplicates,near_duplicates,balance_languages"
    assert decide(out, "--only", all_stages).status == 0
    sums, whole = accounting(out), accounting(finished / "out")
    assert sums == whole


def test_only_of_a_stage_that_was_not_measured_is_refused(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = ("run", finished / "again.toml", "--input", finished / "in", "--output", out)
    assert sluice(*run, "--only", "exact_duplicates").status == 0
    ended = decide(out, "--only", "gopher_quality")
    assert ended.status == 2
    assert "--only gopher_quality: no stage that this run measured (known: exact_duplicates)" in ended.err


def test_a_dry_run_needs_decisions_to_compare_with(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    recipe = finished / "again.toml"
    for phase in (["plan", "--input", str(finished / "in")], ["annotate"]):
        assert sluice("run", recipe, "--output", out, "--phase", *phase).status == 0
    ended = decide(out, "--dry-run", "--set", "gopher_quality.min_words=30")
    assert (ended.status, ended.out) == (2, "")
    assert "nothing is decided there yet" in ended.err
    assert not (out / "decide").exists()
