"""Milliseconds per document by stage, MB/s and peak memory, on 2.7 KB documents: `make bench`.

English and Chinese prose of ../shared/data/text (or SLUICE_DATA) is cut or joined to documents of about
2,700 bytes; one worker, one core; the times are the receipts' own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measuring import DATA, SLUICE, run_watched

DOCUMENT_BYTES = 2700
SETS = {
    "English": ["en_openstax", "en_wikitext2", "en_austen", "en_nltk"],
    "Chinese": ["zh_lctt", "zh_literature", "zh_cmrc_wiki", "zh_hant_drcd_wiki"],
}


def documents(names: list[str]) -> Iterator[str]:
    """Paragraphs of these sets, joined to documents of about `DOCUMENT_BYTES` bytes."""
    import gzip

    for name in names:
        waiting: list[str] = []
        size = 0
        with gzip.open(DATA / "text" / f"{name}.jsonl.gz", "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                for paragraph in json.loads(line)["text"].split("\n"):
                    waiting.append(paragraph)
                    size += len(paragraph.encode()) + 1
                    if size >= DOCUMENT_BYTES:
                        yield "\n".join(waiting)
                        waiting, size = [], 0


def measure(language: str, names: list[str], limit: int, work: Path) -> None:
    """Run the `web` recipe over one set and print its table."""
    folder = work / language
    folder.mkdir(parents=True)
    size = n = 0
    with (folder / "documents.jsonl").open("w", encoding="utf-8", newline="\n") as out:
        for i, text in enumerate(documents(names)):
            if i == limit:
                break
            out.write(json.dumps({"id": str(i), "text": text}, ensure_ascii=False) + "\n")
            size, n = size + len(text.encode()), n + 1
    output = work / f"{language}-out"
    command = [SLUICE, "run", "web", "--input", str(folder), "--output", str(output), "--workers", "1"]
    warm = work / f"{language}-warm"
    run_watched([*command[:-3], str(warm), "--workers", "1", "--sample", "0.01"])
    seconds, peak = run_watched(command, 0.1)
    by_stage: dict[str, float] = {}
    for receipt in (output / "receipts").rglob("*.json"):
        for stage, taken in json.loads(receipt.read_text())["seconds"].items():
            by_stage[stage] = by_stage.get(stage, 0.0) + taken
    print(f"\n{language}: {n} documents of {size / n:.0f} bytes, {size / 1e6:.1f} MB\n")
    print("| stage | ms a document | documents/s |\n|---|---|---|")
    for stage, taken in by_stage.items():
        print(f"| {stage} | {1000 * taken / n:.3f} | {n / taken:,.0f} |")
    rest = seconds - sum(by_stage.values())
    print(f"| start-up, read, write, decide, emit | {1000 * rest / n:.3f} | |")
    print(f"| whole run | {1000 * seconds / n:.3f} | {n / seconds:,.0f} |")
    print(f"\n{size / 1e6 / seconds:.1f} MB/s of text; peak PSS {peak / 2**20:.0f} MiB")


def main() -> None:
    """Print one table a language."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=12000)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-stages-"))
    try:
        for language, names in SETS.items():
            measure(language, names, options.documents, work)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
