"""The catalogue as text: for `sluice filters` and, held to it by a test, docs/filters.md."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

from pipeline.catalogue import stage_class


def catalogue_text(stages: Sequence[str]) -> str:
    """Markdown for each stage: what it does, its recipe keys with defaults and sources, scores, reasons."""
    return "\n".join(_stage_text(name, stage_class(name)) for name in stages)


def _stage_text(name: str, cls: Any) -> str:
    lines = [f"## {name}", "", inspect.cleandoc(cls.__doc__ or ""), ""]
    lines += [f"Kinds: {', '.join(sorted(cls.kinds))}."]
    if cls.requires:
        lines += [f"Needs: {', '.join(cls.requires)}."]
    lines += ["", "| key | default | acts in | meaning | source |", "|---|---|---|---|---|"]
    for f in dataclasses.fields(cls):
        m = f.metadata
        lines.append(
            f"| `{f.name}` | {_default(f)} | {m['phase']} | {_cell(m['doc'])} | {_cell(m['source'])} |"
        )
    if len(dataclasses.fields(cls)) == 0:
        lines = lines[:-2] + ["No keys."]
    lines += ["", "| score | meaning |", "|---|---|"]
    lines += [f"| `{n}` | {_cell(d)} |" for n, d in cls.scores.items()]
    lines += ["", "| reason | refuses when | in plain words |", "|---|---|---|"]
    words = {"below": "is below", "above": "is above", "reaches": "reaches"}
    for r in cls.rules:
        lines.append(f"| `{r.reason}` | `{r.score}` {words[r.fails]} `{r.threshold}` | {_cell(r.plain)} |")
    return "\n".join(lines) + "\n"


def _default(f: dataclasses.Field[Any]) -> str:
    if f.default is not dataclasses.MISSING:
        value = f.default
    else:
        value = f.default_factory() if callable(f.default_factory) else None
    return "off" if value is None else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
