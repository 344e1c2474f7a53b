"""Faults for runs under test: Python imports this by its name where the folder is on its path.

It acts on the product from outside, by environment variables that `runs.py` sets:

- `FAULT_LOG`: a folder in which each process appends to `committed` (objects of the store, as they get their
  names), `measured` (stage and chunk, as a stage is asked), `doubled` (a bundle that was run twice), `fired`
  (the fault: time, driver or worker, name).
- `FAULT`: JSON of one fault: `name`, a regular expression of objects' names (or `worker start`); `nth`, which
  of the matching commits of all processes; `moment`, `before` the object gets its name (its bytes are on disk
  under another) or `after`; `action`, a signal (`kill`, `interrupt`, `terminate`) and its victim (`group`,
  `driver`, `self`), or `no space`.
- `FAULT_DOUBLE`: every element of a DoFn that writes is processed in two threads at once.
"""

from __future__ import annotations

import errno
import functools
import importlib.abc
import importlib.util
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LOG = os.environ.get("FAULT_LOG", "")
FAULT = json.loads(os.environ.get("FAULT", "null"))
DRIVER = int(os.environ.setdefault("FAULT_DRIVER", str(os.getpid())))
"""The first process to come here is the driver; its workers inherit the variable."""

SIGNALS = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
WRITING = {
    "pipeline.annotate": ("_CommitChunk", "_CommitUnit"),
    "pipeline.decide": ("_WriteRemoved", "_Candidates", "_Verify", "_Histogram", "_ExactCut"),
    "pipeline.decisions": ("Decisions",),
    "pipeline.emit": ("_WriteShard", "_WriteAudit"),
}
"""Every DoFn that writes, by module."""


def append(name: str, line: str) -> int:
    """Append a line to a log; returns where it ends, which is a count for lines of one byte."""
    descriptor = os.open(os.path.join(LOG, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.close(descriptor)


def fire(name: str) -> None:
    """Do what the fault says."""
    who = "driver" if os.getpid() == DRIVER else "worker"
    append("fired", f"{time.time()} {who} {name}\n")
    how, victim = FAULT["action"].split()
    if how == "no":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if victim == "group":
        os.killpg(os.getpgrp(), SIGNALS[how])
    else:
        os.kill(DRIVER if victim == "driver" else os.getpid(), SIGNALS[how])


plain_replace = os.replace


def replace(source: Any, target: Any, **options: Any) -> None:
    """os.replace, by which a local store gives an object its name."""
    folder, aside, _ = str(source).rpartition("/.aside/")
    if not aside:
        plain_replace(source, target, **options)
        return
    name = os.path.relpath(target, folder)
    due = FAULT and re.search(FAULT["name"], name) and append("seen", ".") == FAULT["nth"]
    if due and FAULT["moment"] == "before":
        fire(name)
    plain_replace(source, target, **options)
    append("committed", f"{name}\n")
    if due and FAULT["moment"] == "after":
        fire(name)


def log_measured(module: ModuleType) -> None:
    """Log the chunks that stages are asked about."""
    process = module._Measure.process

    @functools.wraps(process)
    def logged(self: Any, chunk: Any) -> Any:
        append("measured", f"{self._name} {chunk.unit} {chunk.index}\n")
        return process(self, chunk)

    module._Measure.process = logged


def double(cls: Any) -> None:
    """Make a DoFn process each element in two threads at once; both must give the same."""
    process = cls.process

    @functools.wraps(process)
    def doubled(self: Any, element: Any) -> list[Any]:
        element = held(element)
        together = threading.Barrier(2)
        outputs: list[Any] = [None, None]

        def attempt(i: int) -> None:
            together.wait()
            try:
                outputs[i] = list(process(self, element) or ())
            except BaseException as error:
                outputs[i] = error

        threads = [threading.Thread(target=attempt, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for output in outputs:
            if isinstance(output, BaseException):
                raise output
        if len(outputs[0]) != len(outputs[1]):
            raise AssertionError(f"two attempts of {cls.__name__} differ")
        append("doubled", f"{cls.__name__}\n")
        first: list[Any] = outputs[0]
        return first

    cls.process = doubled


def held(element: Any) -> Any:
    """The element with the values of its groups as lists, which two threads can read at once."""
    if not isinstance(element, tuple):
        return element
    key, values = element
    if isinstance(values, dict):
        return key, {name: list(group) for name, group in values.items()}
    return key, list(values)


class AfterImport(importlib.abc.MetaPathFinder):
    """Changes modules of the product right after they are imported, in whichever process that is."""

    def __init__(self) -> None:
        self.waiting = {"pipeline.annotate", *WRITING}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The usual specification, with a loader that changes the module; None for all other modules."""
        del path, target
        if fullname not in self.waiting:
            return None
        self.waiting.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec.loader if spec else None
        execute = loader.exec_module

        def changed(module: ModuleType) -> None:
            execute(module)
            if fullname == "pipeline.annotate":
                log_measured(module)
            if "FAULT_DOUBLE" in os.environ:
                for cls in WRITING.get(fullname, ()):
                    double(getattr(module, cls))

        loader.exec_module = changed
        return spec


if LOG:
    os.replace = replace  # type: ignore[assignment]
    sys.meta_path.insert(0, AfterImport())
    starts = FAULT and FAULT["name"] == "worker start" and "pipeline.worker" in sys.orig_argv
    if starts and append("seen", ".") == FAULT["nth"]:
        fire("worker start")
