"""What the benchmarks share: real text, and the memory of a process tree."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

DATA = Path(os.environ.get("SLUICE_DATA", Path(__file__).resolve().parents[1] / "../shared/data"))
SLUICE = str(Path(sys.executable).with_name("sluice"))


def texts(folder: Path = DATA / "text") -> Iterator[str]:
    """Every text of the JSONL files in a folder, in the order of their names."""
    files = sorted(folder.glob("*.jsonl.gz"))
    if not files:
        sys.exit(f"no text in {folder}: set SLUICE_DATA to the folder that holds text/")
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield json.loads(line)["text"]


def replaced(text: str, round_number: int, document: int, share: float) -> str:
    """The text with this share of its words replaced, drawn by a keyed hash of round, document and place.

    A round's replacements are words of its own, so that rounds are unlike one another.
    """
    words = text.split(" ")
    seed = hashlib.blake2b(f"{round_number}:{document}".encode(), digest_size=16).digest()
    state = int.from_bytes(seed, "big") | 1
    limit = int(share * 2**32)
    for i, word in enumerate(words):
        state = (state * 0xDA942042E4DD58B5 + 1) & (2**128 - 1)
        if (state >> 96) < limit and word.isalpha():
            words[i] = f"{word}{chr(97 + (state >> 64) % 26)}{chr(97 + (state >> 72) % 26)}"
    return " ".join(words)


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process and all below it (Linux, /proc/PID/smaps_rollup)."""
    total = 0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            with open(f"/proc/{process.pid}/smaps_rollup") as lines:
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration):
            continue
    return total


def run_watched(command: Sequence[str], interval_seconds: float = 0.5) -> tuple[float, int]:
    """Run a command to its end; returns wall seconds and the peak of the PSS summed over its processes.

    Exits with the command's own status when it fails.
    """
    began = time.perf_counter()
    process = subprocess.Popen(command)
    peak = 0
    while process.poll() is None:
        peak = max(peak, pss_bytes(process.pid))
        time.sleep(interval_seconds)
    if process.returncode:
        sys.exit(process.returncode)
    return time.perf_counter() - began, peak
