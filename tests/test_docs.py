"""What the pages say is true: files, links, commands, options, keys and outputs, and the example runs."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import documents
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser
from case_tables import judge_case, untested_reasons, untested_thresholds
from documents import REPOSITORY, Block, blocks, pages, same, steps, workplace, written

from pipeline import cli, flow
from pipeline.catalogue import CATALOGUE, stage_class
from pipeline.catalogue_text import filled
from pipeline.explain import explain
from pipeline.inputs import list_inputs, segments_of
from pipeline.readers import READ_FLAGS, READ_REASONS, Bad, Read, Skipped, read_segment
from pipeline.recipe import SECTIONS, load_recipe
from pipeline.store import open_store
from schemas.tables import ANNOTATION_BASE, TEXT

PACKAGES = ("schemas", "filters", "classifiers", "pipeline")
EXAMPLE = "exclamation_marks"
"""The rule that CONTRIBUTING.md adds: its files are not there."""

DATA = Path(os.environ.get("SLUICE_DATA", REPOSITORY / ".." / "shared" / "data"))

every_page = pytest.mark.parametrize("path", pages(), ids=lambda p: str(p.relative_to(REPOSITORY)))


def read(name: str) -> str:
    return (REPOSITORY / name).read_text("utf-8")


def prose(page: str) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL)


def spans(page: str) -> list[str]:
    """The inline code of a page."""
    return re.findall(r"`([^`\n]+)`", prose(page))


# What is generated ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("docs/*.md")), ids=lambda p: p.name)
def test_generated_parts_are_those_of_the_code(path: Path) -> None:
    page = path.read_text("utf-8")
    assert filled(page) == page, "run: make docs"


def test_every_part_that_can_be_generated_is_in_the_docs() -> None:
    joined = "".join(path.read_text("utf-8") for path in REPOSITORY.glob("docs/*.md"))
    parts = re.findall(r"<!-- generated: (\w+) -->\n\n.+?\n\n<!-- end of \1 -->", joined, re.DOTALL)
    assert sorted(parts) == sorted([*CATALOGUE, *SECTIONS, "stages", "fields", "audit", "corpus"])
    assert joined.count("<!-- generated:") == len(parts)


def test_the_outputs_in_the_pages_are_real(tmp_path: Path) -> None:
    """Every `console` command of the README runs as written, then the queries on what it left."""
    folder = workplace(tmp_path)
    for name in documents.RUN_PAGES:
        assert written(read(name), folder) == read(name), "run: make docs"


def test_an_output_is_compared_line_by_line() -> None:
    assert same("a\nb\nc\n", "a\n...\nc\n")
    assert not same("a\nb\nc\n", "a\n...\nb\n")
    assert not same("a.c\n", "abc\n")
    assert not same("a\nb\n", "a\n")
    with pytest.raises(RuntimeError, match="exit 1"):
        documents.shell("false | cat", REPOSITORY)


# Files, links, names --------------------------------------------------------------------------------------


def lost_files(page: str) -> list[str]:
    """Files of the project that the page names and that are not there."""
    top = {entry.name for entry in REPOSITORY.iterdir()}
    return [
        span
        for span in spans(page)
        if not re.search(r"[\s<>=:]", span)
        and not span.startswith(("http", ".venv", "../", "/"))
        and EXAMPLE not in span
        and is_lost(span, top)
    ]


def is_lost(name: str, top: set[str]) -> bool:
    first, slash, _ = name.partition("/")
    if (slash and first in top) or first == ".ci":
        return not list(REPOSITORY.glob(name.rstrip("/")))
    if not re.fullmatch(r"[\w.-]+\.(py|md|lock)|Makefile|pyproject\.toml", name):
        return False
    folders = (*PACKAGES, "tests", "docs", "benchmarks")
    return not list(REPOSITORY.glob(name)) and not any(
        list(REPOSITORY.glob(f"{f}/**/{name}")) for f in folders
    )


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


def dead_links(path: Path, page: str) -> list[str]:
    """Links within the project that lead nowhere."""
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("https://", "http://")):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists():
            dead.append(target)
        elif anchor:
            text = page if there == path else there.read_text("utf-8")
            if anchor not in {slug(h) for h in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)}:
                dead.append(target)
    return dead


def lost_names(page: str) -> list[str]:
    """Python names of the project that the page gives and that cannot be found."""
    return [
        span
        for span in spans(page)
        if re.fullmatch(rf"({'|'.join(PACKAGES)})(\.\w+)+", span) and EXAMPLE not in span and not found(span)
    ]


def found(name: str) -> bool:
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for part in parts[i:]:
            known = {f.name for f in fields(value)} if hasattr(value, "__dataclass_fields__") else set()
            if not hasattr(value, part) and part not in known:
                return False
            value = getattr(value, part, None)
        return True
    return False


@every_page
def test_files_links_and_names_are_there(path: Path) -> None:
    page = path.read_text("utf-8")
    assert lost_files(page) == []
    assert dead_links(path, page) == []
    assert lost_names(page) == []


def test_what_is_not_there_is_seen() -> None:
    page = (
        "`filters/gone.py` `filters/*.py` `gone.md` `tests/cases/` `docs/audit.md` `.ci/gone` `corpus/en/x`\n"
        "[a](docs/gone.md) [b](docs/filters.md#nowhere) [c](docs/filters.md#gopher_quality) [d](#here)\n"
        "# Here\n"
        "`filters.base.Rule` `filters.base.Ruler` `pipeline.nowhere` `schemas.records.Edit.before`\n"
        "```\n`filters/gone_too.py` [e](gone)\n```\n"
    )
    assert lost_files(page) == ["filters/gone.py", "gone.md", ".ci/gone"]
    assert dead_links(REPOSITORY / "README.md", page) == ["docs/gone.md", "docs/filters.md#nowhere"]
    assert lost_names(page) == ["filters.base.Ruler", "pipeline.nowhere"]


# Commands, options, keys ----------------------------------------------------------------------------------


@cache
def options_of(command: str) -> frozenset[str]:
    """Every option in the help of a command and of its own commands."""
    subcommands = ("list", "verify", "fetch") if command == "models" else ()
    shown = io.StringIO()
    for arguments in ([command], *([command, s] for s in subcommands)):
        with contextlib.redirect_stdout(shown), pytest.raises(SystemExit):
            cli.main([*arguments, "--help"])
    return frozenset(re.findall(r"(?<![\w-])--[a-z][a-z-]*", shown.getvalue()))


@cache
def beam_options() -> frozenset[str]:
    """Every option of Beam's own."""
    parser = _BeamArgumentParser(allow_abbrev=False)
    for cls in PipelineOptions.__subclasses__():
        cls._add_argparse_args(parser)
    return frozenset(s for action in parser._actions for s in action.option_strings)


