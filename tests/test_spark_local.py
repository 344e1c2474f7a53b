"""The sample run from the installed wheel on Beam's Spark job server, compared with the embedded runner."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent / "engines"))
import spark_local

pytestmark = [pytest.mark.slow, pytest.mark.spark]

REPOSITORY = Path(__file__).parents[1]
SAMPLE = REPOSITORY / "sample_data" / "corpus"
RUN_LIMIT_SECONDS = 600
# Without it the Spark runner starts new workers for each stage of a job (38 against 8 in four small jobs);
# with it they outlive their job by this long.
ENVIRONMENT_CACHE_MILLISECONDS = 10_000


@dataclass(frozen=True)
class Spark:
    """A running job server, a pool of workers that have the wheel, and the folder with their logs."""

    endpoint: str
    pool: str
    work: Path

    def logs(self) -> str:
        """Return the ends of both logs."""
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in sorted(self.work.glob("*.log")))


def clean_environment() -> dict[str, str]:
    """Return this process's environment without Python's own variables, PYTHONPATH among them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def package_names() -> list[str]:
    """Return the packages that the wheel must hold."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    names: list[str] = settings["tool"]["setuptools"]["packages"]
    return names


@pytest.fixture(scope="module")
def wheel_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that has the project's wheel and borrows the locked packages."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"  # a copy: setuptools would pack what an earlier build left in the tree's build/
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in package_names():
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", work, source], check=True
    )
    (wheel,) = work.glob("*.whl")
    venv.create(work / "venv", symlinks=True)
    python = work / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    # Written last, so that pip does not see the editable installation of the project. A folder named in a
    # .pth file comes after the environment's own, and .pth files in it, the editable one's too, are not read.
    (site_packages,) = (work / "venv" / "lib").glob("python*/site-packages")
    (site_packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture(scope="module")
def spark(wheel_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Run the job server and a pool of workers that have the wheel."""
    work = tmp_path_factory.mktemp("spark")
    with (
        spark_local.spark_job_server(work) as endpoint,
        spark_local.worker_pool(wheel_python, work) as pool,
    ):
        yield Spark(endpoint, pool, work)


@pytest.fixture(scope="module")
def embedded(wheel_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the digests of the sample run on the embedded runner."""
    output = tmp_path_factory.mktemp("embedded") / "sample"
    done = run_sample(wheel_python, str(output), output.parent, "--runner", "DirectRunner")
    assert done.returncode == 0, done.stdout[-4000:]
    return digests(output)


def run_sample(python: Path, output: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the sample recipe with the installed command, from a folder outside the tree."""
    sluice = str(python.with_name("sluice"))
    command = [sluice, "run", "sample", "--input", str(SAMPLE), "--output", output, *options]
    return subprocess.run(
        command, cwd=folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=RUN_LIMIT_SECONDS, check=False,
    )  # fmt: skip


def digests(output: Path) -> dict[str, str]:
    """Return the sha256 of every file under corpus/ and audit/ of a finished run, by relative path."""
    assert (output / "_SUCCESS").is_file()
    found: dict[str, str] = {}
    for name in ("corpus", "audit"):
        files = sorted(path for path in (output / name).rglob("*") if path.is_file())
        assert files, f"no file under {name}/"
        for path in files:
            found[str(path.relative_to(output))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_packages_come_from_the_wheel(wheel_python: Path, tmp_path: Path) -> None:
    names = package_names()
    program = f"import json; print(json.dumps([__import__(name).__file__ for name in {names}]))"
    shown = subprocess.run(
        [wheel_python, "-c", program], cwd=tmp_path, env=clean_environment(), capture_output=True, check=True
    )
    (site_packages,) = wheel_python.parents[1].glob("lib/python*/site-packages")
    assert json.loads(shown.stdout) == [str(site_packages / name / "__init__.py") for name in names]


@pytest.mark.parametrize(
    ("environment", "scheme"),
    [
        pytest.param("EXTERNAL", "", id="worker processes, local store"),
        pytest.param("LOOPBACK", "file://", id="workers in the driver, fsspec store"),
    ],
)
def test_spark_writes_the_embedded_runners_bytes(
    wheel_python: Path, embedded: dict[str, str], spark: Spark, tmp_path: Path, environment: str, scheme: str
) -> None:
    output = tmp_path / "sample"
    options = [
        "--runner", "PortableRunner", f"--job_endpoint={spark.endpoint}", f"--environment_type={environment}",
        f"--environment_cache_millis={ENVIRONMENT_CACHE_MILLISECONDS}",
    ]  # fmt: skip
    if environment == "EXTERNAL":
        options += [f"--environment_config={spark.pool}", "--sdk_worker_parallelism=2"]
    before = spark_local.job_states(spark.endpoint)
    done = run_sample(wheel_python, f"{scheme}{output}", tmp_path, *options)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{spark.logs()}"
    assert digests(output) == embedded
    # The jobs were the server's own: annotate, decide and emit are one each at least.
    states = spark_local.job_states(spark.endpoint)
    assert len(states.keys() - before.keys()) >= 3
    assert set(states.values()) == {"DONE"}


def has_ended(process: psutil.Process) -> bool:
    """Say whether a process is gone; one that nobody has waited for yet is."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_no_process_is_left_after_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (  # noqa: PT012 - what is raised inside is the case
        pytest.raises(ZeroDivisionError),
        spark_local.process(["sh", "-c", "sleep 600 & echo $!; wait"], log, tmp_path, os.environ) as child,
    ):
        grandchild = psutil.Process(int(spark_local.wait_for(child, log, r"^(\d+)\n")))
        assert grandchild.name() == "sleep"
        raise ZeroDivisionError
    assert child.returncode is not None
    for _ in range(100):
        if has_ended(grandchild):
            break
        time.sleep(0.1)
    assert has_ended(grandchild)


def test_a_server_that_ends_early_is_reported_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        pytest.raises(spark_local.EngineError, match=r"exit 3\nno such class"),
        spark_local.process(["sh", "-c", "echo no such class; exit 3"], log, tmp_path, os.environ) as child,
    ):
        spark_local.wait_for(child, log, r"started on (\d+)")


def test_a_missing_maven_is_named_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt-get either, so that nothing is installed when root
    with pytest.raises(
        spark_local.EngineError, match=r"not found: java, mvn; install with: sudo apt-get install"
    ) as e:
        spark_local.require_commands("java", "mvn")
    assert "\n" not in str(e.value)
