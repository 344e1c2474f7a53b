"""Inputs that broke other tools: every case whose stages exist, through the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.catalogue import CATALOGUE
from pipeline.cli import main

DATA = Path(os.environ.get("SLUICE_DATA", Path(__file__).parents[1] / "../shared/data"))
CASES = DATA.parent / "cases"


def cases() -> list[Path]:
    """Folders of cases that name only stages which are built."""
    found = []
    for expect in sorted(CASES.glob("*/expect.json")):
        if set(json.loads(expect.read_text())["only"].split(",")) <= set(CATALOGUE):
            found.append(expect.parent)
    return found


@pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases beside {DATA}: set SLUICE_DATA")
def test_there_are_cases() -> None:
    assert {c.name for c in cases()} >= {"B03", "B19", "B24"}


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_case(case: Path, tmp_path: Path) -> None:
    expect = json.loads((case / "expect.json").read_text())
    names = expect.get("inputs") or [p.name for p in sorted(case.iterdir()) if p.name != "expect.json"]
    settings = [part for s in expect.get("set", []) for part in ("--set", s)]
    inputs = [str(case / n) for n in names]
    arguments = ["run", expect["recipe"], "--only", expect["only"], *settings, "--workers", "1"]
    assert main([*arguments, "--output", str(tmp_path), "--input", *inputs]) == 0
    audit = pq.read_table(tmp_path / "audit").to_pylist()
    written = pq.read_table(tmp_path / "corpus").to_pylist()
    kept = [r["input_id"] for r in audit if r["decision"] == "kept"]
    rejected = [r["input_id"] for r in audit if r["decision"] == "rejected"]
    texts = {r["input_id"]: r["text"] for r in written}
    by_id = {r["input_id"]: r for r in audit}
    originals = {str(r.get("id")): r["text"] for n in names for r in read(case / n)}

    assert len(kept) == len(written)
    assert set(expect.get("kept", [])) <= set(kept)
    assert set(expect.get("rejected", [])) <= set(rejected)
    for wanted in set(expect.get("kept_input_ids", [])):
        assert kept.count(wanted) == expect["kept_input_ids"].count(wanted)
    for group in expect.get("kept_one_of", []):
        assert sum(i in group for i in kept) == 1
    if "kept_count" in expect:
        assert len(kept) == expect["kept_count"]
    if "records" in expect:
        assert len(audit) == expect["records"]
    for name, language in expect.get("language", {}).items():
        assert by_id[name]["language"].split("-")[0] == language.split("-")[0]
    for name, text in expect.get("text", {}).items():
        assert texts[name] == text
    for name in expect.get("text_unchanged", []):
        assert texts[name] == originals[name]
    for name, parts in expect.get("text_has", {}).items():
        assert all(p in texts[name] for p in parts)
    for name, parts in expect.get("text_lacks", {}).items():
        assert not any(p in texts[name] for p in parts)
    for name in expect.get("flagged_or_rejected", []):
        assert name in rejected or by_id[name]["flags"]
    if expect.get("duplicate_of_named"):
        named = {r["doc_id"] for r in audit}
        assert all(r["duplicate_of"] in named for r in audit if r["decision"] == "rejected")
        assert all(isinstance(r["input_id"], str | None) for r in audit)


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a JSONL file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
