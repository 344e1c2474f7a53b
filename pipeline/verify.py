"""`sluice verify`: whether an output folder is what its recipe makes of its input, and nothing else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from pipeline.emit import SUCCESS
from pipeline.findings import Finding, Findings, printable
from pipeline.plan import Plan, read_plan
from pipeline.recipe import StageNotImportable
from pipeline.store import Store, open_store
from pipeline.verify_corpus import check_accounting, check_balance, check_duplicates, check_shards
from pipeline.verify_files import MANIFEST, Disk, audit_name, check_manifest, check_plan, check_units
from pipeline.verify_ledger import Ledger, block_keys
from pipeline.verify_rows import check_unit_rows
from pipeline.work import WorkUnit

PRINTED = 50
"""Findings that the command prints; the others are counted."""


class NoRun(Exception):
    """A folder without a finished run. Exit status 2."""


def verify(store: Store, deep: bool = False, workers: int = 1) -> list[Finding]:
    """Everything that is wrong with a finished run; empty when all holds.

    What the manifest says is compared with the files, but nothing is believed because the manifest says
    it: units are those of the plan, decisions are derived again from the audit's scores and thresholds,
    thresholds from the recipe, scores from the annotations, exact duplicates and balance from all rows,
    and the shards must hold exactly the rows that the audit keeps, with the texts that it names. `deep`
    measures and decides again from the input (see `pipeline.verify_deep`), by `workers` processes.

    Memory: the annotations of one unit, one row group of a shard, and about 130 bytes for every record of
    the run. Raises NoRun for a folder that holds no finished run.
    """
    for name in (SUCCESS, MANIFEST):
        if not store.exists(name):
            raise NoRun(f"{store.url}: holds no finished run: {name} is not there")
    found = Findings()
    disk = Disk(store)
    manifest = check_manifest(disk, found)
    plan = None if manifest is None else check_plan(store, manifest, found)
    if manifest is None or plan is None:
        return found.listed()
    works = check_units(disk, plan, manifest, found)
    _check_records(store, plan, works, manifest, found)
    if deep:
        from pipeline.verify_deep import check_again

        check_again(store, plan, works, workers, found)
    return found.listed()


def _check_records(
    store: Store, plan: Plan, works: Sequence[WorkUnit], manifest: dict[str, Any], found: Findings
) -> None:
    """Audit rows unit by unit, then what holds between records, then the shards."""
    blocks = []
    for work in works:
        try:
            blocks += [block_keys(rows) for rows in check_unit_rows(store, plan.recipe, work, found)]
        except Exception as error:  # what damaged tables make of readers and checks is no closed set
            found.add(audit_name(work.unit_id), f"cannot be read: {type(error).__name__}: {error}")
    ledger = Ledger(store, blocks)
    try:
        check_duplicates(ledger, plan.recipe, found)
        check_balance(ledger, plan.recipe, found)
    except Exception as error:  # as above
        found.add(MANIFEST, f"duplicates and balance cannot be checked: {type(error).__name__}: {error}")
    first_copies = check_shards(ledger, store, plan.recipe, found)
    check_accounting(ledger, works, first_copies, manifest.get("accounting", {}), MANIFEST, found)


def _refuse_unknown_stages(store: Store) -> None:
    """A run with a stage whose module is not here cannot be checked: that is no finding."""
    try:
        read_plan(store)
    except StageNotImportable as error:
        raise NoRun(f"{store.url} cannot be checked here: {error}") from None
    except Exception:  # whatever else is wrong with the plan is found below
        return


def verify_command(argv: Sequence[str]) -> int:
    """Run `sluice verify OUT [--deep]`: 0 all holds, 1 something is wrong, 2 no finished run there."""
    parser = argparse.ArgumentParser(
        prog="sluice verify",
        description="Check that an output folder is what its recipe makes of its input.",
        allow_abbrev=False,
    )
    parser.add_argument("output", metavar="OUT", help="the output folder of a finished run")
    parser.add_argument(
        "--deep",
        action="store_true",
        help="measure and decide again from the input, in a temporary folder (needs the room of the output)",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that measure again")
    options = parser.parse_args(list(argv))
    if options.workers < 1:
        parser.error(f"--workers {options.workers}: expected at least 1")
    try:
        _refuse_unknown_stages(open_store(options.output))
        findings = verify(open_store(options.output), options.deep, options.workers)
    except NoRun as error:
        print(f"sluice: {printable(str(error))}", file=sys.stderr)
        return 2
    for finding in findings[:PRINTED]:
        print(finding)
    if len(findings) > PRINTED:
        print(f"and {len(findings) - PRINTED} more findings")
    if findings:
        words = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
        print(f"{options.output}: {words}: the folder is not what the run wrote")
        return 1
    how = "measured and decided again from the input" if options.deep else "checked"
    print(f"{options.output}: files, decisions, shards and accounting {how}: all hold")
    return 0
