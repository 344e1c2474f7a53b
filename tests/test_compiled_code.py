"""Where compiled code is kept when neither the package nor the user's cache can be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import filters

COMPILE = """
import os, sys
import filters
folder = os.environ.get("NUMBA_CACHE_DIR")
import numpy as np
from numba import njit
print(folder, os.path.isdir(folder))
"""


def test_a_place_that_cannot_be_written_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")  # not even root can make a folder there
    monkeypatch.setattr(filters, "__file__", "/proc/nowhere/filters/__init__.py")
    filters._keep_compiled_code()
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.is_dir()
    assert folder.stat().st_mode & 0o077 == 0, "compiled code is run: no other user may write it"
    monkeypatch.delenv("NUMBA_CACHE_DIR")


def test_the_replacement_is_gone_with_the_process() -> None:
    code = "import filters; filters.__file__ = '/proc/nowhere/x'; filters._keep_compiled_code()\n" + COMPILE
    environment = {**os.environ, "XDG_CACHE_HOME": "/proc/nowhere"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    folder, there = done.stdout.split()
    assert there == "True"
    assert not Path(folder).exists()


def test_a_choice_of_the_user_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    filters._keep_compiled_code()
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path)
