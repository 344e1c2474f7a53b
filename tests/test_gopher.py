"""Gopher's rules: case tables, properties, and what they keep of good prose in fourteen languages."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_tables import Case, case_parameters, judge_case, load_cases, untested_reasons, untested_thresholds
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filters.base import RuleSet
from filters.gopher_quality import GopherQuality
from filters.gopher_repetition import GopherRepetition
from filters.language_data import function_words, language_thresholds
from filters.text_view import text_view
from schemas.chunk import Chunk
from schemas.records import Document

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("SLUICE_DATA", ROOT / ".." / "shared" / "data")) / "text"
STAGES: tuple[type[RuleSet], ...] = (GopherQuality, GopherRepetition)
LANGUAGES = ("en", "de", "zh-Hans", "zh-Hant", "ja", "ko", "th", "vi", "fi", "und", "xx")

untimed = settings(deadline=None)  # the first example compiles the kernels
stages = pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
lively = st.text(st.sampled_from("ab 你好世かナกเ\n\r\t.…#-•1'\u0301\u200b\0!가"), max_size=80)
plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
texts = st.one_of(lively, plain, st.builds(lambda t, n: t * n, lively, st.integers(1, 40)))


def measured(stage: type[RuleSet], documents: list[Document]) -> dict[str, np.ndarray[Any, Any]]:
    return dict(stage().measure(Chunk.of(documents)).scores)  # type: ignore[attr-defined]


@pytest.mark.parametrize("case", case_parameters("gopher_quality"))
def test_quality_case(case: Case) -> None:
    judge_case(GopherQuality, case)


@pytest.mark.parametrize("case", case_parameters("gopher_repetition"))
def test_repetition_case(case: Case) -> None:
    judge_case(GopherRepetition, case)


@stages
def test_every_reason_and_threshold_has_a_case(stage: type[RuleSet]) -> None:
    cases = load_cases(stage.name)
    assert untested_reasons(stage(), cases) == set()
    assert untested_thresholds(stage(), cases) <= {"gopher_quality.min_any_words"}


@stages
def test_rules_scores_and_fields_agree(stage: type[RuleSet]) -> None:
    rules = stage()
    assert {rule.score for rule in rules.rules} == set(rules.scores)
    assert {rule.threshold for rule in rules.rules} == {
        f"{rules.name}.{f.name}"
        for f in fields(rules)  # type: ignore[arg-type]
    }


@untimed
@given(text=texts, language=st.sampled_from(LANGUAGES))
@example(text="", language="en")
@example(text=" \t\n", language="en")
@example(text="\0", language="zh-Hans")
@example(text="x" * 50_000, language="en")
@example(text="好" * 50_000, language="zh-Hans")
@example(text="a " * 20_000, language="und")
@stages
def test_any_text_is_judged(stage: type[RuleSet], text: str, language: str) -> None:
    document = Document(text, language=language)
    first, again = stage().judge(document), stage().judge(document)
    assert first == again
    assert set(first.reasons) <= set(stage().reasons)
    for name, score in first.scores.items():
        assert math.isfinite(score)
        assert score >= 0
        if name.endswith("_fraction"):
            assert score <= 1
    if stage is GopherRepetition:
        assert set(first.scores) == set(stage.scores)


@untimed
@given(st.lists(st.tuples(texts, st.sampled_from(LANGUAGES)), max_size=15))
@stages
def test_a_score_depends_on_its_document_alone(stage: type[RuleSet], pairs: list[tuple[str, str]]) -> None:
    documents = [Document(text, language=language) for text, language in pairs]
    whole = measured(stage, documents)
    for size in (1, 7):
        parts = [measured(stage, documents[i : i + size]) for i in range(0, len(documents), size)]
        for name, scores in whole.items():
            joined = np.concatenate([np.empty(0), *(part[name] for part in parts)])
            assert joined.tobytes() == scores.tobytes(), (name, size)


@untimed
@given(
    text=texts,
    language=st.sampled_from(LANGUAGES),
    chosen=st.integers(0, 12),
    step=st.one_of(st.none(), st.floats(0, 2)),
)
@stages
def test_loosening_a_threshold_never_refuses(
    stage: type[RuleSet], text: str, language: str, chosen: int, step: float | None
) -> None:
    rule = stage().rules[chosen % len(stage.rules)]
    field = rule.threshold.removeprefix(f"{stage.name}.")
    limit = stage().thresholds(language)[rule.threshold]
    looser = None if step is None else limit + step if rule.fails == "above" else limit - step
    before = stage().judge(Document(text, language=language))
    after = stage(**{field: looser}).judge(Document(text, language=language))
    if looser is not None and looser == getattr(stage(), field):
        return  # written out, the default still lets a language's own threshold stand
    assert set(after.reasons) <= set(before.reasons)


@pytest.mark.parametrize("seed", ["0", "5"])
def test_hash_seed_does_not_matter(seed: str) -> None:
    program = (
        "from filters.gopher_repetition import GopherRepetition as R\n"
        "from schemas.records import Document as D\n"
        "print(sorted(R().judge(D('one two six ten one two six ten x')).scores.items()))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    verdict = GopherRepetition().judge(Document("one two six ten one two six ten x"))
    assert ran.stdout.strip() == str(sorted(verdict.scores.items()))


@untimed
@given(st.lists(st.sampled_from(["a", "b", "cd", "efg"]), max_size=60))
def test_n_gram_shares_equal_a_plain_count(words: list[str]) -> None:
    total = sum(map(len, words))
    verdict = GopherRepetition().judge(Document(" ".join(words), language="en"))
    for n in range(2, 11):
        at = defaultdict(list)
        for i in range(len(words) - n + 1):
            at[tuple(words[i : i + n])].append(i)
        repeated = {gram: places for gram, places in at.items() if len(places) > 1}
        expected = 0.0
        if repeated and n <= 4:
            most = max(map(len, repeated.values()))
            longest = max(len("".join(g)) for g, places in repeated.items() if len(places) == most)
            expected = min(1.0, most * longest / total)
        elif repeated:
            covered = {i + k for places in repeated.values() for i in places for k in range(n)}
            expected = sum(len(words[i]) for i in covered) / total
        kind = "top" if n <= 4 else "duplicate"
        assert verdict.scores[f"gopher_repetition.{kind}_{n}_gram_char_fraction"] == expected


def test_function_words_are_single_distinct_words() -> None:
    for language, words in function_words().items():
        view = text_view(list(words), [language] * len(words))
        assert len(view.word_hashes) == len(words) == len(set(view.word_hashes.tolist())), language
        assert len(words) >= 8


@stages
def test_thresholds_by_language_are_fields(stage: type[RuleSet]) -> None:
    names = {f.name for f in fields(stage)}  # type: ignore[arg-type]
    table = language_thresholds(stage.name)
    assert {field for own in table.values() for field in own} <= names
    assert table["zh-Hans"] == table["zh-Hant"] == table["zh"]


def test_a_threshold_that_is_set_wins_over_the_language() -> None:
    assert GopherQuality().thresholds("zh-Hans")["gopher_quality.min_mean_word_chars"] == 1.3
    assert (
        GopherQuality(min_mean_word_chars=1.9).thresholds("zh-Hans")["gopher_quality.min_mean_word_chars"]
        == 1.9
    )
    assert "gopher_quality.min_words" not in GopherQuality(min_words=None).thresholds("en")


def without_asciidoc(text: str) -> str:
    """The prose of a book section in AsciiDoc: no comments, listings, index terms or attributes."""
    text = re.sub(r"(?ms)^/{4,}\s*\n.*?^/{4,}\s*$", "", text)
    text = re.sub(r"(?ms)^(-{4,}|\.{4,}|={4,}|\+{4,})[ \t]*\n.*?^\1[ \t]*$", "", text)
    text = re.sub(r"\(\(\(.*?\)\)\)", "", text)
    return re.sub(r"(?m)^(\[.*\]\s*|(image|include)::.*|//.*)$", "", text)


def good_prose() -> Iterator[tuple[str, str]]:
    """Documents of 500 characters and more, with their language; book sections left in English apart."""
    names = ("progit2_*", "xquad*", "zh_cmrc*", "zh_hant_drcd*", "en_austen*", "zh_literature*")
    for path in sorted(p for name in names for p in DATA.glob(name)):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                text, language = record["text"], record["lang"]
                if path.name.startswith("progit2"):
                    text = without_asciidoc(text)
                    as_english = GopherQuality().judge(Document(text, language="en"))
                    if as_english.scores.get("gopher_quality.stop_words", 0) >= 6:
                        continue
                if len(text) >= 500:
                    yield "zh-Hans" if language == "zh" else language, text


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no reference texts under {DATA} (set SLUICE_DATA)")
def test_good_prose_is_kept_in_every_language() -> None:
    by_language = defaultdict(list)
    for language, text in good_prose():
        by_language[language].append(Document(text, language=language))
    expected = {"en", "de", "fr", "es", "pt", "ru", "ja", "ko", "zh-Hans", "zh-Hant"} | {
        "ar",
        "hi",
        "vi",
        "tr",
        "th",
    }
    assert expected <= set(by_language)
    kept = {}
    for language, documents in by_language.items():
        passed = np.ones(len(documents), np.bool_)
        for stage in STAGES:
            scores = measured(stage, documents)
            for i in range(len(documents)):
                passed[i] &= stage().decide({n: float(s[i]) for n, s in scores.items()}, language).keep
        kept[language] = passed.mean()
    # A tenth less for samples of 177 to 214 documents than the 95 % reached over all sets in docs.
    assert {language: share for language, share in kept.items() if share < 0.93} == {}
    assert np.mean(list(kept.values())) >= 0.96
