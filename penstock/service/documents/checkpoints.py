"""Documents about checkpoints and savepoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from penstock.engine.settings import JobSettings

Json: TypeAlias = dict[str, Any]
_BUFFERED, _PERSISTED = "alignment_buffered_bytes", "alignment_persisted_bytes"


def statistics(facts: Json) -> Json:
    """Flink's document of a job's checkpoints: counts, summary, the latest and the history."""
    found = facts["checkpoints"]
    history, counts = found["history"], found["counts"]
    completed = [entry for entry in history if entry["status"] == "COMPLETED"]
    checkpoints = [entry for entry in completed if not entry["is_savepoint"]]
    savepoints = [entry for entry in completed if entry["is_savepoint"]]
    failed = [entry for entry in history if entry["status"] == "FAILED"]
    in_progress = sum(entry["status"] == "IN_PROGRESS" for entry in history)
    in_progress += sum(
        o["status"] == "IN_PROGRESS" and o["kind"] in ("savepoint", "stop", "checkpoint") for o in facts["operations"]
    )
    sizes = [entry["bytes"] for entry in checkpoints]
    detailed = [entry for entry in checkpoints if entry.get("vertices")]  # of the last ones only
    return {
        "counts": {
            "restored": counts["restored"],
            "total": counts["completed"] + counts["failed"] + in_progress,
            "in_progress": in_progress,
            "completed": counts["completed"],
            "failed": counts["failed"],
        },
        "summary": {
            "checkpointed_size": distribution(sizes),
            "state_size": distribution(sizes),
            "end_to_end_duration": distribution([entry["duration_ms"] for entry in checkpoints]),
            "alignment_buffered": distribution([_sum(entry, _BUFFERED) for entry in detailed]),
            "processed_data": distribution([]),
            "persisted_data": distribution([_sum(entry, _PERSISTED) for entry in detailed]),
        },
        "latest": {
            "completed": _entry(facts, checkpoints[-1]) if checkpoints else None,
            "savepoint": _entry(facts, savepoints[-1]) if savepoints else None,
            "failed": _entry(facts, failed[-1]) if failed else None,
            "restored": found["restored"],
        },
        "history": [_entry(facts, entry) for entry in reversed(history)],
    }


def details(facts: Json, checkpoint_id: int) -> Json | None:
    """Flink's document of one checkpoint; None if the job does not remember it."""
    entry = _find(facts, checkpoint_id)
    return None if entry is None else _entry(facts, entry)


def subtasks(facts: Json, checkpoint_id: int, vertex: Json) -> Json | None:
    """None when the checkpoint is not known, or too long ago for its details to be kept."""
    entry = _find(facts, checkpoint_id)
    columns = None if entry is None else entry.get("vertices", {}).get(str(vertex["id"]))
    if entry is None or columns is None:
        return None
    parts = [_part(entry, columns, index) for index in range(len(columns["snapshot_bytes"]))]

    def over(*path: str) -> Json:
        return distribution([_at(part, path) for part in parts])

    return {
        **_task(entry, columns, vertex["key"]),
        "summary": {
            "checkpointed_size": over("checkpointed_size"),
            "state_size": over("state_size"),
            "end_to_end_duration": over("end_to_end_duration"),
            "checkpoint_duration": {name: over("checkpoint", name) for name in ("sync", "async")},
            "alignment": {name: over("alignment", name) for name in ("buffered", "processed", "persisted", "duration")},
            "start_delay": over("start_delay"),
        },
        "subtasks": parts,
    }


def _part(entry: Json, columns: Json, index: int) -> Json:
    """Flink's document of one subtask in a checkpoint. What its runtime does not measure is 0."""

    def told(name: str, otherwise: float = 0) -> float:
        value = columns[name][index] if name in columns else None
        return otherwise if value is None else float(value)

    delay, aligned, size = told("start_delay_ms"), told("alignment_ms"), told("snapshot_bytes")
    sync, stored = told("sync_ms"), told("async_ms", told("snapshot_ms"))
    persisted = told("alignment_persisted_bytes")
    return {
        "index": index,
        "status": "completed",
        "ack_timestamp": entry["ack_ms"],
        "end_to_end_duration": round(delay + aligned + sync + stored, 2),
        "checkpointed_size": int(size),
        "state_size": int(size),
        "checkpoint": {"sync": sync, "async": stored},
        "alignment": {
            "buffered": int(told("alignment_buffered_bytes")),
            "processed": 0,
            "persisted": int(persisted),
            "duration": aligned,
        },
        "start_delay": delay,
        "unaligned_checkpoint": persisted > 0,
        "aborted": False,
    }


