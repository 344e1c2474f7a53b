"""The data card: one page, complete in itself, that shows the numbers of a report.

It loads nothing (its content security policy forbids it), runs no script, and works in light and dark,
on a phone, on paper and with the keyboard alone. Every name and value in it is escaped (`html_text`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from pipeline.html_text import Markup, joined, lines, tag

if TYPE_CHECKING:
    from pipeline.report import Group, Passage, Reason, Report

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""The page may use its own styles and nothing else."""

NO_BREAK = "\N{NO-BREAK SPACE}"

SHOWN_GROUPS = 24
"""Rows of a table of languages, kinds or sources before the rest is folded away."""


def page(report: Report, toml: str) -> str:
    """The page of a report, with the resolved recipe as TOML."""
    sections = [
        ("flow", "Flow", _flow(report)),
        ("reasons", "Reasons", _reasons(report)),
        ("languages", "Languages", _languages(report)),
        ("kinds", "Kinds", _group_table(report["kinds"], "Kind")),
        ("sources", "Sources", _group_table(report["sources"], "Source")),
        ("duplicates", "Duplicates", _duplicates(report)),
        ("quarantined", "Quarantined", _quarantined(report)),
        ("time", "Time", _times(report)),
        ("recipe", "Recipe", _recipe(report, toml)),
    ]
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections]
    style = (resources.files("pipeline") / "data/report.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{report['name']}: data card"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the numbers", href="#main", class_="skip"),
        _header(report),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag(
            "main",
            *(
                tag("section", tag("h2", title, id=f"{name}-title"), content, id=name, aria_labelledby=f"{name}-title")
                for name, title, content in sections
            ),
            id="main",
        ),
        _footer(report),
    )
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def percent(part: float, whole: float) -> str:
    """A share with one decimal; what is not quite none or all does not look like it.

    >>> percent(1, 3), percent(1, 10_000), percent(9_999, 10_000), percent(2, 2), percent(0, 0), percent(3, 2)
    ('33.3%', '<0.1%', '>99.9%', '100%', '0%', '150.0%')
    """
    if whole == 0 or part == 0:
        return "0%"
    if part == whole:
        return "100%"
    share = 100 * part / whole
    return "<0.1%" if share < 0.1 else ">99.9%" if 99.9 < share < 100 else f"{share:.1f}%"


def short(n: float) -> str:
    """A large number in three or four digits.

    >>> short(9_999), short(12_345), short(4_560_000), short(7.2e9), short(999_960)
    ('9,999', '12.3\xa0k', '4.6\xa0M', '7.2\xa0bn', '1.0\xa0M')
    """
    if n < 10_000:
        return f"{n:,.0f}"
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "bn"), (1e12, "tn")):
        if n < 999.95 * size:
            return f"{n / size:.1f}{NO_BREAK}{unit}"
    return f"{n / 1e12:,.0f}{NO_BREAK}tn"


def stored(n: int) -> str:
    """Bytes in decimal units.

    >>> stored(9_999), stored(231_000_000)
    ('9,999 bytes', '231.0\xa0MB')
    """
    if n < 10_000:
        return f"{n:,} bytes"
    number, unit = short(n).split(NO_BREAK)
    return f"{number}{NO_BREAK}{dict(k='kB', M='MB', bn='GB', tn='TB')[unit]}"


def _number(n: int | float) -> Markup:
    """A number in short, with the whole of it to be pointed at."""
    brief, exact = short(n), f"{n:,.0f}"
    return tag("span", brief, title=exact if exact != brief else None, class_="n")


def _name(text: str) -> Markup:
    """A foreign string: its direction is its own."""
    return tag("bdi", text)


def _width(part: float, whole: float) -> str:
    return f"width:{100 * part / whole if whole else 0:.3f}%"


