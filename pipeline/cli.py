"""The command line: `sluice run RECIPE --input PATH --output DIR`, and what looks at its output.

Exit status: 0 done, 1 the run failed, 2 wrong use.
"""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, TypeVar

DONE, FAILED, WRONG_USE = 0, 1, 2
PHASES = ("plan", "annotate", "decide", "emit")

T = TypeVar("T")


class WrongUse(Exception):
    """Something the user can put right; printed as one line, exit status 2."""


class Failed(Exception):
    """A run that did not end well; printed as one line, exit status 1."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Beam logs what a user need not know; our own warnings are shown.
    logging.basicConfig(level=logging.CRITICAL, format="sluice: %(message)s")
    logging.getLogger("pipeline").setLevel(logging.WARNING)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        sys.stdout.flush()
        return DONE if arguments else WRONG_USE
    if arguments[0] in ("-V", "--version"):
        print(f"sluice {metadata.version('sluice-corpus')}")
        return DONE
    command = COMMANDS.get(arguments[0])
    if command is None:
        near = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(COMMANDS)}"
        return _complain(f"unknown command {arguments[0]!r}{hint}", WRONG_USE)
    before = _on_sigterm(_stop)
    try:
        return command[0](arguments[1:])
    except WrongUse as error:
        return _complain(str(error), WRONG_USE)
    except Failed as error:
        return _complain(f"the run failed: {error}", FAILED)
    except BrokenPipeError:
        # The reader of our output has gone (`sluice filters | head`): no more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return _complain("interrupted; run the same command again to go on", FAILED)
    finally:
        _on_sigterm(before)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _on_sigterm(handler: Any) -> Any:
    """Handle SIGTERM so from now on; returns what did before. Only a main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, handler)


def _complain(message: str, status: int) -> int:
    print(f"sluice: {message}", file=sys.stderr)
    return status


def _usage() -> str:
    lines = [f"  {name:<10} {doc}" for name, (_, doc) in COMMANDS.items()]
    return "usage: sluice COMMAND ...\n\ncommands:\n" + "\n".join(lines)


def _run(argv: Sequence[str]) -> int:
    """Plan, annotate, decide and emit."""
    parser = argparse.ArgumentParser(prog="sluice run", description="Clean a corpus.", allow_abbrev=False)
    parser.add_argument("recipe", help="a recipe file, or the name of a shipped one")
    parser.add_argument("--input", nargs="+", metavar="PATH", help="files, folders, globs or URLs")
    parser.add_argument("--output", required=True, metavar="DIR", help="output folder or URL")
    parser.add_argument("--only", metavar="STAGE,...", help="only these stages may edit or reject")
    parser.add_argument("--phase", choices=PHASES, help="run one phase")
    parser.add_argument(
        "--sample", type=float, metavar="RATE", help="read this share of records, by keyed hash"
    )
    parser.add_argument("--strict", action="store_true", help="a quarantined record fails the run")
    _common(parser)
    options, rest = parser.parse_known_args(list(argv))
    engine_options = _engine_options(parser, options, rest)
    settings = list(options.set)
    if options.sample is not None:
        if not 0.0 < options.sample <= 1.0:
            raise WrongUse(f"--sample {options.sample}: expected a rate above 0, at most 1")
        settings.append(f"run.sample_rate={float(options.sample)}")
    if not options.input and options.phase in (None, "plan"):
        raise WrongUse("--input: name at least one file, folder, glob or URL")
    from pipeline import flow

    recipe = _guarded(lambda: flow.checked_recipe(options.recipe, settings, options.only))
    return _guarded(
        lambda: flow.run(
            recipe,
            options.input or [],
            options.output,
            phase=options.phase,
            runner=options.runner,
            workers=options.workers,
            options=engine_options,
            strict=options.strict,
            command=["sluice", "run", *argv],
        )
    )


