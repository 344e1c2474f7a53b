"""report/: its numbers against the audit of a real run, and that nothing of the input can act in the page."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.emit import AccountingError
from pipeline.flow import run
from pipeline.html_text import JOINERS, escaped, lines, visible
from pipeline.plan import Plan, read_plan
from pipeline.readers_items import READ_REASONS
from pipeline.recipe import load_recipe
from pipeline.report import QUARANTINE_LINES, Report, make_report, write_report
from pipeline.report_page import page
from pipeline.store import Store, open_store
from schemas.tables import text_partition

SOURCE = '<script>alert("1")</script>\u202e'
LINES = {
    "en": "The old bridge over the river was built of stone that the people had carried from the hills.",
    "de": "Die alte Brücke über den Fluss ist aus Steinen gebaut, die von den Leuten getragen wurden.",
    "ru": "Старый мост через реку был построен из камня, который жители города привезли с далёких холмов.",
}
RECIPE = """
name = "<b>tiny</b>"
stages = ["identify_language", "gopher_quality", "exact_duplicates", "near_duplicates", "balance_languages"]
[run]
unit_bytes = 20000
chunk_bytes = 4000
[identify_language]
languages = ["en", "de"]
[gopher_quality]
min_words = 30
max_mean_word_chars = "off"
[balance_languages]
alpha = 0.3
max_epochs = 2
"""


def _text(language: str, number: int) -> str:
    """A text of its own: no two share a run of five words."""
    words = LINES[language].split()
    return " ".join(f"{w} {chr(97 + number % 26)}{i}{number}" for i, w in enumerate(words * 3))


def _records() -> Iterator[str]:
    for number in range(40):
        yield json.dumps({"text": _text("en", number)})
    for number in range(8):
        yield json.dumps({"text": _text("de", number)})
    for number in range(10):
        yield json.dumps({"text": _text("ru", number)})
    for number in range(3):
        yield json.dumps({"text": _text("en", number)})
    yield json.dumps({"text": _text("en", 5) + " once more"})
    yield json.dumps({"text": "Far too short."})
    yield json.dumps({"text": "Too short as well, and the same thing."})
    yield json.dumps({"text": "def f(x):\n    return x + 1\n" * 4, "kind": "code", "path": "f.py"})
    yield json.dumps({"text": 7})
    yield "{no json"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    source = folder / SOURCE.replace("/", "\u2044")
    source.mkdir()
    (source / "a.jsonl").write_text("\n".join(_records()) + "\n")
    (folder / "tiny.toml").write_text(RECIPE)
    recipe = load_recipe(str(folder / "tiny.toml"))
    command = ["sluice", "run", "tiny.toml", "--input", "a & b<c>"]
    assert run(recipe, [str(source)], str(folder / "out"), workers=1, command=command) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def audit(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output / "audit").to_pylist()
    return rows


@pytest.fixture(scope="module")
def report(output: Path) -> Report:
    read: Report = json.loads((output / "report/report.json").read_text())
    return read


def test_the_accounting_is_the_headline(report: Report, audit: list[dict[str, Any]]) -> None:
    decisions = Counter(r["decision"] for r in audit)
    counts = report["accounting"]
    assert (report["schema"], report["version"]) == ("sluice.report", 1)
    assert {n: counts[n] for n in ("kept", "rejected", "quarantined")} == decisions
    assert counts["records"] == len(audit) == decisions.total() == 67
    assert counts["quarantined"] == 2


def test_the_flow_adds_up_stage_by_stage(report: Report, audit: list[dict[str, Any]]) -> None:
    flow = report["flow"]
    stages = [
        "identify_language",
        "gopher_quality",
        "exact_duplicates",
        "near_duplicates",
        "balance_languages",
    ]
    assert [step["stage"] for step in flow] == ["quarantined", *stages]
    assert flow[0]["documents_in"] == len(audit)
    for before, after in pairwise(flow):
        assert after["documents_in"] == before["documents_out"]
        assert after["characters_in"] == before["characters_out"]
    for step in flow[1:]:
        own = [r for r in audit if r["decision"] == "rejected" and r["stage"] == step["stage"]]
        assert step["documents_refused"] == len(own) == step["documents_in"] - step["documents_out"]
        assert step["characters_refused"] == sum(r["characters"] for r in own)
        assert own, step["stage"]
    kept = [r for r in audit if r["decision"] == "kept"]
    assert flow[-1]["documents_out"] == len(kept)
    assert flow[-1]["characters_out"] == sum(r["characters"] for r in kept)


def test_reasons_first_and_in_all(report: Report, audit: list[dict[str, Any]]) -> None:
    first = Counter((r["stage"], r["reason"]) for r in audit if r["decision"] == "rejected")
    failed = Counter(name for r in audit for name in r["failed"])
    told = {(r["stage"], r["reason"]): r for r in report["reasons"]}
    assert {n: r["documents"] for n, r in told.items() if r["documents"]} == first
    assert {".".join(n): r["failed"] for n, r in told.items() if r["failed"]} == failed
    assert any(r["failed"] > r["documents"] > 0 for r in told.values())
    assert any(r["failed"] == 0 for r in told.values())
    assert all(r["plain"] for r in told.values())
    assert sum(r["characters"] for r in told.values()) == sum(
        r["characters"] for r in audit if r["decision"] == "rejected"
    )


def test_quarantined_reasons_have_a_line_each(report: Report) -> None:
    assert {(r["reason"], r["documents"]) for r in report["quarantined"]} == {
        ("wrong_type", 1),
        ("not_json", 1),
    }
    assert set(QUARANTINE_LINES) >= {*READ_REASONS, "stage_failed"}


def partition(row: dict[str, Any]) -> str:
    """The folder of the corpus that an audit row belongs to."""
    return text_partition(row["kind"], row["language"], row["programming_language"])


@pytest.mark.parametrize(
    ("groups", "column"), [("languages", "language"), ("kinds", "kind"), ("sources", "source")]
)
def test_groups_are_those_of_the_audit(
    report: Report, audit: list[dict[str, Any]], groups: str, column: str
) -> None:
    told = report[groups]  # type: ignore[literal-required]
    assert [g["characters"] for g in told] == sorted((g["characters"] for g in told), reverse=True)
    for group in told:
        own = [r for r in audit if r[column] == group["name"]]
        if groups == "languages":  # as they are balanced: code by its programming language
            own = [r for r in audit if r["kind"] is not None and partition(r) == group["name"]]
        decided = Counter(r["decision"] for r in own)
        measured = [r for r in own if r["decision"] != "quarantined"]
        assert (group["kept"], group["rejected"]) == (decided["kept"], decided["rejected"])
        assert group["quarantined"] == decided["quarantined"]
        assert group["documents"] == len(measured)
        assert group["characters"] == sum(r["characters"] for r in measured)
        assert group["written"] == sum(r["epochs"] for r in measured)
        assert group["written_characters"] == sum(r["epochs"] * r["characters"] for r in measured)
    assert sum(g["documents"] for g in told) == len([r for r in audit if r["decision"] != "quarantined"])


def test_asked_is_what_balance_cut_by(report: Report, output: Path) -> None:
    languages = {g["name"]: g for g in report["languages"]}
    assert list(languages)[:3] == ["en", "ru", "de"]
    en, de = languages["en"], languages["de"]
    assert en["written_characters"] < en["eligible_characters"]
    assert de["written_characters"] > de["eligible_characters"]
    longest = len(_text("en", 39))
    for group in (en, de):
        assert group["asked_characters"] is not None
        # Whole documents are taken until the budget is met, so it is passed by less than one.
        assert 0 <= group["written_characters"] - group["asked_characters"] < longest
    assert languages["code/python"]["asked_characters"] == languages["code/python"]["eligible_characters"]
    written = pq.read_table(output / "corpus").num_rows
    assert report["written"]["documents"] == written > report["accounting"]["kept"]


def test_duplicates(report: Report, audit: list[dict[str, Any]]) -> None:
    stages = Counter(r["stage"] for r in audit if r["decision"] == "rejected")
    found = report["duplicates"]
    assert found["exact"]["documents"] == stages["exact_duplicates"] == 3
    assert found["near"]["documents"] == stages["near_duplicates"] == 1
    assert found["keeper_dropped"]["documents"] == report["accounting"]["keeper_dropped"]


def test_times_are_those_of_the_receipts(report: Report, output: Path) -> None:
    receipts = [json.loads(p.read_text()) for p in (output / "receipts").rglob("*.json")]
    assert len(receipts) > 1
    for told in report["times"]:
        seconds = sum(r["seconds"][told["stage"]] for r in receipts)
        assert told["seconds"] == pytest.approx(seconds, abs=1e-5)
        documents = sum(r["counts"]["documents"] for r in receipts)
        assert told["documents_per_second"] == pytest.approx(documents / seconds, rel=1e-3)
    assert sum(t["share"] for t in report["times"]) == pytest.approx(1, abs=1e-4)
    stages = ["identify_language", "gopher_quality", "exact_duplicates", "near_duplicates"]
    told_stages = [t["stage"] for t in report["times"]]
    assert [s for s in told_stages if s in stages] == stages
    assert "balance_languages" not in told_stages


def test_the_model_and_the_code_are_named(report: Report) -> None:
    assert [m["model"] for m in report["models"]] == ["lid.176"]
    assert re.fullmatch("[0-9a-f]{64}", report["models"][0]["sha256"] or "")
    assert report["code"]["distribution"] == "sluice-corpus"


def test_the_resolved_recipe_is_the_same_recipe(output: Path, report: Report) -> None:
    again = load_recipe(str(output / "report/recipe.toml"))
    assert again.annotate_digest == report["digests"]["annotate"]
    assert again.decide_digest == report["digests"]["decide"]
    assert again.by_name["gopher_quality"].max_mean_word_chars is None
    assert again.name == "<b>tiny</b>"


def _inputs(output: Path) -> tuple[Store, Plan, str, dict[str, int]]:
    store = open_store(str(output))
    manifest = json.loads(store.get("manifest.json"))
    return store, read_plan(store), manifest["decision"]["key"], manifest["accounting"]


def test_the_report_is_the_same_each_time(output: Path, report: Report) -> None:
    store, plan, key, accounting = _inputs(output)
    command = ["sluice", "run", "tiny.toml", "--input", "a & b<c>"]
    pages = [(output / "report/index.html").read_bytes()]
    for _ in range(2):
        assert write_report(store, plan, key, accounting, command) == [
            "report/index.html",
            "report/recipe.toml",
            "report/report.json",
        ]
        pages.append((output / "report/index.html").read_bytes())
    assert pages[0] == pages[1] == pages[2]
    assert make_report(store, plan, key, accounting, command) == report


def test_sums_that_differ_are_an_error(output: Path) -> None:
    store, plan, key, accounting = _inputs(output)
    for name in ("records", "kept", "rejected", "quarantined"):
        with pytest.raises(AccountingError, match="summaries count"):
            make_report(store, plan, key, {**accounting, name: accounting[name] + 1})


# The page.


class _Page(HTMLParser):
    """Collects elements with their attributes, texts, ids and links; complains of a tag left open."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if name not in ("meta", "link", "br", "input"):
            self._open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self._open.pop() == name

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[2Jcleared\x07",
    "a\u202eb\u2028c",
    "\ud800",
]
"""Strings that act where they are not escaped: markup, attributes, a terminal's, direction, no character."""