def _plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def _header(report: Report) -> Markup:
    a = report["accounting"]
    records = a["records"]
    sizes = {
        "kept": sum(g["kept_characters"] for g in report["sources"]),
        "rejected": sum(g["characters"] - g["kept_characters"] for g in report["sources"]),
    }
    parts = [n for n in ("kept", "rejected", "quarantined") if a[n]]
    bar = [tag("span", class_=n, style=_width(a[n], records)) for n in parts]
    told = ", ".join(f"{n} {percent(a[n], records)}" for n in parts)
    tiles = []
    for name in ("kept", "rejected", "quarantined"):
        size = joined(_number(sizes[name]), " characters") if name in sizes else "could not be read or measured"
        tiles.append(
            tag(
                "div",
                tag("dt", tag("span", class_=f"key {name}"), name.capitalize()),
                tag("dd", tag("strong", f"{a[name]:,}"), tag("span", percent(a[name], records), class_="share")),
                tag("dd", size, class_="more"),
            )
        )
    total = joined(
        tag("span", f"{records:,}", class_="n"), " records = ",
        tag("span", f"{a['kept']:,}", class_="n"), " kept + ",
        tag("span", f"{a['rejected']:,}", class_="n"), " rejected + ",
        tag("span", f"{a['quarantined']:,}", class_="n"), " quarantined",
    )  # fmt: skip
    beside = [
        joined(tag("span", f"{a['not_documents']:,}", class_="n"), " records that hold no document"),
        joined(tag("span", f"{a['not_sampled']:,}", class_="n"), " left out by sampling"),
    ]
    if report["written"]["documents"] != a["kept"]:
        copies = f"{report['written']['documents']:,}"
        beside.append(joined(tag("span", copies, class_="n"), " copies written, repeats included"))
    source = (
        f"{_plural(report['input']['files'], 'file')}, {stored(report['input']['bytes'])}, "
        f"{_plural(len(report['sources']), 'source')}"
    )
    return tag(
        "header",
        tag("p", "Data card", class_="eyebrow"),
        tag("h1", _name(report["name"])),
        tag("p", f"{source}; {report['code']['distribution']} {report['code']['version']}", class_="lead"),
        tag("div", *bar, class_="whole", role="img", aria_label=f"Of {_plural(records, 'record')}: {told}"),
        tag("dl", *tiles, class_="tiles"),
        tag("p", total, class_="sum"),
        tag("p", *_between(beside), class_="more"),
    )


def _between(parts: Sequence[Markup]) -> list[object]:
    spaced: list[object] = []
    for part in parts:
        spaced += [" · ", part] if spaced else [part]
    return spaced


# The flow: each step is a stripe of one stream; what a step refuses leaves the stream to the right.


def _flow(report: Report) -> Markup:
    steps = report["flow"]
    choice = [
        tag("input", type="radio", name="unit", id="by-documents", checked=True, class_="choose"),
        tag("label", "Documents", for_="by-documents"),
        tag("input", type="radio", name="unit", id="by-characters", class_="choose"),
        tag("label", "Characters", for_="by-characters"),
    ]
    return joined(
        tag(
            "p",
            "A document leaves at the first step that it fails, in the order in which decide asks. ",
            "The strong stream is kept in the end; the faint one leaves further down.",
            class_="note",
        ),
        tag("div", *choice, _stream(steps, "documents"), _stream(steps, "characters"), class_="chooser"),
        tag("details", tag("summary", "The same in numbers"), _flow_table(steps)),
    )


def _counts(step: Passage, unit: str) -> tuple[int, int, int]:
    if unit == "documents":
        return step["documents_in"], step["documents_refused"], step["documents_out"]
    return step["characters_in"], step["characters_refused"], step["characters_out"]


def _stream(steps: Sequence[Passage], unit: str) -> Markup:
    whole, end = _counts(steps[0], unit)[0], _counts(steps[-1], unit)[2]
    rows = [_stripe("read", "ends", joined(_number(whole)), "", _straight(whole, end, whole))]
    for i, step in enumerate(steps):
        entering, refused, leaving = _counts(step, unit)
        bad = step["stage"] == "quarantined"
        figure = joined("−", _number(refused)) if refused else Markup("0")
        share = f"{percent(refused, entering)} of {short(entering)}" if refused else "none refused"
        drawn = _leaving(entering, leaving, end, whole, "quarantined" if bad else "rejected")
        target = "#quarantined" if bad else f"#{_anchor(i - 1)}"
        name = tag("a", step["stage"], href=target)
        rows.append(_stripe(name, "nothing" if not refused else "", figure, share, drawn))
    share = f"{percent(end, whole)} of all" if whole else ""
    rows.append(_stripe("kept", "ends", _number(end), share, _straight(end, end, whole)))
    return tag("ol", *rows, class_=f"stream {unit}")


def _stripe(name: object, kind: str, figure: Markup, share: str, drawn: Markup) -> Markup:
    return tag(
        "li",
        tag("span", name, class_="step"),
        drawn,
        tag("span", tag("b", figure), tag("small", share) if share else None, class_="figure"),
        class_=kind or None,
    )


