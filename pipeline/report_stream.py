"""The flow as a picture: a stream of documents from which each step turns some aside.

Every step is a stripe of its own, drawn to scale, so that the stream is whole at any width of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.html_text import Markup, joined, tag
from pipeline.report_parts import figure, percent, reasons_anchor, short, table

if TYPE_CHECKING:
    from pipeline.report import Passage

WIDTH, HEIGHT = 1000.0, 100.0
"""Units of one stripe; it is stretched to the page."""

MAX_BEND = 90.0
MIN_BRANCH, MAX_BRANCH = 3.0, 60.0
"""Height at which what is turned aside leaves the stripe."""


def flow_section(steps: Sequence[Passage]) -> Markup:
    """The stream by documents and by characters, to choose from, and the same in numbers."""
    choice = [
        tag("input", type="radio", name="unit", id="by-documents", checked=True, class_="choose"),
        tag("label", "Documents", for_="by-documents"),
        tag("input", type="radio", name="unit", id="by-characters", class_="choose"),
        tag("label", "Characters", for_="by-characters"),
    ]
    note = (
        "A document leaves at the first step that it fails, in the order in which decide asks. "
        "The strong stream is kept in the end; the faint one leaves further down."
    )
    return joined(
        tag("p", note, class_="note"),
        tag("div", *choice, _stream(steps, "documents"), _stream(steps, "characters"), class_="chooser"),
        tag("details", tag("summary", "The same in numbers"), _numbers(steps)),
    )


def _counts(step: Passage, unit: str) -> tuple[int, int, int]:
    if unit == "documents":
        return step["documents_in"], step["documents_refused"], step["documents_out"]
    return step["characters_in"], step["characters_refused"], step["characters_out"]


def _stream(steps: Sequence[Passage], unit: str) -> Markup:
    whole, end = _counts(steps[0], unit)[0], _counts(steps[-1], unit)[2]
    scale = WIDTH / whole if whole else 0.0
    rows = [_stripe("read", "ends", figure(whole), None, _running(end * scale, whole * scale))]
    for i, step in enumerate(steps):
        entering, refused, leaving = _counts(step, unit)
        bad = step["stage"] == "quarantined"
        name = tag("a", step["stage"], href="#quarantined" if bad else f"#{reasons_anchor(i - 1)}")
        drawn = _running(end * scale, leaving * scale)
        if refused:
            branch = _branch("quarantined" if bad else "rejected", entering * scale, leaving * scale)
            share = f"{percent(refused, entering)} of {short(entering)}"
            rows.append(_stripe(name, None, joined("−", figure(refused)), share, [*drawn, branch]))
        else:
            none = "none refused" if unit == "documents" or not bad else "not measured"
            rows.append(_stripe(name, "nothing", Markup("0"), none, drawn))
    rest = f"{percent(end, whole)} of all" if whole else None
    rows.append(_stripe("kept", "ends", figure(end), rest, _running(end * scale, end * scale)))
    return tag("ol", *rows, class_=f"stream {unit}")


def _stripe(
    name: object, kind: str | None, count: Markup, share: str | None, shapes: Sequence[Markup]
) -> Markup:
    view = f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"
    return tag(
        "li",
        tag("span", name, class_="step"),
        tag("svg", *shapes, viewBox=view, preserveAspectRatio="none", aria_hidden="true"),
        tag("span", tag("b", count), tag("small", share) if share else None, class_="figure"),
        class_=kind,
    )


def _path(kind: str, *parts: str | float) -> Markup:
    words = [p if isinstance(p, str) else f"{p:.2f}" for p in parts]
    return tag("path", class_=kind, d=" ".join(words))


def _running(end: float, alive: float) -> list[Markup]:
    """What runs on through a stripe: up to `end` to the very end, up to `alive` only past this step."""
    spans = (("kept", 0.0, end), ("later", end, alive))
    return [_path(kind, "M", a, 0.0, "H", b, "V", HEIGHT, "H", a, "Z") for kind, a, b in spans if b > a]


def _branch(kind: str, a: float, b: float) -> Markup:
    """What turns aside: as wide as it is where it leaves the stream (from b to a, a being the stream's
    edge), then bending out to the right."""
    thick = min(MAX_BRANCH, max(MIN_BRANCH, 0.16 * (a - b)))
    top, bottom = (HEIGHT - thick) / 2, (HEIGHT + thick) / 2
    turn_a, turn_b = (x + min(MAX_BEND, WIDTH - x) for x in (a, b))
    mid_a, mid_b = 0.6 * a + 0.4 * turn_a, 0.6 * b + 0.4 * turn_b
    outer = ("M", b, 0.0, "C", b, 0.6 * bottom, mid_b, bottom, turn_b, bottom, "H", WIDTH, "V", top)
    inner = ("H", turn_a, "C", mid_a, top, a, 0.6 * top, a, 0.0, "Z")
    return _path(kind, *outer, *inner)


def _numbers(steps: Sequence[Passage]) -> Markup:
    heads = ("Documents in", "refused", "out", "Characters in", "refused", "out")
    rows = []
    for step in steps:
        values = [*_counts(step, "documents"), *_counts(step, "characters")]
        cells = [tag("td", f"{v:,}", data_head=h) for h, v in zip(heads, values, strict=True)]
        rows.append(tag("tr", tag("th", step["stage"], scope="row"), *cells))
    return table(("Step", *heads), rows)
