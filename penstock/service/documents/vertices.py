"""Documents about a vertex and its subtasks, and about the processes they run in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from penstock.driver.control.rates import level_of
from penstock.service.documents.jobs import (
    event_time,
    io_metrics,
    operator_latency,
    spread,
    task_counts,
    task_state,
    times,
)

Json: TypeAlias = dict[str, Any]


def find(facts: Json, key: str) -> Json | None:
    """The vertex with this key; None if the job has none."""
    return next((vertex for vertex in facts["vertices"] if vertex["key"] == key), None)


def details(facts: Json, vertex: Json) -> Json:
    """Flink's document of a vertex and its subtasks."""
    return {
        "id": vertex["key"],
        "name": vertex["name"],
        "parallelism": vertex["parallelism"],
        "maxParallelism": facts["max_parallelism"],
        "now": facts["now_ms"],
        "operators": vertex["operators"],
        "aggregated": aggregated(facts, vertex),
        "subtasks": [subtask(facts, vertex, index) for index in range(vertex["parallelism"])],
    }


# Of what a subtask's document has: Flink's measures, and our live ones.
_SPENT: Final = ("accumulated-busy-time", "accumulated-backpressured-time", "accumulated-idle-time")
_IO: Final = ("read-bytes", "write-bytes", "read-records", "write-records", *_SPENT)
_LIVE: Final = (
    "records-in-per-second", "records-out-per-second", "busy", "back-pressured", "idle", "state-entries"
)  # fmt: skip


def aggregated(facts: Json, vertex: Json) -> Json:
    """Flink's summary over the subtasks: how evenly the work is spread shows in min, median and max."""
    subtasks = [subtask(facts, vertex, index) for index in range(vertex["parallelism"])]
    values = {name: [each["metrics"][name] for each in subtasks] for name in _IO}
    values |= {name: [each[name] or 0 for each in subtasks] for name in _LIVE}
    return {"metrics": {name: spread(column) for name, column in values.items()}, "status-duration": {}}


def subtask(facts: Json, vertex: Json, index: int) -> Json:
    """Flink's document of one subtask."""
    columns, rates = vertex["subtasks"], vertex["rates"]
    process = _at(columns, "slot", index) or ""
    return {
        "subtask": index,
        "status": task_state(facts),
        "attempt": 0,
        "endpoint": process,
        **times(facts),
        "metrics": io_metrics(facts, vertex, [index]),
        "taskmanager-id": process,
        "status-duration": {},
        # Ours: live.
        "watermark": _at(columns, "watermark", index),
        "state-entries": _at(columns, "state_entries", index),
        "records-in-per-second": rates["records_in_per_second"][index],
        "records-out-per-second": rates["records_out_per_second"][index],
        "busy": rates["busy"][index],
        "back-pressured": rates["back_pressured"][index],
        "idle": rates["idle"][index],
        "latency": operator_latency(facts, [_at(columns, "latency", index)]),
    }


def subtask_times(facts: Json, vertex: Json) -> Json:
    """Flink's document of when the subtasks entered which state."""
    entered = {step["state"]: step["at_ms"] for step in facts["transitions"]}
    return {
        "id": vertex["key"],
        "name": vertex["name"],
        "now": facts["now_ms"],
        "subtasks": [
            {
                "subtask": index,
                "endpoint": _at(vertex["subtasks"], "slot", index) or "",
                "duration": times(facts)["duration"],
                "timestamps": entered,
            }
            for index in range(vertex["parallelism"])
        ],
    }


def by_task_manager(facts: Json, vertex: Json) -> Json:
    """The subtasks of a vertex, summed by the process they run in."""
    columns, parts = vertex["subtasks"], dict[str, list[int]]()
    for index in range(vertex["parallelism"]):
        parts.setdefault(_at(columns, "slot", index) or "", []).append(index)
    return {
        "id": vertex["key"],
        "name": vertex["name"],
        "now": facts["now_ms"],
        "taskmanagers": [
            {
                "endpoint": process,
                "status": task_state(facts),
                **times(facts),
                "metrics": io_metrics(facts, vertex, indices),
                "status-counts": task_counts(facts, len(indices)),
                "taskmanager-id": process,
            }
            for process, indices in parts.items()
        ],
    }