def _svg(*shapes: Markup) -> Markup:
    return tag("svg", *shapes, viewBox="0 0 1000 100", preserveAspectRatio="none", aria_hidden="true")


def _shape(kind: str, path: str) -> Markup:
    return tag("path", class_=kind, d=path)


def _box(kind: str, start: float, end: float) -> Markup | None:
    return _shape(kind, f"M{start:.2f} 0H{end:.2f}V100H{start:.2f}Z") if end > start else None


def _straight(alive: int, end: int, whole: int) -> Markup:
    scale = 1000 / whole if whole else 0.0
    shapes = [_box("kept", 0, end * scale), _box("later", end * scale, alive * scale)]
    return _svg(*(s for s in shapes if s is not None))


def _leaving(entering: int, leaving: int, end: int, whole: int, kind: str) -> Markup:
    """A stripe in which the stream goes on from 0 to `leaving` and the rest bends away to the right."""
    scale = 1000 / whole if whole else 0.0
    a, b = entering * scale, leaving * scale
    shapes = [_box("kept", 0, end * scale), _box("later", end * scale, b)]
    if entering > leaving:
        half = min(30.0, max(1.5, 80 * (a - b) / 1000))
        top, bottom = 50 - half, 50 + half
        over_a, over_b = a + min(90.0, 1000 - a), b + min(90.0, 1000 - b)
        shapes.append(
            _shape(
                kind,
                f"M{b:.2f} 0C{b:.2f} {0.6 * bottom:.2f} {0.6 * b + 0.4 * over_b:.2f} {bottom:.2f} {over_b:.2f} {bottom:.2f}"
                f"H1000V{top:.2f}H{over_a:.2f}C{0.6 * a + 0.4 * over_a:.2f} {top:.2f} {a:.2f} {0.6 * top:.2f} {a:.2f} 0Z",
            )
        )
    return _svg(*(s for s in shapes if s is not None))


def _flow_table(steps: Sequence[Passage]) -> Markup:
    heads = ("Documents in", "refused", "out", "Characters in", "refused", "out")
    rows = []
    for step in steps:
        values = [*_counts(step, "documents"), *_counts(step, "characters")]
        cells = [tag("td", f"{v:,}", data_head=h) for h, v in zip(heads, values, strict=True)]
        rows.append(tag("tr", tag("th", step["stage"], scope="row"), *cells))
    return _table(("Step", *heads), rows)


def _table(heads: Sequence[str], rows: Sequence[Markup], kind: str = "") -> Markup:
    head = tag("tr", *(tag("th", h, scope="col") for h in heads))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_=kind or None)
    return tag("div", table, class_="wide")


# Reasons.


def _reasons(report: Report) -> Markup:
    reasons = report["reasons"]
    most = max((r["failed"] for r in reasons), default=0)
    rows: list[Markup] = []
    for i, stage in enumerate(dict.fromkeys(step["stage"] for step in report["flow"][1:])):
        own = [r for r in reasons if r["stage"] == stage]
        hit = sorted((r for r in own if r["failed"]), key=lambda r: -r["documents"])
        idle = [r["reason"] for r in own if not r["failed"]]
        never = tag("small", "never: ", *_listed(idle)) if idle else None
        total = f"{sum(r['documents'] for r in own):,}"
        head = tag("th", tag("code", stage), never, scope="rowgroup", colspan=2)
        rows.append(
            tag("tr", head, tag("td", total, data_head="First"), tag("td"), tag("td"), class_="stage", id=_anchor(i))
        )
        rows += [_reason(r, most) for r in hit]
    legend = _key(("rejected", "refused for this first"), ("also", "failed this too, refused earlier"))
    return joined(legend, _table(("Reason", "Documents", "First", "In all", "Characters"), rows, "reasons"))


def _anchor(stage: int) -> str:
    return f"reasons-{stage}"


def _key(*entries: tuple[str, str]) -> Markup:
    shown = [tag("span", tag("span", class_=f"key {kind}"), text) for kind, text in entries]
    return tag("p", *shown, class_="note keys")


def _listed(names: Sequence[str]) -> list[object]:
    parts: list[object] = []
    for name in names:
        parts += [", ", tag("code", name)] if parts else [tag("code", name)]
    return parts


