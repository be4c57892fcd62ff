"""Documents about a whole job."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, TypeAlias

from penstock.common.job import JobStatus
from penstock.common.options import JobOptions, RestartStrategyOptions
from penstock.driver.splits import notice_key
from penstock.protocol.events import MIN_WATERMARK

Json: TypeAlias = dict[str, Any]

# A task's state in Flink's words, from its job's: tasks of one job start, run and end together here.
_TASK_STATE: Final = {
    "INITIALIZING": "INITIALIZING",
    "CREATED": "CREATED",
    "RUNNING": "RUNNING",
    "FAILING": "FAILED",
    "FAILED": "FAILED",
    "RESTARTING": "SCHEDULED",
    "CANCELLING": "CANCELING",
    "CANCELED": "CANCELED",
    "FINISHED": "FINISHED",
    "SUSPENDED": "CREATED",
    "RECONCILING": "RECONCILING",
}
_MODES: Final = {"spark": "epochs", "embedded": "embedded"}
_TASK_STATES: Final = (
    "CREATED", "SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED", "RECONCILING", "INITIALIZING",
)  # fmt: skip


def task_state(facts: Json) -> str:
    """Flink's state of the tasks of a job that is in this state."""
    return _TASK_STATE[facts["state"]]


def task_counts(facts: Json, tasks: int) -> dict[str, int]:
    """How many tasks are in each of Flink's states."""
    return {state: tasks if state == task_state(facts) else 0 for state in _TASK_STATES}


def times(facts: Json) -> Json:
    """-1: it has not ended, as in Flink."""
    end = facts["end_ms"]
    return {
        "start-time": facts["start_ms"],
        "end-time": -1 if end is None else end,
        "duration": (facts["now_ms"] if end is None else end) - facts["start_ms"],
    }


def overview(facts: Json) -> Json:
    """Flink's short document of a job."""
    tasks = sum(vertex["parallelism"] for vertex in facts["vertices"])
    counts = {state.lower(): count for state, count in task_counts(facts, tasks).items()}
    return {
        "jid": facts["job_id"],
        "name": facts["name"],
        **times(facts),
        "state": facts["state"],
        "last-modification": facts["transitions"][-1]["at_ms"],
        "tasks": {"total": tasks, **counts},
        # Ours: what a list of jobs wants to show.
        "execution-mode": mode(facts),
        "runtime": facts["runtime"],
        "slots": facts["slots"],
        "records-in": facts["totals"]["records_in"],
        "records-out": facts["totals"]["records_out"],
    }


def timestamps(facts: Json) -> dict[str, int]:
    """When the job entered each of Flink's states last; 0 if it never did."""
    last = {step["state"]: step["at_ms"] for step in facts["transitions"]}
    return {state.name: last.get(state.name, 0) for state in JobStatus}


def details(facts: Json, bottleneck: str | None, asked_for: Json | None = None) -> Json:
    """`asked_for`: how the job was submitted, if it was."""
    return {
        "jid": facts["job_id"],
        "name": facts["name"],
        "isStoppable": facts["state"] == "RUNNING",
        "state": facts["state"],
        "job-type": "STREAMING",
        **times(facts),
        "maxParallelism": facts["max_parallelism"],
        "now": facts["now_ms"],
        "timestamps": timestamps(facts),
        "vertices": [vertex_summary(facts, vertex) for vertex in facts["vertices"]],
        "status-counts": task_counts(facts, len(facts["vertices"])),
        "plan": plan(facts),
        # Ours.
        "execution-mode": mode(facts),
        "execution-mode-reason": facts.get("execution_mode_reason"),
        "runtime": facts["runtime"],
        "bottleneck": bottleneck,
        "epochs": facts["epochs"],
        "watermark": event_time(facts),
        "held-back": held_back(facts),
        "latency": latency(facts),
        "totals": facts["totals"],
        "repeated": facts.get("repeated", {}),
        "notices": facts.get("notices", []),  # not in facts of earlier versions
        "drivers": facts["drivers"],
        "slots": facts["slots"],
        "program": None if asked_for is None else asked_for["program"],
        "submitted": asked_for,
    }


def event_time(facts: Mapping[str, Any]) -> int | None:
    """How far event time has come at the job's ends, where all that feeds them has met; None while it has not begun there.

    A vertex before the one that makes watermarks never has any, and neither has a branch that leaves before it.
    """
    feeding = {edge["vertex"] for vertex in facts["vertices"] for edge in vertex["inputs"]}
    ends = (vertex["subtasks"].get("watermark") for vertex in facts["vertices"] if vertex["id"] not in feeding)
    reached = (min(marks) for marks in ends if marks)
    return min((mark for mark in reached if mark > MIN_WATERMARK), default=None)


