"""Which language a document is written in, and in which script if it is Chinese."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import fasttext
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from classifiers.language_codes import canonical_language, languages, written_languages
from classifiers.registry import find_model, model_id
from classifiers.scripts import (
    CLASSES,
    FORM,
    HAN_SIGNS,
    KEPT,
    SCRIPTS,
    character_classes,
    number,
)
from filters.base import Rule, RuleSet, knob
from schemas.chunk import Chunk, Measured
from schemas.records import UNDETERMINED, Document, Verdict

MODEL = "lid.176"

SAMPLE_CHARS = 3_000
"""A longer text is judged on its beginning, middle and end, this many characters in all."""

CJK_WEIGHT = 3
"""Letters that a Han character, a kana or a Hangul syllable counts for: the Universal Declaration of Human
Rights has 3.2 times as many letters in English as in Chinese, 2.3 times Japanese, 2.6 times Korean."""

LATIN_WEIGHT = 0.5
"""Weight of Latin letters against others in choosing the script to judge: names, markup, formulas and code
are Latin in texts of every language, while few Latin texts quote another script at length."""

SIGN_WEIGHT = 3
"""Weight of a Han character that only Chinese or only Japanese writes, against 1 of a kana or a Hangul
syllable: about every eighth character of Chinese is such a sign, every second one of Japanese a kana."""

MODEL_WEIGHT = 2
"""Weight of the model's opinion between Chinese, Japanese and Korean: it decides where the characters
leave it open, and no more, since it takes one in thirty Chinese sentences for Japanese."""

CJK_OPINION_CHARS = 300
"""The model's opinion between Chinese, Japanese and Korean weighs so little that it is asked of this much."""

# Addresses look English in any language. Both searches are linear: each run is entered at its start only.
_URL = re.compile(r"(?:(?:https?|ftp)://|www\.)[!-~]*", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]+")

_CJK = ("zh", "ja", "ko")
_GROUPS = ("", "CJK", "other", *SCRIPTS)


def _group_of_class() -> npt.NDArray[np.intp]:
    cjk = {"Hang", "Kana", "Hani", *HAN_SIGNS}
    groups = {"blank": "", "kept": "", "form": "other"} | dict.fromkeys(cjk, "CJK")
    return np.array([_GROUPS.index(groups.get(name, name)) for name in CLASSES])


_GROUP = _group_of_class()
_CJK_GROUP = _GROUPS.index("CJK")
_WEIGHT = np.where(_GROUP == 0, 0, np.where(_GROUP == _CJK_GROUP, CJK_WEIGHT, 1))
_JUDGED = [(g == _GROUP) | (np.arange(len(CLASSES)) == KEPT) for g in range(len(_GROUPS))]
_PRIORITY = np.array([LATIN_WEIGHT if g == "Latn" else 1.0 for g in _GROUPS])
_HANGUL, _KANA, _JA = number("Hang"), number("Kana"), number("Hani-ja")
_HANS, _HANS_ZH, _HANT, _HANT_ZH = (number(n) for n in HAN_SIGNS[:4])


@dataclass(frozen=True, slots=True)
class Identified:
    """The language of a text (BCP 47, `und` = not told) and what it was told by; NaN = not measured."""

    language: str
    probability: float
    letters: int
    hant_fraction: float = math.nan


@cache
def _open(path: Path) -> Any:
    return fasttext.load_model(str(path)).f


@cache
def _candidates() -> Mapping[str, Mapping[str, str]]:
    """Script -> the model's labels of the languages written in it -> our code."""
    found: dict[str, dict[str, str]] = {"CJK": {f"__label__{code}": code for code in _CJK}}
    for row in languages().values():
        for label in row.labels:
            for script in ("CJK",) if row.code in _CJK else row.scripts:
                found.setdefault(script, {})[f"__label__{label}"] = row.code
    return found


def _sample(text: str) -> str:
    if len(text) <= SAMPLE_CHARS:
        return text
    part = SAMPLE_CHARS // 3
    middle = (len(text) - part) // 2
    return f"{text[:part]} {text[middle : middle + part]} {text[-part:]}"


def _without_addresses(text: str) -> str:
    if "://" in text or "www." in text:
        text = _URL.sub(" ", text)
    return _EMAIL.sub(" ", text) if "@" in text else text