def _reason(reason: Reason, most: int) -> Markup:
    first, failed = reason["documents"], reason["failed"]
    bar = _bar("bar", {"rejected": first, "also": failed - first}, most)
    name = joined(reason["plain"], tag("code", reason["reason"])) if reason["plain"] else tag("code", reason["reason"])
    return tag(
        "tr",
        tag("th", name, scope="row"),
        tag("td", bar, class_="bars"),
        tag("td", tag("b", f"{first:,}"), data_head="First"),
        tag("td", f"{failed:,}", data_head="In all"),
        tag("td", _number(reason["characters"]), data_head="Characters"),
    )


def _bar(kind: str, parts: Mapping[str, float], whole: float) -> Markup:
    """A bar of parts, side by side (`bar`, `whole`) or one below the other (`pair`)."""
    spans = [tag("span", class_=name, style=_width(n, whole)) for name, n in parts.items() if n]
    return tag("div", *spans, class_=kind, aria_hidden="true")


def _quarantined(report: Report) -> Markup:
    found = report["quarantined"]
    if not found:
        return tag("p", "Every record could be read and measured.", class_="note")
    rows = [
        tag(
            "tr",
            tag("th", tag("code", f"{r['stage']}.{r['reason']}"), scope="row"),
            tag("td", r["plain"], class_="text", data_head="Why"),
            tag("td", f"{r['documents']:,}", data_head="Records"),
        )
        for r in found
    ]
    note = tag("p", "These records lie in quarantine/ with the error and where they were.", class_="note")
    return joined(note, _table(("Reason", "Why", "Records"), rows))


# Languages, kinds and sources.


def _languages(report: Report) -> Markup:
    groups = report["languages"]
    whole = {
        "before": sum(g["characters"] for g in groups),
        "after": sum(g["written_characters"] for g in groups),
    }
    asks = any(g["asked_characters"] is not None for g in groups)
    heads = ["Language", "Share before and after", "Before", "After"]
    heads += ["Asked"] if asks else []
    most = max((s for g in groups for s in _shares(g, whole)), default=0.0)
    rows = [_language(g, whole, most, asks) for g in groups]
    note = "Characters; after counts what is written, repeats included."
    if asks:
        note += " Asked is what balance allows of the documents that reach it, and how much of that was got."
    return joined(
        tag("p", note, class_="note"),
        _key(("before", "share before"), ("kept", "share after")),
        _folded(heads, rows, "languages"),
    )


def _shares(group: Group, whole: dict[str, int]) -> tuple[float, float]:
    before = group["characters"] / whole["before"] if whole["before"] else 0.0
    after = group["written_characters"] / whole["after"] if whole["after"] else 0.0
    return before, after


def _language(group: Group, whole: dict[str, int], most: float, asks: bool) -> Markup:
    before, after = _shares(group, whole)
    bars = _bar("pair", {"before": before, "kept": after}, most)
    cells = [
        tag("td", bars, class_="bars"),
        _sized("Before", group["characters"], whole["before"], group["documents"]),
        _sized("After", group["written_characters"], whole["after"], group["written"]),
    ]
    if asks:
        asked = group["asked_characters"]
        got = f"{percent(group['written_characters'], asked)} got" if asked else None
        figure = "—" if asked is None else _number(asked)
        cells.append(tag("td", figure, tag("small", got) if got else None, data_head="Asked"))
    return tag("tr", tag("th", _name(group["name"]), scope="row"), *cells)


def _sized(head: str, characters: int, whole: int, documents: int) -> Markup:
    detail = f"{percent(characters, whole)} · {short(documents)}{NO_BREAK}doc" + ("" if documents == 1 else "s")
    return tag("td", _number(characters), tag("small", detail), data_head=head)


def _group_table(groups: Sequence[Group], head: str) -> Markup:
    decisions = ["kept", "rejected"] + (["quarantined"] if any(g["quarantined"] for g in groups) else [])
    heads = [head, ", ".join(decisions).capitalize(), "Records", *(d.capitalize() for d in decisions)]
    rows = []
    for g in groups:
        records = g["documents"] + g["quarantined"]
        counts = {"kept": g["kept"], "rejected": g["rejected"], "quarantined": g["quarantined"]}
        rows.append(
            tag(
                "tr",
                tag("th", _name(g["name"]), scope="row"),
                tag("td", _bar("whole", counts, records), class_="bars"),
                tag("td", f"{records:,}", data_head="Records"),
                *(tag("td", f"{counts[d]:,}", data_head=d.capitalize()) for d in decisions),
                _kept_characters(g),
            )
        )
    return _folded([*heads, "Characters kept"], rows, "groups")


