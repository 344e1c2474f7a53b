"""Finding a record's text, id, URL and so on among its fields, whatever they are called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.readers_items import ReadReason
from pipeline.readers_json import write
from schemas.records import KINDS, Document

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "text": (
        "text",
        "content",
        "raw_content",
        "contents",
        "raw_text",
        "full_text",
        "body",
        "article",
        "document",
        "comment",
        "markdown",
        "html",
        "code",
    ),
    "id": ("id", "_id", "doc_id", "docid", "document_id", "uuid", "guid", "record_id", "hexsha"),
    "url": ("url", "uri", "source_url", "page_url", "target_uri", "warc_target_uri", "link"),
    "date": (
        "date",
        "timestamp",
        "created",
        "created_at",
        "published",
        "published_at",
        "publish_date",
        "date_download",
        "crawl_date",
        "warc_date",
    ),
    "path": ("path", "filename", "file_name", "file_path", "filepath", "max_stars_repo_path", "repo_path"),
    "language": ("language", "lang", "locale"),
    "kind": ("kind", "type"),
    "programming_language": ("programming_language", "programming_lang", "prog_lang", "code_language"),
    "licence": ("licence", "license", "licenses", "max_stars_repo_licenses"),
}
"""Names under which a field is looked for, in this order and whatever their case."""

_KIND_NAMES = {
    **{kind: kind for kind in KINDS},
    "source_code": "code",
    "source code": "code",
    "math": "mathematics",
    "maths": "mathematics",
}

_EXTENSIONS: Mapping[str, tuple[str, ...]] = {
    "ada": (".adb", ".ads"),
    "assembly": (".asm", ".s"),
    "bash": (".sh", ".bash"),
    "c": (".c", ".h"),
    "clojure": (".clj", ".cljs"),
    "cobol": (".cob", ".cbl"),
    "cpp": (".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"),
    "csharp": (".cs",),
    "css": (".css",),
    "cuda": (".cu", ".cuh"),
    "dart": (".dart",),
    "elixir": (".ex", ".exs"),
    "erlang": (".erl", ".hrl"),
    "fortran": (".f", ".f90", ".f95", ".for"),
    "go": (".go",),
    "groovy": (".groovy", ".gradle"),
    "haskell": (".hs",),
    "java": (".java",),
    "javascript": (".js", ".jsx", ".mjs", ".cjs"),
    "julia": (".jl",),
    "jupyter": (".ipynb",),
    "kotlin": (".kt", ".kts"),
    "lua": (".lua",),
    "ocaml": (".ml", ".mli"),
    "pascal": (".pas",),
    "perl": (".pl", ".pm"),
    "php": (".php",),
    "powershell": (".ps1",),
    "python": (".py", ".pyi", ".pyx"),
    "r": (".r",),
    "ruby": (".rb",),
    "rust": (".rs",),
    "scala": (".scala",),
    "scss": (".scss", ".sass", ".less"),
    "sql": (".sql",),
    "swift": (".swift",),
    "toml": (".toml",),
    "tsx": (".tsx",),
    "typescript": (".ts",),
    "verilog": (".v", ".sv"),
    "vhdl": (".vhd", ".vhdl"),
    "yaml": (".yaml", ".yml"),
    "zig": (".zig",),
}
_LANGUAGE_OF_EXTENSION = {ext: name for name, extensions in _EXTENSIONS.items() for ext in extensions}

# Formats of data and of text too: a path like "dump.json" often names the file that a record came from, so
# that such a path says code only where the record's own language agrees.
_DATA_FORMATS = {"json": (".json",), "xml": (".xml",), "html": (".html", ".htm")}

_ALIASES = {
    "c#": "csharp",
    "c++": "cpp",
    "cs": "csharp",
    "golang": "go",
    "ipynb": "jupyter",
    "js": "javascript",
    "jupyter notebook": "jupyter",
    "jupyter-notebook": "jupyter",
    "py": "python",
    "python3": "python",
    "rb": "ruby",
    "rs": "rust",
    "sh": "bash",
    "shell": "bash",
    "ts": "typescript",
    "yml": "yaml",
}
_KNOWN_LANGUAGES = {*_EXTENSIONS, *_DATA_FORMATS}

_JSON_TYPES: Mapping[type, str] = {
    bool: "a truth value",
    dict: "an object",
    float: "a number",
    int: "a number",
    list: "an array",
}
_KIND_ROLES = frozenset({"kind", "path", "programming_language"})
_MAX_LISTED_FIELDS = 30
_MAX_PLANS = 1024
_MAX_PLAN_CHARS = 8192

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """Which field of a record is what; None looks for the usual names (`SYNONYMS`).

    A name is matched exactly, else as a dotted way into nested objects, else whatever its case.
    """

    text: str | None = None
    id: str | None = None
    url: str | None = None
    date: str | None = None
    path: str | None = None
    language: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a record with fields holds no readable text."""

    reason: ReadReason
    error: str
    input_id: str | None


