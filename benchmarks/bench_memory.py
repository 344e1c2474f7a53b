"""Peak memory of a run over 2 GB of text: `make bench-memory`.

The text is ../shared/data/text (or SLUICE_DATA), repeated; in each repetition a keyed 30 % of the words is
replaced, so that repetitions are no duplicates. Prints the peak of the PSS summed over all processes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from itertools import count
from pathlib import Path

from measuring import SLUICE, replaced, run_watched, texts

REPLACED_SHARE = 0.3
FILE_BYTES = 128 << 20


def write_corpus(folder: Path, wanted: int) -> tuple[int, int]:
    """Write JSONL files of together `wanted` bytes of text; returns documents and bytes."""
    folder.mkdir(parents=True)
    originals = list(texts())
    size = documents = in_file = files = 0
    out = (folder / f"part-{files:03d}.jsonl").open("w", encoding="utf-8", newline="\n")
    for round_number in count():
        for i, original in enumerate(originals):
            if size >= wanted:
                out.close()
                return documents, size
            text = replaced(original, round_number, i, REPLACED_SHARE) if round_number else original
            line = json.dumps({"id": f"{round_number}-{i}", "text": text}, ensure_ascii=False)
            out.write(line + "\n")
            n = len(text.encode("utf-8", "surrogatepass"))
            size, documents, in_file = size + n, documents + 1, in_file + n
            if in_file >= FILE_BYTES:
                out.close()
                files, in_file = files + 1, 0
                out = (folder / f"part-{files:03d}.jsonl").open("w", encoding="utf-8", newline="\n")
    raise AssertionError("unreachable")


def main() -> None:
    """Make the corpus in a temporary folder, run the `web` recipe over it, print the peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=2 << 30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder to work in, which is kept")
    options = parser.parse_args()
    work = options.keep or Path(tempfile.mkdtemp(prefix="bench-memory-"))
    try:
        documents, size = write_corpus(work / "text", options.bytes)
        print(f"{documents} documents, {size / 1e6:.0f} MB of text", flush=True)
        command = [SLUICE, "run", "web", "--input", str(work / "text"), "--output", str(work / "out")]
        seconds, peak = run_watched([*command, "--workers", str(options.workers)])
        print(f"{seconds:.0f} s, {size / 1e6 / seconds:.1f} MB/s, {documents / seconds:.0f} documents/s")
        print(f"peak PSS over all processes: {peak / 2**20:.0f} MiB with {options.workers} workers")
    finally:
        if options.keep is None:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