def back_pressure(facts: Json, vertex: Json, bottleneck: str | None) -> Json:
    """Flink's document of a vertex's back pressure, with the vertex that causes it."""
    rates = vertex["rates"]
    worst = level_of(max(rates["back_pressured"], default=0.0))
    slow = None if bottleneck is None else find(facts, bottleneck)
    return {
        "status": "ok",
        "backpressureLevel": worst,
        "backpressure-level": worst,
        "end-timestamp": facts["now_ms"],
        # Ours: whether it is this vertex that others wait for, and which one it is.
        "bottleneck": bottleneck == vertex["key"],
        "bottleneck-vertex": None if slow is None else {"id": slow["key"], "name": slow["name"]},
        "subtasks": [
            {
                "subtask": index,
                "attempt-number": 0,
                "backpressureLevel": level_of(ratio),
                "backpressure-level": level_of(ratio),
                "ratio": ratio,
                "busyRatio": rates["busy"][index],
                "idleRatio": rates["idle"][index],
            }
            for index, ratio in enumerate(rates["back_pressured"])
        ],
    }


def watermarks(vertex: Json) -> list[Json]:
    """Flink's list of the subtasks' watermarks."""
    return [
        {"id": f"{index}.currentInputWatermark", "value": str(watermark)}
        for index, watermark in enumerate(vertex["subtasks"].get("watermark", ()))
    ]


def metrics(vertex: Json) -> dict[str, float]:
    """Flink's names, with the subtask in front."""
    columns, rates = vertex["subtasks"], vertex["rates"]
    found: dict[str, float] = {}
    for index in range(vertex["parallelism"]):
        values = {
            "numRecordsIn": columns["records_in"][index],
            "numRecordsOut": columns["records_out"][index],
            "numRecordsInPerSecond": rates["records_in_per_second"][index],
            "numRecordsOutPerSecond": rates["records_out_per_second"][index],
            "accumulateBusyTimeMs": columns["busy_ms"][index],
            "accumulateBackPressuredTimeMs": columns["back_pressured_ms"][index],
            "busyTimeMsPerSecond": round(rates["busy"][index] * 1000, 1),
            "backPressuredTimeMsPerSecond": round(rates["back_pressured"][index] * 1000, 1),
            "idleTimeMsPerSecond": round(rates["idle"][index] * 1000, 1),
            "currentInputWatermark": _at(columns, "watermark", index),
            "stateEntries": _at(columns, "state_entries", index),
            "lastCheckpointSize": _at(columns, "snapshot_bytes", index),
            "checkpointAlignmentTime": _at(columns, "alignment_ms", index),
            **(_at(columns, "user", index) or {}),
        }
        found |= {f"{index}.{name}": value for name, value in values.items() if value is not None}
    return found


def accumulators(vertex: Json) -> Json:
    """Counters and the like of the user's functions, summed over the subtasks."""
    sums: dict[str, float] = {}
    for values in vertex["subtasks"].get("user", ()):
        for name, value in values.items():
            sums[name] = sums.get(name, 0) + value
    return {
        "id": vertex["key"],
        "user-accumulators": [{"name": name, "type": "Metric", "value": str(value)} for name, value in sums.items()],
    }