LOADING = ("src", "srcset", "href", "action", "data", "poster", "background", "formaction", "xlink:href")


def _names(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every string in a report."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in list(entries):
        if isinstance(inner, str):
            yield value, key
        else:
            yield from _names(inner)


def test_the_page_loads_and_runs_nothing(output: Path) -> None:
    text = (output / "report/index.html").read_text()
    elements = _Page(text).elements
    assert {name for name, _ in elements}.isdisjoint(
        {"script", "img", "iframe", "object", "embed", "form", "base"}
    )
    for name, attributes in elements:
        for attribute, value in attributes.items():
            assert not attribute.startswith("on"), (name, attribute)
            if attribute in LOADING:
                assert value is not None
                assert value.startswith(("#", "data:,")), (name, attribute, value)
    assert "@import" not in text
    assert "url(" not in text
    policy = [
        a["content"] for n, a in elements if n == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy[0] is not None
    assert policy[0].startswith("default-src 'none'")


def test_the_page_shows_names_as_text(output: Path) -> None:
    text = (output / "report/index.html").read_text()
    shown = _Page(text).text
    assert "&lt;script&gt;alert(" in text
    assert "<b>tiny</b>" in shown
    assert '<script>alert("1")<⁄script>\\u202e' in shown
    assert "sluice run tiny.toml --input 'a & b<c>'" in shown


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_string_of_a_report_can_act(report: Report, hostile: str) -> None:
    fields = list(_names(report))
    assert len(fields) > 100
    plain = [n for n, _ in _Page(page(report, "")).elements]
    poisoned = copy.deepcopy(report)
    for container, key in list(_names(poisoned)):
        container[key] = hostile
    poisoned["digests"] = {hostile: hostile}
    text = page(poisoned, hostile)
    assert text.encode().decode() == text
    assert hostile not in text
    parsed = _Page(text)
    assert {n for n, _ in parsed.elements} <= set(plain)
    assert visible(hostile) in parsed.text
    assert all(a.get("onerror") is None for _, a in parsed.elements)


def test_every_number_of_the_flow_is_on_the_page(report: Report) -> None:
    shown = _Page(page(report, "")).text
    counts = report["accounting"]
    assert (
        f"{counts['records']:,} records = {counts['kept']:,} kept + {counts['rejected']:,} rejected "
        f"+ {counts['quarantined']:,} quarantined"
    ) in shown
    for step in report["flow"]:
        assert f"{step['characters_refused']:,}" in shown
    for reason in report["reasons"]:
        assert reason["reason"] in shown
        assert not reason["failed"] or reason["plain"] in shown


def test_links_and_labels_lead_somewhere(report: Report) -> None:
    elements = _Page(page(report, "")).elements
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"] for n, a in elements if n == "a"]
    assert len(links) > 12
    for target in links:
        assert target is not None
        assert target.removeprefix("#") in ids
    for name in ("for", "aria-labelledby"):
        assert {a[name] for _, a in elements if name in a} <= set(ids)


def test_an_empty_run_has_a_page(report: Report) -> None:
    empty = copy.deepcopy(report)
    for name in ("languages", "kinds", "sources", "times", "models", "quarantined"):
        empty[name] = []
    for name in empty["accounting"]:
        empty["accounting"][name] = 0
    for step in empty["flow"]:
        for name in step:
            if name != "stage":
                step[name] = 0  # type: ignore[literal-required]
    for reason in empty["reasons"]:
        reason["documents"] = reason["failed"] = reason["characters"] = 0
    shown = _Page(page(empty, "")).text
    assert "0 records = 0 kept" in shown
    assert "nan" not in shown.lower().replace("name", "")


def test_long_tables_are_folded(report: Report) -> None:
    many = copy.deepcopy(report)
    many["languages"] = [{**report["languages"][0], "name": f"x{i}"} for i in range(100)]
    text = page(many, "")
    assert "<summary>76 more</summary>" in text
    assert _Page(text).text.count("x99") == 1


@given(st.text(st.characters(codec=None)))
def test_escaped_text_is_inert_and_whole(text: str) -> None:
    assert not set(escaped(text)) & set("<>\"'")
    shown = visible(text)
    assert all(
        c.isprintable() or c == " " or c in JOINERS or ord(c) in (0xA0, 0x3000) or c.isspace() for c in shown
    )
    assert not any(0xD800 <= ord(c) <= 0xDFFF or ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert _Page(f"<p>{escaped(text)}</p>").text == shown
    assert lines(text).count("\n") == text.count("\n")
