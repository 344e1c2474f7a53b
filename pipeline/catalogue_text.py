"""The catalogue, the recipe's other keys and the tables as text, for `sluice filters` and the pages of docs/.

`python -m pipeline.catalogue_text PAGE ...` (`make docs`) writes it again between the marks of the pages.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.catalogue import CATALOGUE, stage_class
from pipeline.readers_fields import SYNONYMS
from pipeline.recipe import SECTIONS
from schemas.tables import AUDIT, CORPUS

FAILS = {"below": "is below", "above": "is above", "reaches": "reaches"}

_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def catalogue_text(stages: Sequence[str]) -> str:
    """Markdown for each stage: what it does, its recipe keys with defaults and sources, scores, reasons."""
    return "\n".join(_stage_text(name, stage_class(name)) for name in stages)


def filled(page: str) -> str:
    """The page with everything between `<!-- generated: NAME -->` and `<!-- end of NAME -->` written anew.

    NAME is a stage, `stages` (a row for each), `input` or `run` (keys of a recipe), `fields` (the usual names
    of fields), `audit` or `corpus` (columns of the tables). Raises ValueError for another name.
    """
    return _BLOCK.sub(lambda m: f"{m[1]}\n{_generated(m[2])}\n{m[3]}", page)


def main(pages: Sequence[str]) -> int:
    """Fill these files and name those that changed; returns the exit status."""
    for name in pages:
        path = Path(name)
        before = path.read_text("utf-8")
        after = filled(before)
        if after != before:
            path.write_text(after, "utf-8")
            print(name)
    return 0


def _generated(name: str) -> str:
    if name in CATALOGUE:
        return _stage_text(name, stage_class(name))
    if name in SECTIONS:
        return _lines(_keys(SECTIONS[name]))
    if name == "stages":
        return _lines(_table(("stage", "what it does", "reasons"), map(_row, CATALOGUE)))
    if name == "fields":
        rows = ((f"`{role}`", ", ".join(f"`{n}`" for n in names)) for role, names in SYNONYMS.items())
        return _lines(_table(("field", "names, in the order in which they are tried"), rows))
    schemas = {"audit": AUDIT, "corpus": CORPUS}
    if name not in schemas:
        raise ValueError(f"no part of a page is generated under the name {name!r}")
    columns = (
        (f"`{f.name}`", f"`{_type(f.type)}`", f.metadata[b"description"].decode()) for f in schemas[name]
    )
    return _lines(_table(("column", "type", "meaning"), columns))


def _row(name: str) -> tuple[str, str, str]:
    cls = stage_class(name)
    reasons = ", ".join(f"`{reason}`" for reason in cls().reasons)
    return f"[`{name}`](#{name})", inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0], reasons


def _stage_text(name: str, cls: Any) -> str:
    lines = [f"## {name}", "", inspect.cleandoc(cls.__doc__ or ""), ""]
    lines += [f"Kinds: {', '.join(sorted(cls.kinds))}."]
    if cls.requires:
        lines += [f"Needs: {', '.join(cls.requires)}."]
    lines += ["", *(_keys(cls) if dataclasses.fields(cls) else ["No keys."]), ""]
    lines += _table(("score", "meaning"), ((f"`{n}`", d) for n, d in cls.scores.items()))
    rules = ((f"`{r.reason}`", f"`{r.score}` {FAILS[r.fails]} `{r.threshold}`", r.plain) for r in cls.rules)
    lines += ["", *_table(("reason", "refuses when", "in plain words"), rules)]
    groups: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for language, bounds in cls().per_language.items():
        groups.setdefault(tuple(bounds.items()), []).append(language)
    if groups:
        own = (
            (", ".join(languages), ", ".join(f"`{key}` {value}" for key, value in bounds))
            for bounds, languages in groups.items()
        )
        lines += ["", *_table(("language", "bounds of its own"), own)]
    return _lines(lines)


def _keys(cls: Any) -> list[str]:
    head = ("key", "default", "acts in", "meaning", "source")
    rows = [
        (f"`{f.name}`", _default(f), f.metadata["phase"], f.metadata["doc"], f.metadata["source"])
        for f in dataclasses.fields(cls)
    ]
    columns = 5 if any(source for *_, source in rows) else 4
    return _table(head[:columns], (row[:columns] for row in rows))


def _default(f: dataclasses.Field[Any]) -> str:
    if f.default is not dataclasses.MISSING:
        value = f.default
    else:
        value = f.default_factory() if callable(f.default_factory) else None
    if value is None:
        return "off"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(kind: pa.DataType) -> str:
    """A type as people write it, without Arrow's `not null` and names of items."""
    if pa.types.is_map(kind):
        return f"map<{_type(kind.key_type)}, {_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"list<{_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {_type(f.type)}' for f in kind)}>"
    return str(kind)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|"] + [
        f"| {' | '.join(_cell(c) for c in row)} |" for row in rows
    ]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
