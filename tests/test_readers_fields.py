"""Finding text, id, kind and so on among the fields of a record, and losing none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import (
    only,
    read,
    stored,
)

from pipeline.readers import (
    Bad,
    FieldMapping,
    Read,
)
from schemas.records import Document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


def document(folder: Path, record: dict[str, Any], **mapping: str) -> Document:
    line = json.dumps(record).encode()
    item = only(read(stored(folder, line, "jsonl"), mapping=FieldMapping(**mapping)))
    assert isinstance(item, Read), item
    return item.document


@pytest.mark.parametrize(
    "name",
    ["text", "TEXT", "content", "raw_content", "Raw_Content", "body", "comment", "html", "HTML", "code"],
)
def test_the_text_has_many_names(folder: Path, name: str) -> None:
    got = document(folder, {"label": "1", name: "words"})
    assert (got.text, json.loads(got.metadata)) == ("words", {"label": "1"})


def test_the_first_name_in_the_order_of_names_is_the_text(folder: Path) -> None:
    record = {"comment": "c", "html": "<p>t</p>", "Text": "t", "code": "x"}
    assert document(folder, {"TEXT": "a", "text": "b", "Text": "c"}).text == "b", "as it is spelt here"
    got = document(folder, record)
    assert got.text == "t"
    assert json.loads(got.metadata) == {"comment": "c", "html": "<p>t</p>", "code": "x"}
    # What is called text is the text, even where it is null.
    item = only(read(stored(folder, b'{"text": null, "comment": "c"}', "jsonl")))
    assert isinstance(item, Bad)
    assert item.reason == "no_text"


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        ({"id": "a"}, "input_id", "a"),
        ({"_id": 17}, "input_id", "17"),
        ({"ID": 2.0}, "input_id", "2.0"),
        ({"uuid": 10**30}, "input_id", str(10**30)),
        ({"doc_id": True}, "input_id", "true"),
        ({"_id": {"$oid": "5f"}}, "input_id", '{"$oid":"5f"}'),
        ({"id": None}, "input_id", None),
        ({"url": "http://a"}, "url", "http://a"),
        ({"URI": "http://a"}, "url", "http://a"),
        ({"url": ["http://a"]}, "url", None),
        ({"timestamp": "2024-01-01"}, "date", "2024-01-01"),
        ({"created": 1512465451000}, "date", "1512465451000"),
        ({"license": "mit"}, "licence", "mit"),
        ({"licence": "mit"}, "licence", "mit"),
        ({"max_stars_repo_licenses": ["MIT", "BSD"]}, "licence", "MIT, BSD"),
        ({"lang": "de"}, "language", "und"),
    ],
)
def test_fields_are_found_by_their_usual_names(
    folder: Path, record: dict[str, Any], field: str, value: str | None
) -> None:
    got = document(folder, {"text": "t", **record})
    assert getattr(got, field) == value
    ((name, held),) = record.items()
    told = isinstance(held, (str, int, float)) and field != "language"
    assert json.loads(got.metadata) == ({} if told else {name: held})


@pytest.mark.parametrize(
    ("record", "kind", "programming_language"),
    [
        ({}, "prose", None),
        ({"kind": "mathematics"}, "mathematics", None),
        ({"type": "Math"}, "mathematics", None),
        ({"type": "article"}, "prose", None),
        ({"type": 5}, "prose", None),
        ({"path": "src/main.rs"}, "code", "rust"),
        ({"max_stars_repo_path": "a/B.PY"}, "code", "python"),
        ({"filename": "notes.txt"}, "prose", None),
        ({"path": "README.md", "lang": "en"}, "prose", None),
        ({"path": "dump.json"}, "prose", None),
        ({"path": "package.json", "language": "JSON"}, "code", "json"),
        ({"path": "x.h", "language": "C++"}, "code", "cpp"),
        ({"path": "x.py", "lang": "en"}, "code", "python"),
        ({"programming_language": "Haskell"}, "code", "haskell"),
        ({"programming_language": "c", "kind": "mixed"}, "mixed", "c"),
        ({"type": "code", "lang": "go"}, "code", "go"),
        ({"type": "code", "lang": "en"}, "code", None),
        ({"type": "code", "lang": "Brainfuck"}, "code", "brainfuck"),
        ({"lang": "python"}, "prose", None),
        ({"path": "x.py", "kind": "prose"}, "prose", None),
    ],
)
def test_kind_and_programming_language(
    folder: Path, record: dict[str, Any], kind: str, programming_language: str | None
) -> None:
    got = document(folder, {"text": "t", **record})
    assert (got.kind, got.programming_language) == (kind, programming_language)
    kept = json.loads(got.metadata)
    for name, value in record.items():
        assert name in kept or value in (got.kind, got.programming_language), "a field is lost"


def test_the_input_s_own_language_stays_in_the_metadata(folder: Path) -> None:
    got = document(folder, {"text": "t", "Lang": "Chinese"})
    assert got.language == "und"
    assert json.loads(got.metadata) == {"Lang": "Chinese"}


def test_fields_can_be_named(folder: Path) -> None:
    record = {"text": "not this", "data": {"body": "this", "more": 1}, "meta": {"url": "http://a"}, "n": 5}
    got = document(folder, record, text="data.body", url="meta.url", id="n")
    assert (got.text, got.url, got.input_id) == ("this", "http://a", "5")
    assert json.loads(got.metadata) == {
        "text": "not this",
        "data": {"more": 1},
        "meta": {"url": "http://a"},
    }
    assert document(folder, {"a.b": "flat", "a": {"b": "deep"}}, text="a.b").text == "flat"
    assert document(folder, {"TEXT": "other case"}, text="text").text == "other case"
    assert document(folder, {"id": "one for both"}, text="id", id="id").text == "one for both"


@pytest.mark.parametrize("name", ["body", "meta.text", "meta.x.text"])
def test_a_named_field_that_is_not_there_lists_the_fields_that_are(folder: Path, name: str) -> None:
    line = b'{"text": "t", "meta": {"x": 1}, "title": 1}'
    item = only(read(stored(folder, line, "jsonl"), mapping=FieldMapping(text=name)))
    assert isinstance(item, Bad)
    assert item.reason == "no_text"
    assert name in item.error
    assert "text, meta, title" in item.error


def test_records_of_very_many_fields_are_read(folder: Path) -> None:
    record = {f"field {i}": i for i in range(5000)}
    assert json.loads(document(folder, {**record, "text": "t"}).metadata) == record
    item = only(read(stored(folder, json.dumps(record).encode(), "jsonl")))
    assert isinstance(item, Bad)
    assert len(item.error) < 2000


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.text().map(lambda s: "x" + s), JSON_VALUES, max_size=6))
def test_every_other_field_is_kept_as_it_is(folder: Path, fields: dict[str, Any]) -> None:
    got = document(folder, {**fields, "text": "t"})
    assert json.loads(got.metadata) == fields


@pytest.mark.parametrize(
    ("number", "kept"),
    [
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("18446744073709551615", 18446744073709551615),
        ("18446744073709551616", 18446744073709551616),
        ("-9223372036854775808", -9223372036854775808),
        ("-9223372036854775809", -9223372036854775809),
        ("1e999", "1e999"),
        ("-1e999", "-1e999"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("9" * 5000, "9" * 5000),
        ("1e22", 1e22),
        ("0.1", 0.1),
        ("-0.0", -0.0),
    ],
)
@pytest.mark.parametrize("where", ["%s", '[1.5, {"a": [%s]}]'])
def test_numbers_that_json_libraries_lose_are_kept(
    folder: Path, number: str, kept: object, where: str
) -> None:
    item = only(read(stored(folder, f'{{"text": "t", "n": {where % number}}}'.encode(), "jsonl")))
    assert isinstance(item, Read)
    value = json.loads(item.document.metadata)["n"]
    assert repr(value) == repr(kept if where == "%s" else [1.5, {"a": [kept]}])
