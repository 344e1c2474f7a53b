"""From scores and the results of the steps to one audit row a record, and to what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.balance import Cut
from pipeline.rules import judge_rows, score_column
from pipeline.store import parquet_bytes
from pipeline.work import UnitDoFn, WorkUnit
from schemas.sampling import sampling_hashes
from schemas.tables import ANNOTATION_BASE, AUDIT, SCORE_MAP, text_partition

KEPT, REJECTED, QUARANTINED = "kept", "rejected", "quarantined"


def audit_work_name(key: str, unit_id: str) -> str:
    """Where decide leaves a unit's audit rows for emit."""
    return f"decide/{key}/audit/{unit_id}.parquet"


def keep_name(key: str, unit_id: str) -> str:
    """Where decide says which rows of a unit are written, and how often."""
    return f"decide/{key}/keep/{unit_id}.parquet"


def summary_name(key: str, unit_id: str) -> str:
    """Counts of one unit's decisions, for the shard plan and the report."""
    return f"decide/{key}/summary/{unit_id}.json"


class Decisions(UnitDoFn):
    """Writes, for each unit, its audit rows, its kept rows and its counts."""

    def __init__(self, url: str, recipe: str, key: str, cuts: Mapping[str, Any]) -> None:
        super().__init__(url, recipe, key)
        self._cuts = cuts

    def process(self, grouped: tuple[int, dict[str, Iterable[bytes]]]) -> None:
        work = self.work_unit(next(iter(grouped[1]["unit"])))
        names: dict[int, str] = {}
        for value in sorted(grouped[1]["names"]):
            table = pa.ipc.open_stream(value).read_all()
            names.update(zip(table["ref"].to_pylist(), table["doc_id"].to_pylist(), strict=True))
        removed = {h: self._removed(h, work.ordinal) for h in ("exact", "near")}
        cuts = {g: Cut.from_json(c) for g, c in self._cuts.items()}
        table = work.annotations(self.store)
        rows = decide_rows(self.recipe, table, removed, names, cuts)
        self.store.put(audit_work_name(self.key, work.unit_id), parquet_bytes(rows))
        keep, summary = kept_rows(work, table, rows)
        self.store.put(keep_name(self.key, work.unit_id), parquet_bytes(keep))
        self.store.put(
            summary_name(self.key, work.unit_id),
            json.dumps({"unit": work.unit_id, **summary, **counts_of(rows)}, sort_keys=True).encode(),
        )

    def _removed(self, hop: str, ordinal: int) -> list[pa.Table]:
        from pipeline.decide import removed_rows

        return list(removed_rows(self.store, self.key, hop, ordinal))


def decide_rows(
    recipe: Any,
    table: pa.Table,
    removed: Mapping[str, Sequence[pa.Table]],
    names: Mapping[int, str],
    cuts: Mapping[str, Cut],
) -> pa.Table:
    """The audit rows (`schemas.tables.AUDIT`) of a table of annotations.

    `removed` holds what the duplicate steps refused (row, keeper, similarity), `names` the doc_id of each
    keeper's reference, `cuts` the sampling of each language.
    """
    n = table.num_rows
    judged = judge_rows(recipe.row_stages, table)
    stages = [(s, r, rows) for s, r, rows in judged.failures]
    scores = {c: score_column(table, c) for c in table.column_names if c not in ANNOTATION_BASE.names}
    thresholds = dict(judged.thresholds)
    duplicate_of = np.full(n, None, dtype=object)
    similarity = np.full(n, np.nan)
    alive = judged.passed.copy()
    for hop, name in (("exact", "exact_duplicates"), ("near", "near_duplicates")):
        if not recipe.judges(name):
            continue
        stage = recipe.by_name[name]
        reason = stage.rules[0].reason
        for bound, value in stage.thresholds("").items():
            thresholds[bound] = np.where(alive, value, np.nan)
        refused = np.zeros(n, dtype=bool)
        score = np.full(n, np.nan)
        for part in removed[hop]:
            where = part.column("row").to_numpy().astype(np.int64)
            refused[where] = True
            score[where] = part.column("similarity").to_numpy()
            duplicate_of[where] = [names[k] for k in part.column("keeper").to_pylist()]
        similarity = np.where(refused, score, similarity)
        scores[name] = score
        stages.append((name, reason, refused))
        alive &= ~refused
    epochs = alive.astype(np.uint32)
    if recipe.judges("balance_languages") and cuts:
        drawn, limit, copies, base = _balance(recipe, table, alive, cuts)
        scores["balance_languages"] = drawn
        thresholds["balance_languages.max_sampling_hash"] = limit
        thresholds["balance_languages.base_epochs"] = base
        epochs = copies
        stages.append(("balance_languages", "over_budget", alive & (copies == 0)))
    return _audit_table(recipe, table, stages, scores, thresholds, duplicate_of, similarity, epochs)


def _balance(recipe: Any, table: pa.Table, alive: npt.NDArray[np.bool_], cuts: Mapping[str, Cut]) -> Any:
    n = table.num_rows
    drawn, limit, base = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    copies = alive.astype(np.uint32)
    groups = partitions_of(table)
    doc_ids = table.column("doc_id").to_pylist()
    for group, cut in cuts.items():
        rows = np.flatnonzero(alive & (groups == group))
        if not len(rows):
            continue
        hashes = sampling_hashes(recipe.run.seed, "balance", [doc_ids[i] for i in rows])
        drawn[rows], limit[rows], base[rows] = hashes, cut.max_sampling_hash, cut.base
        copies[rows] = cut.epochs(hashes)
    return drawn, limit, copies, base