def command_lines(page: str) -> Iterator[list[str]]:
    """The words of every `sluice` command that a page shows or names."""
    lines = [
        line
        for block in blocks(page)
        if block.language in ("sh", "console")
        for line in re.sub(r"\\\n\s*", " ", block.text).splitlines()
    ]
    commands = "|".join(cli.COMMANDS)
    lines += [span if span.startswith("sluice") else f"sluice {span}" for span in spans(page)
              if re.match(rf"sluice |({commands}) -", span)]  # fmt: skip
    for line in lines:
        if match := re.match(r"(?:\$ )?(?:\.venv/bin/)?sluice (.+)", line):
            yield shlex.split(match[1], comments=True)


def unknown_commands(page: str) -> list[str]:
    """Commands and options that the page gives and the command line does not have."""
    unknown = []
    for words in command_lines(page):
        command = words[0]
        if command not in cli.COMMANDS:
            unknown.append(command)
            continue
        for word in words[1:]:
            option = word.partition("=")[0]
            passed_on = command in ("run", "decide") and "--runner" in words and option in beam_options()
            if option.startswith("--") and option not in options_of(command) and not passed_on:
                unknown.append(f"{command} {option}")
    known = beam_options().union(*map(options_of, cli.COMMANDS))
    bare = [s.split()[0].partition("=")[0] for s in spans(page) if s.startswith("--")]
    return unknown + [option for option in bare if option not in known]


def unknown_keys(page: str) -> list[str]:
    """Every `stage.key` that is no key, score, threshold or reason, and every `make` of no target."""
    unknown = []
    for section, key in re.findall(rf"\b({'|'.join([*CATALOGUE, *SECTIONS])})\.([a-z]\w*)", page):
        if key in ("py", "json") or key in {
            f.name for f in fields(SECTIONS.get(section) or stage_class(section))
        }:
            continue
        if section in SECTIONS:
            unknown.append(f"{section}.{key}")
            continue
        stage = stage_class(section)()
        names = {
            *stage.scores,
            *(r.threshold for r in stage.rules),
            *(f"{section}.{r}" for r in stage.reasons),
        }
        if f"{section}.{key}" not in names | {"balance_languages.base_epochs"}:
            unknown.append(f"{section}.{key}")
    targets = re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE)
    shown = "\n".join(b.text for b in blocks(page) if b.language in ("sh", "console")) + "\n".join(
        spans(page)
    )
    unknown += [f"make {t}" for t in re.findall(r"^make ([a-z-]+)", shown, re.MULTILINE) if t not in targets]
    return unknown


