"""Small inputs and runs of the command line within the test process."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.cli import main

SMALL_WORDS = ["the", "of", "and", "to", "in", "is", "that", "it", "for", "was", "with", "be"]
WORDS = [
    f"{a}{b}{c}" for a in ("st", "br", "l", "m") for b in ("a", "o", "ee") for c in ("nd", "st", "ck", "ll")
]

RECIPE = """
name = "small"
stages = ["gopher_quality", "exact_duplicates"]
[gopher_quality]
min_words = 12
[run]
unit_bytes = 3000
chunk_bytes = 1000
"""
"""Two stages, several units, several chunks a unit."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit status and what it printed."""

    status: int
    out: str
    err: str


def sluice(*arguments: str | Path) -> Ended:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([str(a) for a in arguments])
        except SystemExit as stop:  # argparse ends the process itself
            status = stop.code if isinstance(stop.code, int) else 2
    return Ended(status, out.getvalue(), err.getvalue())


def sentence(seed: object, words: int) -> str:
    """English-looking text of so many words, the same for the same seed."""
    draw = random.Random(str(seed))
    chosen = [draw.choice(SMALL_WORDS if i % 3 == 0 else WORDS) for i in range(words)]
    return " ".join(chosen).capitalize() + "."


def write_jsonl(path: Path, records: Iterable[Any]) -> None:
    """One line a record; strings are written as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_corpus(folder: Path) -> None:
    """40 documents of 5 to 44 words in two files, three of them copies, and a text file; two bad lines."""
    documents = [{"text": sentence(i, 5 + i), "id": f"d{i}"} for i in range(40)]
    write_jsonl(folder / "a.jsonl", [*documents[::2], "{ torn", documents[30]])
    write_jsonl(folder / "deep" / "b.jsonl", [*documents[1::2], documents[31], documents[32], '{"other": 1}'])
    (folder / "c.txt").write_text(sentence("c", 30), encoding="utf-8")


def tree(out: Path, *folders: str) -> dict[str, str]:
    """The sha256 of every file below these folders of an output (of all where none is named)."""
    tops = [out / f for f in folders] or [out]
    files = sorted(p for top in tops for p in ([top] if top.is_file() else top.rglob("*")) if p.is_file())
    return {str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def rows(out: Path, folder: str) -> list[dict[str, Any]]:
    """All rows of the Parquet files below a folder of an output."""
    paths = sorted((out / folder).rglob("*.parquet"))
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def accounting(out: Path) -> dict[str, int]:
    """The accounting of the manifest."""
    found: dict[str, int] = json.loads((out / "manifest.json").read_text())["accounting"]
    return found
