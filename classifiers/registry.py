"""Model files: where they come from, where they lie, and that they are the right ones."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import ipaddress
import os
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

FOLDER_VARIABLE = "SLUICE_MODELS"
"""Environment variable: a folder of model files, looked at first."""

MIRROR_VARIABLE = "SLUICE_MODELS_URL"
"""Environment variable: base address (https:// or file://) from which `fetch_model` gets files by name."""

TIMEOUT_SECONDS = 60
"""How long a server may stay silent during a download."""


class ModelError(Exception):
    """A model cannot be used; the message says why and what to do."""


class ModelMissing(ModelError):
    """A model file that a stage needs is not on this machine; the message says how to get it."""


class ModelInvalid(ModelError):
    """A model file is not the one that the registry describes, or could not be fetched."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One entry of `data/models.toml`; `package` and `resource` name a package that ships the same file."""

    name: str
    file: str
    url: str
    sha256: str
    bytes: int
    licence: str
    source: str
    purpose: str
    package: str | None = None
    resource: str | None = None


@cache
def registry() -> Mapping[str, ModelFile]:
    """Every known model by name."""
    rows = tomllib.loads(files("classifiers").joinpath("data/models.toml").read_text("utf-8"))
    return {name: ModelFile(name=name, **row) for name, row in rows.items()}


def model_file(name: str) -> ModelFile:
    """The registry's entry; ValueError names the nearest one for an unknown name."""
    if name not in registry():
        nearest = get_close_matches(name, registry(), n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown model {name!r}: the nearest is {nearest!r}")
    return registry()[name]


def model_id(name: str) -> str:
    """The model's name with the hash of its file, as it stands in the trail."""
    return f"{name}@sha256:{model_file(name).sha256[:16]}"


def cache_folder() -> Path:
    """The folder for fetched models: $XDG_CACHE_HOME/sluice/models, or ~/.cache/sluice/models."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "sluice" / "models"


def _places(model: ModelFile) -> list[Path]:
    """Where the file may lie, in the order in which it is looked for."""
    named = os.environ.get(FOLDER_VARIABLE)
    places = [Path(named) / model.file] if named else []
    places.append(cache_folder() / model.file)
    if model.package and model.resource:
        spec = importlib.util.find_spec(model.package)
        if spec is not None and spec.submodule_search_locations:
            places += [Path(folder) / model.resource for folder in spec.submodule_search_locations]
    return places


def _is_readable(path: Path) -> bool:
    """Whether the file is there and may be read; a folder that may not be entered holds nothing."""
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except OSError:
        return False


def find_model(name: str) -> Path:
    """The model's file on this machine, checked against the registry before anything opens it.

    Looks in the folder that SLUICE_MODELS names, in the user's cache and in an installed package that
    ships the file. Raises ModelMissing where it is nowhere, ModelInvalid where the first file found has
    another size or sha256.
    """
    model = model_file(name)
    for path in _places(model):
        if _is_readable(path):
            _verify_once(path, model)
            return path
    raise ModelMissing(f"model {name} is not installed; get it with: sluice models fetch {name}")


@cache
def _verify_once(path: Path, model: ModelFile) -> None:
    fault = _fault(path, model)
    if fault:
        raise ModelInvalid(f"{path}: {fault}; delete the file, then: sluice models fetch {model.name}")


def _fault(path: Path, model: ModelFile) -> str | None:
    """What is wrong with the file, or None."""
    size = path.stat().st_size
    if size != model.bytes:
        return f"{size} bytes instead of {model.bytes}"
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return None if digest == model.sha256 else f"sha256 {digest} instead of {model.sha256}"


def _address(model: ModelFile, url: str | None) -> str:
    """The address to fetch from; ValueError unless it is https, a local file, or http on this machine."""
    mirror = os.environ.get(MIRROR_VARIABLE)
    address = url or (urljoin(mirror.rstrip("/") + "/", model.file) if mirror else model.url)
    parts = urlsplit(address)
    if parts.scheme == "https" and parts.hostname:
        return address
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return address
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return address
    raise ValueError(f"{address}: a model comes by https://, file:///, or http:// from this machine only")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only to an address that could have been asked for in the first place."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        parts = urlsplit(newurl)
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
            raise urllib.error.URLError(f"redirected to the unsafe address {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_model(name: str, url: str | None = None) -> Path:
    """Get a model's file into the folder that SLUICE_MODELS names, or else the user's cache.

    The address is `url`, else the file's name under SLUICE_MODELS_URL, else the registry's; proxies are
    taken from the environment. The bytes go to a file beside the final one, which gets its name only
    after its size and sha256 were found right, so that an interrupted or wrong transfer installs nothing.
    Raises ModelInvalid with the address and the fault, ValueError for a name or address not allowed.
    """
    model = model_file(name)
    address = _address(model, url)
    folder = Path(os.environ.get(FOLDER_VARIABLE) or cache_folder())
    target = folder / model.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{model.file}.", dir=folder)
    except OSError as error:
        raise ModelInvalid(f"{folder}: cannot write there: {error.strerror}") from error
    part = Path(temporary)
    try:
        with os.fdopen(handle, "wb") as out:
            _download(address, out, model)
            out.flush()
            os.fsync(out.fileno())
        part.chmod(0o644)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    _verify_once.cache_clear()
    return target


def _download(address: str, out: BinaryIO, model: ModelFile) -> None:
    """Stream the file into `out`; never more than the registry's size is written."""
    here = _is_loopback(urlsplit(address).hostname or "")
    proxies = [urllib.request.ProxyHandler({})] if here else []
    opener = urllib.request.build_opener(_SafeRedirects, *proxies)
    digest, size = hashlib.sha256(), 0
    try:
        with opener.open(address, timeout=TIMEOUT_SECONDS) as response:
            while block := response.read(1 << 16):
                size += len(block)
                if size > model.bytes:
                    raise ModelInvalid(f"{address}: more than the {model.bytes} bytes of {model.name}")
                digest.update(block)
                out.write(block)
    except urllib.error.HTTPError as error:
        raise ModelInvalid(f"{address}: HTTP {error.code} {error.msg}") from error
    except urllib.error.URLError as error:
        raise ModelInvalid(f"{address}: {error.reason}") from error
    except (OSError, HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise ModelInvalid(f"{address}: broke off after {size} bytes: {reason}") from error
    if size < model.bytes:
        raise ModelInvalid(f"{address}: broke off after {size} of {model.bytes} bytes")
    if digest.hexdigest() != model.sha256:
        raise ModelInvalid(f"{address}: sha256 {digest.hexdigest()} instead of {model.sha256}")


@dataclass(frozen=True, slots=True)
class ModelState:
    """A known model, the file that would be opened for it (None = nowhere), and what is wrong with that."""

    model: ModelFile
    path: Path | None
    fault: str | None = None


def list_models() -> list[ModelState]:
    """Every known model and where its file lies; files are not read."""
    found = ((m, next((p for p in _places(m) if _is_readable(p)), None)) for m in registry().values())
    return [ModelState(model, path) for model, path in found]


def verify_models() -> list[ModelState]:
    """Every known model with its file read and compared with the registry."""
    return [replace(s, fault=_fault(s.path, s.model)) if s.path else s for s in list_models()]


def models_command(argv: Sequence[str]) -> int:
    """Run `sluice models list|verify|fetch NAME`; returns the exit status.

    `verify` fails where a file is not the registered one; a model that is not installed is no failure.
    """
    parser = argparse.ArgumentParser(prog="sluice models", description="Model files: list, verify, fetch.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name every model, what it is for, and where its file lies")
    commands.add_parser("verify", help="read the files and compare them with the registry")
    fetch = commands.add_parser("fetch", help="get a model's file")
    fetch.add_argument("name", metavar="NAME")
    fetch.add_argument("--url", help=f"another address of the file (for all files: {MIRROR_VARIABLE})")
    options = parser.parse_args(argv)
    if options.command == "fetch":
        try:
            print(fetch_model(options.name, options.url))
        except (ModelInvalid, ValueError) as error:
            print(f"sluice models fetch: {error}", file=sys.stderr)
            return 1 if isinstance(error, ModelInvalid) else 2
        return 0
    states = list_models() if options.command == "list" else verify_models()
    for state in states:
        model = state.model
        where = str(state.path) if state.path else f"not installed: sluice models fetch {model.name}"
        if options.command == "list":
            facts = [f"{model.bytes} bytes", model.licence, model.purpose]
        else:
            facts = [state.fault or "ok"] if state.path else []
        print("\t".join([model.name, *facts, where]))
    return 1 if any(state.fault for state in states) else 0
