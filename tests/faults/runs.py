"""Whole runs of the command, with faults, and what they leave: for test_same_bytes.py and test_faults.py."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import psutil
import pyarrow.parquet as pq
import pytest

FAULTS = Path(__file__).parent
REPOSITORY = FAULTS.parents[1]
DATA = Path(os.environ.get("SLUICE_DATA", REPOSITORY.parent / "shared" / "data"))
SAMPLE = REPOSITORY / "sample_data" / "corpus"
RUN_LIMIT_SECONDS = 600
DEATH_LIMIT_SECONDS = 30.0
"""A run whose worker was killed must have ended by then."""
ALPHA = "balance_languages.alpha=0.5"
"""Small enough for documents of the most frequent languages to be left out."""

Chunks = set[tuple[str, int]]
T = TypeVar("T")


@dataclass(frozen=True)
class Material:
    """What a run reads: a recipe with settings, inputs, the same inputs named in another way, and settings at
    which the duplicate steps need several passes and partitions."""

    recipe: str
    inputs: tuple[str, ...]
    named_otherwise: tuple[str, ...]
    settings: tuple[str, ...]
    small_passes: tuple[str, ...]


@dataclass(frozen=True)
class Fault:
    """At which object's commit a run is hurt, and how; see sitecustomize.py."""

    name: str
    action: str
    nth: int = 1
    moment: str = "before"


@dataclass(frozen=True)
class Ended:
    """How a run ended: exit status, standard error, what its processes logged, time since the fault."""

    status: int
    errors: str
    log: Mapping[str, Sequence[str]]
    seconds_after_fault: float
    left_alive: Sequence[str]

    @property
    def complaints(self) -> list[str]:
        """Lines of standard error that are no progress."""
        phases = ("annotate ", "decide ", "emit ")
        return [line for line in self.errors.splitlines() if line and not line.startswith(phases)]

    @property
    def measured(self) -> Chunks:
        """Chunks that any stage was asked about."""
        return {(unit, int(index)) for _, unit, index in (line.split() for line in self.log["measured"])}


def sample_material(folder: Path) -> Material:
    """The sample corpus in units of 4 KB and chunks of 1 KB, and records that cannot be read."""
    broken = folder / "broken"
    _write(broken / "broken.jsonl", _broken())
    sizes = ("run.unit_bytes=4096", "run.chunk_bytes=1024", "run.shard_bytes=8192")
    files = sorted(str(p) for p in SAMPLE.iterdir())
    otherwise = (*files[::-1], f"{broken}/*")
    return Material(
        "sample", (str(SAMPLE), str(broken)), otherwise, (*sizes, ALPHA),
        ("run.pass_bytes=5000", "run.partition_bytes=500"),
    )  # fmt: skip


def real_material(folder: Path) -> Material:
    """Real web records and at least 4 MB of text in units of 64 KB and chunks of 16 KB, with planted copies.

    The sample where there is no such data.
    """
    if not DATA.is_dir():
        return sample_material(folder)
    texts, planted = folder / "text", folder / "planted"
    size = 0
    for name in ("en_austen", "zh_cmrc_wiki"):
        lines = gzip.decompress((DATA / "text" / f"{name}.jsonl.gz").read_bytes()).splitlines()
        size += _write(texts / f"{name}.jsonl", lines)
        _write(planted / f"{name}.jsonl", [*(_near_copy(line) for line in lines[3:40:3]), *lines[4:40:12]])
    for name in ("progit2_de", "progit2_ru"):
        packed = texts / f"{name}.jsonl.gz"
        shutil.copyfile(DATA / "text" / packed.name, packed)
        size += len(gzip.decompress(packed.read_bytes()))
    assert size > 4 << 20
    _write(planted / "broken.jsonl", _broken())
    web = DATA / "web" / "warc"
    sizes = ("run.unit_bytes=65536", "run.chunk_bytes=16384", "run.shard_bytes=262144")
    files = [str(p) for p in texts.iterdir()]
    otherwise = (f"{planted}/*.jsonl", *sorted(files, reverse=True), f"{web}/*")
    return Material(
        "web", (str(web), str(texts), str(planted)), otherwise, (*sizes, ALPHA),
        ("run.pass_bytes=40000", "run.partition_bytes=2000"),
    )  # fmt: skip


def _broken() -> list[bytes]:
    return [b'{"text": "cut short', b'{"id": 7}']


def _near_copy(line: bytes) -> bytes:
    """A record with other words at the end of its text."""
    record = json.loads(line)
    record["text"] = record["text"][:-12] + "other words"
    return json.dumps(record, ensure_ascii=False).encode()


