"""Running a Beam job: the embedded runner with watched worker processes, or any other runner by name."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import grpc
import psutil
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import environments

EMBEDDED = ("DirectRunner", "FnApiRunner")
"""Names of the embedded runner: DirectRunner itself may try to download another runner first."""


class JobFailed(RuntimeError):
    """A Beam job that did not end well. Exit status 1."""


@dataclass(frozen=True)
class Engine:
    """Where jobs run: the runner's name, the number of local worker processes, options passed to Beam."""

    runner: str = "DirectRunner"
    workers: int = 1
    options: tuple[str, ...] = ()

    @property
    def embedded(self) -> bool:
        """Whether jobs run in this process and its own workers."""
        return self.runner in EMBEDDED

    def run(self, build: Callable[[beam.Pipeline], object]) -> None:
        """Build a pipeline and run it to its end; raises JobFailed with the first cause."""
        watch = _Watch()
        try:
            pipeline = self._embedded() if self.embedded else self._remote()
            build(pipeline)
            with watch:
                result = pipeline.run()
                state = result.wait_until_finish()
        except JobFailed:
            raise
        except Exception as error:
            if watch.interrupted:
                raise KeyboardInterrupt from None
            raise JobFailed(_cause(error)) from error
        if state != beam.runners.runner.PipelineState.DONE:
            raise JobFailed(f"the job ended in state {state}")

    def _embedded(self) -> beam.Pipeline:
        if self.workers == 1:
            return beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--direct_num_workers=1"]))
        command = f"exec {shlex.quote(sys.executable)} -m pipeline.worker {os.getpid()}"
        environment = environments.SubprocessSDKEnvironment.from_command_string(command_string=command)
        options = PipelineOptions([f"--direct_num_workers={self.workers}"])
        return beam.Pipeline(runner=FnApiRunner(default_environment=environment), options=options)

    def _remote(self) -> beam.Pipeline:
        return beam.Pipeline(options=PipelineOptions([f"--runner={self.runner}", *self.options]))


def _cause(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].removeprefix("RuntimeError: ") if lines else repr(error)


class _Watch:
    """Ends this process with status 1 when a worker process dies: the embedded runner would wait for ever.

    The runner waits for each worker in a thread of its own, which raises when the exit status is not 0. Its
    threads that read from a dead worker raise too, a moment before or after: what they say adds nothing.
    An interrupt ends the workers first, for which the runner would wait as well.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self._excepthook = threading.excepthook
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        threading.excepthook = self._on_error
        if threading.current_thread() is threading.main_thread():
            stops = (signal.SIGINT, signal.SIGTERM)
            self._handlers = {s: signal.signal(s, self._on_interrupt) for s in stops}

    def __exit__(self, *_: object) -> None:
        if not self.interrupted:
            threading.excepthook = self._excepthook
        for stop, handler in self._handlers.items():
            signal.signal(stop, handler)

    def _on_interrupt(self, *_: object) -> None:
        self.interrupted = True
        threading.excepthook = lambda _: None  # threads that lose their worker have nothing to add
        _kill_children()
        raise KeyboardInterrupt

    def _on_error(self, args: threading.ExceptHookArgs) -> None:
        if args.thread is None or args.thread.name != "run_worker":
            if not isinstance(args.exc_value, grpc.RpcError):
                self._excepthook(args)
            return
        if self.interrupted:
            return
        print(
            f"\nsluice: the run failed: {str(args.exc_value).lower()}; what is committed stays: "
            "run the same command again to go on",
            file=sys.stderr,
            flush=True,
        )
        _kill_children()
        os._exit(1)


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
