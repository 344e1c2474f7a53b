"""Units are cut by file size and recipe alone, each byte of the input once."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.inputs import InputError, InputFile, Segment
from pipeline.plan import Plan, Unit, _cut, make_plan, read_plan, write_plan
from pipeline.recipe import Recipe, load_recipe
from pipeline.store import open_store


def recipe_of(**run: int) -> Recipe:
    return load_recipe("web", settings=[f"run.{k}={v}" for k, v in run.items()])


def file_of(path: str, size: int, source: str = "s") -> InputFile:
    return InputFile(source, path, f"file:///{path}", size, f"sha256:{path}{size}", "jsonl")


def contents(units: list[Unit]) -> dict[str, tuple[Segment, ...]]:
    return {u.unit_id: u.segments for u in units}


# Cutting, without files --------------------------------------------------------------------------

inputs = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.text("xyz/", min_size=1, max_size=6)),
    st.one_of(st.integers(1, 50), st.integers(90, 700)),
    max_size=40,
).map(lambda d: [file_of(path, size, source) for (source, path), size in sorted(d.items())])


@given(inputs, st.integers(1, 300))
def test_every_byte_is_in_one_unit_and_units_keep_to_their_size(
    files: list[InputFile], unit_bytes: int
) -> None:
    units = list(_cut(files, unit_bytes))
    covered: Counter[tuple[str, str, int]] = Counter()
    for unit in units:
        assert unit.segments
        assert list(unit.segments) == sorted(
            unit.segments, key=lambda s: (s.file.source, s.file.path, s.begin)
        )
        for s in unit.segments:
            end = s.file.size if s.end is None else s.end
            covered.update((s.file.source, s.file.path, i) for i in range(s.begin, end))
        assert unit.bytes <= unit_bytes or len(unit.segments) == 1
        assert max((s.end or s.file.size) - s.begin for s in unit.segments) <= unit_bytes
    assert covered == {(f.source, f.path, i): 1 for f in files for i in range(f.size)}
    assert len({u.unit_id for u in units}) == len(units)


@given(inputs, st.integers(1, 300), st.randoms(use_true_random=False))
def test_the_order_of_files_is_of_no_consequence(files: list[InputFile], unit_bytes: int, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(files)
    random.shuffle(shuffled)
    assert contents(list(_cut(shuffled, unit_bytes))) == contents(list(_cut(files, unit_bytes)))


@given(inputs, st.integers(1, 300))
def test_small_files_are_packed(files: list[InputFile], unit_bytes: int) -> None:
    """Packs are no more than the halvings of the whole that their size forces."""
    small = [f for f in files if f.size < unit_bytes]
    units = list(_cut(small, unit_bytes))
    if sum(f.size for f in small) <= unit_bytes:
        assert len(units) == (1 if small else 0)
    assert len(units) <= max(len(small), 1)


@pytest.mark.parametrize("count", [30, 300, 1000])
def test_a_thousand_small_files_fill_their_packs(count: int) -> None:
    files = [file_of(f"{i}.txt", 10 + i % 90) for i in range(count)]
    units = list(_cut(files, 1000))
    whole = sum(f.size for f in files)
    assert whole / 1000 <= len(units) <= 3 * whole / 1000 + 1


@given(inputs, st.integers(1, 300), st.text("xyz", min_size=7, max_size=9), st.integers(1, 400))
@settings(max_examples=200)
def test_adding_a_file_changes_its_own_pack_alone(
    files: list[InputFile], unit_bytes: int, path: str, size: int
) -> None:
    before = contents(list(_cut(files, unit_bytes)))
    after = contents(list(_cut([*files, file_of(path, size)], unit_bytes)))
    gone = before.keys() - after.keys()
    assert len(gone) <= 1
    assert all(before[k] == after[k] for k in before.keys() & after.keys())
    new = {(s.file.source, s.file.path) for k in after.keys() - before.keys() for s in after[k]}
    old = {(s.file.source, s.file.path) for k in gone for s in before[k]}
    assert new == old | {("s", path)}


def test_adding_many_files_one_by_one_changes_few_units() -> None:
    """Through every doubling of the corpus, where a fixed number of packs would be dealt anew."""
    files: list[InputFile] = []
    before: dict[str, tuple[Segment, ...]] = {}
    for i in range(400):
        files.append(file_of(f"{i}.txt", 50))
        after = contents(list(_cut(files, 1000)))
        assert len(before.keys() - after.keys()) <= 1
        assert len(after.keys() - before.keys()) <= 4
        before = after


def test_a_file_that_changes_keeps_its_unit_and_changes_its_fingerprint() -> None:
    old = Unit("u", (Segment(file_of("a", 5)), Segment(file_of("b", 5))))
    new = Unit("u", (Segment(file_of("a", 5)), Segment(file_of("b", 6))))
    assert old.fingerprint != new.fingerprint
    assert old.fingerprint == Unit("other", old.segments).fingerprint


# Planning real files -----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Inputs of every shape: a large JSONL, small texts, a gzip, a Parquet of three row groups, no bytes."""
    top = tmp_path / "in"
    (top / "deep").mkdir(parents=True)
    lines = [json.dumps({"text": f"line {i}", "id": i}) for i in range(400)]
    (top / "large.jsonl").write_text("\n".join(lines) + "\n")
    for i in range(12):
        (top / "deep" / f"{i}.txt").write_text(f"text {i} " * (i + 1))
    with gzip.GzipFile(top / "big.jsonl.gz", "wb", mtime=0) as file:
        file.write("\n".join(lines * 3).encode())
    table = pa.table({"text": [f"row {i} " * 50 for i in range(30)]})
    pq.write_table(table, top / "t.parquet", row_group_size=10)
    (top / "empty.jsonl").write_text("")
    return top


