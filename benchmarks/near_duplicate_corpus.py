"""The corpus of the near-duplicate benchmark: English articles cut into documents, some with edited copies.

Its make-up: articles of the English sets of the data folder are cut at line ends into documents of 800
to 6,000 characters (a remainder over 200 is kept); of every ten documents three get one to three copies,
each with a share of its words edited that is drawn from `EDIT_RATES`. A third of the edits delete a word,
a third replace one (every fifth by itself in capitals), a third insert another word of the text.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

SETS = ("en_openstax", "en_nltk", "en_lctt_sources", "en_wikitext2", "en_austen")
EDIT_RATES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05)
MIN_CHARS, MAX_CHARS, MIN_REMAINDER_CHARS = 800, 6000, 200
COPIED_SHARE, MAX_COPIES = 0.3, 3


def _draws(*key: str | int) -> random.Random:
    """A generator of its own for each key: seeding by a string and `random()` are the same in every
    version of Python, which other methods need not be."""
    return random.Random("/".join(map(str, ("near-duplicate corpus", *key))))


def _cut(text: str, draws: random.Random) -> Iterator[str]:
    """The text in documents of whole lines."""
    lines: list[str] = []
    size, limit = 0, MIN_CHARS + int(draws.random() * (MAX_CHARS - MIN_CHARS))
    for line in text.split("\n"):
        lines.append(line)
        size += len(line) + 1
        if size >= limit:
            yield "\n".join(lines)
            lines, size = [], 0
            limit = MIN_CHARS + int(draws.random() * (MAX_CHARS - MIN_CHARS))
    if size > MIN_REMAINDER_CHARS:
        yield "\n".join(lines)


def edit_words(text: str, rate: float, draws: random.Random) -> str:
    """The text with this share of its words deleted, replaced or preceded by an inserted one."""
    words = re.findall(r"\S+\s*", text)
    edited = []
    for word in words:
        draw = draws.random()
        if draw < rate / 3:
            continue
        if draw < 2 * rate / 3:
            capitals = draws.random() < 0.2
            edited.append(word.upper() if capitals else f"word{int(draws.random() * 1000)} ")
            continue
        if draw < rate:
            edited.append(words[int(draws.random() * len(words))])
        edited.append(word)
    return "".join(edited)


def documents(data: Path, sets: tuple[str, ...] = SETS) -> Iterator[dict[str, str | float]]:
    """The records of the corpus: `id`, `text`, `cluster` (the id of the original) and `rate` of edits.

    Sets that the data folder lacks are left out; raises FileNotFoundError where it has none.
    """
    paths = [(name, data / "text" / f"{name}.jsonl.gz") for name in sets]
    if not any(path.exists() for _, path in paths):
        raise FileNotFoundError(f"none of {', '.join(sets)} is in {data / 'text'}")
    for name, path in paths:
        if not path.exists():
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            articles = [json.loads(line) for line in lines]
        for article in articles:
            pieces = _cut(article["text"], _draws("cut", name, article["id"]))
            for number, text in enumerate(pieces):
                original = f"{name}/{article['id']}#{number}"
                yield {"id": original, "text": text, "cluster": original, "rate": 0.0}
                draws = _draws("copies", original)
                copies = 1 + int(draws.random() * MAX_COPIES) if draws.random() < COPIED_SHARE else 0
                for copy in range(copies):
                    rate = EDIT_RATES[int(draws.random() * len(EDIT_RATES))]
                    yield {
                        "id": f"{original}~{copy}",
                        "text": edit_words(text, rate, draws),
                        "cluster": original,
                        "rate": rate,
                    }


def write_corpus(data: Path, folder: Path) -> Path:
    """Write the corpus to `near_duplicates.jsonl` in the folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "near_duplicates.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for record in documents(data):
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path
