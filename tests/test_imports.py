"""Imports go one way: schemas <- filters, classifiers <- pipeline; only pipeline knows Beam."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

ALLOWED = {
    "schemas": {"schemas"},
    "filters": {"schemas", "filters"},
    "classifiers": {"schemas", "classifiers", "filters.base"},  # what a rule and a stage are
    "pipeline": {"schemas", "filters", "classifiers", "pipeline", "apache_beam"},
}
"""Package -> what of the project's own packages and of Beam its modules may import."""

GUARDED = {*ALLOWED, "apache_beam"}


def imported(source: str, package: str) -> set[str]:
    """Every module that the source imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(package if node.level else node.module or "")
    return found


def forbidden(source: str, package: str) -> set[str]:
    """The imports of a module of this package that go the wrong way."""
    allowed = ALLOWED[package]
    return {
        name
        for name in imported(source, package)
        if (top := name.split(".")[0]) in GUARDED and top not in allowed and name not in allowed
    }


def modules() -> list[Path]:
    return sorted(path for package in ALLOWED for path in (REPOSITORY / package).rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(REPOSITORY).parts[0]
    assert forbidden(path.read_text("utf-8"), package) == set()


@pytest.mark.parametrize(
    ("package", "source", "wrong"),
    [
        ("schemas", "import filters.base", {"filters.base"}),
        ("filters", "def f():\n    from classifiers.language import identify", {"classifiers.language"}),
        ("filters", "import apache_beam as beam", {"apache_beam"}),
        ("classifiers", "from pipeline import store", {"pipeline"}),
        ("classifiers", "from filters import text_view", {"filters"}),
        ("classifiers", "from filters.base import Rule\nfrom . import registry\nimport numpy", set()),
        ("pipeline", "import apache_beam\nfrom filters.base import Rule", set()),
    ],
)
def test_the_check_sees_what_it_should(package: str, source: str, wrong: set[str]) -> None:
    assert forbidden(source, package) == wrong


def test_every_package_has_modules() -> None:
    assert {path.relative_to(REPOSITORY).parts[0] for path in modules()} == set(ALLOWED)


def test_no_test_folder_hides_a_package() -> None:
    tests = REPOSITORY / "tests"
    assert not list(tests.rglob("__init__.py"))
    assert not [path for path in tests.rglob("*") if path.is_dir() and path.name in ALLOWED]
