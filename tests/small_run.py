"""A small finished run of every kind of decision, made once, for tests that look at output folders."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline import flow
from pipeline.recipe import load_recipe

ENGLISH = """
the of and to in that with river mountain harbour engine garden letter winter market village bridge teacher
music forest island kitchen window journey captain doctor library painting weather factory railway history
science question answer morning evening silver copper season farmer valley castle soldier number reason
picture country building paper water people company system government problem example between because through
"""
GERMAN = """
der die das und mit von Fluss Gebirge Hafen Maschine Garten Brief Winter Markt Dorf Lehrer Musik Wald Insel
Fenster Reise Arzt Bibliothek Wetter Fabrik Eisenbahn Geschichte Wissenschaft Frage Antwort Morgen Abend
Silber Jahreszeit Bauer Tal Schloss Soldat Zahl Grund Bild Land Papier Wasser Menschen zwischen
"""

RECIPE = """
name = "small"
stages = ["identify_language", "gopher_quality", "exact_duplicates", "near_duplicates", "balance_languages"]
[run]
unit_bytes = 4096
chunk_bytes = 2048
shard_bytes = 4096
[identify_language]
min_probability = "off"
min_letters = 0
[gopher_quality]
min_words = 5
[balance_languages]
alpha = 0.5
max_epochs = 2
"""
"""Sizes at which a file has several units, a unit several chunks and a language several shards."""


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
"""Input ids of a record of each kind: kept, written twice, refused by a rule, as a copy; as a near-copy, by
balance, with an edit, and quarantined."""


@dataclass(frozen=True)
class SmallRun:
    """Folders of a run: what it read, and what it wrote."""

    inputs: Path
    output: Path

    def copy(self, folder: Path) -> Path:
        """A copy of the output, to be spoilt, without what `gc` may remove."""
        left = shutil.ignore_patterns("decide", "emit", "receipts", "report")
        return shutil.copytree(self.output, folder / "out", ignore=left)


def _words(pool: str, count: int, seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(pool.split()) for _ in range(count))


def _records() -> list[bytes]:
    """Many English and few German texts, a copy, a near-copy, a text without words, one with a lone
    surrogate, one with control characters in its id, and a record without a text."""
    texts = [_words(ENGLISH, 60, i) for i in range(24)] + [_words(GERMAN, 60, 100 + i) for i in range(4)]
    texts.append(texts[3])
    texts.append(" ".join([*texts[5].split()[:-1], "elephant"]))
    texts += ["!!!", f"\ud800 {_words(ENGLISH, 60, 999)}"]
    lines = [
        json.dumps({"id": f"r{i}", "text": t, "url": f"https://example.org/{i}"}) for i, t in enumerate(texts)
    ]
    lines += ['{"id": "no-text"}', json.dumps({"id": "evil\x1b[31m\u202e", "text": _words(ENGLISH, 60, 998)})]
    return [line.encode() + b"\n" for line in lines]


def small_run(factory: pytest.TempPathFactory) -> SmallRun:
    """The run; the first caller of a test session makes it."""
    folder = factory.getbasetemp() / "small-run"
    made = SmallRun(folder / "in", folder / "out")
    if not made.output.exists():
        made.inputs.mkdir(parents=True)
        records = _records()
        (made.inputs / "a.jsonl").write_bytes(b"".join(records[:16]))
        (made.inputs / "b.jsonl").write_bytes(b"".join(records[16:]))
        (folder / "recipe.toml").write_text(RECIPE)
        recipe = load_recipe(str(folder / "recipe.toml"))
        assert flow.run(recipe, [str(made.inputs)], str(made.output), workers=1) == 0
    return made