def _at(document: Json, path: Sequence[str]) -> float:
    value: Any = document
    for name in path:
        value = value[name]
    return float(value)


def config(facts: Json) -> Json:
    """Times in ms, as in Flink; an interval of -1: checkpointing is off."""
    settings = JobSettings.of(facts["configuration"])
    interval = settings.checkpoint_interval_ms
    return {
        "mode": settings.mode.lower(),
        "interval": -1 if interval is None else interval,
        "timeout": settings.checkpoint_timeout_ms,
        "min_pause": settings.min_pause_ms,
        "max_concurrent": settings.max_concurrent_checkpoints,
        "externalization": {
            "enabled": facts["job_folder"] is not None,
            "delete_on_cancellation": settings.delete_on_cancel,
        },
        "state_backend": settings.state.backend,
        "checkpoint_storage": facts["job_folder"],
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": settings.tolerable_checkpoint_failures,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
    }


def distribution(values: Sequence[float]) -> Json:
    """Flink's summary of a measure; zeros when there is nothing to sum up."""
    ordered = sorted(values)

    def quantile(part: float) -> float:
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0

    return {
        "min": ordered[0] if ordered else 0,
        "max": ordered[-1] if ordered else 0,
        "avg": round(sum(ordered) / len(ordered), 2) if ordered else 0,
        "p50": quantile(0.5),
        "p90": quantile(0.9),
        "p95": quantile(0.95),
        "p99": quantile(0.99),
        "p999": quantile(0.999),
    }


def _find(facts: Json, checkpoint_id: int) -> Json | None:
    """The newest of that id; rather a checkpoint than the savepoint of the same epoch, which has no details."""
    found = [entry for entry in reversed(facts["checkpoints"]["history"]) if entry["id"] == checkpoint_id]
    return next((entry for entry in found if not entry["is_savepoint"]), found[0] if found else None)


def _entry(facts: Json, entry: Json) -> Json:
    keys = {str(vertex["id"]): vertex["key"] for vertex in facts["vertices"]}
    return {
        "className": entry["status"].lower(),
        "id": entry["id"],
        "status": entry["status"],
        "is_savepoint": entry["is_savepoint"],
        "savepointFormat": "CANONICAL" if entry["is_savepoint"] else None,
        "trigger_timestamp": entry["trigger_ms"],
        "latest_ack_timestamp": entry["ack_ms"],
        "checkpointed_size": entry["bytes"],
        "state_size": entry["bytes"],
        "end_to_end_duration": entry["duration_ms"],
        "alignment_buffered": _sum(entry, _BUFFERED),
        "processed_data": 0,
        "persisted_data": _sum(entry, _PERSISTED),
        "num_subtasks": entry["subtasks"],
        "num_acknowledged_subtasks": entry["subtasks"],
        "checkpoint_type": "SAVEPOINT" if entry["is_savepoint"] else "CHECKPOINT",
        "external_path": entry["path"],
        "discarded": False,
        **({"failure_message": entry["reason"], "failure_timestamp": entry["ack_ms"]} if entry.get("reason") else {}),
        # Ours: how the duration is spent; the longest alignment of a subtask, which outlives the details of subtasks.
        "alignment_duration": entry.get("alignment_ms"),
        "manifest_duration": entry["manifest_ms"],
        "commit_duration": entry["commit_ms"],
        "tasks": {
            keys[vertex]: _task(entry, columns, keys[vertex])
            for vertex, columns in entry.get("vertices", {}).items()
            if vertex in keys
        },
    }


def _sum(entry: Json, column: str) -> int:
    """Over all subtasks whose details are still kept."""
    return sum(int(value or 0) for columns in entry.get("vertices", {}).values() for value in columns.get(column, ()))


def _task(entry: Json, columns: Json, key: str) -> Json:
    sizes = columns["snapshot_bytes"]
    return {
        "id": key,
        "status": "COMPLETED",
        "latest_ack_timestamp": entry["ack_ms"],
        "checkpointed_size": sum(sizes),
        "state_size": sum(sizes),
        "end_to_end_duration": max(
            (_part(entry, columns, i)["end_to_end_duration"] for i in range(len(sizes))), default=0
        ),
        "alignment_duration": max(columns["alignment_ms"], default=0),
        "alignment_buffered": sum(int(value or 0) for value in columns.get(_BUFFERED, ())),
        "processed_data": 0,
        "persisted_data": sum(int(value or 0) for value in columns.get(_PERSISTED, ())),
        "num_subtasks": len(sizes),
        "num_acknowledged_subtasks": len(sizes),
    }
