"""Parsing one JSON record from bytes, losing nothing that JSON can say."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

MAX_NESTING = 254
"""Deepest nesting of objects and arrays in a record: what orjson writes."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# int() refuses more than 4,300 digits, float() overflows: such numbers stay what they are, as strings.
_MAX_INTEGER_DIGITS = 4000
# orjson reads an integer beyond 64 bits as a float of about that size.
_EXACT_BELOW = float(2**63)


class NotJson(ValueError):
    """The bytes are no JSON value; the message says why."""


def parse(line: bytes | bytearray) -> tuple[Any, bool]:
    """Parse one JSON value, and tell whether its strings may hold lone surrogates (they stay in it).

    Big integers stay exact; NaN, Infinity and numbers beyond a float become strings; control characters
    inside strings are text (several writers leave them unescaped). Raises UnicodeDecodeError when the
    bytes are not UTF-8, NotJson when they are no JSON or nested too deeply.

    >>> parse(b'{"n": 123456789012345678901234567890, "x": NaN}')[0]
    {'n': 123456789012345678901234567890, 'x': 'NaN'}
    """
    try:
        value = orjson.loads(line)
        if not _has_large_float(value):
            return value, False
    except orjson.JSONDecodeError:
        pass
    text = line.decode("utf-8")
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise NotJson(f"nested deeper than {MAX_NESTING} levels") from None
    except ValueError as error:
        raise NotJson(str(error)) from None
    if _nesting(value) > MAX_NESTING:
        raise NotJson(f"nested deeper than {MAX_NESTING} levels")
    return value, has_surrogates(value)


def write(value: Any) -> str:
    """The JSON text of a parsed value; raises NotJson when it is nested too deeply."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        if _nesting(value) > MAX_NESTING:
            raise NotJson(f"nested deeper than {MAX_NESTING} levels") from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def lone_surrogates(text: str) -> list[int]:
    """Positions of the lone surrogates of a text (code points that UTF-8 cannot hold).

    >>> lone_surrogates(json.loads('"ok\\\\ud835"'))
    [2]
    """
    return [] if _encodes(text) else [m.start() for m in _LONE_SURROGATE.finditer(text)]


def without_surrogates(value: Any) -> Any:
    """The value with each lone surrogate in its strings and names replaced by U+FFFD."""
    if isinstance(value, str):
        return value if _encodes(value) else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {without_surrogates(k): without_surrogates(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_surrogates(v) for v in value]
    return value


def has_surrogates(value: Any) -> bool:
    """Whether any string or name in a parsed value holds a lone surrogate."""
    if isinstance(value, str):
        return not _encodes(value)
    if isinstance(value, dict):
        return any(has_surrogates(k) or has_surrogates(v) for k, v in value.items())
    return isinstance(value, list) and any(has_surrogates(v) for v in value)


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else digits


def _float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _constant(name: str) -> str:
    return name


_DECODER = json.JSONDecoder(strict=False, parse_int=_integer, parse_float=_float, parse_constant=_constant)


def _has_large_float(value: Any) -> bool:
    if type(value) is not dict:
        return type(value) is float
    todo = [v for v in value.values() if type(v) in (float, dict, list)]
    while todo:
        item = todo.pop()
        if type(item) is float:
            if abs(item) >= _EXACT_BELOW:
                return True
        elif type(item) is dict:
            todo.extend(item.values())
        elif type(item) is list:
            todo.extend(item)
    return False


def _nesting(value: Any) -> int:
    deepest, todo = 0, [(value, 1)]
    while todo:
        item, level = todo.pop()
        if isinstance(item, (dict, list)):
            deepest = max(deepest, level)
            children = item.values() if isinstance(item, dict) else item
            todo.extend((child, level + 1) for child in children)
    return deepest
