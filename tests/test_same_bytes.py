"""The same bytes of corpus/ and audit/, whatever the workers, the order, the hash seed and the passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.runs import Ended, digest_tree, kinds_of_rows, played, reference, run

KINDS = {"kept", "rejected", "quarantined", "exact_duplicates", "near_duplicates", "balance_languages"}
DOUBLED_AT_ONCE = "every-bundle-twice-at-once"
MANY_PASSES = "many-passes-and-partitions"
DOUBLED = {
    "_CommitChunk", "_CommitUnit", "_WriteRemoved", "_Candidates", "_Verify", "_Histogram", "_ExactCut",
    "Decisions",
    "_WriteShard", "_WriteAudit",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A way to run a material other than that of the reference."""

    material: str
    way: str
    workers: int = 1
    otherwise: bool = False
    small_passes: bool = False
    environment: tuple[tuple[str, str], ...] = ()


def _cases(material: str) -> list[Case]:
    return [
        Case(material, "two-workers", workers=2),
        Case(material, "inputs-in-another-order", otherwise=True),
        Case(material, "another-hash-seed", environment=(("PYTHONHASHSEED", "4242"),)),
        Case(material, DOUBLED_AT_ONCE, environment=(("FAULT_DOUBLE", "1"),)),
    ]


SLOW = pytest.mark.slow
SLOW_CASES = [*_cases("real"), Case("real", MANY_PASSES, small_passes=True)]
CASES = [
    *(pytest.param(c, id=f"{c.material}-{c.way}") for c in _cases("sample")),
    *(pytest.param(c, id=f"{c.material}-{c.way}", marks=SLOW) for c in SLOW_CASES),
]


@dataclass(frozen=True)
class Outcome:
    """What a case gave."""

    ended: Ended
    output: Path


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[Case, Future[Outcome]]]:
    """The runs of the chosen cases."""

    def play(case: Case) -> Outcome:
        material = reference(tmp_path_factory, case.material).material
        output = tmp_path_factory.mktemp(case.way) / "out"
        ended = run(
            material, output, workers=case.workers, environment=dict(case.environment),
            inputs=material.named_otherwise if case.otherwise else None,
            settings=material.small_passes if case.small_passes else (),
        )  # fmt: skip
        return Outcome(ended, output)

    yield from played(request, play)


@pytest.mark.parametrize("material", ["sample", pytest.param("real", marks=SLOW)])
def test_the_reference_has_rows_of_every_kind(
    material: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = reference(tmp_path_factory, material)
    kinds = kinds_of_rows(made.output)
    assert {k for k, n in kinds.items() if n} == KINDS
    assert len({name.split("/")[1] for name in made.digests if name.startswith("corpus/")}) >= 4
    assert len(made.ended.measured) > 100


@pytest.mark.parametrize("case", CASES)
def test_another_way_gives_the_same_bytes(
    case: Case, outcomes: Mapping[Case, Future[Outcome]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    outcome = outcomes[case].result()
    assert outcome.ended.status == 0, outcome.ended.errors
    assert outcome.ended.complaints == []
    assert outcome.ended.left_alive == []
    assert digest_tree(outcome.output) == reference(tmp_path_factory, case.material).digests
    assert not (outcome.output / ".aside").exists()
    if case.way == DOUBLED_AT_ONCE:
        assert set(outcome.ended.log["doubled"]) == DOUBLED
    if case.way == MANY_PASSES:
        marks = [n.split("/")[-1] for n in outcome.ended.log["committed"] if n.endswith(".done")]
        steps = Counter(mark.split("-")[0] for mark in marks if "-of-" in mark)
        assert steps["exact"] > 1
        assert steps["pairs"] > 2
