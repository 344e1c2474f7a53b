"""The project's wheel, and environments that have it and borrow the locked packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def package_names() -> list[str]:
    """The packages that the wheel must hold."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    names: list[str] = settings["tool"]["setuptools"]["packages"]
    return names


def build_wheel(work: Path) -> Path:
    """Build the wheel in this empty folder, from a copy: setuptools packs what an old build/ holds."""
    source = work / "source"
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in package_names():
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(work), str(source))
    (wheel,) = work.glob("*.whl")
    return wheel


def make_environment(folder: Path, wheel: Path, without: Sequence[str] = ()) -> Path:
    """The Python of a new environment with the wheel and all locked packages but those in `without`.

    The locked packages are linked one by one, so that neither the editable project nor what is left out
    can be imported.
    """
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    _pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    left_out = ("__editable__", "sluice_corpus", *without)
    borrowed = folder / "locked"
    borrowed.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(left_out):
            (borrowed / entry.name).symlink_to(entry)
    (site_packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site_packages / "locked.pth").write_text(f"{borrowed}\n", "utf-8")
    return python


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)
