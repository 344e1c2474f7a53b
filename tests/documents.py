"""The project's pages: their blocks of code, what these print, and their outputs written again.

`python tests/documents.py` (`make docs`) runs the commands of README.md and the queries of docs/audit.md on
the sample and writes what they print below them.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
HOME = "/home/me/sluice"
"""What the pages call the project's folder where a command prints it."""

ANY_LINES = "..."
"""A line of an expected output that stands for any number of lines."""

RUN_PAGES = ("README.md", "docs/audit.md")
"""Pages whose blocks print something that is held true; the later ones use the output of the first."""

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_OUTPUT = re.compile(r"(```python\n.*?^```\n)(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"(```console\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: `language` and `name` are the words behind the fence."""

    language: str
    name: str
    text: str


def pages() -> list[Path]:
    """Every page of the project."""
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("sample_data/*.md")]
    return sorted([*found, REPOSITORY / "tests" / "engines" / "README.md"])


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, without the indentation of the fence."""
    found = []
    for match in _BLOCK.finditer(page):
        language, _, name = match["info"].partition(" ")
        lines = [line.removeprefix(match["indent"]) for line in match["text"].splitlines(keepends=True)]
        found.append(Block(language, name, "".join(lines)))
    return found


def steps(text: str) -> list[tuple[str, str]]:
    """The commands of a `console` block, each with the lines below it.

    >>> steps("$ one\\nprinted\\n$ two \\\\\\n    more\\n")
    [('one', 'printed\\n'), ('two \\\\\\n    more', '')]
    """
    found = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, output = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.DOTALL).groups()  # type: ignore[union-attr]
        found.append((command, output))
    return found


def workplace(folder: Path) -> Path:
    """A folder in which the commands of the pages work and `out/` is their own."""
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "sample_data").symlink_to(REPOSITORY / "sample_data")
    (folder / "tests").symlink_to(REPOSITORY / "tests")
    return folder


def printed(command: list[str], folder: Path) -> str:
    """What a command prints; RuntimeError with its complaint when it fails."""
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[-1]}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.replace(str(folder.resolve()), HOME)


def shell(command: str, folder: Path) -> str:
    """What a command line of a `console` block prints."""
    return printed(["bash", "-o", "pipefail", "-c", command], folder)


def python(text: str, folder: Path) -> str:
    """What a `python` block prints when it is run in the folder."""
    shown = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(shown):
        exec(compile(text, "<block>", "exec"), {"__name__": "__main__"})
    return shown.getvalue()


def same(output: str, expected: str) -> bool:
    """Whether an output is what a page says, `ANY_LINES` standing for any lines.

    >>> same("a\\nb\\nc\\n", "a\\n...\\n"), same("a\\nb\\n", "b\\n"), same("", "...\\n")
    (True, False, True)
    """
    parts = re.split(rf"^{re.escape(ANY_LINES)}\n", expected, flags=re.MULTILINE)
    return re.fullmatch("(?:.*\n)*".join(map(re.escape, parts)), output) is not None


def written(page: str, folder: Path) -> str:
    """The page with the outputs of its `console` and `python` blocks as they are now."""

    def console(match: re.Match[str]) -> str:
        lines = []
        for command, expected in steps(match[2]):
            output = shell(command, folder)
            lines.append(f"$ {command}\n{expected if same(output, expected) else output}")
        return match[1] + "".join(lines) + match[3]

    def program(match: re.Match[str]) -> str:
        output = python(blocks(match[1])[0].text, folder)
        return f"{match[1]}\n```text\n{output}```\n" if output else match[1]

    return _OUTPUT.sub(program, _CONSOLE.sub(console, page))


def main() -> None:
    """Write the outputs of `RUN_PAGES` again and name the pages that changed."""
    work = Path(tempfile.mkdtemp(prefix="sluice-docs-"))
    try:
        folder = workplace(work)
        for name in RUN_PAGES:
            path = REPOSITORY / name
            before = path.read_text("utf-8")
            after = written(before, folder)
            if after != before:
                path.write_text(after, "utf-8")
                print(name)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
