"""Everything a job tells about itself, as one JSON document: what REST, the command and the page are rendered from.

The driver keeps it in memory, serves it through its control endpoint, and writes it to the job's folder once a second and
at every change of state: so a job that has ended, or whose driver is dead, can be shown in the same way. A driver that
takes a job over goes on with the history it finds there.

What the driver's own statistics add to the checkpoints that epoch reports tell of. Pure.

A snapshot may be stored after its epoch's report was made: then only the statistics know whether, when and how large the
checkpoint became. They also count over all starts of a job folder, and say why a checkpoint failed.
"""

from __future__ import annotations

import hashlib
import reprlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from penstock.common.secrets import hide_secrets
from penstock.common.time import now_ms
from penstock.driver.checkpoint_statistics import CheckpointRecord, CheckpointStatistics
from penstock.driver.control.rates import committing, recent_reports, vertex_rates
from penstock.engine.messages import EpochReport
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.iterations import feedback_edges
from penstock.graph.job_graph import JobVertex


def with_statistics(checkpoints: dict[str, Any], statistics: CheckpointStatistics) -> dict[str, Any]:
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
    restored = statistics.latest("restored")
    return {
        "counts": {
            "completed": statistics.completed + savepoints,
            "failed": statistics.failed,
            "restored": statistics.restored,
        },
        "history": history,
        "restored": checkpoints["restored"] if restored is None else _restored(restored.checkpoint_id, restored.at_ms),
    }


def _restored(checkpoint: int, at_ms: int) -> dict[str, Any]:
    return {"id": checkpoint, "restore_timestamp": at_ms, "is_savepoint": False, "external_path": None}


def _outcome(record: CheckpointRecord, trigger_ms: int) -> dict[str, Any]:
    return {
        "status": record.status.upper(),
        "ack_ms": record.at_ms,
        "duration_ms": max(0, record.at_ms - trigger_ms),
        "bytes": record.bytes,
        "reason": record.reason,
    }


def _unreported(record: CheckpointRecord) -> dict[str, Any]:
    """One whose epoch has no report: it failed, or an earlier driver ran it."""
    trigger_ms = record.at_ms - int(record.duration_ms)
    return {**_entry(record.checkpoint_id, trigger_ms), **_outcome(record, trigger_ms)}


def _entry(checkpoint: int, trigger_ms: int, *, is_savepoint: bool = False, path: str | None = None) -> dict[str, Any]:
    """What is said of every checkpoint; of the subtasks only a report tells."""
    return {
        "id": checkpoint,
        "status": "COMPLETED",
        "is_savepoint": is_savepoint,
        "trigger_ms": trigger_ms,
        "manifest_ms": 0.0,
        "commit_ms": 0.0,
        "path": path,
        "subtasks": 0,
    }


VERSION = 1
_EPOCHS = 300
_CHECKPOINTS = 50
_DETAILED_CHECKPOINTS = 10
_TOTALS = ("records_in", "records_out", "busy_ms", "back_pressured_ms")
# Counted once, with where it is noted how much was repeated. The time that repeated work took was spent all the same.
_COUNTED_ONCE = {"records_in": "repeated_in", "records_out": "repeated_out"}
_MARKS = 5
_IN_SUMMARY = ("id", "records_in", "records_out", "busy_ms", "back_pressured_ms", "commit_ms", "watermark")
_CHECKPOINT_COLUMNS = ("snapshot_bytes", "snapshot_ms", "alignment_ms")
_MEASURED_BY_SOME = (
    "start_delay_ms",
    "alignment_buffered_bytes",
    "alignment_persisted_bytes",
    "sync_ms",
    "async_ms",
)  # runtimes


def vertex_key(vertex: JobVertex) -> str:
    """A vertex's id in REST: 32 hexadecimal digits, as Flink's, the same for as long as its head keeps its uid."""
    return hashlib.md5(vertex.state_id.encode(), usedforsecurity=False).hexdigest()


