"""manifest.json: every file of a run with its hash, and what the run was made with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from pipeline.decide import Corpus
from pipeline.plan import PLAN, Plan
from pipeline.receipts import unit_name
from pipeline.recipe import DISTRIBUTION
from pipeline.store import Store, digest_of
from pipeline.work import work_units

VERSION = 1


def manifest_of(
    store: Store,
    plan: Plan,
    corpus: Corpus,
    entries: Sequence[Mapping[str, Any]],
    accounting: Mapping[str, int],
    report_files: Iterable[str],
) -> dict[str, Any]:
    """The manifest of a finished run: files by name with sha256, bytes, rows and tokens (null without a
    tokenizer), recipe, models, code version, digests and the accounting."""
    files: dict[str, Any] = {}
    for entry in entries:
        files[entry["name"]] = _file(entry)
    for work in work_units(store, plan):
        for chunk in work.manifest["chunks"]:
            for entry in chunk["files"].values():
                files[entry["name"]] = _file(entry)
        files[unit_name(work.unit_id)] = _loose(store, unit_name(work.unit_id))
    for name in (PLAN, *report_files):
        files[name] = _loose(store, name)
    recipe = plan.recipe
    return {
        "version": VERSION,
        "code": {"distribution": DISTRIBUTION, "version": metadata.version(DISTRIBUTION)},
        "libraries": {n: metadata.version(n) for n in ("apache-beam", "numpy", "pyarrow")},
        "recipe": recipe.to_json(),
        "models": {s.name: s.model_id for s in recipe.measured if hasattr(s, "model_id")},
        "annotate_digest": recipe.annotate_digest,
        "decide_digest": recipe.decide_digest,
        "plan": {"digest": plan.digest, "units": len(plan.units), "bytes": plan.bytes},
        "decision": {"key": corpus.key, "documents": corpus.documents, "chunks": corpus.chunks},
        "accounting": dict(accounting),
        "files": files,
    }


def _file(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"sha256": entry["sha256"], "bytes": entry["bytes"], "rows": entry["rows"], "tokens": None}


def _loose(store: Store, name: str) -> dict[str, Any]:
    data = store.get(name)
    return {"sha256": digest_of(data), "bytes": len(data), "rows": None, "tokens": None}
