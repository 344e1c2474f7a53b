"""HTML whose every text is escaped: what is no `Markup` cannot become markup."""

from __future__ import annotations

import html
import unicodedata

JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
"""Invisible, but part of the spelling of Persian and of many Indian languages."""

HIDDEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""General categories: controls, formats, unassigned, private, surrogates, line and paragraph separators."""

VOID = ("br", "input", "link", "meta")


class Markup(str):
    """A string that is HTML already."""


def visible(text: str) -> str:
    """The text with everything that a terminal or a browser would obey or hide written out.

    Controls of ASCII become their Unicode pictures; other controls, format characters (direction marks
    among them, the joiners apart), line separators, lone surrogates and unassigned code points become
    escapes as in Python.

    >>> visible("a\\x1b[31m\\u202eb\\ud800")
    'a␛[31m\\\\u202eb\\\\ud800'
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    if character in JOINERS or unicodedata.category(character) not in HIDDEN:
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escaped(text: str) -> Markup:
    """The text, visible and safe between tags and inside a quoted attribute.

    >>> escaped('<b a="1">')
    '&lt;b a=&quot;1&quot;&gt;'
    """
    return Markup(html.escape(visible(text), quote=True))


def joined(*parts: object) -> Markup:
    """The parts one after another; what is no Markup is escaped, None is left out."""
    return Markup("".join(p if isinstance(p, Markup) else escaped(str(p)) for p in parts if p is not None))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element; `class_` stands for class, `_` in an attribute's name for `-`; None leaves one out.

    >>> tag("a", "x < y", href="#top", class_="link", hidden=None)
    '<a href="#top" class="link">x &lt; y</a>'
    """
    given = [
        f" {n.rstrip('_').replace('_', '-')}" + ("" if v is True else f'="{escaped(str(v))}"')
        for n, v in attributes.items()
        if v is not None and v is not False
    ]
    opened = f"<{name}{''.join(given)}>"
    return Markup(opened if name in VOID else f"{opened}{joined(*children)}</{name}>")


def lines(text: str) -> Markup:
    """Text of several lines, for `pre`: line feeds stay, all else is made visible."""
    return Markup("\n".join(escaped(line) for line in text.split("\n")))
