"""The text view: words, folding, lines and paragraphs, for one document and for many."""

from __future__ import annotations

import ast
import importlib
import random
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba.core.registry import CPUDispatcher

from filters import text_kernels
from filters.segmentation import character_tables
from filters.text_view import TextView, blocks_with_word, text_view, view_of
from schemas.chunk import Chunk, Measured
from schemas.records import Document

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = ("en", "zh-Hans", "ja", "th", "und")

untimed = settings(deadline=None)  # the first example compiles the kernels
lively = st.text(
    st.sampled_from(
        "ab1 '’.-\n\r\t\f\x85\u2028\0\u200b\u00ad\ufeff\u0301\ufe0f\ud800é"
        "你好龘〇々𠀀豈かガー･ｶﾞนเกา่ປະ្កខမ္န်ꀀ각ᄀ"
    ),
    max_size=60,
)
any_text = st.one_of(lively, st.text(st.characters(codec=None), max_size=60))


def words(text: str, language: str = "und") -> list[str]:
    view = text_view([text], [language])
    return [text[a:b] for a, b in zip(view.word_starts, view.word_ends, strict=True)]


def hashes(text: str, language: str = "und") -> list[int]:
    return list(map(int, text_view([text], [language]).word_hashes))


def part(view: TextView, document: int) -> list[bytes]:
    """What the view says of one document, with positions counted from its own start."""
    start, end = view.document_offsets[document : document + 2]
    found: list[np.ndarray[Any, Any]] = [
        view.code_points[start:end],
        view.symbol_tokens[document : document + 1],
    ]
    for name in ("word", "line", "paragraph"):
        first, last = getattr(view, f"{name}_offsets")[document : document + 2]
        found += [getattr(view, f"{name}_{edge}")[first:last] - start for edge in ("starts", "ends")]
        found.append(getattr(view, f"{name}_hashes")[first:last])
    first, last = view.word_offsets[document : document + 2]
    return [a.tobytes() for a in (*found, view.word_has_letter[first:last])]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Hello, world! (3.14) x_y a-b", ["Hello", "world", "3", "14", "x", "y", "a", "b"]),
        (
            "en",
            "don't can’t 'quoted' rock'n'roll ends' ''",
            ["don't", "can’t", "quoted", "rock'n'roll", "ends"],
        ),
        ("en", "foo\u200bbar co\u00adop \u200bx\u200b", ["foo\u200bbar", "co\u00adop", "x"]),
        ("en", "cafe\u0301 \u0301 ❤\ufe0f 1\ufe0f\u20e3 👩\u200d👧", ["cafe\u0301", "1\ufe0f\u20e3"]),
        ("en", "a\0b m² №5 ①", ["a", "b", "m²", "5", "①"]),
        ("hi", "कुछ लोग", ["कुछ", "लोग"]),
        ("fa", "می\u200cخواهم", ["می\u200cخواهم"]),
        ("ko", "저는 책을", ["저는", "책을"]),
        ("zh-Hans", "我们喜欢自然语言处理。", ["我们", "喜欢", "自然语言", "处理"]),
        ("zh-Hans", "2024年的T恤〇", ["2024", "年", "的", "T", "恤", "〇"]),
        ("zh-Hant", "後來學者發現", ["後來", "學者", "發現"]),
        ("en", "the word 你好世界 is Chinese", ["the", "word", "你好", "世界", "is", "Chinese"]),
        ("und", "你好世界", ["你好", "世界"]),
        ("zh-Hans", "𠀀𠀁㐀好", ["𠀀", "𠀁", "㐀", "好"]),
        ("ja", "東京都庁へ行きました", ["東京", "都庁", "へ", "行", "きまし", "た"]),
        ("ja", "ラーメンをすごーく食べた", ["ラーメン", "をすごー", "く", "食", "べた"]),
        ("ja", "人々はｶﾞｽを使う", ["人々", "は", "ｶﾞｽ", "を", "使", "う"]),
        ("th", "เราเดินไปชายหาด 5 วัน", ["เรา", "เดิน", "ไปชา", "ยหาด", "5", "วัน"]),
        ("lo", "ທຸກຄົນເກີດມາ", ["ທຸກຄົ", "ນ", "ເກີດ", "ມາ"]),
        ("km", "មនុស្សទាំងអស់", ["មនុស្ស", "ទាំង", "អស់"]),
        ("my", "လွတ်လပ်သော မန္တလေး", ["လွတ်", "လပ်သော", "မန္တ", "လေး"]),
        ("ii", "ꀀꀁꀂ", ["ꀀꀁ", "ꀂ"]),
        ("bo", "བོད་ཡིག", ["བོད", "ཡིག"]),
    ],
)
def test_words(language: str, text: str, expected: list[str]) -> None:
    assert words(text, language) == expected


