"""A whole run: plan, annotate, decide, emit, account; and deciding again."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pipeline.annotate import annotate
from pipeline.compression import local_url
from pipeline.decide import Corpus, decide, survey
from pipeline.decisions import audit_work_name
from pipeline.emit import SUCCESS, account, emit, finish
from pipeline.engine import Engine
from pipeline.inputs import InputError
from pipeline.plan import PLAN, Plan, make_plan, read_plan, write_plan
from pipeline.progress import Progress
from pipeline.recipe import Recipe, RecipeError, load_recipe
from pipeline.redecide import changed, print_changes
from pipeline.report import JSON_NAME, write_report
from pipeline.store import Store, open_store

BYTES_PER_WORKER = 8 << 20
"""Input of less than this is not worth another worker process."""


class RunFailed(RuntimeError):
    """A run that ended without the success mark. Exit status 1."""


def checked_recipe(recipe: str, settings: Sequence[str], only: str | None) -> Recipe:
    """Load and check a recipe, and the models that its stages need, before anything starts."""
    checked = load_recipe(recipe, settings=settings, only=only)
    for stage in checked.measured:
        if hasattr(stage, "load"):
            stage.load()
    return checked


def engine_of(runner: str, workers: int | None, options: Sequence[str], input_bytes: int) -> Engine:
    """The engine asked for; by default one local process a core, fewer where the input is small."""
    if workers is None:
        workers = max(1, min(os.cpu_count() or 1, input_bytes // BYTES_PER_WORKER))
    return Engine(runner, workers, tuple(options))


def run(
    recipe: Recipe,
    inputs: Sequence[str],
    output: str,
    *,
    phase: str | None = None,
    runner: str = "DirectRunner",
    workers: int | None = None,
    options: Sequence[str] = (),
    strict: bool = False,
    command: Sequence[str] = (),
) -> int:
    """Run all phases, or one; a phase alone reads the plan that `plan` wrote. Returns the exit status."""
    _refuse_inside(output, inputs)
    store = open_store(output)
    if phase in (None, "plan"):
        plan = make_plan(inputs, recipe)
        _refuse_own_output(plan, output)
    else:
        plan = _planned(store, output)
        if plan.recipe.annotate_digest != recipe.annotate_digest:
            raise RecipeError(
                f"{output}: planned with other annotate settings; run --phase plan again with this recipe"
            )
        if inputs and make_plan(inputs, recipe).digest != plan.digest:
            raise InputError(f"--input: not what {output} was planned for; run --phase plan again")
        plan = Plan(recipe, plan.units, plan.digest)
    _refuse_unwritable(output)
    if not _same_plan(store, plan):
        store.delete(SUCCESS)
        write_plan(store, plan)
    engine = engine_of(runner, workers, options, plan.bytes)
    if phase in (None, "annotate"):
        with _progress(store, plan, "annotate"):
            annotate(store, plan, engine)
    if phase in ("plan", "annotate"):
        return 0
    with _progress(store, plan, "decide"):
        corpus = decide(store, plan, engine)
    if phase == "decide":
        return 0
    return _emit(store, output, plan, corpus, engine, strict, command)


def _refuse_inside(output: str, inputs: Sequence[str]) -> None:
    """An output folder that lies in an input folder would be read as input by the next run."""
    if "://" in output:
        return
    real = os.path.realpath(output)
    for path in inputs:
        if os.path.isdir(path) and f"{real}/".startswith(f"{os.path.realpath(path)}/"):
            raise InputError(f"--output {output} lies in the input folder {path}: name one outside of it")


def _refuse_unwritable(output: str) -> None:
    """An output folder that cannot be written is wrong use, known before anything is measured."""
    if "://" in output:
        return
    try:
        os.makedirs(output, exist_ok=True)
        tempfile.TemporaryFile(dir=output).close()
    except OSError as error:
        raise InputError(f"--output {output}: cannot be written: {error.strerror or error}") from None


def _refuse_own_output(plan: Plan, output: str) -> None:
    """An input in the output folder would be read as input, and as a stale file of the output deleted."""
    top = output.rstrip("/") if "://" in output else local_url(os.path.realpath(output))
    for unit in plan.units:
        for segment in unit.segments:
            if segment.file.url.startswith(f"{top}/"):
                raise InputError(
                    f"{segment.file.url} lies in the output folder {output}: "
                    "name another output, or leave the file out (input.exclude)"
                )


def _same_plan(store: Store, plan: Plan) -> bool:
    try:
        before = read_plan(store)
    except (FileNotFoundError, ImportError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return before.digest == plan.digest and before.recipe.to_json() == plan.recipe.to_json()


def _planned(store: Store, output: str) -> Plan:
    try:
        return read_plan(store)
    except FileNotFoundError:
        raise RecipeError(f"{output}: no {PLAN} there; run --phase plan first, or a whole run") from None
    except (ImportError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecipeError(f"{output}: its {PLAN} cannot be used here: {error!r}") from None


def _progress(store: Store, plan: Plan, phase: str) -> AbstractContextManager[Any]:
    return Progress(store, plan, phase) if sys.stderr is not None else nullcontext()


def _emit(
    store: Store,
    output: str,
    plan: Plan,
    corpus: Corpus,
    engine: Engine,
    strict: bool,
    command: Sequence[str],
) -> int:
    with _progress(store, plan, "emit"):
        entries = emit(store, plan, corpus, engine)
    accounting = account(store, plan, entries)
    report_files = write_report(store, plan, corpus.key, accounting, list(command))
    if strict and accounting["quarantined"]:
        raise RunFailed(
            f"--strict: {accounting['quarantined']} records are quarantined: {_quarantine_reasons(store)}; "
            "see quarantine/ in the output"
        )
    finish(store, plan, corpus, entries, accounting, report_files)
    shards = sum(e["name"].startswith("corpus/") for e in entries)
    print(
        f"{accounting['records']} records: {accounting['kept']} kept, {accounting['rejected']} rejected, "
        f"{accounting['quarantined']} quarantined; {shards} shard{'' if shards == 1 else 's'} in {output}"
    )
    if accounting["quarantined"]:
        print(f"quarantined: {_quarantine_reasons(store)}; see quarantine/")
    if accounting["quarantined"] and not accounting["kept"] + accounting["rejected"]:
        print("nothing could be read: does input.text name the field that holds the text?")
    return 0


def _quarantine_reasons(store: Store) -> str:
    """The reasons of quarantined records with their numbers, most first, from the report."""
    told = json.loads(store.get(JSON_NAME))["quarantined"]
    counts = [(row["reason"], row["documents"]) for row in told if row["documents"]]
    words = ", ".join(f"{n} {reason}" for reason, n in sorted(counts, key=lambda c: (-c[1], c[0])))
    return words


def decide_again(
    output: str,
    settings: Sequence[str],
    only: str | None,
    *,
    dry_run: bool,
    runner: str,
    workers: int | None,
    options: Sequence[str],
    command: Sequence[str] = (),
) -> int:
    """Decide with other decide keys from the stored scores, then emit; or say what would change."""
    store = open_store(output)
    plan = _planned(store, output)
    recipe = changed(plan.recipe, settings, only)
    if recipe.annotate_digest != plan.recipe.annotate_digest:
        raise RecipeError(f"{output}: these settings need other measurements; run the recipe again instead")
    again = Plan(recipe, plan.units, plan.digest)
    engine = engine_of(runner, workers, options, plan.bytes)
    if dry_run:
        before = survey(store, plan)
        if not all(store.exists(audit_work_name(before.key, u.unit_id)) for u in plan.units):
            raise RecipeError(
                f"{output}: nothing is decided there yet to compare with; run --phase decide first"
            )
        after = decide(store, again, engine)
        print_changes(store, plan, before.key, after.key)
        return 0
    store.delete(SUCCESS)
    write_plan(store, again)
    with _progress(store, again, "decide"):
        corpus = decide(store, again, engine)
    return _emit(store, output, again, corpus, engine, False, command)
