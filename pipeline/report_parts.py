"""What every section of the data card is made of: numbers for people, bars and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.html_text import Markup, joined, tag

NO_BREAK = "\N{NO-BREAK SPACE}"

SHOWN_ROWS = 24
"""Rows of a table of languages, kinds or sources before the rest is folded away."""


def percent(part: float, whole: float) -> str:
    """A share with one decimal; what is not quite none or all does not look like it.

    >>> percent(1, 3), percent(1, 10_000), percent(9_999, 10_000), percent(2, 2), percent(3, 2), percent(0, 0)
    ('33.3%', '<0.1%', '>99.9%', '100%', '150.0%', '0%')
    """
    if whole == 0 or part == 0:
        return "0%"
    if part == whole:
        return "100%"
    share = 100 * part / whole
    if share < 0.1:
        return "<0.1%"
    return ">99.9%" if 99.9 < share < 100 else f"{share:.1f}%"


def short(n: float) -> str:
    """A large number in three or four digits.

    >>> [short(n).replace(NO_BREAK, " ") for n in (9_999, 12_345, 999_960, 4_560_000, 7.2e9)]
    ['9,999', '12.3 k', '1.0 M', '4.6 M', '7.2 bn']
    """
    if n < 10_000:
        return f"{n:,.0f}"
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "bn")):
        if n < 999.95 * size:
            return f"{n / size:.1f}{NO_BREAK}{unit}"
    return f"{n / 1e12:,.1f}{NO_BREAK}tn"


def stored(n: int) -> str:
    """A number of bytes in decimal units.

    >>> [stored(n).replace(NO_BREAK, " ") for n in (9_999, 231_000_000, 7_200_000_000_000)]
    ['9,999 bytes', '231.0 MB', '7.2 TB']
    """
    if n < 10_000:
        return f"{n:,} bytes"
    units = {"k": "kB", "M": "MB", "bn": "GB", "tn": "TB"}
    figure, unit = short(n).split(NO_BREAK)
    return f"{figure}{NO_BREAK}{units[unit]}"


def counted(n: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "file"), counted(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def figure(n: float) -> Markup:
    """A number in short, with the whole of it to be pointed at."""
    brief, exact = short(n), f"{n:,.0f}"
    return tag("span", brief, title=exact if exact != brief else None, class_="n")


def foreign(text: str) -> Markup:
    """A name from the input: its direction is its own."""
    return tag("bdi", text)


def bar(kind: str, parts: Mapping[str, float], whole: float) -> Markup:
    """Parts of a whole, side by side (`bar`, `whole`) or one below the other (`pair`)."""
    spans = [
        tag("span", class_=name, style=f"width:{100 * n / whole:.3f}%") for name, n in parts.items() if n
    ]
    return tag("div", *spans, class_=kind, aria_hidden="true")


def legend(*entries: tuple[str, str]) -> Markup:
    """What the colours of the bars below say: (class, text)."""
    shown = [tag("span", tag("span", class_=f"key {kind}"), text) for kind, text in entries]
    return tag("p", *shown, class_="note keys")


def code_list(names: Sequence[str]) -> list[object]:
    """The names as code, with commas between them."""
    parts: list[object] = []
    for name in names:
        parts += [", ", tag("code", name)] if parts else [tag("code", name)]
    return parts


def table(heads: Sequence[str], rows: Sequence[Markup], kind: str | None = None) -> Markup:
    """A table; its cells name their column again (`data-head`) for a phone, where columns fall apart."""
    head = tag("tr", *(tag("th", h, scope="col") for h in heads))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_=kind)


def long_table(heads: Sequence[str], rows: Sequence[Markup], kind: str) -> Markup:
    """A table of which only the first rows are shown at once."""
    first, rest = rows[:SHOWN_ROWS], rows[SHOWN_ROWS:]
    if not rest:
        return table(heads, first, kind)
    more = tag("details", tag("summary", f"{len(rest):,} more"), table(heads, rest, kind))
    return joined(table(heads, first, kind), more)


def reasons_anchor(stage: int) -> str:
    """Id of a stage's reasons in the page, by the stage's place in decide's order."""
    return f"reasons-{stage}"
