"""A job that runs nowhere: facts as a driver of the pipelined runtime would write them, for a dispatcher to serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.common.time import now_ms
from penstock.driver.control.home import JobHome, this_process
from penstock.service.program import UserProgram
from penstock.service.submission import Submission, facts_without_a_job

JOB = "c0ffee" + "0" * 26
SOURCE, COUNT = "a" * 32, "b" * 32


def _latency(p50: float) -> dict[str, Any]:
    return {"clicks": {"count": 1200, "p50": p50, "p95": p50 * 2, "p99": p50 * 4, "max": p50 * 9}}


def _vertex(number: int, key: str, name: str, uid: str, parallelism: int, **more: Any) -> dict[str, Any]:
    operator = {"uid": uid, "name": name, "kind": "source" if number == 1 else "process", "stateful": number == 2}
    return {
        "id": number, "key": key, "name": name, "level": number - 1, "parallelism": parallelism, "operators": [operator],
        "inputs": [] if number == 1 else [{"vertex": 1, "ship_strategy": "HASH", "input": 0, "tag": None}],
        "committing": 0.0, **more,
    }  # fmt: skip


def _subtasks(now: int, records: list[int], slots: list[str], **more: list[Any]) -> dict[str, Any]:
    wide = len(records)
    return {
        "records_in": records, "records_out": records, "busy_ms": [900.0] * wide, "back_pressured_ms": [10.0] * wide,
        "watermark": [now - 1500] * wide, "state_entries": [n // 100 for n in records], "snapshot_bytes": [2048] * wide,
        "snapshot_ms": [4.0] * wide, "alignment_ms": [2.0] * wide, "slot": slots, **more,
    }  # fmt: skip


def _rates(records: list[int], busy: list[float], pressed: list[float]) -> dict[str, list[float]]:
    per_second = [n / 60 for n in records]
    idle = [round(1 - b - p, 4) for b, p in zip(busy, pressed, strict=True)]
    return {
        "records_in_per_second": per_second, "records_out_per_second": per_second,
        "busy": busy, "back_pressured": pressed, "idle": idle,
    }  # fmt: skip


def pipelined_facts() -> dict[str, Any]:
    """Two vertices, one of them uneven, with what only a runtime of long-lived tasks measures."""
    now = now_ms()
    program = UserProgram(entry="/home/me/clicks.py")
    submission = Submission(job_id=JOB, program=program, submitted_ms=now - 90_000, process=this_process())
    hosts = ["worker-1:40001:211", "worker-2:40001:311"]
    machine = {"memory_bytes": 300 << 20, "host_memory_bytes": 16 << 30, "host_free_bytes": 9 << 30, "cpus": 8}
    read, counted = [60_000, 60_000], [108_000, 6_000, 4_000, 2_000]
    source = _vertex(
        1, SOURCE, "clicks", "clicks", 2, rates=_rates(read, [0.2, 0.25], [0.7, 0.05]),
        subtasks=_subtasks(now, read, hosts),
    )  # fmt: skip
    count = _vertex(
        2, COUNT, "count for each user", "count", 4, rates=_rates(counted, [0.97, 0.2, 0.1, 0.05], [0.0] * 4),
        subtasks=_subtasks(now, counted, [hosts[i % 2] for i in range(4)], latency=[_latency(p) for p in (9.0, 1.5, 1.0, 2.0)]),
    )  # fmt: skip
    columns = {"snapshot_bytes": [4096] * 4, "snapshot_ms": [6.0] * 4, "alignment_ms": [12.0, 1.0, 1.5, 0.5]}
    some = {
        "start_delay_ms": [30.0, 4.0, 3.0, 2.0],
        "alignment_buffered_bytes": [65536, 0, 0, 1024],
        "sync_ms": [1.5] * 4,
    }
    taken = {
        "id": 7, "status": "COMPLETED", "is_savepoint": False, "trigger_ms": now - 5_000, "ack_ms": now - 4_900, "duration_ms": 100,
        "bytes": 16384, "manifest_ms": 2.0, "commit_ms": 1.0, "path": None, "subtasks": 4, "alignment_ms": 12.0,
        "vertices": {"2": {**columns, **some}},
    }  # fmt: skip
    return {
        **facts_without_a_job(submission, "RUNNING", None, now),
        "runtime": "spark", "execution_mode": "pipelined", "execution_mode_reason": "all of the job's operators can run so",
        "name": "clicks of users", "max_parallelism": 128, "slots": 4, "slot_processes": hosts,
        "machines": dict.fromkeys(hosts, machine), "latency": [],
        "totals": {"records_in": 120_000, "records_out": 120_000, "epochs": 90, "late_dropped": 0},
        "repeated": {"records_in": 2500, "records_out": 0, "epochs": 2, "late_dropped": 0},
        "vertices": [source, count], "feedback": [], "accumulators": {},
        "checkpoints": {"counts": {"completed": 1, "failed": 0, "restored": 0}, "history": [taken], "restored": None},
    }  # fmt: skip


def tell(home: Path, facts: dict[str, Any]) -> None:
    """Writes facts where a dispatcher finds them; their job's driver is this process, so that it is taken for running."""
    JobHome(home).create().job(facts["job_id"]).create().write_facts(facts)
