"""The data card: one page, complete in itself, that shows the numbers of a report.

It loads nothing (its content security policy forbids it), runs no script, and works in light and dark,
on a phone, on paper and with the keyboard alone. Every name and value in it is escaped (`html_text`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING

from pipeline.html_text import Markup, joined, lines, tag
from pipeline.report_parts import (
    NO_BREAK,
    bar,
    code_list,
    counted,
    figure,
    foreign,
    legend,
    long_table,
    percent,
    reasons_anchor,
    short,
    stored,
    table,
)
from pipeline.report_stream import flow_section

if TYPE_CHECKING:
    from pipeline.report import Group, Reason, Report

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""The page may use its own styles and nothing else."""


def page(report: Report, toml: str) -> str:
    """The page of a report, with the resolved recipe as TOML."""
    sections = [
        ("flow", "Flow", flow_section(report["flow"])),
        ("reasons", "Reasons", _reasons(report)),
        ("languages", "Languages", _languages(report["languages"])),
        ("kinds", "Kinds", _groups(report["kinds"], "Kind")),
        ("sources", "Sources", _groups(report["sources"], "Source")),
        ("duplicates", "Duplicates", _duplicates(report)),
        ("quarantined", "Quarantined", _quarantined(report["quarantined"])),
        ("time", "Time", _times(report)),
        ("recipe", "Recipe", _recipe(report, toml)),
    ]
    body = tag(
        "body",
        tag("a", "Skip to the numbers", href="#main", class_="skip"),
        _header(report),
        tag(
            "nav",
            tag("ul", *(tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections)),
            aria_label="Sections",
        ),
        tag("main", *(_section(*section) for section in sections), id="main"),
        tag(
            "footer",
            tag("p", f"report.json (version {report['version']}) beside this page has every number."),
        ),
    )
    return f'<!doctype html>\n<html lang="en">{_head(report)}{body}</html>\n'


def _head(report: Report) -> Markup:
    style = (resources.files("pipeline") / "data/report.css").read_text(encoding="utf-8")
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{report['name']}: data card"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(style)),
    )


def _section(name: str, title: str, content: Markup) -> Markup:
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, content, id=name, aria_labelledby=f"{name}-title")


def _header(report: Report) -> Markup:
    counts = report["accounting"]
    records = counts["records"]
    sources = report["sources"]
    kept = sum(g["kept_characters"] for g in sources)
    rejected = sum(g["characters"] for g in sources) - kept
    more = {
        "kept": joined(figure(kept), " characters"),
        "rejected": joined(figure(rejected), " characters"),
        "quarantined": "could not be read or measured",
    }
    tiles = []
    for name, detail in more.items():
        share = tag("span", percent(counts[name], records), class_="share")
        tiles.append(
            tag(
                "div",
                tag("dt", tag("span", class_=f"key {name}"), name.capitalize()),
                tag("dd", tag("strong", f"{counts[name]:,}"), share),
                tag("dd", detail, class_="more"),
            )
        )
    beside = [
        f"{counts['not_documents']:,} more that hold no document",
        f"{counts['not_sampled']:,} left out by sampling",
    ]
    if report["written"]["documents"] != counts["kept"]:
        beside.append(f"{report['written']['documents']:,} copies written, repeats included")
    lead = (
        f"{counted(report['input']['files'], 'file')}, {stored(report['input']['bytes'])}, "
        f"{counted(len(sources), 'source')}; {report['code']['distribution']} {report['code']['version']}"
    )
    return tag(
        "header",
        tag("p", "Data card", class_="eyebrow"),
        tag("h1", foreign(report["name"])),
        tag("p", lead, class_="lead"),
        bar("whole", {name: counts[name] for name in more}, records),
        tag("dl", *tiles, class_="tiles"),
        tag(
            "p",
            f"{records:,} records = {counts['kept']:,} kept + {counts['rejected']:,} rejected "
            f"+ {counts['quarantined']:,} quarantined",
            class_="sum",
        ),
        tag("p", " · ".join(beside), class_="more"),
    )


