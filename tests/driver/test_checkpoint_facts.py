"""Checkpoints that settle after their epoch's report: the driver's statistics have the last word."""

from __future__ import annotations

from typing import Any, Literal

from penstock.driver.checkpoint_statistics import CheckpointRecord, CheckpointStatistics
from penstock.driver.control.facts import with_statistics


def _record(
    checkpoint_id: int,
    status: Literal["completed", "failed", "restored"],
    at_ms: int,
    size: int = 0,
    duration_ms: float = 0.0,
    reason: str = "",
) -> CheckpointRecord:
    return CheckpointRecord(
        checkpoint_id=checkpoint_id, status=status, at_ms=at_ms, bytes=size, duration_ms=duration_ms, reason=reason
    )


def _reported(number: int, *, savepoint: bool = False) -> dict[str, Any]:
    return {
        "id": number,
        "status": "COMPLETED",
        "is_savepoint": savepoint,
        "trigger_ms": 100 * number,
        "bytes": 0,
        "path": "p",
    }


def test_reported_checkpoints_get_their_outcome_and_later_ones_are_in_progress() -> None:
    told: dict[str, Any] = {"counts": {}, "history": [_reported(n) for n in (1, 2, 3)], "restored": None}
    statistics = CheckpointStatistics(
        completed=1,
        failed=1,
        history=[_record(1, "completed", 150, 7, 20.0), _record(2, "failed", 260, reason="disk full")],
    )
    merged = with_statistics(told, statistics)
    assert [(c["id"], c["status"], c["bytes"]) for c in merged["history"]] == [
        (1, "COMPLETED", 7), (2, "FAILED", 0), (3, "IN_PROGRESS", 0),
    ]  # fmt: skip
    assert [c.get("duration_ms") for c in merged["history"]][:2] == [50, 60]
    assert merged["history"][1]["reason"] == "disk full"
    assert merged["counts"] == {"completed": 1, "failed": 1, "restored": 0}


def test_checkpoints_without_a_report_and_savepoints_are_kept_and_restores_are_told() -> None:
    told: dict[str, Any] = {"counts": {}, "history": [_reported(5, savepoint=True)], "restored": None}
    statistics = CheckpointStatistics(
        completed=4, restored=1, history=[_record(4, "completed", 410, 3, 10.0), _record(4, "restored", 420)]
    )
    merged = with_statistics(told, statistics)
    assert [(c["id"], c["is_savepoint"], c["status"]) for c in merged["history"]] == [
        (4, False, "COMPLETED"), (5, True, "COMPLETED"),
    ]  # fmt: skip
    assert merged["counts"] == {"completed": 5, "failed": 0, "restored": 1}
    assert merged["restored"]["id"] == 4


def test_a_checkpoint_that_an_earlier_driver_left_in_progress_has_failed_once_a_later_one_settles() -> None:
    left = {**_reported(1), "status": "IN_PROGRESS"}
    told: dict[str, Any] = {"counts": {}, "history": [left], "restored": None}
    assert with_statistics(told, CheckpointStatistics())["history"][0]["status"] == "IN_PROGRESS"
    later = CheckpointStatistics(completed=1, history=[_record(2, "completed", 300)])
    assert [c["status"] for c in with_statistics(told, later)["history"]] == ["FAILED"]
    told["history"].append(_reported(2))  # a moment later, with its subtasks
    assert [c["status"] for c in with_statistics(told, later)["history"]] == ["FAILED", "COMPLETED"]
