"""Set-up names or installs what the system lacks; looked at by its own --check, with a PATH of our making."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "setup.sh"

FULL = ("python3.11", "g++", "cmake")
NEEDED = ("bash", "dirname")


class Machine:
    """A folder that is all of PATH: the commands that a system has, and who its user is."""

    def __init__(self, folder: Path, commands: tuple[str, ...], user: int) -> None:
        self.folder = folder
        for command in NEEDED:
            found = shutil.which(command)
            assert found
            (folder / command).symlink_to(found)
        self.script("id", f"echo {user}")
        for command in commands:
            if command.startswith("python"):
                self.python(command)
            else:
                self.script(command, "exit 0")

    def script(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!{self.folder / 'bash'}\n{body}\n", "utf-8")
        path.chmod(0o755)

    def python(self, name: str, lacks: str = "nothing", version: str = "") -> None:
        """The running Python under this name; a check that mentions `lacks` fails, as where it is missing."""
        refuse = f'case "$*" in *"{lacks}"*) exit 1 ;; esac'
        old = f'case "$*" in *version_info*) exec {sys.executable} -c "raise SystemExit(1)" ;; esac'
        self.script(name, f'{refuse}\n{old if version == "old" else ""}\nexec {sys.executable} "$@"')

    def apt_get(self, brings: tuple[str, ...]) -> Path:
        """An apt-get that writes down how it is called, and puts these commands on the machine."""
        log = self.folder / "calls"
        made = "\n".join(
            f'[ "$1" != install ] || ln -s {self.folder / "bash"} {self.folder / b}' for b in brings
        )
        ln = shutil.which("ln")
        self.script("apt-get", f'echo "$*" >> {log}\n{made.replace("ln -s", f"{ln} -s")}')
        return log

    def check(self, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.folder), **variables}
        return subprocess.run(
            [str(self.folder / "bash"), str(SCRIPT), "--check"],
            env=environment,
            cwd=os.sep,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


def short() -> str:
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def test_a_full_machine_passes_in_silence(tmp_path: Path) -> None:
    done = Machine(tmp_path, FULL, 1000).check()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("commands", "packages"),
    [
        (("python3.11", "cmake"), "g++"),
        (("python3.11", "g++"), "cmake"),
        (("python3.13",), "g++ cmake"),
        (("g++", "cmake"), "python3 python3-venv python3-dev"),
        ((), "python3 python3-venv python3-dev g++ cmake"),
    ],
)
def test_others_than_root_read_one_line(commands: tuple[str, ...], packages: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, commands, 1000)
    log = machine.apt_get(())
    done = machine.check()
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"set-up: missing {packages}; "
        f"install with: sudo apt-get update && sudo apt-get install -y {packages}\n"
    )
    assert not log.exists()


@pytest.mark.parametrize(("lacks", "package"), [("ensurepip", "venv"), ("Python.h", "dev")])
def test_a_python_without_its_parts_is_seen(lacks: str, package: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, ("g++", "cmake"), 1000)
    machine.python("python3", lacks)
    done = machine.check()
    assert done.returncode == 1
    assert f"missing {short()}-{package};" in done.stderr


def test_root_installs_what_is_missing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ("python3.11",), 0)
    log = machine.apt_get(("g++", "cmake"))
    done = machine.check()
    assert (done.returncode, done.stderr) == (0, "")
    update, install = log.read_text("utf-8").splitlines()
    assert update.startswith("update")
    assert install.startswith("install -y")
    assert install.endswith(" g++ cmake")


def test_root_is_told_what_apt_get_did_not_bring(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ("python3.11",), 0)
    machine.apt_get(("g++",))
    done = machine.check()
    assert done.returncode == 1
    assert "still missing after apt-get install: cmake" in done.stderr


def test_root_without_apt_get_reads_the_line(tmp_path: Path) -> None:
    done = Machine(tmp_path, ("python3.11", "cmake"), 0).check()
    assert done.returncode == 1
    assert done.stderr.startswith("set-up: missing g++; install with: ")


def test_an_old_python_is_passed_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ("g++", "cmake"), 1000)
    machine.python("python3", version="old")
    assert "missing python3 python3-venv python3-dev;" in machine.check().stderr
    machine.python("python3.12")
    assert machine.check().returncode == 0


def test_a_python_that_was_asked_for_is_not_replaced(tmp_path: Path) -> None:
    machine = Machine(tmp_path, FULL, 1000)
    machine.python("python3.12", version="old")
    done = machine.check(PYTHON="python3.12")
    assert done.returncode == 1
    assert done.stderr == "set-up: PYTHON=python3.12 is not Python 3.11 or later\n"
    assert machine.check(PYTHON=sys.executable).returncode == 0