def _kept_characters(g: Group) -> Markup:
    share = f"{percent(g['kept_characters'], g['characters'])} of {short(g['characters'])}"
    return tag("td", _number(g["kept_characters"]), tag("small", share), data_head="Characters kept")


def _folded(heads: Sequence[str], rows: Sequence[Markup], kind: str) -> Markup:
    first, rest = rows[:SHOWN_GROUPS], rows[SHOWN_GROUPS:]
    folded = tag("details", tag("summary", f"{len(rest):,} more"), _table(heads, rest, kind)) if rest else None
    return joined(_table(heads, first, kind), folded)


# Duplicates, times, recipe.


def _duplicates(report: Report) -> Markup:
    found = report["duplicates"]
    texts = {
        "exact": ("Exact", "the text of an earlier document"),
        "near": ("Near", "nearly the text of an earlier document"),
        "keeper_dropped": ("Keeper dropped", "copies that stay refused although a later step dropped their keeper"),
    }
    tiles = []
    for name, (title, plain) in texts.items():
        counts = found[name]
        size = joined(_number(counts["characters"]), " characters") if "characters" in counts else None
        tiles.append(
            tag(
                "div",
                tag("dt", title),
                tag("dd", tag("strong", f"{counts['documents']:,}")),
                tag("dd", plain, tag("br") if size else None, size, class_="more"),
            )
        )
    return tag("dl", *tiles, class_="tiles")


def _times(report: Report) -> Markup:
    times = report["times"]
    if not times:
        return tag("p", "No receipt tells the time of a stage.", class_="note")
    most = max(t["share"] for t in times)
    rows = [
        tag(
            "tr",
            tag("th", tag("code", t["stage"]), scope="row"),
            tag("td", _bar("bar", {"before": t["share"]}, most), class_="bars"),
            tag("td", f"{100 * t['share']:.1f}%", data_head="Share"),
            tag("td", f"{t['seconds']:,.2f}", data_head="Seconds"),
            tag("td", _speed(t["documents_per_second"]), data_head="Documents/s"),
            tag("td", _speed(t["characters_per_second"]), data_head="Characters/s"),
        )
        for t in times
    ]
    heads = ("Stage", "Share of the time", "Share", "Seconds", "Documents/s", "Characters/s")
    note = "Summed over all workers, from the receipts of annotate; what duplicates and balance take in decide is not in it."
    return joined(tag("p", note, class_="note"), _table(heads, rows, "times"))


def _speed(per_second: float | None) -> Markup | str:
    return "—" if per_second is None else _number(per_second)


def _recipe(report: Report, toml: str) -> Markup:
    command = report["command"] or "sluice run report/recipe.toml --input PATH --output DIR"
    only = report["recipe"]["only"]
    told = None
    if only is not None:
        names = _listed(only) if only else ["no stage"]
        told = tag("p", "Only ", *names, " may edit or reject (", tag("code", "--only"), ").", class_="note")
    digests = [
        tag("div", tag("dt", name), tag("dd", tag("code", value))) for name, value in report["digests"].items()
    ]
    return joined(
        tag("h3", "The command"),
        _pre(lines(command), "The command", "command"),
        told,
        tag("h3", "Models"),
        _models(report),
        tag("h3", "Digests"),
        tag("dl", *digests, class_="digests"),
        tag(
            "details",
            tag("summary", "The resolved recipe (report/recipe.toml)"),
            _pre(lines(toml), "The resolved recipe"),
        ),
    )


def _pre(text: Markup, label: str, kind: str | None = None) -> Markup:
    # Focusable, so that what is wider than the page can be scrolled with the keyboard.
    return tag("pre", tag("code", text), tabindex=0, role="region", aria_label=label, class_=kind)


def _models(report: Report) -> Markup:
    if not report["models"]:
        return tag("p", "No stage of this recipe measures with a model.", class_="note")
    rows = [
        tag(
            "tr",
            tag("th", tag("code", m["model"]), tag("small", m["stage"]), scope="row"),
            tag("td", tag("code", m["sha256"] or "—"), class_="text", data_head="sha256"),
            tag("td", m["licence"] or "—", class_="text", data_head="Licence"),
            tag("td", m["source"] or "—", class_="text", data_head="Source"),
        )
        for m in report["models"]
    ]
    return _table(("Model", "sha256", "Licence", "Source"), rows, "models")


def _footer(report: Report) -> Markup:
    text = f"Counted from what decide and annotate left on disk; report.json (version {report['version']}) has every number."
    return tag("footer", tag("p", text))
