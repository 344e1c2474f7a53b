"""Beam's Spark job server with a local master and a pool of Python workers, for tests of the portable runner.

`python tests/engines/spark_local.py` only sets up: it fetches the jars into `.cache/engines`, ignored by git.
"""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

ENGINES = Path(__file__).resolve().parent
CACHE = ENGINES.parents[1] / ".cache" / "engines"
SPARK_LOCK = ENGINES / "requirements-spark.lock"
POM = ENGINES / "pom.xml"
SYSTEM_PACKAGES = ("maven", "default-jre-headless")

SET_UP_LIMIT_SECONDS = 1200
START_LIMIT_SECONDS = 90
STOP_LIMIT_SECONDS = 10

# The packages that Spark 3.5 opens by reflection, closed by default since Java 16.
OPENED_JAVA_PACKAGES = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip


class EngineError(RuntimeError):
    """The engine could not be set up or did not start; the message says what to do."""


def set_up() -> Path:
    """Return the folder that holds `beam/*.jar` and `pyspark/`, fetching both when it is absent.

    The folder is named by the digest of the two files that pin its content and appears only when complete.
    Raises EngineError where Maven or Java is missing and cannot be installed, or where a fetch fails.
    """
    digest = hashlib.sha256(POM.read_bytes() + SPARK_LOCK.read_bytes()).hexdigest()[:12]
    home = CACHE / f"spark-{digest}"
    if home.is_dir():
        require_commands("java")
        return home
    require_commands("java", "mvn")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="partial-", dir=CACHE) as partial:
        new = Path(partial) / "home"
        fetch([
            "mvn", "--batch-mode", "--quiet", "--strict-checksums", "--file", str(POM),
            "dependency:copy-dependencies", f"-DoutputDirectory={new / 'beam'}",
        ])  # fmt: skip
        fetch([
            sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps",
            "--no-compile", "--no-build-isolation", "--target", str(new), "--requirement", str(SPARK_LOCK),
        ])  # fmt: skip
        try:
            new.rename(home)
        except OSError:
            if not home.is_dir():  # else another process was first
                raise
    return home


def require_commands(*commands: str) -> None:
    """Install the Debian packages of the commands when root; else raise EngineError with the line to type."""
    if all(shutil.which(command) for command in commands):
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *SYSTEM_PACKAGES]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        fetch(["apt-get", "update", "--quiet"])
        fetch(install)
    missing = [command for command in commands if not shutil.which(command)]
    if missing:
        raise EngineError(f"not found: {', '.join(missing)}; install with: sudo {' '.join(install)}")


def fetch(command: Sequence[str]) -> None:
    """Run one set-up command; raises EngineError with the end of its output when it fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", timeout=SET_UP_LIMIT_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise EngineError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}")


@contextlib.contextmanager
def spark_job_server(work: Path, threads: int = 2) -> Iterator[str]:
    """Run the job server until the block is left; yields its `127.0.0.1:PORT`.

    Its files go to `work/job-server`, its log to `work/job-server.log`; it takes ports that are free.
    Beam's Java services listen on every interface of the machine, whatever host they are given.
    """
    home = set_up()
    work = work.resolve()
    scratch = work / "job-server"
    scratch.mkdir(parents=True)
    properties = {
        "java.io.tmpdir": str(scratch),
        "jdk.reflect.useDirectMethodHandle": "false",
        "log4j2.configurationFile": str(ENGINES / "log4j2.properties"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.ui.enabled": "false",
    }
    command = [
        "java", "-Xmx1g", "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_JAVA_PACKAGES),
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-cp", f"{home}/beam/*:{home}/pyspark/jars/*", "org.apache.beam.runners.spark.SparkJobServerDriver",
        "--job-host=127.0.0.1", "--job-port=0", "--artifact-port=0", "--expansion-port=0",
        f"--artifacts-dir={scratch}/artifacts", f"--spark-master-url=local[{threads}]",
    ]  # fmt: skip
    log = work / "job-server.log"
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    with process(command, log, cwd=scratch, environment=environment) as server:
        port = wait_for(server, log, r"JobService started on \S+:(\d+)")
        endpoint = f"127.0.0.1:{port}"
        with grpc.insecure_channel(endpoint, [("grpc.enable_http_proxy", 0)]) as channel:
            grpc.channel_ready_future(channel).result(timeout=START_LIMIT_SECONDS)
        yield endpoint


@contextlib.contextmanager
def worker_pool(python: Path, work: Path) -> Iterator[str]:
    """Run a pool of Beam workers for `--environment_type=EXTERNAL` until the block is left.

    Yields its `127.0.0.1:PORT`, the `--environment_config`. The workers see what is installed for the given
    interpreter and nothing else; their folder is `work/workers`, their log `work/workers.log`.
    """
    work = work.resolve()
    scratch = work / "workers"
    scratch.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # The pool starts its workers as plain `python`.
    environment["PATH"] = f"{python.parent}:{environment['PATH']}"
    log = work / "workers.log"
    with process([str(python), str(ENGINES / "worker_pool.py")], log, scratch, environment) as pool:
        yield wait_for(pool, log, r"^(127\.0\.0\.1:\d+)$")


def job_states(endpoint: str) -> dict[str, str]:
    """Return the state, such as DONE or FAILED, of the last ten jobs of the server, by id."""
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(endpoint, [("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = beam_job_api_pb2_grpc.JobServiceStub  # generated without types
        jobs = stub(channel).GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=START_LIMIT_SECONDS).job_info
    return {job.job_id: beam_job_api_pb2.JobState.Enum.Name(job.state) for job in jobs}


@contextlib.contextmanager
def process(
    command: Sequence[str], log: Path, cwd: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a session of its own, and end that session by its id when the block is left.

    On Linux it is also told to end when this process is killed and can no longer end it.
    """
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "TERM", *command]
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(STOP_LIMIT_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def wait_for(child: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Return the first group of the pattern once the log holds it; EngineError if the process ends first."""
    deadline = time.monotonic() + START_LIMIT_SECONDS
    while time.monotonic() < deadline:
        ended = child.poll() is not None
        text = log.read_text(errors="replace")
        if match := re.search(pattern, text, re.MULTILINE):
            return match[1]
        if ended:
            break
        time.sleep(0.1)
    state = "still starting" if child.returncode is None else f"exit {child.returncode}"
    raise EngineError(f"{log.stem}: {state}\n{log.read_text(errors='replace')[-4000:]}")


if __name__ == "__main__":
    try:
        print(set_up())
    except EngineError as error:
        sys.exit(str(error))