def _decide(argv: Sequence[str]) -> int:
    """Decide again from stored scores, and emit."""
    parser = argparse.ArgumentParser(
        prog="sluice decide", description="Decide again from stored scores.", allow_abbrev=False
    )
    parser.add_argument("output", metavar="OUT", help="the output folder of a run")
    parser.add_argument("--only", metavar="STAGE,...", help="only these stages may reject")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, write no decision")
    _common(parser)
    options, rest = parser.parse_known_args(list(argv))
    engine_options = _engine_options(parser, options, rest)
    from pipeline import flow

    return _guarded(
        lambda: flow.decide_again(
            options.output,
            options.set,
            options.only,
            dry_run=options.dry_run,
            runner=options.runner,
            workers=options.workers,
            options=engine_options,
            command=["sluice", "decide", *argv],
        )
    )


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="STAGE.KEY=VALUE", help="override a recipe key"
    )
    parser.add_argument("--runner", default="DirectRunner", help="a Beam runner; its options pass through")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="local worker processes (default: one a core)"
    )


def _engine_options(
    parser: argparse.ArgumentParser, options: argparse.Namespace, rest: Sequence[str]
) -> tuple[str, ...]:
    if options.workers is not None and options.workers < 1:
        raise WrongUse(f"--workers {options.workers}: expected at least 1")
    if rest and options.runner in ("DirectRunner", "FnApiRunner"):
        known = [s for action in parser._actions for s in action.option_strings]
        near = difflib.get_close_matches(rest[0].split("=")[0], known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise WrongUse(f"unknown argument {rest[0]}{hint}")
    return tuple(rest)


def _guarded(action: Callable[[], T]) -> T:
    """Run an action; what it is known to raise becomes WrongUse or Failed."""
    from classifiers.registry import ModelError
    from pipeline.emit import AccountingError
    from pipeline.engine import JobFailed
    from pipeline.flow import RunFailed
    from pipeline.inputs import InputError
    from pipeline.recipe import RecipeError
    from pipeline.work import NotAnnotated

    try:
        return action()
    except (RecipeError, InputError, ModelError, NotAnnotated) as error:
        raise WrongUse(str(error)) from None
    except BrokenPipeError:
        raise
    except (JobFailed, AccountingError, RunFailed, OSError) as error:
        if os.environ.get("SLUICE_TRACEBACK"):
            raise
        raise Failed(str(error)) from error


def _filters(argv: Sequence[str]) -> int:
    """Print the catalogue."""
    parser = argparse.ArgumentParser(prog="sluice filters", description="The catalogue of stages.")
    parser.add_argument("stage", nargs="?", help="one stage only")
    options = parser.parse_args(list(argv))
    from pipeline.catalogue import CATALOGUE
    from pipeline.catalogue_text import catalogue_text

    if options.stage and options.stage not in CATALOGUE:
        near = difflib.get_close_matches(options.stage, CATALOGUE, n=1)
        raise WrongUse(f"unknown stage {options.stage!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    print(catalogue_text([options.stage] if options.stage else list(CATALOGUE)), end="")
    return DONE


def _models(argv: Sequence[str]) -> int:
    """List, verify or fetch models."""
    from classifiers.registry import models_command

    return models_command(list(argv))


def _verify(argv: Sequence[str]) -> int:
    """Check an output folder."""
    from pipeline.verify import verify_command

    return _guarded(lambda: verify_command(list(argv)))


def _explain(argv: Sequence[str]) -> int:
    """Print the trail of one document."""
    from pipeline.explain import explain_command

    return _guarded(lambda: explain_command(list(argv)))


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "run": (_run, "clean a corpus: plan, annotate, decide, emit"),
    "decide": (_decide, "decide again from stored scores, without touching a text"),
    "explain": (_explain, "print why a document was kept, refused or quarantined"),
    "verify": (_verify, "check an output folder; --deep measures again from the input"),
    "filters": (_filters, "print the catalogue of stages with defaults and sources"),
    "models": (_models, "list, verify or fetch the models that stages need"),
}
"""Command -> (function, one line)."""

if __name__ == "__main__":
    sys.exit(main())
