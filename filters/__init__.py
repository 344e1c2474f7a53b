"""Rule sets and the text view that they share."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def _keep_compiled_code() -> None:
    """Give numba a folder to keep compiled code in where it would find none.

    It looks for NUMBA_CACHE_DIR, the package's own folder and the user's cache, and raises when none can be
    written (an unprivileged user of a container). Then a private folder serves this process and its workers.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    own = Path(__file__).parent / "__pycache__"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "numba"
    for folder in (own, user):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except (OSError, RuntimeError):
            continue
        return
    private = tempfile.mkdtemp(prefix="sluice-numba-")
    os.environ["NUMBA_CACHE_DIR"] = private
    atexit.register(shutil.rmtree, private, ignore_errors=True)


_keep_compiled_code()
