"""Runs that are killed, stopped or find the disk full: the same command goes on to the same bytes."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.runs import (
    DEATH_LIMIT_SECONDS,
    Chunks,
    Ended,
    Fault,
    Reference,
    as_far_as,
    committed,
    digest_tree,
    played,
    reference,
    run,
)

KILLED = -9
FAILED = 1
IN_THE_LARGEST_GZIP = "^receipts/<largest gzip>/"


@dataclass(frozen=True)
class Case:
    """A fault in a run that begins as far as `stand` (empty: from the start)."""

    name: str
    fault: Fault
    material: str = "real"
    workers: int = 1
    stand: str = ""
    settings: tuple[str, ...] = ()


def _by_victim(
    name: str, stand: str, pattern: str, nth: int, moment: str = "before", workers: int = 1
) -> list[Case]:
    """The same point with the process group, the driver alone and one worker alone killed."""
    return [
        Case(f"{name}-group", Fault(pattern, "kill group", nth, moment), workers=workers, stand=stand),
        Case(f"{name}-driver", Fault(pattern, "kill driver", nth, moment), workers=2, stand=stand),
        Case(f"{name}-worker", Fault(pattern, "kill self", nth, moment), workers=2, stand=stand),
    ]


def _seeded() -> list[Case]:
    """Eight points anywhere in the run, by a share of all its commits."""
    draw = random.Random(20)
    actions = ["kill group", "kill driver", "kill group", "kill self"]
    shares = [draw.random() for _ in range(8)]
    return [
        Case(f"seeded-{i}", Fault(f"share {share:.4f}", actions[i % 4]), workers=1 + i % 2)
        for i, share in enumerate(shares)
    ]


DRIVER = "kill driver"
FAST = [
    Case("in-a-large-gzip", Fault(IN_THE_LARGEST_GZIP, "kill group"), material="sample"),
    Case("worker", Fault("^text/", "kill self", 60), material="sample", workers=2),
]
SLOW = [
    *_by_victim("in-a-write", "", "^text/", 100, workers=2),
    *_by_victim("between-data-and-receipt", "", "^receipts/", 120),
    *_by_victim("between-receipts-and-manifest", "", "^units/", 5),
    *_by_victim("within-a-step-of-decide", "annotated", r"^decide/\w+/near/", 2),
    Case("before-a-step-is-marked", Fault(r"/near\.done$", DRIVER), stand="annotated"),
    Case("after-a-step-is-marked", Fault(r"/near\.done$", DRIVER, moment="after"), stand="annotated"),
    *_by_victim("between-shards", "decided", "^corpus/", 2, "after"),
    Case("after-an-audit", Fault("^audit/", "kill self", 9, "after"), workers=2, stand="decided"),
    Case("before-the-manifest", Fault(r"^manifest\.json$", DRIVER), stand="decided"),
    Case("before-the-success-mark", Fault("^_SUCCESS$", DRIVER), stand="decided"),
    Case(
        "deciding-again", Fault("^corpus/", "kill group", 2, "after"), stand="finished",
        settings=("balance_languages.alpha=0.9",),
    ),
    Case("in-a-large-gzip-of-real-text", Fault(IN_THE_LARGEST_GZIP, "kill group")),
    Case("worker-that-starts", Fault("worker start", "kill self"), material="sample", workers=2),
    Case("driver-when-workers-start", Fault("worker start", DRIVER), material="sample", workers=2),
    *_seeded(),
]  # fmt: skip
STOPPED = [
    Case("interrupt", Fault("^text/", "interrupt driver", 60), material="sample"),
    Case("interrupt-with-workers", Fault("^text/", "interrupt driver", 60), material="sample", workers=2),
    Case("interrupt-of-all", Fault("^text/", "interrupt group", 60), material="sample", workers=2),
    Case("terminate-with-workers", Fault("^text/", "terminate driver", 60), material="sample", workers=2),
]
FULL_DISK = [
    Case("in-annotate", Fault("^annotations/", "no space", 50), material="sample"),
    Case("in-a-worker", Fault("^annotations/", "no space", 50), material="sample", workers=2),
    Case("in-a-mark", Fault(r"/near\.done$", "no space"), material="sample", stand="annotated"),
    Case("in-a-shard", Fault("^corpus/", "no space", 2), material="sample", stand="decided"),
]


@dataclass(frozen=True)
class Outcome:
    """What the fault left (chunks committed, success mark) and how the same command then ended."""

    made: Reference
    hurt: Ended
    by_driver: bool
    success: bool
    aside: int
    committed: Chunks
    resumed: Ended
    output: Path


def _fault(case: Case, made: Reference) -> Fault:
    """The fault, with what only the reference run knows: how many commits and chunks there are."""
    fault = case.fault
    if fault.name.startswith("share "):
        nth = 1 + int(float(fault.name.split()[1]) * len(made.ended.log["committed"]))
        return Fault("", fault.action, nth, fault.moment)
    if fault.name == IN_THE_LARGEST_GZIP:
        unit, chunks = _largest_gzip(made)
        return Fault(f"^receipts/{unit}/", fault.action, chunks // 2, fault.moment)
    return fault


def _largest_gzip(made: Reference) -> tuple[str, int]:
    """The unit of one gzip file with the most chunks, and how many it has."""
    lines = (made.output / "plan.jsonl").read_text("utf-8").splitlines()[1:]
    gzips = {
        unit["unit"]
        for unit in map(json.loads, lines)
        if len(unit["segments"]) == 1 and unit["segments"][0]["file"]["path"].endswith(".jsonl.gz")
    }
    chunks = Counter(unit for unit, _ in committed(made.output) if unit in gzips)
    return max(chunks.items(), key=lambda item: (item[1], item[0]))


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[Case, Future[Outcome]]]:
    """The chosen cases: a run with the fault, then the same command without it."""

    def play(case: Case) -> Outcome:
        made = reference(tmp_path_factory, case.material)
        output = tmp_path_factory.mktemp(case.name) / "out"
        if case.stand:
            as_far_as(case.stand, made.output, output)
        hurt = run(
            made.material, output, workers=case.workers, fault=_fault(case, made), settings=case.settings
        )
        success = (output / "_SUCCESS").exists()
        aside = len(list((output / ".aside").iterdir())) if (output / ".aside").exists() else 0
        chunks = committed(output)
        resumed = run(made.material, output)
        by_driver = bool(hurt.log["fired"]) and hurt.log["fired"][0].split()[1] == "driver"
        return Outcome(made, hurt, by_driver, success, aside, chunks, resumed, output)

    yield from played(request, play)


def _went_on(outcome: Outcome) -> None:
    """The same command ended well, measured only what was not committed, and gave the same bytes."""
    assert len(outcome.hurt.log["fired"]) == 1, "the fault did not happen"
    assert not outcome.success
    assert outcome.hurt.left_alive == []
    assert outcome.resumed.status == 0, outcome.resumed.errors
    assert outcome.resumed.measured == outcome.made.ended.measured - outcome.committed
    assert digest_tree(outcome.output) == outcome.made.digests
    assert not (outcome.output / ".aside").exists()


def _ids(cases: list[Case], mark: pytest.MarkDecorator | None = None) -> list[object]:
    return [pytest.param(c, id=c.name, marks=[mark] if mark else []) for c in cases]


@pytest.mark.parametrize("case", [*_ids(FAST), *_ids(SLOW, pytest.mark.slow)])
def test_a_killed_run_goes_on(case: Case, outcomes: Mapping[Case, Future[Outcome]]) -> None:
    outcome = outcomes[case].result()
    _went_on(outcome)
    if case.fault.action == "kill self" and not outcome.by_driver:
        assert outcome.hurt.status == FAILED
        assert outcome.hurt.seconds_after_fault < DEATH_LIMIT_SECONDS
        (line,) = outcome.hurt.complaints
        assert line.startswith("sluice: the run failed: ")
        assert "run the same command again" in line
    else:
        assert outcome.hurt.status == KILLED
    if not case.stand and case.fault.name.startswith("^"):
        # Half-way: some chunks need no second measurement, others do.
        assert outcome.committed
        assert outcome.resumed.measured or case.fault.name == "^units/"
    if case.fault.name == IN_THE_LARGEST_GZIP:
        unit, chunks = _largest_gzip(outcome.made)
        half = chunks // 2 - 1
        assert {index for u, index in outcome.committed if u == unit} == set(range(half))
        assert {index for u, index in outcome.resumed.measured if u == unit} == set(range(half, chunks))


@pytest.mark.slow
@pytest.mark.parametrize("case", _ids(STOPPED))
def test_a_stopped_run_says_how_to_go_on(case: Case, outcomes: Mapping[Case, Future[Outcome]]) -> None:
    outcome = outcomes[case].result()
    _went_on(outcome)
    assert outcome.hurt.status == FAILED
    assert outcome.hurt.seconds_after_fault < DEATH_LIMIT_SECONDS
    assert outcome.hurt.complaints == ["sluice: interrupted; run the same command again to go on"]


@pytest.mark.slow
@pytest.mark.parametrize("case", _ids(FULL_DISK))
def test_a_full_disk_fails_the_run_in_one_line(case: Case, outcomes: Mapping[Case, Future[Outcome]]) -> None:
    outcome = outcomes[case].result()
    _went_on(outcome)
    assert outcome.hurt.status == FAILED
    (line,) = outcome.hurt.complaints
    assert line.startswith(("sluice: the run failed: OSError: ", "sluice: the run failed: [Errno"))
    assert f"No space left on device: '{outcome.output}/" in line
    assert outcome.aside == 0, "half-written files are removed where the process lives on"
