"""Beam's external worker pool on the loopback address, at a port that the system chooses.

`apache_beam.runners.worker.worker_pool_main` takes a fixed port on every interface of the machine, and leaves
its workers behind when it is terminated.
"""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer


def stop(number: int, frame: FrameType | None) -> None:
    """Turn a termination signal into an ordinary exit, so that the workers are ended too."""
    sys.exit(0)


def main() -> None:
    """Print the address, then serve until terminated; each worker is a process of its own."""
    signal.signal(signal.SIGTERM, stop)
    pool = BeamFnExternalWorkerPoolServicer(use_process=True)
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    add_to_server: Any = beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server  # untyped
    add_to_server(pool, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    try:
        while True:
            signal.pause()
    finally:
        for worker in list(pool._worker_processes.values()):
            worker.terminate()
        server.stop(0)


if __name__ == "__main__":
    main()