def _write(path: Path, lines: Sequence[bytes]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(b"".join(line + b"\n" for line in lines))


def run(
    material: Material,
    output: Path,
    *,
    workers: int = 1,
    inputs: Sequence[str] | None = None,
    settings: Sequence[str] = (),
    fault: Fault | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run the command to its end, and see that nothing of it stays alive.

    Each run logs into a folder of its own beside the output.
    """
    log = output.with_name(f"{output.name}.log-{time.monotonic_ns()}")
    log.mkdir(parents=True)
    command = [
        str(Path(sys.executable).with_name("sluice")), "run", material.recipe,
        "--input", *(material.inputs if inputs is None else inputs),
        "--output", str(output), "--workers", str(workers),
    ]  # fmt: skip
    for setting in (*material.settings, *settings):
        command += ["--set", setting]
    own = {"PYTHONPATH": str(FAULTS), "PYTHONHASHSEED": "0", "FAULT_LOG": str(log), **(environment or {})}
    if fault:
        own["FAULT"] = json.dumps(asdict(fault))
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "FAULT", "SLUICE_"))}
    with open(log / "stderr", "wb") as errors:
        process = subprocess.Popen(
            command, env=inherited | own, cwd=output.parent, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
    try:
        status = process.wait(RUN_LIMIT_SECONDS)
        ended = time.time()
        left = _left_alive(process.pid)
    finally:
        _kill_group(process.pid)
        process.wait()
    names = ("committed", "measured", "doubled", "fired")
    logged = {n: (log / n).read_text().splitlines() if (log / n).exists() else [] for n in names}
    fired = float(logged["fired"][0].split()[0]) if logged["fired"] else ended
    return Ended(status, (log / "stderr").read_text("utf-8", "replace"), logged, ended - fired, left)


def _left_alive(group: int) -> list[str]:
    """Commands of the group's processes that do not end soon after their driver."""
    until = time.monotonic() + DEATH_LIMIT_SECONDS
    while (alive := _members(group)) and time.monotonic() < until:
        time.sleep(0.1)
    return alive


def _members(group: int) -> list[str]:
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.info["cmdline"] or ()))
        except ProcessLookupError:
            continue
    return found


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def digest_tree(output: Path) -> dict[str, str]:
    """Name -> sha256 of every file of corpus/ and audit/."""
    files = [p for folder in ("corpus", "audit") for p in (output / folder).rglob("*") if p.is_file()]
    return {str(p.relative_to(output)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(files)}


def kinds_of_rows(output: Path) -> Counter[str]:
    """How many rows are kept, quarantined, or rejected, those by duplicates and balance counted apart."""
    rows = pq.read_table(output / "audit", columns=["decision", "stage"]).to_pylist()
    apart = ("exact_duplicates", "near_duplicates", "balance_languages")
    return Counter(r["stage"] if r["stage"] in apart else r["decision"] for r in rows)


def committed(output: Path) -> Chunks:
    """Chunks that have a receipt."""
    receipts = [json.loads(p.read_bytes()) for p in (output / "receipts").rglob("*.json")]
    return {(r["unit"], r["chunk"]) for r in receipts}


LATER = {
    "annotated": ("decide", "emit", "corpus", "audit", "report", "manifest.json", "_SUCCESS"),
    "decided": ("emit", "corpus", "audit", "report", "manifest.json", "_SUCCESS"),
    "finished": (),
}
"""What an output does not hold yet when it is this far."""


def as_far_as(stand: str, reference: Path, output: Path) -> None:
    """Make an output as it was at this point of the reference run (objects are never written in place)."""
    left_out = LATER[stand]

    def ignore(folder: str, names: list[str]) -> list[str]:
        return [n for n in names if n in left_out] if folder == str(reference) else []

    shutil.copytree(reference, output, ignore=ignore, copy_function=os.link)


MATERIALS = {"sample": sample_material, "real": real_material}


@dataclass(frozen=True)
class Reference:
    """The run to which all others are compared: one worker, inputs in order."""

    material: Material
    output: Path
    ended: Ended
    digests: Mapping[str, str]


def reference(factory: pytest.TempPathFactory, name: str) -> Reference:
    """The reference run of a material; the first caller of a test session makes it."""
    with _MAKING:
        if name not in _REFERENCES:
            folder = factory.mktemp(name)
            material = MATERIALS[name](folder / "in")
            ended = run(material, folder / "out")
            assert ended.status == 0, ended.errors
            _REFERENCES[name] = Reference(material, folder / "out", ended, digest_tree(folder / "out"))
        return _REFERENCES[name]


_MAKING = threading.Lock()
_REFERENCES: dict[str, Reference] = {}


def played(request: pytest.FixtureRequest, play: Callable[[Any], T]) -> Iterator[dict[Any, Future[T]]]:
    """Play the cases of a module's chosen tests, two at a time; each test waits for its own."""
    chosen = [
        item.callspec.params["case"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and "case" in getattr(item, "callspec", _NO_CASE).params
    ]
    with ThreadPoolExecutor(2) as pool:
        try:
            yield {case: pool.submit(play, case) for case in dict.fromkeys(chosen)}
        finally:
            pool.shutdown(cancel_futures=True)


_NO_CASE = SimpleNamespace(params={})