def job_metrics(facts: Json) -> dict[str, float]:
    """Flink's names of what is measured for a whole job."""
    history = [entry for entry in facts["checkpoints"]["history"] if entry["status"] == "COMPLETED"]
    counts = facts["checkpoints"]["counts"]
    found: dict[str, float | None] = {
        "uptime": times(facts)["duration"] if facts["state"] == "RUNNING" else 0,
        "numRestarts": sum(step["state"] == "RESTARTING" for step in facts["transitions"]),
        "numberOfCompletedCheckpoints": counts["completed"],
        "numberOfFailedCheckpoints": counts["failed"],
        "totalNumberOfCheckpoints": counts["completed"] + counts["failed"],
        "lastCheckpointSize": history[-1]["bytes"] if history else None,
        "lastCheckpointDuration": history[-1]["duration_ms"] if history else None,
        "numRecordsIn": facts["totals"]["records_in"],
        "numRecordsOut": facts["totals"]["records_out"],
        "numLateRecordsDropped": facts["totals"]["late_dropped"],
        "numEpochs": facts["totals"]["epochs"],
        "lastEpochDuration": facts["epochs"][-1]["duration_ms"] if facts["epochs"] else None,
        "currentWatermark": event_time(facts),
    }
    for pair in facts.get("latency", ()):
        between = f"latency.source_id.{pair['source']}.operator_id.{pair['sink']}"
        found |= {f"{between}.latency_p50": pair["p50_ms"], f"{between}.latency_p99": pair["p99_ms"]}
    for vertex in facts["vertices"]:
        for index, by_operator in enumerate(vertex["subtasks"].get("operator_latency", ())):
            for operator, source, told in ((o, s, t) for o, of in by_operator.items() for s, t in of.items()):
                between = f"latency.source_id.{source}.operator_id.{operator}.operator_subtask_index.{index}"
                found |= {f"{between}.latency_{name}": told[name] for name in ("count", "p50", "p95", "p99", "max")}
    return {name: value for name, value in found.items() if value is not None}


def selected(found: dict[str, float], wanted: str | None) -> list[Json]:
    """Flink's two answers: the names there are, or the values of those asked for."""
    if wanted is None:
        return [{"id": name} for name in found]
    return [{"id": name, "value": str(found[name])} for name in wanted.split(",") if name in found]


def task_managers(running: Iterable[Json]) -> list[Json]:
    """One a slot process: where the subtasks of running jobs live. Those of the embedded runtime live in the driver."""
    found: dict[str, Json] = {}
    for facts in running:
        driver = f"{facts['process'].get('host')}:{facts['process'].get('pid')}"
        for process in facts["slot_processes"]:
            name = driver if process == "embedded" else process
            machine = facts.get("machines", {}).get(process, {})  # facts of earlier versions do not tell
            slots = facts["slots"] if process == "embedded" else 1
            found[name] = {
                "id": name,
                "path": name,
                "dataPort": 0,
                "jmxPort": -1,
                "timeSinceLastHeartbeat": facts["epochs"][-1]["wall_ms"] if facts["epochs"] else facts["now_ms"],
                "slotsNumber": slots,
                "freeSlots": 0,
                "totalResource": {},
                "freeResource": {},
                "hardware": {
                    "cpuCores": machine.get("cpus", 0),
                    "physicalMemory": machine.get("host_memory_bytes", 0),
                    "freeMemory": machine.get("host_free_bytes", 0),
                    "managedMemory": 0,
                },
                "memoryConfiguration": {},
                "job": facts["job_id"],
                "host": name.partition(":")[0],
                "usedMemory": machine.get("memory_bytes", 0),
                "subtasks": _subtasks_in(facts, process),
                "allocatedSlots": [{"jobId": facts["job_id"], "resource": {}} for _ in range(slots)],
            }
    return list(found.values())


def _subtasks_in(facts: Json, process: str) -> list[Json]:
    """The subtasks that run in a process, with how busy they are."""
    return [
        {"vertex": vertex["key"], "name": vertex["name"], "subtask": index, "busy": vertex["rates"]["busy"][index]}
        for vertex in facts["vertices"]
        for index, slot in enumerate(vertex["subtasks"].get("slot", ()))
        if slot == process
    ]


def _at(columns: Json, name: str, index: int) -> Any:
    column = columns.get(name, ())
    return column[index] if index < len(column) else None
