"""What the driver's own statistics add to the checkpoints that epoch reports tell of. Pure.

A snapshot may be stored after its epoch's report was made: then only the statistics know whether, when and how large the
checkpoint became. They also count over all starts of a job folder, and say why a checkpoint failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Record(Protocol):
    @property
    def checkpoint_id(self) -> int: ...
    @property
    def status(self) -> str: ...  # completed, failed or restored
    @property
    def at_ms(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def duration_ms(self) -> float: ...
    @property
    def reason(self) -> str: ...


class Statistics(Protocol):
    @property
    def completed(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def restored(self) -> int: ...
    @property
    def history(self) -> Sequence[Record]: ...


def with_statistics(checkpoints: dict[str, Any], statistics: Statistics) -> dict[str, Any]:
    """The `checkpoints` of a job's facts, brought up to date."""
    settled = {r.checkpoint_id: r for r in statistics.history if r.status in ("completed", "failed")}
    newest = max(settled, default=0)
    history = []
    for entry in checkpoints["history"]:
        record = None if entry["is_savepoint"] else settled.pop(entry["id"], None)
        if record is not None:
            history.append({**entry, **_outcome(record, entry["trigger_ms"])})
        elif entry["status"] == "IN_PROGRESS" and entry["id"] <= newest:  # a later one has settled: this never will
            history.append({**entry, "status": "FAILED", "reason": "its driver died before it was complete"})
        elif entry["is_savepoint"] or entry["id"] <= newest:
            history.append(entry)
        else:
            history.append({**entry, "status": "IN_PROGRESS"})
    # A newer one than any report tells of was completed a moment ago, and its report, with its subtasks, comes next.
    reported = max((entry["id"] for entry in checkpoints["history"]), default=0)
    history.extend(_unreported(r) for r in settled.values() if r.status == "failed" or r.checkpoint_id <= reported)
    history.sort(key=lambda entry: entry["trigger_ms"])
    savepoints = sum(entry["is_savepoint"] for entry in history)
    restored = next((r for r in reversed(statistics.history) if r.status == "restored"), None)
    return {
        "counts": {
            "completed": statistics.completed + savepoints,
            "failed": statistics.failed,
            "restored": statistics.restored,
        },
        "history": history,
        "restored": checkpoints["restored"]
        if restored is None
        else {
            "id": restored.checkpoint_id,
            "restore_timestamp": restored.at_ms,
            "is_savepoint": False,
            "external_path": None,
        },
    }


def _outcome(record: Record, trigger_ms: int) -> dict[str, Any]:
    return {
        "status": record.status.upper(),
        "ack_ms": record.at_ms,
        "duration_ms": max(0, record.at_ms - trigger_ms),
        "bytes": record.bytes,
        "reason": record.reason,
    }


def _unreported(record: Record) -> dict[str, Any]:
    """One whose epoch has no report: it failed, or an earlier driver ran it."""
    trigger_ms = record.at_ms - int(record.duration_ms)
    return {
        "id": record.checkpoint_id,
        "is_savepoint": False,
        "trigger_ms": trigger_ms,
        "manifest_ms": 0.0,
        "commit_ms": 0.0,
        "path": None,
        "subtasks": 0,
        **_outcome(record, trigger_ms),
    }