def mode(facts: Mapping[str, Any]) -> str | None:
    """How the job is run; None if it has yet to be chosen. Facts of earlier versions do not tell."""
    said: str | None = facts.get("execution_mode", _MODES.get(facts["runtime"]))
    return said


def held_back(facts: Json) -> list[Json]:
    """Sources some of whose subtasks have no watermark while others have, and so stop event time behind them. Empty once event
    time has come to the job's ends: an idle subtask is not waited for. Without those of which a notice says more."""
    if facts["state"] != "RUNNING" or event_time(facts) is not None:
        return []
    found, said = [], {notice["key"] for notice in facts.get("notices", ())}
    for vertex in facts["vertices"]:
        if vertex["operators"] and notice_key(vertex["operators"][0]["uid"]) in said:
            continue
        marks = vertex["subtasks"].get("watermark", ())
        without = [index for index, mark in enumerate(marks) if mark == MIN_WATERMARK]
        if not vertex["inputs"] and 0 < len(without) < len(marks):
            found.append({"id": vertex["key"], "name": vertex["name"], "subtasks": without, "of": len(marks)})
    return found


def vertex_summary(facts: Json, vertex: Json) -> Json:
    """Flink's short document of a vertex."""
    subtasks, rates = vertex["subtasks"], vertex["rates"]
    return {
        "id": vertex["key"],
        "slotSharingGroupId": "0" * 32,
        "name": vertex["name"],
        "maxParallelism": facts["max_parallelism"],
        "parallelism": vertex["parallelism"],
        "status": task_state(facts),
        **times(facts),
        "tasks": task_counts(facts, vertex["parallelism"]),
        "metrics": io_metrics(facts, vertex, range(vertex["parallelism"])),
        # Ours: live, over the last ten seconds.
        "level": vertex["level"],
        "operators": vertex["operators"],
        "rates": {
            "records-in-per-second": round(sum(rates["records_in_per_second"]), 3),
            "records-out-per-second": round(sum(rates["records_out_per_second"]), 3),
            "busy": max(rates["busy"], default=0.0),
            "back-pressured": max(rates["back_pressured"], default=0.0),
            "committing": vertex.get("committing", 0.0),
            "busy-by-subtask": rates["busy"],
            "back-pressured-by-subtask": rates["back_pressured"],
            "idle-by-subtask": rates["idle"],
        },
        "skew": skew(rates["records_in_per_second"] if any(rates["records_in_per_second"]) else subtasks["records_in"]),
        "latency": operator_latency(facts, subtasks.get("latency", ())),
        "watermark": min(subtasks.get("watermark", ()), default=None),
        "state-entries": sum(subtasks.get("state_entries", ())),
    }


def skew(values: Sequence[float]) -> float:
    """How unevenly records are spread over subtasks, as Flink has it: the mean distance from the mean, as a part of the mean.
    0: evenly."""
    mean = sum(values) / len(values) if values else 0.0
    return round(sum(abs(value - mean) for value in values) / len(values) / mean, 4) if mean else 0.0


def spread(values: Sequence[float]) -> Json:
    """Flink's summary of a measure over the subtasks of a vertex."""
    ordered = sorted(values) or [0]

    def nearest(part: float) -> float:
        return ordered[max(0, math.ceil(part * len(ordered)) - 1)]

    quantiles = {"p25": nearest(0.25), "p75": nearest(0.75), "p95": nearest(0.95)}
    total = round(sum(ordered), 4)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": round(total / len(ordered), 4),
        "sum": total,
        "median": median(ordered),
        **quantiles,
    }


def operator_latency(facts: Json, subtasks: Iterable[Json | None]) -> list[Json]:
    """From each source to one vertex, in ms, where the runtime measures it. Of several subtasks the slowest one's quantiles:
    how long a record takes at the most."""
    names = {operator["uid"]: operator["name"] for vertex in facts["vertices"] for operator in vertex["operators"]}
    found: dict[str, Json] = {}
    for source, told in (pair for by_source in subtasks for pair in (by_source or {}).items()):
        worst = found.setdefault(source, {"source": source, "source-name": names.get(source, source), "count": 0})
        worst["count"] += told["count"]
        worst |= {name: max(worst.get(name, 0), told[name]) for name in ("p50", "p95", "p99", "max")}
    return list(found.values())


