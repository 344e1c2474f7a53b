"""What `verify` checks of files: the manifest against the disk, the plan, and the units of the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import pyarrow.parquet as pq

from pipeline.decide import survey
from pipeline.emit import SUCCESS
from pipeline.findings import Findings, shown
from pipeline.plan import PLAN, Plan, Unit, plan_digest, read_plan
from pipeline.receipts import unit_name
from pipeline.recipe import DISTRIBUTION
from pipeline.store import Store, digest_object, digest_of
from pipeline.work import WorkUnit

MANIFEST = "manifest.json"


def audit_name(unit_id: str) -> str:
    """Name of a unit's audit file."""
    return f"audit/{unit_id}.parquet"


@dataclass(frozen=True)
class OnDisk:
    """What a stored file is; `rows` of a Parquet file, lines of a quarantine file, else None."""

    sha256: str
    bytes: int
    rows: int | None


@dataclass
class Disk:
    """The files of an output folder, each read once; None for one that is not there."""

    store: Store
    _known: dict[str, OnDisk | None] = field(default_factory=dict)

    def file(self, name: str) -> OnDisk | None:
        """The file of this name; raises what reading a broken one raises."""
        if name not in self._known:
            self._known[name] = self._read(name) if self.store.exists(name) else None
        return self._known[name]

    def _read(self, name: str) -> OnDisk:
        rows: int | None = None
        if name.endswith(".parquet"):
            with self.store.open(name) as file:
                rows = int(pq.ParquetFile(file).metadata.num_rows)
        elif name.startswith("quarantine/"):
            with self.store.open(name) as file:
                rows = sum(1 for _ in file)
        return OnDisk(digest_object(self.store, name), self.store.size(name), rows)


def check_manifest(disk: Disk, found: Findings) -> dict[str, Any] | None:
    """The manifest, after comparing it with the success mark and with every file that it lists."""
    data = disk.store.get(MANIFEST)
    try:
        manifest: dict[str, Any] = json.loads(data)
        files = dict(manifest["files"])
        if json.loads(disk.store.get(SUCCESS))["manifest"] != digest_of(data):
            found.add(SUCCESS, f"names another {MANIFEST} than the one that is there")
    except (ValueError, KeyError, TypeError) as error:
        found.add(MANIFEST, f"cannot be read: {error}")
        return None
    for name, entry in sorted(files.items()):
        check_entry(disk, found, name, entry, MANIFEST)
    for folder in ("corpus", "audit"):
        for name in disk.store.list(folder):
            if name not in files:
                found.add(name, f"lies in {folder}/ and is not listed in {MANIFEST}")
    return manifest


def check_entry(disk: Disk, found: Findings, name: str, entry: Mapping[str, Any], where: str) -> bool:
    """Compare a file with what `where` says of it; returns whether it can be used."""
    try:
        actual = disk.file(name)
        said = {k: entry[k] for k in ("bytes", "sha256", "rows")}
    except Exception as error:  # what a broken file makes a reader raise is no closed set
        found.add(name, f"cannot be read: {type(error).__name__}: {error}")
        return False
    if actual is None:
        found.add(name, f"is listed in {where} and is not there")
        return False
    for key, value in said.items():
        if value != getattr(actual, key):
            found.add(name, f"{key} is {shown(getattr(actual, key))}, but {shown(value)} in {where}")
    return True


def check_plan(store: Store, manifest: Mapping[str, Any], found: Findings) -> Plan | None:
    """The plan, after comparing recipe, models and digests with the manifest's and computing them again."""
    try:
        plan = read_plan(store)
        recipe = plan.recipe
        computed = {
            "recipe": recipe.to_json(),
            "models": {s.name: s.model_id for s in recipe.measured if hasattr(s, "model_id")},
            "annotate_digest": recipe.annotate_digest,
            "decide_digest": recipe.decide_digest,
            "plan": {"digest": plan.digest, "units": len(plan.units), "bytes": plan.bytes},
        }
        again = plan_digest(recipe, plan.units)
    except Exception as error:  # a plan may name any class and hold any value
        found.add(PLAN, f"cannot be read: {type(error).__name__}: {error}")
        return None
    for key, value in computed.items():
        if manifest.get(key) != json.loads(json.dumps(value)):
            found.add(PLAN, f"{key} is {shown(value)}, but {shown(manifest.get(key))} in {MANIFEST}")
    code = {"distribution": DISTRIBUTION, "version": metadata.version(DISTRIBUTION)}
    if found.all and manifest.get("code") != code:
        found.add(MANIFEST, f"code is {shown(manifest.get('code'))}, this is {code}: use the one that ran")
    if again != plan.digest:
        found.add(PLAN, f"its digest is {plan.digest}, but its recipe and units give {again}")
    if len({u.unit_id for u in plan.units}) != len(plan.units):
        found.add(PLAN, "names a unit twice")
        return None
    return plan