class RecordReader:
    """Makes documents of the records of one file; remembers where records with the same fields have what."""

    def __init__(self, mapping: FieldMapping, source: str, source_path: str) -> None:
        self._mapping = mapping
        self._source = source
        self._source_path = source_path
        self._plans: dict[Path, dict[str, Path]] = {}

    def plan(self, names: Path) -> dict[str, Path]:
        """Where a record with these fields has its text, id, ...: by role, the way to the value."""
        plan = self._plans.get(names)
        if plan is None:
            plan = _plan_of(names, self._mapping)
            # A hostile file can have other fields in every record, and any number of them.
            if len(self._plans) < _MAX_PLANS and sum(map(len, names)) < _MAX_PLAN_CHARS:
                self._plans[names] = plan
        return plan

    def text_of(self, record: Mapping[str, Any]) -> Any:
        """The value of the record's text field, or None."""
        way = self.plan(tuple(record)).get("text")
        return _value(record, way) if way else None

    def id_of(self, record: Mapping[str, Any]) -> str | None:
        """The record's own id as a string, or None."""
        way = self.plan(tuple(record)).get("id")
        return _as_id(_value(record, way)) if way else None

    def document(self, record: Mapping[str, Any], locator: int) -> Document | Problem:
        """The document of a record, or why it has none; raises NotJson when it is nested too deeply."""
        plan = self.plan(tuple(record))
        rest = dict(record)
        input_id = None
        if (way := plan.get("id")) is not None:
            value = _value(record, way)
            input_id = _as_id(value)
            if input_id is not None and not isinstance(value, (dict, list)):
                _drop(rest, way)
        way = plan.get("text")
        text = _value(record, way) if way else None
        if not isinstance(text, str) or way is None:
            return self._no_text(record, way, text, input_id)
        _remove(rest, way)
        url = _take(rest, record, plan.get("url"), numbers=False)
        date = _take(rest, record, plan.get("date"), numbers=True)
        kind, programming_language = "prose", None
        if not _KIND_ROLES.isdisjoint(plan):
            kind, programming_language = _kind_of(record, plan, rest)
        licence = _licence_of(record, plan["licence"], rest) if "licence" in plan else None
        return Document(
            text=text,
            doc_id=f"{self._source}/{self._source_path}#{locator}",
            input_id=input_id,
            source=self._source,
            source_path=self._source_path,
            locator=locator,
            url=url,
            date=date,
            kind=kind,
            programming_language=programming_language,
            licence=licence,
            metadata=write(rest) if rest else "{}",
        )

    def _no_text(
        self, record: Mapping[str, Any], way: Path | None, text: Any, input_id: str | None
    ) -> Problem:
        name = self._mapping.text
        fields = ", ".join([*record][:_MAX_LISTED_FIELDS])[:1000] or "none"
        if len(record) > _MAX_LISTED_FIELDS:
            fields += f", and {len(record) - _MAX_LISTED_FIELDS} more"
        if way is None:
            sought = f"no field {name!r}" if name else "no field for the text"
            return Problem("no_text", f"{sought}; the record's fields: {fields}", input_id)
        if text is None:
            error = f"the text field {'.'.join(way)!r} is null or absent; the record's fields: {fields}"
            return Problem("no_text", error, input_id)
        kind = _JSON_TYPES.get(type(text), "another type")
        return Problem("wrong_type", f"the text field {'.'.join(way)!r} is no string but {kind}", input_id)