def _opinion(model: Any, text: str, group: str) -> dict[str, float]:
    """The model's probabilities of the languages written in this script, given that it is one of them."""
    codes = _candidates().get(group, {})
    if len(codes) < 2:
        return dict.fromkeys(codes.values(), 1.0)
    for most in (5, 200):
        found: dict[str, float] = {}
        others = 0.0
        for probability, label in model.predict(f"{text}\n", most, 0.0, "strict"):
            if label in codes:
                found[codes[label]] = found.get(codes[label], 0.0) + probability
            else:
                others += probability
        if found:
            break
    rest = max(1.0 - others, sum(found.values()))
    return {code: probability / rest for code, probability in found.items()}


def _east_asian(opinion: Mapping[str, float], counts: list[int]) -> dict[str, float]:
    """Chinese, Japanese or Korean: each one's share of the characters that tell them apart."""
    known = sum(opinion.values())
    evidence = {code: MODEL_WEIGHT * (opinion.get(code, 0.0) / known if known else 1 / 3) for code in _CJK}
    evidence["zh"] += SIGN_WEIGHT * (counts[_HANS_ZH] + counts[_HANT_ZH])
    evidence["ja"] += SIGN_WEIGHT * counts[_JA] + counts[_KANA]
    evidence["ko"] += counts[_HANGUL]
    total = sum(evidence.values())
    return {code: weight / total for code, weight in evidence.items()}


