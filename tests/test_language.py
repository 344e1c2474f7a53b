"""Language identification: a table of cases, properties over any text, floors on real data."""

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers import language as module
from classifiers.language import SAMPLE_CHARS, IdentifyLanguage, identify
from classifiers.language_codes import canonical_language, languages, written_languages
from classifiers.scripts import CLASSES, SCRIPTS, character_classes
from schemas.chunk import Chunk
from schemas.records import Document

REPOSITORY = Path(__file__).parents[1]
DATA = Path(os.environ.get("SLUICE_DATA", REPOSITORY / ".." / "shared" / "data"))
CASES = json.loads((Path(__file__).parent / "cases" / "identify_language.json").read_text("utf-8"))

any_text = st.text(st.characters(codec=None), max_size=200)
SENTENCE = "Le chat dort sur la table de la cuisine."


def measured(
    stage: IdentifyLanguage, texts: list[str], kind: str = "prose"
) -> tuple[list[str], dict[str, Any]]:
    """The languages and the score columns of these texts as one chunk."""
    found = stage.measure(Chunk.of([Document(text, kind=kind) for text in texts]))
    return found.columns["language"].to_pylist(), dict(found.scores)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["label"])
def test_case(case: dict[str, Any]) -> None:
    stage = IdentifyLanguage(**case.get("settings", {}))
    document = Document(case["text"], kind=case.get("kind", "prose"))
    found, scores = measured(stage, [document.text], document.kind)
    assert found[0] in np.atleast_1d(case["language"])
    assert list(stage.judge(document).reasons) == case["reasons"]
    for name, value in case.get("scores", {}).items():
        assert scores[name][0] == value


def test_every_reason_has_a_case() -> None:
    assert {reason for case in CASES for reason in case["reasons"]} == set(IdentifyLanguage().reasons)


def test_a_decision_follows_from_the_stored_row() -> None:
    """`decide` on the scores and the language alone gives what `judge` gave, and so does the generic rule."""
    for case in CASES:
        stage = IdentifyLanguage(**case.get("settings", {}))
        document = Document(case["text"])
        (language,), columns = measured(stage, [document.text])
        verdict = stage.decide({name: float(column[0]) for name, column in columns.items()}, language)
        assert verdict == stage.judge(document)
        limits = stage.thresholds(language)
        failing = {
            rule.reason
            for rule in stage.rules
            if rule.failing(columns[rule.score], np.array([limits.get(rule.threshold, math.nan)]))[0]
        }
        assert failing == set(verdict.reasons)


@pytest.mark.parametrize(
    ("selected", "language", "expected"),
    [
        ([], "de", None),
        (["de"], "de", 0.0),
        (["de"], "en", 1.0),
        (["zh"], "zh-Hant", 0.0),
        (["zh-TW"], "zh-Hans", 1.0),
        (["de"], "und", 1.0),
        (["de"], "a language of another stage", 1.0),
    ],
)
def test_the_threshold_says_what_is_selected(
    selected: list[str], language: str, expected: float | None
) -> None:
    limits = IdentifyLanguage(languages=selected).thresholds(language)
    assert limits.get("identify_language.min_selected") == expected