@every_page
def test_commands_options_and_keys_are_there(path: Path) -> None:
    page = path.read_text("utf-8")
    assert unknown_commands(page) == []
    assert unknown_keys(page) == []


def test_unknown_commands_and_keys_are_seen() -> None:
    page = (
        "```sh\n.venv/bin/sluice run web --input a \\\n    --outputs b # c\nmake everything\n```\n"
        "```console\n$ .venv/bin/sluice stream x\n$ .venv/bin/sluice run a --job_endpoint=b\n```\n"
        "```sh\nsluice run a --runner PortableRunner --job_endpoint=b --job_endpint=b\n```\n"
        "`sluice verify --deeper` `verify --deep` `--strict` `--stricter` `make test` `make tests`\n"
        "gopher_quality.min_words gopher_quality.min_word run.unit_bytes input.texts "
        "near_duplicates.near_duplicate"
    )
    assert unknown_commands(page) == [
        "run --outputs",
        "stream",
        "run --job_endpoint",
        "run --job_endpint",
        "verify --deeper",
        "--stricter",
    ]
    assert unknown_keys(page) == ["gopher_quality.min_word", "input.texts", "make everything", "make tests"]


@every_page
def test_recipes_in_the_pages_are_checked_ones(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_package").mkdir()
    for folder in (tmp_path, tmp_path / "my_package"):
        (folder / f"{EXAMPLE}.py").write_text(example()[f"filters/{EXAMPLE}.py"].text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in (EXAMPLE, "my_package", f"my_package.{EXAMPLE}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for block in blocks(path.read_text("utf-8")):
        if block.language == "toml":
            (tmp_path / "recipe.toml").write_text(block.text, "utf-8")
            load_recipe(str(tmp_path / "recipe.toml"))


# Lists that must be whole ---------------------------------------------------------------------------------


def first_cells(page: str, heading: str) -> list[str]:
    """The code in the first column of the table below a table head that begins with this word."""
    rows = page.partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [re.match(r"\| `([^`]+)`", row)[1] for row in rows]  # type: ignore[index]


def test_every_reason_and_flag_of_the_readers_is_explained() -> None:
    page = read("docs/inputs.md")
    assert first_cells(page, "reason") == list(READ_REASONS)
    assert sorted(first_cells(page, "flag")) == sorted(READ_FLAGS)


def test_every_environment_variable_is_explained() -> None:
    own = [*(REPOSITORY / p for p in (*PACKAGES, "tests", "benchmarks"))]
    used = {
        v
        for f in own
        for p in f.rglob("*.py")
        for v in re.findall(r"\"(SLUICE_[A-Z_]+)\"", p.read_text("utf-8"))
    }
    explained = {v for v in first_cells(read("docs/running.md"), "variable") if v.startswith("SLUICE")}
    assert explained == used
    named = {v for path in pages() for v in re.findall(r"SLUICE_[A-Z_]+", path.read_text("utf-8"))}
    assert named <= used


def test_every_column_of_the_work_files_is_named() -> None:
    named = set(spans(read("docs/audit.md")))
    assert {*TEXT.names, *ANNOTATION_BASE.names} <= named


def test_exit_statuses_are_those_of_the_command_line() -> None:
    rows = re.findall(r"^\| (\d) \|", read("docs/running.md"), re.MULTILINE)
    assert [int(n) for n in rows] == [cli.DONE, cli.FAILED, cli.WRONG_USE]


def test_the_changelog_has_the_version() -> None:
    version = re.search(r'^version = "(.+)"', read("pyproject.toml"), re.MULTILINE)
    dated = re.findall(r"^## (\S+), \d{1,2} [A-Z][a-z]+ 20\d\d$", read("CHANGELOG.md"), re.MULTILINE)
    assert version
    assert dated[0] == version[1]
    assert "**Decisions**" in read("CHANGELOG.md")


# The example of CONTRIBUTING.md ---------------------------------------------------------------------------


def example() -> dict[str, Block]:
    """The blocks of CONTRIBUTING.md that are files, by name."""
    return {block.name: block for block in blocks(read("CONTRIBUTING.md")) if block.name}


def test_the_example_of_a_new_rule_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = example()
    module = f"filters/{EXAMPLE}.py"
    assert list(parts) == [
        module, f"tests/cases/{EXAMPLE}.json", "docs/filters.md", "pipeline/catalogue.py", "recipe.toml"
    ]  # fmt: skip
    (tmp_path / f"{EXAMPLE}.py").write_text(parts[module].text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, EXAMPLE, raising=False)
    cls = importlib.import_module(EXAMPLE).ExclamationMarks
    assert parts["pipeline/catalogue.py"].text.strip() == f'"{cls.name}": "filters.{EXAMPLE}:{cls.__name__}",'

    cases = json.loads(parts[f"tests/cases/{EXAMPLE}.json"].text)
    for case in cases:
        judge_case(cls, case)
    assert untested_reasons(cls(), cases) == set()
    assert untested_thresholds(cls(), cases) == set()

    monkeypatch.setitem(CATALOGUE, cls.name, f"{EXAMPLE}:{cls.__name__}")
    section = filled(parts["docs/filters.md"].text)
    assert cls.__doc__.splitlines()[0] in section
    assert cls.rules[0].plain in section
    monkeypatch.delitem(CATALOGUE, cls.name)

    texts = {"calm": "A ship came in at noon and left with the tide.", "loud": cases[0]["text"], "empty": ""}
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("".join(lines), "utf-8")
    (tmp_path / "recipe.toml").write_text(parts["recipe.toml"].text, "utf-8")
    output = tmp_path / "out"
    recipe = load_recipe(str(tmp_path / "recipe.toml"))
    assert flow.run(recipe, [str(tmp_path / "in")], str(output), workers=1) == 0
    rows = {row["input_id"]: row for row in pq.read_table(output / "audit").to_pylist()}
    ends = {name: (row["decision"], row["stage"], row["reason"]) for name, row in rows.items()}
    refused = ("rejected", cls.name, cls.rules[0].reason)
    assert ends == {"calm": ("kept", None, None), "loud": refused, "empty": ("kept", None, None)}
    assert dict(rows["loud"]["thresholds"])[cls.rules[0].threshold] == 0.3
    assert cls.rules[0].score not in dict(rows["empty"]["scores"])
    assert f"Rejected by {cls.name}: {cls.rules[0].reason} ({cls.rules[0].plain})." in explain(
        open_store(str(output)), "loud"
    )


# Real data ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_records_of_the_real_data_that_cannot_be_read_are_those_on_the_page() -> None:
    folders = [DATA / "web" / "warc", DATA / "text", DATA / "lowquality"]
    if not all(f.is_dir() for f in folders):
        pytest.skip(f"{DATA} is not there; SLUICE_DATA names the folder of real texts")
    files = list_inputs([str(f) for f in folders], exclude=["SOURCE.txt", "ldnoobw/*"])
    bad, records, flags, no_documents = {}, 0, Counter[str](), 0
    for file in files:
        for segment in segments_of(file, 16 << 20):
            for item in read_segment(segment):
                records += isinstance(item, (Read, Bad))
                no_documents += isinstance(item, Skipped)
                flags.update(f"{file.path} {flag}" for flag in getattr(item, "flags", ()))
                if isinstance(item, Bad):
                    bad[file.doc_id(item.locator)] = item.reason
    page = read("docs/inputs.md").partition("\n## On real data\n")[2]
    assert bad == dict(re.findall(r"^\| `([^`]+)` \| `(\w+)` \|", page, re.MULTILINE))
    assert f"reads {records:,} records and quarantines {('none', 'one', 'two', 'three')[len(bad)]}" in page
    assert flags == {"cc_net__sample.warc.txt warc_length": 3}
    assert f"{no_documents} WARC records hold no document" in page


@pytest.mark.slow
@pytest.mark.spark
def test_the_spark_run_of_the_page_works(tmp_path: Path) -> None:
    folder = workplace(tmp_path)
    (block,) = (b for b in blocks(read("docs/running.md")) if b.name == "spark")
    documents.printed([sys.executable, "-c", block.text], folder)
    assert (folder / "out" / "spark" / "_SUCCESS").is_file()


def test_commands_are_cut_from_their_output() -> None:
    assert steps("$ a\n$ b\nx\ny\n") == [("a", ""), ("b", "x\ny\n")]