def _classified(text: str) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """The code points of a text, their classes, and how many there are of each class."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    classes = character_classes()[points]
    return points, classes, np.bincount(classes, minlength=len(CLASSES))


def load() -> Any:
    """The opened model, once per process; raises ModelMissing or ModelInvalid (see `find_model`)."""
    return _open(find_model(MODEL))


def identify(text: str, min_letters: int = 0, model: Any = None) -> Identified:
    """Tell the language of one text with lid.176, helped by what its script says.

    Of the sample (see SAMPLE_CHARS) addresses, digits, signs and controls are blanked and the rest is
    lower-cased; the text itself is not touched. Only the letters of the most frequent script are judged
    (Latin ones count half), and only languages written in it are considered. `probability` is the model's
    for the language among those, times the script's share of all letters, rounded to 4 decimals; between
    Chinese, Japanese and Korean the characters decide. Chinese is zh-Hant where characters written in
    traditional Chinese only outnumber those written in simplified Chinese only, else zh-Hans. With fewer
    than `min_letters` letters the answer is `und`.

    `model` is what `load` returned, for callers with many texts.
    """
    sample = unicodedata.normalize("NFC", _without_addresses(_sample(text)))
    points, classes, counts = _classified(sample)
    if counts[FORM]:
        points, classes, counts = _classified(unicodedata.normalize("NFKC", sample))
    weights = np.bincount(_GROUP, weights=counts * _WEIGHT, minlength=len(_GROUPS))
    letters = int(weights.sum())
    if letters == 0 or letters < min_letters:
        return Identified(UNDETERMINED, math.nan, letters)
    group = int((weights * _PRIORITY).argmax())
    judged = np.where(_JUDGED[group][classes], points, ord(" "))
    copy = judged.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass").lower()
    numbers: list[int] = counts.tolist()
    if group == _CJK_GROUP:
        opinion = _opinion(model or load(), copy[:CJK_OPINION_CHARS], "CJK")
        found = _east_asian(opinion, numbers)
    else:
        found = _opinion(model or load(), copy, _GROUPS[group])
    if not found:  # a script of which the model knows no language
        return Identified(UNDETERMINED, math.nan, letters)
    language = min(found, key=lambda code: (-found[code], code))
    probability = round(min(1.0, found[language] * float(weights[group]) / letters), 4)
    hant_fraction = math.nan
    if language == "zh":
        hans, hant = numbers[_HANS] + numbers[_HANS_ZH], numbers[_HANT] + numbers[_HANT_ZH]
        hant_fraction = hant / (hans + hant) if hans + hant else math.nan
        language = "zh-Hant" if hant > hans else "zh-Hans"
    return Identified(language, probability, letters, hant_fraction)


@dataclass(frozen=True)
class IdentifyLanguage(RuleSet):
    """Tell the language of every document, and refuse those whose language is uncertain or not wanted.

    The language is BCP 47 with script where it matters (zh-Hans, zh-Hant) and is told of every kind of
    document, since rules, balance and shards go by it; only the kinds named below are refused by it. What the
    input says of a record's language stays in its metadata and decides nothing.

    - Addresses, digits and signs are left out, and a long text is judged on its beginning, middle and end.
      Only the letters of its most frequent script count, and only languages written in that script are
      considered; between Chinese, Japanese and Korean the characters decide.
    - A text with fewer than `min_letters` letters is `und`, and its probability is not measured: it is not
      refused as uncertain (the rules on words judge its length). The same holds for a script of which the
      model knows no language.
    - `und` is a language like others to `languages`: where some are selected, texts that are `und` are
      refused unless it is among them.

    Source: the fastText model lid.176 of 176 languages (Joulin et al. 2016, https://arxiv.org/abs/1612.03651).
    """

    name: ClassVar[str] = "identify_language"
    models: ClassVar[tuple[str, ...]] = (MODEL,)
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "language_uncertain",
            "identify_language",
            "identify_language.min_probability",
            "below",
            "its language cannot be told with confidence",
        ),
        Rule(
            "language_not_selected",
            "identify_language.selectable",
            "identify_language.min_selected",
            "below",
            "its language is none of those that the recipe selects",
        ),
    )
    scores: ClassVar[Mapping[str, str]] = {
        "identify_language": "probability of the language among those of its script, times the script's "
        "share of the letters, 0 to 1 (4 decimals)",
        "identify_language.letters": "letters in the judged sample; a Han character, kana or Hangul syllable "
        "counts as 3",
        "identify_language.hant_fraction": "traditional characters among those that only one script of "
        "Chinese has, 0 to 1 (Chinese documents only)",
        "identify_language.selectable": "0 for every document; the bound `min_selected` is 1 for a language "
        "that is not selected, else 0",
    }

    min_probability: float | None = knob(
        0.2,
        doc="smallest probability of the language, 0 to 1",
        source="measured: random Latin letters stay below 0.2; so do 0.4 % of 200-character texts in 67 "
        "languages that are told rightly",
    )
    languages: list[str] = knob(
        [],
        doc="languages to keep, a list of codes (any usual ones; zh stands for both scripts; empty: all)",
        source="empty, so that no language is refused unasked",
    )
    min_letters: int = knob(
        20,
        phase="annotate",
        doc="letters below which the language is left undetermined (und); a Han character counts as 3",
        source="measured in 28 languages: of texts with 5-19 letters one in four gets a wrong language, "
        "with 20-29 one in ten, from 50 on one in fifty",
    )

    def __post_init__(self) -> None:
        if self.min_probability is not None and not 0 <= self.min_probability <= 1:
            raise ValueError(f"min_probability: {self.min_probability} is not between 0 and 1")
        if self.min_letters < 0:
            raise ValueError(f"min_letters: {self.min_letters} is below 0")
        for code in self.languages:
            canonical_language(code)

    @property
    def model_id(self) -> str:
        """The model's name and the hash of its file."""
        return model_id(MODEL)

    @property
    def min_selected(self) -> float | None:
        """1 where languages are selected (see `per_language` for those that are), else off."""
        return 1.0 if self.languages else None

    @property
    def per_language(self) -> Mapping[str, Mapping[str, float | None]]:
        """`min_selected` is 0 for a selected language."""
        chosen = {canonical_language(code) for code in self.languages}
        return {
            code: {"min_selected": 0.0}
            for code in written_languages()
            if code in chosen or code.split("-")[0] in chosen
        }

    def load(self) -> None:
        """Open the model now, so that a missing one is known before anything starts."""
        load()

    def measure(self, chunk: Chunk) -> Measured:
        """Language, probability, letters and script evidence of every document."""
        model = load()
        found = [identify(text, self.min_letters, model) for text in chunk.texts]

        def column(values: list[float]) -> npt.NDArray[np.float64]:
            return np.array(values, dtype=np.float64)

        return Measured(
            scores={
                "identify_language": column([f.probability for f in found]),
                "identify_language.letters": column([f.letters for f in found]),
                "identify_language.hant_fraction": column([f.hant_fraction for f in found]),
                "identify_language.selectable": np.zeros(len(found)),
            },
            columns={"language": pa.array([f.language for f in found], pa.string())},
        )

    def judge(self, document: Document) -> Verdict:
        """Measure and decide one document; the language decided by is the measured one."""
        if document.kind not in self.kinds:
            return Verdict(self.name, True)
        measured = self.measure(Chunk.of([document]))
        language = measured.columns["language"][0].as_py()
        return self.decide({n: float(v[0]) for n, v in measured.scores.items()}, language)