@pytest.mark.parametrize(
    "alike",
    [
        ("ＡＢＣ", "abc"),
        ("ﬁne", "fine"),
        ("foo\u200bbar", "foobar"),
        ("co\u00adop", "coop"),
        ("Straße", "STRASSE", "straẞe"),
        ("é", "e\u0301", "E", "ё".upper().translate({ord("Ё"): "é"})),
        ("ΟΔΌΣ", "οδος", "οδός"),
        ("й", "Й", "и\u0306", "и"),
        ("İ", "i"),
        ("don't", "DON’T", "donʼt"),
        ("각", "\u1100\u1161\u11a8"),
        ("가", "\u1100\u1161"),
        ("ガ", "ｶﾞ", "カ\u3099"),
        ("שּׁ", "ש\u05c1\u05bc", "ש\u05bc\u05c1"),
        ("ﻻ", "لا"),
        ("ো".join("কক"), "ক\u09c7\u09beক"),
        ("葛\U000e0100", "葛"),
        ("x²", "x2"),
        ("豈", "\uf900"),
    ],
)
def test_folding_makes_alike(alike: tuple[str, ...]) -> None:
    assert len({tuple(hashes(text)) for text in alike}) == 1
    assert len(hashes(alike[0])) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("कु", "के"),
        ("שָ", "שֶ"),
        ("كَ", "كِ"),
        ("か", "が"),
        ("か", "カ"),
        ("1506", "1507"),
        ("1", "١"),
        ("กา", "ก่า"),
        ("ab", "ba"),
        ("a", "aa"),
        ("l", "ł"),
        ("dont", "don't"),
    ],
)
def test_folding_keeps_apart(one: str, other: str) -> None:
    assert hashes(one) != hashes(other)


def reference_fold(word: str) -> str:
    """The folding in plain Python."""
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", word).casefold())
    kept, base = [], ""
    for c in text.replace("’", "'"):
        if unicodedata.category(c)[0] == "M":
            if "LATIN" in base or "GREEK" in base or "CYRILLIC" in base:
                continue
        else:
            base = unicodedata.name(c, "")
        kept.append(c)
    return unicodedata.normalize("NFD", "".join(kept))


@untimed
@given(
    st.lists(
        st.text(
            st.sampled_from("aAbéÉßẞñ\u0301\u0327ёЁйΆάςΣｱｶ１ﬁکك١ישׁ\u05c1\u05bcक\u0941के가\u1100\u1161"),
            min_size=1,
            max_size=4,
        ),
        min_size=2,
        max_size=6,
    )
)
def test_hashes_are_equal_where_the_folded_words_are(candidates: list[str]) -> None:
    single = [w for w in candidates if words(w) == [w]]
    for one in single:
        for other in single:
            alike = reference_fold(one) == reference_fold(other)
            assert (hashes(one) == hashes(other)) == alike, (one, other)


def test_every_cased_or_composed_letter_folds_like_its_variants() -> None:
    letters = [chr(c) for c in range(0xC0, 0x20000) if unicodedata.category(chr(c)) in ("Ll", "Lu", "Lt")]
    variants = [unicodedata.normalize("NFKD", c.casefold()) for c in letters]
    kept = [(c, v) for c, v in zip(letters, variants, strict=True) if words(c) == [c] and words(v) == [v]]
    assert len(kept) > 3000
    ones, others = zip(*kept, strict=True)
    first, second = (text_view(list(t), ["und"] * len(t)).word_hashes for t in (ones, others))
    assert [c for c, a, b in zip(ones, first, second, strict=True) if a != b] == []