def partitions_of(table: pa.Table) -> npt.NDArray[Any]:
    """The folder of the corpus of each row; None for quarantined records."""
    columns = (table.column(c).to_pylist() for c in ("kind", "language", "programming_language"))
    return np.array(
        [None if k is None else text_partition(k, x, p) for k, x, p in zip(*columns, strict=True)],
        dtype=object,
    )


def _audit_table(
    recipe: Any,
    table: pa.Table,
    stages: Sequence[tuple[str, str, npt.NDArray[np.bool_]]],
    scores: Mapping[str, npt.NDArray[np.float64]],
    thresholds: Mapping[str, npt.NDArray[np.float64]],
    duplicate_of: npt.NDArray[Any],
    similarity: npt.NDArray[np.float64],
    epochs: npt.NDArray[np.uint32],
) -> pa.Table:
    n = table.num_rows
    bad_stage, bad_reason = (table.column(c).to_pylist() for c in ("bad_stage", "bad_reason"))
    failed: list[list[str]] = [[] for _ in range(n)]
    stage_of: list[str | None] = list(bad_stage)
    reason_of: list[str | None] = list(bad_reason)
    for stage, reason, rows in stages:
        for i in np.flatnonzero(rows):
            failed[i].append(f"{stage}.{reason}")
            if stage_of[i] is None:
                stage_of[i], reason_of[i] = stage, reason
    decision = [
        QUARANTINED if bad is not None else REJECTED if failed[i] else KEPT for i, bad in enumerate(bad_stage)
    ]
    columns: dict[str, Any] = {
        "decision": decision,
        "stage": stage_of,
        "reason": reason_of,
        "failed": failed,
        "duplicate_of": duplicate_of.tolist(),
        "similarity": pa.array(similarity, from_pandas=True),
        "scores": score_map(scores, n),
        "thresholds": score_map(thresholds, n),
        "annotate_digest": [recipe.annotate_digest] * n,
        "decide_digest": [recipe.decide_digest] * n,
        "epochs": epochs,
    }
    taken = {f.name: columns[f.name] if f.name in columns else table.column(f.name) for f in AUDIT}
    return pa.table(taken, schema=AUDIT)


def score_map(columns: Mapping[str, npt.NDArray[np.float64]], n: int) -> pa.Array:
    """A map<string, double> array of what is not NaN in each row, names ascending."""
    names = sorted(columns)
    if not names or not n:
        return pa.array([[]] * n, SCORE_MAP)
    matrix = np.stack([columns[name] for name in names], axis=1)
    present = ~np.isnan(matrix)
    offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int32)
    keys = pa.array(names).take(pa.array(np.nonzero(present)[1]))
    return pa.MapArray.from_arrays(pa.array(offsets), keys, pa.array(matrix[present])).cast(SCORE_MAP)


def kept_rows(work: WorkUnit, table: pa.Table, rows: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    """Which rows of each chunk's row groups are written (chunk, row, epochs), and the groups' sizes.

    The groups are those of the text file: documents by kind, language and programming language.
    """
    epochs = rows.column("epochs").to_numpy()
    size = table.column("text_bytes").to_numpy(zero_copy_only=False)
    row = table.column("row").to_numpy()
    keys = list(
        zip(*(table.column(c).to_pylist() for c in ("kind", "language", "programming_language")), strict=True)
    )
    chunk_of = np.repeat(
        np.arange(len(work.manifest["chunks"]), dtype=np.uint32),
        [c["files"]["annotations"]["rows"] for c in work.manifest["chunks"]],
    )
    groups = []
    for chunk in range(len(work.manifest["chunks"])):
        members: dict[tuple[str, str, str], list[int]] = {}
        for i in np.flatnonzero(chunk_of == chunk):
            kind, language, programming = keys[i]
            if kind is not None:
                members.setdefault((kind, language, programming or ""), []).append(int(i))
        for g, (key, own) in enumerate(sorted(members.items())):
            index = np.array(own)
            for epoch in range(int(epochs[index].max(initial=0))):
                written = index[epochs[index] > epoch]
                groups.append(
                    {
                        "chunk": chunk,
                        "group": g,
                        "epoch": epoch,
                        "partition": text_partition(key[0], key[1], key[2] or None),
                        "rows": len(written),
                        "bytes": int(size[written].sum()),
                    }
                )
    kept = np.flatnonzero(epochs > 0)
    keep = pa.table(
        {"chunk": chunk_of[kept], "row": row[kept].astype(np.uint32), "epochs": epochs[kept]},
    )
    return keep, {"groups": groups}


def counts_of(rows: pa.Table) -> dict[str, Any]:
    """Documents and characters by decision, stage, reason, language and kind, for report and accounting."""
    flow: dict[tuple[Any, ...], list[int]] = {}
    keys = ("decision", "stage", "reason", "source", "language", "kind", "programming_language")
    columns = (*keys, "characters", "epochs")
    for *key, characters, epochs in zip(*(rows.column(c).to_pylist() for c in columns), strict=True):
        entry = flow.setdefault(tuple(key), [0, 0, 0, 0])
        entry[0] += 1
        entry[1] += characters or 0
        entry[2] += epochs
        entry[3] += (characters or 0) * epochs
    listed = sorted(flow.items(), key=lambda kv: json.dumps(kv[0]))
    failed: dict[str, int] = {}
    for reasons in rows.column("failed").to_pylist():
        for reason in reasons:
            failed[reason] = failed.get(reason, 0) + 1
    return {"flow": [[*k, *v] for k, v in listed], "failed": dict(sorted(failed.items()))}
