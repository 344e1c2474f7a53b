"""Receipts of chunks and manifests of units: what the commit protocol writes and reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.plan import Unit
from pipeline.store import Store, digest_of

Receipt = dict[str, Any]
"""unit, chunk, last, counts, files {text, annotations, quarantine?: {name, sha256, rows, bytes}}, position,
annotate_digest, fingerprint, seconds, characters."""


def receipt_folder(unit_id: str) -> str:
    """Where the receipts of a unit lie."""
    return f"receipts/{unit_id}"


def unit_name(unit_id: str) -> str:
    """Name of a unit's manifest."""
    return f"units/{unit_id}.json"


def put_receipt(store: Store, receipt: Receipt) -> None:
    """Write a receipt, after the files that it names."""
    sha = receipt["files"]["annotations"]["sha256"][:16]
    name = f"{receipt_folder(receipt['unit'])}/{receipt['chunk']:05d}-{sha}.json"
    store.put(name, json.dumps(receipt, sort_keys=True).encode())


def committed(store: Store, unit: Unit, annotate_digest: str) -> dict[int, Receipt]:
    """The unit's chunks that are whole on disk and were made from this content with these settings."""
    found: dict[int, Receipt] = {}
    for name in store.list(receipt_folder(unit.unit_id)):
        try:
            receipt = json.loads(store.get(name))
        except ValueError:
            continue
        if receipt["annotate_digest"] != annotate_digest or receipt["fingerprint"] != unit.fingerprint:
            continue
        files = receipt["files"].values()
        if all(store.exists(f["name"]) and store.size(f["name"]) == f["bytes"] for f in files):
            best = found.get(receipt["chunk"])
            found[receipt["chunk"]] = receipt if best is None else _first(best, receipt)
    return found


def _first(a: Receipt, b: Receipt) -> Receipt:
    return min(a, b, key=lambda r: r["files"]["annotations"]["sha256"])


def unit_manifest(receipts: Iterable[Receipt]) -> dict[str, Any] | None:
    """The manifest of a unit from all receipts of it, or None while chunks are missing.

    Two attempts at a chunk give equal files; should they differ (a time-out in one of them), the one
    with the smaller hash counts, whoever came first.
    """
    chunks: dict[int, Receipt] = {}
    for receipt in receipts:
        k = receipt["chunk"]
        chunks[k] = receipt if k not in chunks else _first(chunks[k], receipt)
    ends = [k for k, r in chunks.items() if r["last"]]
    if not ends or any(k not in chunks for k in range(min(ends) + 1)):
        return None
    ordered = [chunks[k] for k in range(min(ends) + 1)]
    counts = _sum(r["counts"] for r in ordered)
    return {
        "unit": ordered[0]["unit"],
        "annotate_digest": ordered[0]["annotate_digest"],
        "fingerprint": ordered[0]["fingerprint"],
        "counts": counts,
        "chunks": [{"files": r["files"], "counts": r["counts"]} for r in ordered],
    }


def _sum(all_counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for counts in all_counts:
        for name, n in counts.items():
            total[name] = total.get(name, 0) + n
    return total


def put_unit_manifest(store: Store, manifest: Mapping[str, Any]) -> None:
    """Write a unit's manifest: the last step of its commit."""
    store.put(unit_name(manifest["unit"]), json.dumps(manifest, sort_keys=True).encode())


def read_unit_manifest(store: Store, unit: Unit, annotate_digest: str) -> dict[str, Any] | None:
    """The unit's manifest, or None when there is none for this content and these settings."""
    try:
        data: dict[str, Any] = json.loads(store.get(unit_name(unit.unit_id)))
    except (FileNotFoundError, ValueError):
        return None
    same = data["annotate_digest"] == annotate_digest and data["fingerprint"] == unit.fingerprint
    return data if same else None


def file_entry(name: str, data: bytes, rows: int) -> dict[str, Any]:
    """What a receipt says of one file."""
    return {"name": name, "sha256": digest_of(data), "rows": rows, "bytes": len(data)}