def test_a_plan_depends_on_content_and_recipe_not_on_how_inputs_are_given(folder: Path) -> None:
    recipe = recipe_of(unit_bytes=2000)
    plan = make_plan([str(folder)], recipe)
    assert len(plan.units) > 5
    assert [u.unit_id for u in plan.units] == sorted(u.unit_id for u in plan.units)
    again = make_plan([str(folder)], recipe)
    assert (again.digest, again.units) == (plan.digest, plan.units)
    parts = [str(folder / "t.parquet"), str(folder / "large.jsonl"), str(folder / "big.jsonl.gz")]
    one, two = make_plan(parts, recipe), make_plan(parts[::-1], recipe)
    assert (one.digest, one.units) == (two.digest, two.units)
    # Times are of no consequence, names in the order of the folder neither.
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    assert make_plan([str(folder)], recipe).digest == plan.digest


def test_a_copy_elsewhere_is_cut_into_the_same_units(folder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(unit_bytes=2000)
    shutil.copytree(folder, tmp_path / "other" / "in")
    one, two = make_plan([str(folder)], recipe), make_plan([str(tmp_path / "other" / "in")], recipe)
    assert [(u.unit_id, u.fingerprint, u.bytes) for u in one.units] == [
        (u.unit_id, u.fingerprint, u.bytes) for u in two.units
    ]
    assert one.file_ordinals() == two.file_ordinals()


@pytest.mark.parametrize(
    ("setting", "same"),
    [
        ("run.unit_bytes=3000", False),
        ("input.text=body", False),
        ("near_duplicates.bands=9", False),
        ("gopher_quality.min_words=3", True),
    ],
)
def test_the_digest_changes_with_what_annotate_depends_on(folder: Path, setting: str, same: bool) -> None:
    base = make_plan([str(folder)], load_recipe("web", settings=["run.unit_bytes=2000"]))
    other = make_plan([str(folder)], load_recipe("web", settings=["run.unit_bytes=2000", setting]))
    assert (base.digest == other.digest) is same


def test_changed_content_changes_digest_and_fingerprint_of_its_unit_alone(folder: Path) -> None:
    recipe = recipe_of(unit_bytes=2000)
    before = make_plan([str(folder)], recipe)
    text = (folder / "large.jsonl").read_text()
    (folder / "large.jsonl").write_text(text.replace("line 3", "Line 3"))
    after = make_plan([str(folder)], recipe)
    assert after.digest != before.digest
    assert [u.unit_id for u in after.units] == [u.unit_id for u in before.units]
    changed = [a for a, b in zip(after.units, before.units, strict=True) if a.fingerprint != b.fingerprint]
    assert changed
    assert all(s.file.path == "large.jsonl" for u in changed for s in u.segments)


def test_a_plan_goes_through_a_store_unchanged(folder: Path, tmp_path: Path) -> None:
    plan = make_plan([str(folder)], recipe_of(unit_bytes=2000))
    store = open_store(str(tmp_path / "out"))
    with pytest.raises(FileNotFoundError):
        read_plan(store)
    write_plan(store, plan)
    assert read_plan(store) == plan
    assert all(Unit.from_json(json.loads(json.dumps(u.to_json()))) == u for u in plan.units)


def test_names_with_line_ends_and_other_odd_characters_go_through_a_plan(tmp_path: Path) -> None:
    top = tmp_path / "od d"
    top.mkdir()
    for name in ("new\nline.txt", "sep\u2028arator.txt", "#hash?.txt", "\N{CJK UNIFIED IDEOGRAPH-6F22}.txt"):
        (top / name).write_text("some text")
    (top / os.fsdecode(b"caf\xe9.txt")).write_text("some text")
    plan = make_plan([str(top)], recipe_of())
    assert sum(len(u.segments) for u in plan.units) == 5
    store = open_store(str(tmp_path / "out"))
    write_plan(store, plan)
    assert read_plan(store) == plan
    assert len(plan.file_ordinals()) == 5


def test_ties_break_by_source_and_path(tmp_path: Path) -> None:
    for name in ("b/x.txt", "a/z.txt", "a/b/y.txt", "a.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    plan = make_plan([str(tmp_path / "in")], recipe_of(unit_bytes=1))
    ordered = ["a.txt", "a/b/y.txt", "a/z.txt", "b/x.txt"]
    assert plan.file_ordinals() == {("in", path): i for i, path in enumerate(ordered)}


def test_files_and_segments_of_every_format_are_planned(folder: Path) -> None:
    plan = make_plan([str(folder)], recipe_of(unit_bytes=2000))
    by_path: dict[str, list[Segment]] = {}
    for unit in plan.units:
        for segment in unit.segments:
            by_path.setdefault(segment.file.path, []).append(segment)
    assert "empty.jsonl" not in by_path
    large = sorted(by_path["large.jsonl"], key=lambda s: s.begin)
    assert [s.begin for s in large] == list(range(0, (folder / "large.jsonl").stat().st_size, 2000))
    assert [(s.begin, s.end) for s in by_path["big.jsonl.gz"]] == [(0, None)]
    parquet = sorted(by_path["t.parquet"], key=lambda s: s.begin)
    assert (parquet[0].begin, parquet[-1].end) == (0, 3)
    packed = [u for u in plan.units if len(u.segments) > 1]
    assert {s.file.path for u in packed for s in u.segments} <= {f"deep/{i}.txt" for i in range(12)} | {
        "t.parquet"
    }
    assert packed
    stored = {p: f.stat().st_size for p in by_path if (f := folder / p)}
    assert abs(plan.bytes - sum(stored.values())) <= len(parquet), "shares of row groups are rounded down"


def test_a_recipe_names_the_source_of_all_its_inputs(folder: Path) -> None:
    recipe = load_recipe("web", settings=["input.source=mine", 'input.exclude=["deep/*", "*.gz"]'])
    plan = make_plan([str(folder)], recipe)
    assert {source for source, _ in plan.file_ordinals()} == {"mine"}
    assert {path for _, path in plan.file_ordinals()} == {"large.jsonl", "t.parquet"}
    assert all(u.unit_id.startswith("mine-") for u in plan.units)


def test_a_source_without_letters_still_names_its_units() -> None:
    (unit,) = _cut([file_of("a", 1, "\N{CJK UNIFIED IDEOGRAPH-6F22}/..")], 10)
    assert unit.unit_id.startswith("input-")
    (unit,) = _cut([file_of("a", 1, "Web Crawl_2024!" * 9)], 10)
    assert unit.unit_id.startswith("web-crawl-2024-web-crawl-")
    assert len(unit.unit_id) <= 24 + 1 + 16


def test_missing_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such"):
        make_plan([str(tmp_path / "no-such")], recipe_of())


def test_a_plan_of_nothing_has_no_units(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    plan = make_plan([str(tmp_path / "in")], recipe_of())
    assert (plan.units, plan.bytes, plan.file_ordinals()) == ((), 0, {})
    assert isinstance(plan, Plan)