class FactsRecorder:
    """Collects facts of one job in its driver. All methods may be called from any thread."""

    def __init__(
        self,
        *,
        job_id: str,
        graph: Callable[[], ExecutionGraph],
        life_cycle: Callable[[], dict[str, Any]],
        configuration: Mapping[str, str],
        runtime: str,
        storage_url: str | None,
        process: Mapping[str, Any],
        program: Sequence[str] = (),
        execution: Mapping[str, str] | None = None,
        statistics: Callable[[], CheckpointStatistics] | None = None,
        accumulators: Callable[[], Mapping[str, Any]] = dict,
        notices: Callable[[], list[dict[str, Any]]] = list,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._graph, self._life_cycle, self._clock = graph, life_cycle, clock
        self._fixed = {
            "version": VERSION,
            "job_id": job_id,
            "runtime": runtime,
            "configuration": hide_secrets(configuration),
            "job_folder": storage_url,
            "process": dict(process),
            "program": list(program),
            **(execution or {}),
        }
        self._storage_url, self._statistics, self._accumulators = storage_url, statistics, accumulators
        self._notices = notices
        self._lock = threading.Lock()
        self._started_ms = clock()
        self._drivers = 1
        self._reports: deque[EpochReport] = deque(maxlen=_EPOCHS)
        self._totals: dict[int, dict[str, list[float]]] = {}
        self._job_totals = {"records_in": 0, "records_out": 0, "epochs": 0, "late_dropped": 0}
        self._repeated = dict.fromkeys(self._job_totals, 0)
        self._last_epoch = 0
        self._marks: deque[dict[str, Any]] = deque([self._mark(0)], maxlen=_MARKS)  # what was counted at checkpoints
        self._checkpoints: deque[dict[str, Any]] = deque(maxlen=_CHECKPOINTS)
        self._counts = {"completed": 0, "failed": 0, "restored": 0}
        self._restored: dict[str, Any] | None = None
        self._earlier: dict[str, Any] = {"transitions": [], "exceptions": []}
        self._operations: deque[dict[str, Any]] = deque(maxlen=_CHECKPOINTS)

    def continue_from(self, facts: Mapping[str, Any] | None) -> None:
        """Goes on from what the job's earlier driver wrote: totals, history and start time."""
        if facts is None or facts.get("version") != VERSION or facts.get("job_id") != self._fixed["job_id"]:
            return
        with self._lock:
            self._started_ms = facts["start_ms"]
            self._drivers = facts["drivers"] + 1
            self._job_totals.update(facts["totals"])
            for vertex in facts["vertices"]:
                self._totals[vertex["id"]] = _totals_of(vertex["subtasks"], vertex["parallelism"])
            self._repeated.update(facts.get("repeated", {}))
            counted = facts.get("counted", {"epoch": 0, "at": []})  # facts of earlier versions do not tell
            self._last_epoch, self._marks = counted["epoch"], deque(counted["at"], maxlen=_MARKS)
            self._checkpoints.extend(facts["checkpoints"]["history"])
            self._counts.update(facts["checkpoints"]["counts"])
            self._restored = facts["checkpoints"]["restored"]
            self._operations.extend(facts["operations"])
            self._earlier = {name: list(facts[name])[-200:] for name in ("transitions", "exceptions")}

    # ---------------------------------------------------------------- events

    def on_report(self, report: EpochReport) -> None:
        """Takes the report of an epoch into the facts."""
        with self._lock:
            if report.restored_tasks and (not self._reports or report.job_attempt != self._reports[-1].job_attempt):
                self._note_restore(report)
            if report.epoch <= self._last_epoch:
                self._uncount(report.epoch)
            self._last_epoch = report.epoch
            self._reports.append(report)
            self._job_totals["records_in"] += report.records_in
            self._job_totals["records_out"] += report.records_out
            self._job_totals["epochs"] += 1
            for vertex in report.vertices:
                self._job_totals["late_dropped"] += vertex["late_dropped"]
                self._add_totals(vertex)
            if report.checkpoint:
                self._counts["completed"] += 1
                self._checkpoints.append(self._checkpoint(report))
                self._marks.append(self._mark(report.epoch))

    def _mark(self, epoch: int) -> dict[str, Any]:
        records = {str(v): {name: list(totals[name]) for name in _COUNTED_ONCE} for v, totals in self._totals.items()}
        return {"epoch": epoch, "totals": dict(self._job_totals), "vertices": records}

    def _uncount(self, epoch: int) -> None:
        """The job went back to a checkpoint, and runs this epoch again: what was counted since then is counted anew."""
        while self._marks and self._marks[-1]["epoch"] >= epoch:
            self._marks.pop()
        if not self._marks:  # it went back further than is remembered
            return
        for name, count in self._marks[-1]["totals"].items():
            self._repeated[name] += self._job_totals[name] - count
            self._job_totals[name] = count
        for vertex, totals in self._totals.items():
            counted = self._marks[-1]["vertices"].get(str(vertex), {})
            for name, repeated in _COUNTED_ONCE.items():
                before = counted.get(name, ())
                before = before if len(before) == len(totals[name]) else [0] * len(totals[name])  # or rescaled since
                totals[repeated] = [r + t - b for r, t, b in zip(totals[repeated], totals[name], before, strict=True)]
                totals[name] = list(before)

    def _note_restore(self, report: EpochReport) -> None:
        """The first epoch after a start from a checkpoint, or after going back to one."""
        self._counts["restored"] += 1
        before = [c["id"] for c in self._checkpoints if c["id"] < report.epoch]
        begun_ms = report.wall_ms - int(report.duration_ms)
        self._restored = _restored(max(before, default=report.epoch - 1), begun_ms)

    def _add_totals(self, vertex: Mapping[str, Any]) -> None:
        totals = self._totals.get(vertex["id"])
        if totals is None or len(totals["records_in"]) != vertex["parallelism"]:  # the first epoch, or rescaled
            totals = self._totals[vertex["id"]] = _totals_of({}, vertex["parallelism"])
        for name in _TOTALS:
            for subtask, value in enumerate(vertex["subtasks"][name]):
                totals[name][subtask] += value

    def _checkpoint(self, report: EpochReport) -> dict[str, Any]:
        for older in list(self._checkpoints)[: -_DETAILED_CHECKPOINTS + 1]:
            older.pop("vertices", None)
        path = None if self._storage_url is None else f"{self._storage_url}/checkpoints/chk-{report.epoch}"
        return {
            **_entry(report.epoch, report.wall_ms - int(report.duration_ms), path=path),
            "ack_ms": report.wall_ms,
            "duration_ms": round(report.duration_ms, 2),
            "bytes": report.checkpoint_bytes,
            "manifest_ms": round(report.manifest_ms, 2),
            "commit_ms": round(report.commit_ms, 2),
            "alignment_ms": max((ms for v in report.vertices for ms in v["subtasks"]["alignment_ms"]), default=0),
            "subtasks": sum(vertex["parallelism"] for vertex in report.vertices),
            "vertices": {
                str(vertex["id"]): {name: vertex["subtasks"][name] for name in _CHECKPOINT_COLUMNS}
                | {name: vertex["subtasks"][name] for name in _MEASURED_BY_SOME if name in vertex["subtasks"]}
                for vertex in report.vertices
            },
        }

    def savepoint_completed(self, path: str, trigger_ms: int, size: int) -> None:
        """Notes a savepoint that is whole."""
        now = self._clock()
        with self._lock:
            self._counts["completed"] += 1
            epoch = self._reports[-1].epoch if self._reports else 0
            entry = _entry(epoch, trigger_ms, is_savepoint=True, path=path)
            self._checkpoints.append({**entry, "ack_ms": now, "duration_ms": now - trigger_ms, "bytes": size})

    def operation(self, entry: dict[str, Any]) -> None:
        """A long action that was asked for, or its end: replaces the entry with the same trigger id."""
        with self._lock:
            kept = [e for e in self._operations if e["trigger_id"] != entry["trigger_id"]]
            self._operations.clear()
            self._operations.extend([*kept, entry])

    # ---------------------------------------------------------------- the document

    def snapshot(self) -> dict[str, Any]:
        """A copy that nobody changes any more."""
        life = self._life_cycle()
        graph = self._graph()
        now = self._clock()
        statistics = None if self._statistics is None else self._statistics()
        with self._lock:
            reports = list(self._reports)
            checkpoints: dict[str, Any] = {
                "counts": dict(self._counts),
                "history": [dict(checkpoint) for checkpoint in self._checkpoints],
                "restored": self._restored,
            }
            transitions = [*self._earlier["transitions"], *life["transitions"]]
            ended = life["state"] in ("FINISHED", "FAILED", "CANCELED")
            recent = [] if ended else recent_reports(reports, now)
            return {
                **self._fixed,
                "name": graph.job.job_name,
                "state": life["state"],
                "start_ms": self._started_ms,
                "end_ms": transitions[-1]["at_ms"] if ended else None,
                "now_ms": now,
                "drivers": self._drivers,
                "transitions": transitions[-200:],
                "exceptions": [*self._earlier["exceptions"], *life["exceptions"]][-200:],
                "max_parallelism": graph.job.max_parallelism,
                "slots": graph.slots,
                "slot_processes": reports[-1].slots if reports else [],
                "machines": reports[-1].machines if reports else {},
                "totals": dict(self._job_totals),
                "repeated": dict(self._repeated),
                "counted": {"epoch": self._last_epoch, "at": list(self._marks)},
                "watermark": reports[-1].watermark if reports else None,
                "latency": reports[-1].latency if reports else [],
                "vertices": [self._vertex(v, reports, recent, now) for v in graph.job.vertices.values()],
                "feedback": [{"from": tail, "to": head} for tail, head in feedback_edges(graph.job)],
                "epochs": [_summary(report) for report in reports[-120:]],
                "checkpoints": checkpoints if statistics is None else with_statistics(checkpoints, statistics),
                "accumulators": {
                    name: {"type": type(value).__name__, "value": reprlib.repr(value)}
                    for name, value in self._accumulators().items()
                },
                "operations": [dict(operation) for operation in self._operations],
                "notices": [] if ended else self._notices(),
            }

    def _vertex(
        self, vertex: JobVertex, reports: list[EpochReport], recent: Sequence[EpochReport], now: int
    ) -> dict[str, Any]:
        totals = self._totals.get(vertex.id)
        if totals is None or len(totals["records_in"]) != vertex.parallelism:
            totals = _totals_of({}, vertex.parallelism)
        last = next((v for v in reports[-1].vertices if v["id"] == vertex.id), None) if reports else None
        latest = {} if last is None or last["parallelism"] != vertex.parallelism else last["subtasks"]
        return {
            "id": vertex.id,
            "key": vertex_key(vertex),
            "name": vertex.name,
            "level": vertex.level,
            "parallelism": vertex.parallelism,
            "operators": [
                {"uid": node.operator_id, "name": node.name, "kind": node.kind, "stateful": node.stateful}
                for node in vertex.nodes
            ],
            "inputs": [
                {
                    "vertex": edge.source,
                    "ship_strategy": edge.stream_edge.partitioner.name,
                    "input": edge.stream_edge.input,
                    "tag": edge.stream_edge.tag,
                }
                for edge in vertex.inputs
            ],
            "subtasks": {
                **{name: [round(value, 2) for value in values] for name, values in totals.items()},
                **{name: column for name, column in latest.items() if name not in totals},
                **({} if not latest else {"user": _user_metrics(last, vertex.parallelism)}),
            },
            "rates": vertex_rates(recent, vertex.id, vertex.parallelism, now),
            "committing": committing(recent, vertex.id, now),
            "late_dropped": sum(v["late_dropped"] for r in reports for v in r.vertices if v["id"] == vertex.id),
        }


def _totals_of(subtasks: Mapping[str, list[float]], parallelism: int) -> dict[str, list[float]]:
    return {name: list(subtasks.get(name, [0] * parallelism)) for name in (*_TOTALS, *_COUNTED_ONCE.values())}


def _user_metrics(vertex: Mapping[str, Any] | None, parallelism: int) -> list[dict[str, float]]:
    """What the user's functions measure: for each subtask, by `uid.name`."""
    found: list[dict[str, float]] = [{} for _ in range(parallelism)]
    for uid, operator in ({} if vertex is None else vertex["operators"]).items():
        for name, values in operator["user"].items():
            for subtask, value in enumerate(values):
                if value is not None:
                    found[subtask][f"{uid}.{name}"] = value
    return found


def _summary(report: EpochReport) -> dict[str, Any]:
    """An epoch without its subtasks, for a timeline."""
    summary = {
        f.name: getattr(report, f.name)
        for f in fields(report)
        if f.name not in ("vertices", "slots", "machines", "latency")
    }
    summary["vertices"] = [{name: v[name] for name in _IN_SUMMARY} for v in report.vertices]
    return summary