def test_the_language_wins_over_the_documents_own() -> None:
    document = Document("Die Fähre kam wieder zu spät, also tranken wir Tee.", language="en")
    assert IdentifyLanguage(languages=["de"]).judge(document).keep


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"languages": ["en", "eng", "eng_Latn", "zh-Hans", "xx"]}, "unknown language code 'xx'"),
        ({"min_probability": 20.0}, "min_probability: 20.0 is not between 0 and 1"),
        ({"min_letters": -1}, "min_letters: -1 is below 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IdentifyLanguage(**settings)


CODES = {
    "en": "en eng en-US en_GB eng_Latn EN en-Latn-001",
    "zh": "zh zho chi cmn zho_Hani",
    "zh-Hans": "zh-Hans zh-CN zh-SG zh_Hans_CN cmn_Hans ZH-HANS",
    "zh-Hant": "zh-Hant zh-TW zh-HK zh-MO cmn_Hant zh-Hant-HK",
    "ja": "ja jpn jpn_Jpan ja-JP",
    "ko": "ko kor kor_Hang ko-Kore",
    "pt": "pt por pt-BR por_Latn",
    "no": "no nb nob nor nob_Latn",
    "sq": "sq sqi alb als als_Latn",
    "gsw": "gsw",
    "ar": "ar ara arb_Arab",
    "fa": "fa fas per pes_Arab",
    "sr": "sr srp",
    "he": "he iw heb",
    "und": "und",
}


@pytest.mark.parametrize(("code", "expected"), [(c, e) for e, codes in CODES.items() for c in codes.split()])
def test_usual_codes(code: str, expected: str) -> None:
    assert canonical_language(code) == expected


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("xx", "unknown language code 'xx': the nearest is '"),
        ("english", "unknown language code 'english': the nearest is 'en'"),
        ("engl", "the nearest is 'en"),
        ("", "unknown language code ''"),
        ("en-US-x-private", "unknown language code"),
        ("en_Cyrl", "English is known in Latn only"),
        ("zh-Latn", "Chinese is known in Hans and Hant only"),
        ("srp_Latn", "scripts of Serbian are not told apart: use 'sr'"),
        ("yue", "'yue' is not told apart from Chinese: use 'zh'"),
        ("arz_Arab", "not told apart from Arabic: use 'ar'"),
        ("und-Latn", "unknown language code 'und-Latn'"),
    ],
)
def test_other_codes_are_errors(code: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        canonical_language(code)


def test_the_table_covers_the_model_and_no_code_stands_twice() -> None:
    rows = languages().values()
    labels = [f"__label__{label}" for row in rows for label in row.labels]
    assert sorted(labels) == sorted(module.load().getLabels("strict")[0])
    codes = [code for row in rows for code in (row.code, *row.also)]
    assert len(set(codes)) == len(codes)
    known = {*SCRIPTS, "Hans", "Hant", "Jpan", "Kore", "Hang"}
    assert {script for row in rows for script in row.scripts} <= known
    assert all(canonical_language(code) == code for code in written_languages())


@pytest.mark.parametrize(
    ("characters", "name"),
    [
        ("aÉßƠ", "Latn"),
        ("жЎ", "Cyrl"),
        ("ごゴー", "Kana"),
        ("한ㄱ", "Hang"),
        ("水后里干台着乾々𠀀", "Hani"),
        ("国会学", "Hani-Hans"),
        ("们这说", "Hani-Hans-zh"),
        ("東時語", "Hani-Hant"),
        ("國會學", "Hani-Hant-zh"),
        ("発駅広気", "Hani-ja"),
        ("Ꭳᑕⵣ", "other"),
        ("ﬁＡｱﺕ", "form"),
        ("'’\u200d\u200c\u0301ा", "kept"),
        ("0٣५ \n\0\u2028\x85\ud835\ufe0f\u200b.,。、<_>$😀ª²𝐀", "blank"),
    ],
)
def test_character_classes(characters: str, name: str) -> None:
    assert {CLASSES[character_classes()[ord(c)]] for c in characters} == {name}


@given(any_text)
def test_any_text_gets_an_answer_within_bounds(text: str) -> None:
    found = identify(text)
    assert found.language in written_languages()
    assert found == identify(text)
    assert math.isnan(found.probability) == (found.language == "und")
    assert math.isnan(found.probability) or 0.0 <= found.probability <= 1.0
    assert math.isnan(found.probability) or round(found.probability, 4) == found.probability
    assert math.isnan(found.hant_fraction) or 0.0 <= found.hant_fraction <= 1.0


@given(any_text)
def test_text_is_judged_whatever_surrounds_it(noise: str) -> None:
    """Blank characters around and between words never change the answer, only letters do."""
    blank = "".join(c for c in noise if CLASSES[character_classes()[ord(c)]] == "blank" and c not in "@.:/")
    words = SENTENCE.split(" ")
    assert identify(f"{blank} ".join(words)) == identify(SENTENCE)


@given(st.sampled_from(["\r\n", "\n\n", "\u2028", "\u2029", "\x85", "\v", "\f", "\0", "\x1c", "\t"]))
def test_every_line_separator_is_a_space(separator: str) -> None:
    assert identify(SENTENCE.replace(" ", separator)) == identify(SENTENCE)


@given(st.lists(any_text | st.sampled_from([case["text"] for case in CASES]), min_size=1, max_size=20))
def test_a_score_depends_on_its_document_alone(texts: list[str]) -> None:
    stage = IdentifyLanguage()
    whole_languages, whole = measured(stage, texts)
    for size in (1, 7):
        parts = [measured(stage, texts[i : i + size]) for i in range(0, len(texts), size)]
        assert [language for part, _ in parts for language in part] == whole_languages
        for name, column in whole.items():
            assert np.concatenate([scores[name] for _, scores in parts]).tobytes() == column.tobytes()


def test_an_empty_chunk_is_measured() -> None:
    found, scores = measured(IdentifyLanguage(), [])
    assert found == []
    assert {name: len(column) for name, column in scores.items()} == dict.fromkeys(IdentifyLanguage.scores, 0)


def test_a_long_text_is_judged_on_its_beginning_middle_and_end() -> None:
    parts = ["Der Hund schläft. ", "The dog is asleep. ", "Le chien dort. "]
    text = "".join(part * (SAMPLE_CHARS // len(part) + 1) for part in parts)
    judged = [text[:1000], text[(len(text) - 1000) // 2 :][:1000], text[-1000:]]
    assert identify(text) == identify(" ".join(judged))
    assert identify(text + "x" * 10_000_000).letters <= SAMPLE_CHARS


@pytest.mark.parametrize(
    "unit", ["a", "a.", "http://", "www.", "a@", "@", "\u0301", "x\u0315\u0300", "ﷺ", "<"]
)
def test_hostile_repetitions_are_read_in_bounds(unit: str) -> None:
    assert identify(unit * 1_000_000).letters <= 20 * SAMPLE_CHARS


def test_the_stage_is_small_and_pickles_without_its_model() -> None:
    stage = IdentifyLanguage(languages=["de", "zh"])
    stage.load()
    assert stage.judge(Document(SENTENCE)).reasons == ("language_not_selected",)
    packed = pickle.dumps(stage)
    assert len(packed) < 500
    assert pickle.loads(packed) == stage
    assert module._open.cache_info().currsize == 1
    assert stage.model_id == "lid.176@sha256:8f3472cfe8738a7b"


# Real data -----------------------------------------------------------------------------------------------


def rows(name: str) -> Iterator[dict[str, str]]:
    path = DATA / "text" / f"{name}.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; SLUICE_DATA names the folder of real texts")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def accuracy(pairs: list[tuple[str, str]]) -> float:
    return sum(identify(text).language == language for language, text in pairs) / len(pairs)


def lingua(size: int | None, count: int) -> list[tuple[str, str]]:
    """(language, text) of sentences (size None) or of pieces of this size, `count` a language."""
    pairs = []
    for row in rows("lingua_test_sentences"):
        language = {"nb": "no", "zh": "zh-Hans"}.get(row["lang"], row["lang"])
        if language not in languages() and language != "zh-Hans":
            continue  # eight languages that the model does not know
        lines = [line for line in row["text"].split("\n") if len(line) >= 20]
        if size is not None:
            joined = " ".join(lines)
            lines = [joined[i : i + size] for i in range(0, count * size, size)]
        pairs += [(language, line) for line in lines[:count]]
    return pairs


@pytest.mark.parametrize(("size", "count", "floor"), [(None, 15, 0.885), (200, 10, 0.92), (500, 10, 0.935)])
def test_accuracy_in_67_languages(size: int | None, count: int, floor: float) -> None:
    assert accuracy(lingua(size, count)) >= floor


@pytest.mark.parametrize(
    ("name", "language", "floor"),
    [
        ("zh_cmrc_wiki", "zh-Hans", 1.0),
        ("zh_hant_drcd_wiki", "zh-Hant", 1.0),
        ("zh_literature", "zh-Hans", 1.0),
        ("zh_reviews", "zh-Hans", 0.995),
        ("zh_lctt", "zh-Hans", 0.995),
        ("progit2_zh", "zh-Hans", 1.0),
        ("progit2_de", "de", 1.0),
        ("progit2_fr", "fr", 1.0),
        ("progit2_ru", "ru", 1.0),
        ("en_wikitext2", "en", 1.0),
        ("en_austen", "en", 1.0),
    ],
)
def test_documents_are_told_and_never_refused(name: str, language: str, floor: float) -> None:
    texts = [row["text"] for row in rows(name)][:400]
    assert accuracy([(language, text) for text in texts]) >= floor
    stage = IdentifyLanguage()
    verdicts = [stage.judge(Document(text)) for text in texts if len(text) >= 200]
    assert all(verdict.keep for verdict in verdicts)


SENTENCES = {
    "zh_gsdsimp-ud-test": ("zh-Hans", 0.998),
    "zh_gsd-ud-test": ("zh-Hant", 0.99),
    "ja_gsd-ud-test": ("ja", 0.998),
    "ko_gsd-ud-test": ("ko", 0.998),
    "hi_pud-ud-test": ("hi", 0.998),
}


@pytest.mark.parametrize("treebank", SENTENCES)
def test_sentences(treebank: str) -> None:
    language, floor = SENTENCES[treebank]
    texts = [row["text"] for row in rows("ud_sentences") if row["id"].startswith(treebank)]
    lines = [line for text in texts for line in text.split("\n") if len(line) >= 10][:500]
    assert len(lines) >= 100
    assert accuracy([(language, line) for line in lines]) >= floor


def test_separator_case_of_the_shared_table() -> None:
    folder = DATA.parent / "cases" / "B24"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    expected = json.loads((folder / "expect.json").read_text("utf-8"))["language"]
    records = [
        json.loads(line) for line in (folder / "in.jsonl").read_text("utf-8").split("\n") if line.strip()
    ]
    assert {record["id"]: identify(record["text"]).language for record in records} == expected