def latency(facts: Json) -> list[Json]:
    """From each source to each sink, with the names people gave them, and with the uid where several have one name."""
    names = {operator["uid"]: operator["name"] for vertex in facts["vertices"] for operator in vertex["operators"]}
    pairs = facts.get("latency", ())
    ends = Counter(names.get(uid, uid) for uid in {pair[end] for pair in pairs for end in ("source", "sink")})

    def name_of(uid: str) -> str:
        name = names.get(uid, uid)
        return name if ends[name] == 1 else f"{name} ({uid})"

    return [{**pair, "source-name": name_of(pair["source"]), "sink-name": name_of(pair["sink"])} for pair in pairs]


def io_metrics(facts: Json, vertex: Json, subtasks: Sequence[int]) -> Json:
    """Of some subtasks of a vertex together. Bytes are not counted; `…-complete` says whether a number is."""
    columns = vertex["subtasks"]
    records_in, records_out, busy_ms, back_pressured_ms = (
        sum(columns[name][subtask] for subtask in subtasks)
        for name in ("records_in", "records_out", "busy_ms", "back_pressured_ms")
    )
    alive_ms = times(facts)["duration"] * len(subtasks)
    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": 0,
        "write-bytes-complete": False,
        "read-records": int(records_in),
        "read-records-complete": True,
        "write-records": int(records_out),
        "write-records-complete": True,
        "accumulated-backpressured-time": int(back_pressured_ms),
        "accumulated-idle-time": int(max(0.0, alive_ms - busy_ms - back_pressured_ms)),
        "accumulated-busy-time": round(busy_ms, 2),
    }


def plan(facts: Json) -> Json:
    """Flink's plan is a DAG, and so are `inputs`; what an iteration sends back is beside them, at the vertex of its head."""
    keys = {vertex["id"]: vertex["key"] for vertex in facts["vertices"]}
    feedback: dict[int, list[Json]] = {}
    for edge in facts.get("feedback", ()):
        feedback.setdefault(edge["to"], []).append({"id": keys[edge["from"]], "ship_strategy": "FEEDBACK"})
    return {
        "jid": facts["job_id"],
        "name": facts["name"],
        "type": "STREAMING",
        "nodes": [
            {
                "id": vertex["key"],
                "parallelism": vertex["parallelism"],
                "operator": "",
                "operator_strategy": "",
                "description": vertex["name"],
                "level": vertex["level"],
                "chain": [operator["name"] for operator in vertex["operators"]],
                "inputs": [
                    {
                        "num": number,
                        "id": keys[edge["vertex"]],
                        "ship_strategy": edge["ship_strategy"],
                        "exchange": "spark_shuffle",
                        **({"side_output": edge["tag"]} if edge["tag"] is not None else {}),
                    }
                    for number, edge in enumerate(vertex["inputs"])
                ],
                **({"feedback": feedback[vertex["id"]]} if vertex["id"] in feedback else {}),
                "optimizer_properties": {},
            }
            for vertex in facts["vertices"]
        ],
    }


def config(facts: Json) -> Json:
    """Flink's document of a job's settings."""
    configuration = facts["configuration"]
    return {
        "jid": facts["job_id"],
        "name": facts["name"],
        "execution-config": {
            "execution-mode": "PIPELINED",
            "restart-strategy": RestartStrategyOptions.TYPE.get(configuration) or "default",
            "job-parallelism": facts["slots"],
            "object-reuse-mode": JobOptions.OBJECT_REUSE.get(configuration),
            "user-config": configuration,
        },
    }


def exceptions(facts: Json, most: int) -> Json:
    """The newest first."""
    newest = list(reversed(facts["exceptions"]))
    driver = f"{facts['process'].get('host')}:{facts['process'].get('pid')}"

    def process(entry: Json) -> str | None:
        """Where a task failed; the embedded runtime's are in the driver."""
        if not entry.get("task"):
            return None
        return driver if entry["process"] in (None, "", "embedded") else entry["process"]

    entries = [
        {
            "exceptionName": entry["name"],
            "message": entry["message"],
            "stacktrace": entry["stacktrace"],
            "timestamp": entry["at_ms"],
            "taskName": entry.get("task"),
            "endpoint": process(entry),
            "taskManagerId": process(entry),
            "failureLabels": {},
            "concurrentExceptions": [],
        }
        for entry in newest[:most]
    ]
    last = newest[0] if newest else None
    return {
        "root-exception": None if last is None else last["stacktrace"],
        "timestamp": None if last is None else last["at_ms"],
        "all-exceptions": [],
        "truncated": len(newest) > most,
        "exceptionHistory": {"entries": entries, "truncated": len(newest) > most},
    }