def _reasons(report: Report) -> Markup:
    reasons = report["reasons"]
    most = max((r["failed"] for r in reasons), default=0)
    rows: list[Markup] = []
    for i, step in enumerate(report["flow"][1:]):
        own = [r for r in reasons if r["stage"] == step["stage"]]
        idle = [r["reason"] for r in own if not r["failed"]]
        never = tag("small", "never: ", *code_list(idle)) if idle else None
        head = tag("th", tag("code", step["stage"]), never, scope="rowgroup", colspan=2)
        total = tag("td", f"{step['documents_refused']:,}", data_head="First")
        rows.append(tag("tr", head, total, tag("td"), tag("td"), class_="stage", id=reasons_anchor(i)))
        hit = [r for r in own if r["failed"]]
        rows += [_reason(r, most) for r in sorted(hit, key=lambda r: -r["documents"])]
    return joined(
        legend(("rejected", "refused for this first"), ("also", "failed this after something else")),
        table(("Reason", "Documents", "First", "In all", "Characters"), rows, "reasons"),
    )


def _reason(reason: Reason, most: int) -> Markup:
    first, failed = reason["documents"], reason["failed"]
    return tag(
        "tr",
        tag("th", reason["plain"], tag("code", reason["reason"]), scope="row"),
        tag("td", bar("bar", {"rejected": first, "also": failed - first}, most), class_="bars"),
        tag("td", tag("b", f"{first:,}"), data_head="First"),
        tag("td", f"{failed:,}", data_head="In all"),
        tag("td", figure(reason["characters"]), data_head="Characters"),
    )


def _languages(groups: Sequence[Group]) -> Markup:
    before = sum(g["characters"] for g in groups)
    after = sum(g["written_characters"] for g in groups)
    asks = any(g["asked_characters"] is not None for g in groups)
    heads = ["Language", "Share before and after", "Before", "After", *(["Asked"] if asks else [])]
    shares = [
        (g["characters"] / before if before else 0.0, g["written_characters"] / after if after else 0.0)
        for g in groups
    ]
    most = max((s for pair in shares for s in pair), default=0.0)
    rows = []
    for g, (old, new) in zip(groups, shares, strict=True):
        cells = [
            tag("td", bar("pair", {"before": old, "kept": new}, most), class_="bars"),
            _sized("Before", g["characters"], before, g["documents"]),
            _sized("After", g["written_characters"], after, g["written"]),
        ]
        if asks:
            asked = g["asked_characters"]
            got = tag("small", f"{percent(g['written_characters'], asked)} got") if asked else None
            cells.append(tag("td", "—" if asked is None else figure(asked), got, data_head="Asked"))
        rows.append(tag("tr", tag("th", foreign(g["name"]), scope="row"), *cells))
    note = "In characters; after counts what is written, repeats included."
    if asks:
        note += " Asked is what balance allows of the documents that reach it, and how much of that was got."
    return joined(
        tag("p", note, class_="note"),
        legend(("before", "share before"), ("kept", "share after")),
        long_table(heads, rows, "languages"),
    )


def _sized(head: str, characters: int, whole: int, documents: int) -> Markup:
    noun = "doc" if documents == 1 else "docs"
    detail = f"{percent(characters, whole)} · {short(documents)}{NO_BREAK}{noun}"
    return tag("td", figure(characters), tag("small", detail), data_head=head)


