"""Entry of a local worker process: Beam's own worker, which ends when its driver does."""

from __future__ import annotations

import logging
import os
import threading
import time


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Run one Beam SDK worker; its driver is the process that started it."""
    logging.disable(logging.WARNING)
    from apache_beam.runners.worker import sdk_worker_main

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    sdk_worker_main.main([])


if __name__ == "__main__":
    main()