@untimed
@given(any_text, st.sampled_from(LANGUAGES))
@example("a\r\n\r\nb\r", "en")
@example("", "en")
def test_lines_are_those_of_splitlines(text: str, language: str) -> None:
    view = text_view([text], [language])
    properties, invisible = character_tables().properties, text_kernels.SPACE | text_kernels.FORMAT

    def stripped(line: str) -> str:
        seen = [i for i, c in enumerate(line) if not properties[ord(c)] & invisible]
        return line[seen[0] : seen[-1] + 1] if seen else ""

    lines = [text[a:b] for a, b in zip(view.line_starts, view.line_ends, strict=True)]
    expected = [stripped(line) for line in text.splitlines()]
    assert lines == expected
    blocks: list[list[str]] = [[]]
    for line in expected:
        if line:
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    blocks = [block for block in blocks if block]
    found = [text[a:b] for a, b in zip(view.paragraph_starts, view.paragraph_ends, strict=True)]
    assert [[line for line in map(stripped, p.splitlines()) if line] for p in found] == blocks
    for items, item_hashes in ((lines, view.line_hashes), (list(map(tuple, blocks)), view.paragraph_hashes)):
        for i, one in enumerate(items):
            assert [one == other for other in items] == (item_hashes == item_hashes[i]).tolist()


@untimed
@given(any_text, st.sampled_from(LANGUAGES))
def test_words_lie_in_order_and_cover_every_letter_and_number(text: str, language: str) -> None:
    view = text_view([text], [language])
    properties = character_tables().properties[view.code_points]
    covered = np.zeros(len(text), np.bool_)
    last = 0
    for start, end, letter in zip(view.word_starts, view.word_ends, view.word_has_letter, strict=True):
        assert last <= start < end <= len(text)
        assert properties[start] & text_kernels.BASE
        assert not properties[end - 1] & (text_kernels.FORMAT | text_kernels.APOSTROPHE)
        assert letter == any(properties[start:end] & text_kernels.LETTER)
        covered[start:end] = True
        last = end
    assert covered[properties & text_kernels.BASE != 0].all()
    assert not covered[properties & text_kernels.SPACE != 0].any()


@untimed
@given(st.lists(st.tuples(any_text, st.sampled_from(LANGUAGES)), max_size=20))
def test_a_part_depends_on_its_document_alone(pairs: list[tuple[str, str]]) -> None:
    texts, languages = [t for t, _ in pairs], [x for _, x in pairs]
    whole = text_view(texts, languages)
    assert len(whole) == len(texts)
    for size in (1, 7):
        for first in range(0, len(texts), size):
            some = text_view(texts[first : first + size], languages[first : first + size])
            for i in range(len(some)):
                assert part(some, i) == part(whole, first + i)


@untimed
@given(st.lists(lively, max_size=8), st.sampled_from(LANGUAGES))
def test_buffers_are_large_enough(texts: list[str], language: str) -> None:
    view = text_view(texts, [language] * len(texts))
    counts = [np.empty(len(texts), np.int64) for _ in range(3)]
    properties = character_tables().properties
    text_kernels.count_bounds(view.code_points, view.document_offsets, properties, *counts)
    assert (np.diff(view.word_offsets) <= counts[0]).all()
    assert (np.diff(view.line_offsets) == counts[1]).all()
    assert (2 * np.diff(view.paragraph_offsets) <= counts[1] + 1).all()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a -- b => c", 2),
        ("— — —", 3),
        ("a, b. (c)", 0),
        ("#tag # ##", 2),
        ("❤\ufe0f ok ❤\ufe0f", 2),
        ("\u200b \ufeff", 0),
        ("-\0-", 2),
        ("\u0301", 1),
    ],
)
def test_symbol_tokens(text: str, tokens: int) -> None:
    assert text_view([text], ["en"]).symbol_tokens.tolist() == [tokens]


UNITS = (
    "一",
    "龘",
    "二〇二四",
    "あ",
    "ー",
    "あー",
    "ア",
    "ก",
    "เ",
    "\u1780\u17d2",
    "\u1000\u1039",
    "ꀀ",
    "𠀀",
)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("unit", UNITS)
def test_no_run_without_spaces_is_one_word(unit: str, language: str) -> None:
    found = words(unit * 300, language)
    assert "".join(found) == unit * 300
    assert max(map(len, found)) <= text_kernels.MAX_SYLLABLES_CODE_POINTS + 1  # and a mark on the last