def _groups(groups: Sequence[Group], head: str) -> Markup:
    decisions = ["kept", "rejected"]
    if any(g["quarantined"] for g in groups):
        decisions.append("quarantined")
    rows = []
    for g in groups:
        records = g["documents"] + g["quarantined"]
        counts = {"kept": g["kept"], "rejected": g["rejected"], "quarantined": g["quarantined"]}
        share = f"{percent(g['kept_characters'], g['characters'])} of {short(g['characters'])}"
        rows.append(
            tag(
                "tr",
                tag("th", foreign(g["name"]), scope="row"),
                tag("td", bar("whole", counts, records), class_="bars"),
                tag("td", f"{records:,}", data_head="Records"),
                *(tag("td", f"{counts[d]:,}", data_head=d.capitalize()) for d in decisions),
                tag("td", figure(g["kept_characters"]), tag("small", share), data_head="Characters kept"),
            )
        )
    names = [d.capitalize() for d in decisions]
    return long_table([head, " and ".join(names), "Records", *names, "Characters kept"], rows, "groups")


def _duplicates(report: Report) -> Markup:
    lines_of = {
        "exact": ("Exact", "the text of an earlier document"),
        "near": ("Near", "nearly the text of an earlier document"),
        "keeper_dropped": ("Keeper dropped", "copies of a document that a later step dropped: refused still"),
    }
    tiles = []
    for name, (title, plain) in lines_of.items():
        counts = report["duplicates"][name]
        size = (
            joined(tag("br"), figure(counts["characters"]), " characters") if "characters" in counts else None
        )
        tiles.append(
            tag(
                "div",
                tag("dt", title),
                tag("dd", tag("strong", f"{counts['documents']:,}")),
                tag("dd", plain, size, class_="more"),
            )
        )
    return tag("dl", *tiles, class_="tiles")


def _quarantined(found: Sequence[Reason]) -> Markup:
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
    return joined(note, table(("Reason", "Why", "Records"), rows))


def _times(report: Report) -> Markup:
    times = report["times"]
    if not times:
        return tag("p", "No receipt tells the time of a stage.", class_="note")
    most = max(t["share"] for t in times)
    rows = [
        tag(
            "tr",
            tag("th", tag("code", t["stage"]), scope="row"),
            tag("td", bar("bar", {"before": t["share"]}, most), class_="bars"),
            tag("td", f"{100 * t['share']:.1f}%", data_head="Share"),
            tag("td", f"{t['seconds']:,.2f}", data_head="Seconds"),
            tag("td", _speed(t["documents_per_second"]), data_head="Documents/s"),
            tag("td", _speed(t["characters_per_second"]), data_head="Characters/s"),
        )
        for t in times
    ]
    note = (
        "Time of each stage while annotating, summed over all workers; the first stage that needs the words "
        "of a text finds them for all. What duplicates and balance take in decide is not in it."
    )
    heads = ("Stage", "Share of the time", "Share", "Seconds", "Documents/s", "Characters/s")
    return joined(tag("p", note, class_="note"), table(heads, rows, "times"))


def _speed(per_second: float | None) -> Markup | str:
    return "—" if per_second is None else figure(per_second)


def _recipe(report: Report, toml: str) -> Markup:
    command = report["command"] or "sluice run report/recipe.toml --input PATH --output DIR"
    only = report["recipe"]["only"]
    told = None
    if only is not None:
        names = code_list(only) if only else ["no stage"]
        told = tag("p", "Only ", *names, " may edit or reject (", tag("code", "--only"), ").", class_="note")
    digests = [
        tag("div", tag("dt", name), tag("dd", tag("code", digest)))
        for name, digest in report["digests"].items()
    ]
    whole = _preformatted(toml, "The resolved recipe", None)
    return joined(
        tag("h3", "The command"),
        _preformatted(command, "The command", "command"),
        told,
        tag("details", tag("summary", "The resolved recipe (report/recipe.toml)"), whole),
        tag("h3", "Models"),
        _models(report),
        tag("h3", "Digests"),
        tag("dl", *digests, class_="digests"),
    )


def _preformatted(text: str, label: str, kind: str | None) -> Markup:
    # Focusable, so that what is wider than the page can be scrolled with the keyboard.
    return tag("pre", tag("code", lines(text)), tabindex=0, role="region", aria_label=label, class_=kind)


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
    return table(("Model", "sha256", "Licence", "Source"), rows, "models")
