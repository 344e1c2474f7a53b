"""The sample corpus: what the sample recipe decides about each record, and what sample_data/README.md says.

What must hold of the corpus is asked of `expected.json`; that a run gives what is expected there is asked
once, of every record.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastwarc.warc import ArchiveIterator
from own_runs import accounting, rows, sluice

from pipeline.recipe import load_recipe

SAMPLE = Path(__file__).parent.parent / "sample_data"
CORPUS = SAMPLE / "corpus"
README = (SAMPLE / "README.md").read_text(encoding="utf-8")
EXPECTED: dict[str, Any] = json.loads((SAMPLE / "expected.json").read_text(encoding="utf-8"))
RECORDS: dict[str, dict[str, Any]] = {
    f"{file}#{key.removeprefix('#')}": record
    for file, records in EXPECTED["records"].items()
    for key, record in records.items()
}
"""By file and the record's id, or its place where it has none."""

LANGUAGES = ("en", "zh-Hans", "zh-Hant", "de", "ru", "ja")
DECIDED = ("decision", "stage", "reason", "language")
DOCUMENT_TYPES = ("response", "resource", "conversion")
MAX_SHARED_NGRAMS = 0.20
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+(?:['’][^\W_]+)*")
"""A kana or a Han character, else a run of letters and digits."""


@dataclass(frozen=True)
class Output:
    """The run: audit rows, and the texts and corpus rows, all by the keys of RECORDS."""

    audit: dict[str, dict[str, Any]]
    texts: dict[str, str]
    corpus: dict[str, dict[str, Any]]
    accounting: dict[str, int]


def _keyed(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    keyed = {}
    for row in found:
        path, locator = row["doc_id"].removeprefix("corpus/").split("#")
        keyed[f"{path}#{row['input_id'] or locator}"] = row
    assert len(keyed) == len(found)
    return keyed


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Output:
    out = tmp_path_factory.mktemp("sample")
    ended = sluice("run", "sample", "--input", CORPUS, "--output", out, "--workers", "1")
    assert ended.status == 0, ended.err
    texts = {key: row["text"] for key, row in _keyed(rows(out, "text")).items()}
    return Output(_keyed(rows(out, "audit")), texts, _keyed(rows(out, "corpus")), accounting(out))


def test_every_record_is_decided_as_expected(output: Output) -> None:
    expected = {key: tuple(map(record.get, DECIDED)) for key, record in RECORDS.items()}
    decided = {key: tuple(row[name] for name in DECIDED) for key, row in output.audit.items()}
    assert decided == expected
    assert set(output.corpus) == {key for key, record in RECORDS.items() if record["decision"] == "kept"}


def test_copies_name_their_original_and_how_like_it_they_are(output: Output) -> None:
    assert EXPECTED["similarity_tolerance"] == 0
    input_ids = {row["doc_id"]: row["input_id"] for row in output.audit.values()}
    found = {
        key: (input_ids[row["duplicate_of"]], row["similarity"])
        for key, row in output.audit.items()
        if row["duplicate_of"] is not None
    }
    assert found == {
        key: (record["duplicate_of"], record["similarity"])
        for key, record in RECORDS.items()
        if "duplicate_of" in record
    }


def test_every_reason_of_the_recipe_is_the_first_of_two_records() -> None:
    seen = Counter((r["stage"], r["reason"]) for r in RECORDS.values() if r["decision"] == "rejected")
    catalogue = {(s.name, rule.reason) for s in load_recipe("sample").stages for rule in s.rules}
    assert set(seen) == catalogue
    assert [reason for reason, count in seen.items() if count < 2] == []
    assert sum(record["decision"] == "quarantined" for record in RECORDS.values()) >= 2


def test_every_language_has_twelve_documents_that_are_kept(output: Output) -> None:
    assert len(output.texts) >= 120
    kept = Counter(r["language"] for r in RECORDS.values() if r["decision"] == "kept")
    assert {language: kept[language] for language in LANGUAGES if kept[language] < 12} == {}
    assert set(kept) == set(LANGUAGES)


def test_only_the_listed_copies_share_over_a_fifth_of_their_5_grams(output: Output) -> None:
    ngrams: dict[str, set[tuple[str, ...]]] = {}
    for key, text in output.texts.items():
        words = [word.casefold() for word in WORD.findall(unicodedata.normalize("NFC", text))]
        ngrams[key.split("#")[1]] = {tuple(words[i : i + 5]) for i in range(len(words) - 4)}
    alike = {
        frozenset((a, b))
        for a, b in itertools.combinations(ngrams, 2)
        if len(ngrams[a] & ngrams[b]) > MAX_SHARED_NGRAMS * min(len(ngrams[a]), len(ngrams[b]))
    }
    assert alike == {frozenset(pair) for pair in EXPECTED["copies"]}


def _fields() -> Iterator[tuple[str, dict[str, Any]]]:
    """The readable records of the JSONL and Parquet files, read without Sluice."""
    for path in sorted(CORPUS.iterdir()):
        if ".jsonl" in path.name:
            data = path.read_bytes()
            for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                yield f"{path.name}#{record['id']}", record
        elif path.suffix == ".parquet":
            for record in pq.read_table(path).to_pylist():
                yield f"{path.name}#{record['id']}", record


def _warc_records() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Key, type and header fields of the WARC records, read without Sluice."""
    for path in sorted(CORPUS.glob("*.warc*")):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, parse_http=False):
                headers = dict(record.headers.items())
                yield f"{path.name}#{headers['WARC-Record-ID']}", headers["WARC-Type"], headers


def test_fields_of_the_input_survive(output: Output) -> None:
    columns = {"id", "text", "content", "url", "date", "licence"}
    compared = Counter[str]()
    for key, record in _fields():
        if key in output.corpus:
            row = output.corpus[key]
            assert json.loads(row["metadata"]) == {k: v for k, v in record.items() if k not in columns}
            assert (row["url"], row["licence"]) == (record["url"], record.get("licence"))
            assert row["date"][:10] == str(record["date"])[:10]
            compared[key.split("#")[0]] += 1
    for key, _, headers in _warc_records():
        if key in output.corpus:
            metadata = json.loads(output.corpus[key]["metadata"])
            own_columns = {"WARC-Record-ID", "WARC-Target-URI", "WARC-Date"}
            assert {k: metadata.get(k) for k in headers.keys() - own_columns} == {
                k: v for k, v in headers.items() if k not in own_columns
            }
            assert ("http_fields" in metadata) == (headers["WARC-Type"] == "response")
            assert output.corpus[key]["date"] == headers["WARC-Date"]
            compared[key.split("#")[0]] += 1
    assert compared.total() == len(output.corpus)
    assert set(compared) == {p.name for p in CORPUS.iterdir()} - {"others.jsonl"}


def test_records_that_are_no_documents_are_counted(output: Output) -> None:
    skipped = [(key, kind) for key, kind, _ in _warc_records() if kind not in DOCUMENT_TYPES]
    assert Counter(key.split("#")[0] for key, _ in skipped) == EXPECTED["not_documents"]
    assert {kind for _, kind in skipped} == {"warcinfo", "request", "metadata", "revisit"}
    decided = Counter(record["decision"] for record in RECORDS.values())
    assert output.accounting["not_documents"] == sum(EXPECTED["not_documents"].values())
    assert {name: output.accounting[name] for name in decided} == decided
    assert output.accounting["records"] == len(RECORDS)


def test_gzip_files_hold_no_time() -> None:
    packed = sorted(CORPUS.glob("*.gz"))
    assert [path.name for path in packed if path.read_bytes()[4:8] != bytes(4)] == []
    assert packed


def _table(heading: str) -> list[tuple[str, ...]]:
    """The rows of the README's table under a heading."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip().strip("`") for cell in line.strip("|").split("|")) for line in lines[2:]]


def test_readme_counts_are_true() -> None:
    reasons = Counter((r.get("stage", ""), r.get("reason", "kept")) for r in RECORDS.values())
    assert {(stage, reason): int(count) for stage, reason, count in _table("Reasons")} == reasons
    for file, _, _, records, others in _table("Files"):
        assert int(records) == len(EXPECTED["records"][file]), file
        assert int(others) == EXPECTED["not_documents"].get(file, 0), file
    assert {row[0] for row in _table("Files")} == {path.name for path in CORPUS.iterdir()}
    languages = Counter((r["language"], r["decision"]) for r in RECORDS.values() if "language" in r)
    assert {
        (tag, decision): int(count)
        for tag, *counts in _table("Languages")
        for decision, count in zip(("kept", "rejected"), counts, strict=True)
        if int(count)
    } == languages