def test_chinese_runs_do_not_influence_each_other() -> None:
    sentences = [
        "城北的老书店开了三十多年",
        "他准时把木门打开",
        "后来几个大学生帮他把书名录进电脑",
        "讀者收到這樣的信往往比收到書還要高興",
    ]
    drawn = random.Random(3).choices(sentences, k=12_000)
    text = "，".join(drawn)
    assert len(text) > 2 * text_kernels.HAN_BLOCK  # several blocks go to the segmenter
    expected = {s: words(s, "zh-Hans") for s in sentences}
    assert words(text, "zh-Hans") == [w for s in drawn for w in expected[s]]


def test_a_word_means_the_same_in_traditional_and_simplified_text() -> None:
    assert list(map(len, words("後來幾個大學生幫他把書名錄進電腦", "zh-Hant"))) == list(
        map(len, words("后来几个大学生帮他把书名录进电脑", "zh-Hans"))
    )


def test_blocks_with_word() -> None:
    view = text_view(["one\n----\n\n1\n★"], ["en"])
    assert blocks_with_word(view, view.line_starts, view.line_ends).tolist() == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_the_view_is_computed_once_until_text_or_language_changes() -> None:
    chunk = Chunk.of([Document("漢字仮名", language="zh-Hant")])
    view = view_of(chunk)
    assert view_of(chunk) is view
    assert view_of(chunk.with_measured(Measured(scores={"x": np.zeros(1)}))) is view
    assert view_of(chunk.with_texts(["a b c"], [()])).word_offsets.tolist() == [0, 3]
    relabelled = chunk.with_measured(Measured(columns={"language": pa.array(["ja"])}))
    assert view_of(relabelled).word_offsets.tolist() == [0, 2]


def test_an_empty_chunk_has_an_empty_view() -> None:
    view = text_view([], [])
    assert len(view) == 0
    assert view.word_offsets.tolist() == view.line_offsets.tolist() == view.paragraph_offsets.tolist() == [0]


def test_importing_compiles_nothing() -> None:
    program = (
        "from filters import gopher_quality, gopher_repetition, text_kernels as k\n"
        "print([len(f.signatures) for f in vars(k).values() if hasattr(f, 'signatures')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    counts = ast.literal_eval(ran.stdout)
    assert len(counts) >= 6
    assert set(counts) == {0}


@pytest.mark.parametrize("path", sorted((ROOT / "filters").glob("*.py")), ids=lambda p: p.stem)
def test_compiled_functions_use_nothing_compiled_in_of_other_files(path: Path) -> None:
    # numba's cache on disk does not see changes in other files: an edited constant would have no effect.
    module = importlib.import_module(f"filters.{path.stem}")
    foreign = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "filters"
        for alias in node.names
    }
    for value in vars(module).values():
        if isinstance(value, CPUDispatcher) and value.py_func.__module__ == module.__name__:
            assert not foreign & set(value.py_func.__code__.co_names), value.py_func.__name__


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["English", "Chinese"])
def test_a_document_of_20_megabytes_stays_small(kind: str) -> None:
    program = (
        "import resource, sys\n"
        "from filters.gopher_quality import GopherQuality as Q\n"
        "from filters.gopher_repetition import GopherRepetition as R\n"
        "from schemas.chunk import Chunk\n"
        "from schemas.records import Document as D\n"
        "def run(text, language):\n"
        "    chunk = Chunk.of([D(text, language=language)]); Q().measure(chunk); R().measure(chunk)\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "run('一二 a', 'zh-Hans'); before = peak()\n"
        "english = sys.argv[1] == 'English'\n"
        "text = ' '.join(map(hex, range(2_300_000))) if english else '后来几个大学生，' * 830_000\n"
        "assert 19e6 < len(text.encode()) < 21e6, len(text.encode())\n"
        "run(text, 'en' if english else 'zh-Hans'); print(peak() - before)"
    )
    ran = subprocess.run([sys.executable, "-c", program, kind], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 500