def check_units(disk: Disk, plan: Plan, manifest: Mapping[str, Any], found: Findings) -> list[WorkUnit]:
    """The units whose manifests belong to the plan and whose files can be read."""
    files = plan.file_ordinals()
    usable = []
    for ordinal, unit in enumerate(plan.units):
        name = unit_name(unit.unit_id)
        try:
            data = json.loads(disk.store.get(name))
            good = _check_unit(disk, plan, manifest, unit, data, found)
        except FileNotFoundError:
            found.add(name, f"is not there, but {PLAN} has this unit")
            continue
        except Exception as error:  # any JSON may stand in the file
            found.add(name, f"cannot be read: {type(error).__name__}: {error}")
            continue
        if good:
            own = {(s.file.source, s.file.path): files[s.file.source, s.file.path] for s in unit.segments}
            usable.append(WorkUnit(ordinal, unit, own, data))
    _check_foreign(disk.store, plan, manifest, usable, found)
    if len(usable) == len(plan.units):
        corpus = survey(disk.store, plan)
        decision = {"key": corpus.key, "documents": corpus.documents, "chunks": corpus.chunks}
        if manifest.get("decision") != decision:
            found.add(
                MANIFEST, f"decision is {shown(manifest.get('decision'))}, but the units give {decision}"
            )
    return usable


def _check_foreign(
    store: Store, plan: Plan, manifest: Mapping[str, Any], usable: Sequence[WorkUnit], found: Findings
) -> None:
    """Files of units that the plan does not have, and files that the manifest lists and nothing names."""
    ids = [u.unit_id for u in plan.units]
    own = {unit_name(i) for i in ids} | {audit_name(i) for i in ids}
    for name in (*store.list("units"), *store.list("audit")):
        if name not in own:
            found.add(name, f"belongs to a unit that {PLAN} does not have")
    if len(usable) < len(ids):
        return
    for work in usable:
        own |= {f["name"] for chunk in work.manifest["chunks"] for f in chunk["files"].values()}
    for name in manifest["files"]:
        if name.split("/")[0] in ("annotations", "text", "quarantine") and name not in own:
            found.add(name, f"is listed in {MANIFEST}, and no unit names it")


def _check_unit(
    disk: Disk, plan: Plan, manifest: Mapping[str, Any], unit: Unit, data: Any, found: Findings
) -> bool:
    name = unit_name(unit.unit_id)
    belongs = {
        "unit": unit.unit_id,
        "annotate_digest": plan.recipe.annotate_digest,
        "fingerprint": unit.fingerprint,
    }
    good = True
    for key, value in belongs.items():
        if data[key] != value:
            found.add(name, f"{key} is {shown(data[key])}, but {shown(value)} by {PLAN}")
            good = False
    listed = manifest["files"]
    if name not in listed:
        found.add(name, f"is not listed in {MANIFEST}")
    total: dict[str, int] = {}
    for i, chunk in enumerate(data["chunks"]):
        counts = chunk["counts"]
        for key, n in counts.items():
            total[key] = total.get(key, 0) + n
        rows: dict[str, int | None] = {"quarantine": 0}
        for key, entry in chunk["files"].items():
            file = entry["name"]
            if file not in listed:
                found.add(file, f"belongs to unit {unit.unit_id} and is not listed in {MANIFEST}")
            good &= check_entry(disk, found, file, entry, name)
            actual = disk.file(file) if good else None
            rows[key] = None if actual is None else actual.rows
        if not good:
            continue
        expected = {
            "annotations": counts["documents"] + counts["quarantined"],
            "text": counts["documents"],
            "quarantine": counts["quarantined"],
        }
        if rows != expected:
            found.add(name, f"chunk {i} has files of {rows} rows, but counts that ask for {expected}")
        if counts["records"] != counts["documents"] + counts["quarantined"]:
            found.add(
                name, f"chunk {i} counts {counts['records']} records, but {expected['annotations']} rows"
            )
    if data["counts"] != total:
        found.add(name, f"counts are {data['counts']}, but its chunks add up to {total}")
    if not data["chunks"]:
        found.add(name, "has no chunk")
        return False
    return good
