"""Entry of a local worker process: Beam's own worker, which ends when its driver does."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time


def _end_with(driver: int) -> None:
    while os.getppid() == driver:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Run one Beam SDK worker; the argument is the process id of its driver, which may be dead already."""
    # A terminal sends Ctrl-C, and a scheduler its SIGTERM, to the whole group: the driver ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    asked = "SLUICE_TRACEBACK" in os.environ
    logging.disable(logging.WARNING if asked else logging.ERROR)
    from apache_beam.runners.worker import sdk_worker, sdk_worker_main

    if not asked:
        # The traceback of a failed bundle is logged, printed and sent to the driver, whose line is enough.
        sdk_worker.print = lambda *_, **__: None
    sdk_worker_main.main([])


if __name__ == "__main__":
    main()