def language_of_path(path: str) -> str | None:
    """The programming language that a file name's extension stands for, or None.

    >>> language_of_path("src/Main.HS"), language_of_path("notes.txt")
    ('haskell', None)
    """
    return _LANGUAGE_OF_EXTENSION.get(os.path.splitext(path)[1].lower())


def _plan_of(names: Path, mapping: FieldMapping) -> dict[str, Path]:
    folded: dict[str, str] = {}
    for name in names:
        folded.setdefault(name.lower(), name)
    plan = {}
    for role, synonyms in SYNONYMS.items():
        wanted = getattr(mapping, role, None)
        if wanted is not None:
            way = _way_to(wanted, names, folded)
        else:
            way = next(((s if s in names else folded[s],) for s in synonyms if s in folded), None)
        if way is not None:
            plan[role] = way
    return plan


def _way_to(wanted: str, names: Sequence[str], folded: Mapping[str, str]) -> Path | None:
    if wanted in names:
        return (wanted,)
    first, dot, rest = wanted.partition(".")
    if dot and first in names:
        return (first, *rest.split("."))
    if wanted.lower() in folded:
        return (folded[wanted.lower()],)
    return None


def _value(record: Mapping[str, Any], way: Path) -> Any:
    value = record.get(way[0])
    for name in way[1:]:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _remove(rest: dict[str, Any], way: Path) -> None:
    for name in way[:-1]:
        inner = rest.get(name)
        if not isinstance(inner, dict):
            return
        rest[name] = rest = dict(inner)
    rest.pop(way[-1], None)


def _as_id(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return write(value)


def _take(rest: dict[str, Any], record: Mapping[str, Any], way: Path | None, numbers: bool) -> str | None:
    """The value as a string; it leaves the metadata when the column then holds all of it."""
    value = _value(record, way) if way else None
    if way is None or isinstance(value, bool):
        return None
    if isinstance(value, str) or (numbers and isinstance(value, (int, float))):
        _drop(rest, way)
        return _as_id(value)
    return None


def _kind_of(
    record: Mapping[str, Any], plan: Mapping[str, Path], rest: dict[str, Any]
) -> tuple[str, str | None]:
    """The document's kind and programming language; what a column then holds leaves the metadata."""
    said = _string(record, plan.get("kind"))
    kind = _KIND_NAMES.get(said.strip().lower()) if said else None
    if said and said == kind:
        _drop(rest, plan["kind"])
    own = _string(record, plan.get("programming_language"))
    if own:
        name = _programming_language(own)
        if name == own:
            _drop(rest, plan["programming_language"])
        return kind or "code", name
    by_path = language_of_path(_string(record, plan.get("path")) or "")
    by_name = _programming_language(_string(record, plan.get("language")) or "")
    if by_path is None and by_name in _DATA_FORMATS:
        extension = os.path.splitext(_string(record, plan.get("path")) or "")[1].lower()
        by_path = by_name if extension in _DATA_FORMATS[by_name] else None
    if kind is None:
        kind = "code" if by_path else "prose"
    if kind not in ("code", "mixed"):
        return kind, None
    # Short unknown names are natural languages ("en", "deu").
    if by_name in _KNOWN_LANGUAGES or (by_path is None and len(by_name) > 3):
        return kind, by_name
    return kind, by_path


def _string(record: Mapping[str, Any], way: Path | None) -> str | None:
    value = _value(record, way) if way else None
    return value if isinstance(value, str) else None


def _drop(rest: dict[str, Any], way: Path) -> None:
    if len(way) == 1:
        rest.pop(way[0], None)


def _programming_language(name: str) -> str:
    folded = name.strip().lower()
    return _ALIASES.get(folded, folded)


def _licence_of(record: Mapping[str, Any], way: Path, rest: dict[str, Any]) -> str | None:
    value = _value(record, way)
    if isinstance(value, str):
        _drop(rest, way)
        return value
    if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
        return ", ".join(value)
    return None
