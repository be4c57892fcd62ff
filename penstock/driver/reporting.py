"""From the acknowledgements of an epoch to its line in the job's history.

What the subtasks have accumulated, put together by the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from penstock.checkpoint.manifest import Manifest, StateHandle
from penstock.common.accumulators import Accumulator, merge_into
from penstock.driver.waiting import CommitTime, EpochBounds, feeders, slowest, waited_ms
from penstock.engine.messages import EpochPlan, EpochReport, TaskAck
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import JobVertex
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.protocol.ids import TaskId, VertexId
from penstock.state.operator_lists import ACCUMULATORS, newest_lists
from penstock.state.snapshot_file import read_tables


def epoch_report(
    graph: ExecutionGraph,
    plan: EpochPlan,
    acks: Mapping[TaskId, TaskAck],
    *,
    wall_ms: int,
    duration_ms: float,
    checkpoint_bytes: int,
    manifest_ms: float,
    generation: int,
    latency: list[dict[str, Any]] | None = None,
    bounds: EpochBounds | None = None,
    commits: Mapping[str, CommitTime] | None = None,
) -> EpochReport:
    """`commits`: by sink."""
    of_vertex = {
        vertex.id: _vertex_report(vertex, [acks[TaskId(vertex.id, i)] for i in range(vertex.parallelism)])
        for vertex in graph.job.vertices.values()
    }
    watermarks = [w for v in of_vertex.values() if MIN_WATERMARK < (w := v["watermark"]) < MAX_WATERMARK]
    sources = [of_vertex[v.id] for v in graph.job.vertices.values() if v.is_source]
    sinks = [
        of_vertex[v.id]["operators"][node.operator_id]
        for v in graph.job.vertices.values()
        for node in v.nodes
        if node.kind == "sink"
    ]
    bounds = bounds or EpochBounds()
    read = [source["records_in"] for source in sources]
    held_up = bounds.held_up(duration_ms, read)
    committed = _by_vertex(graph, commits or {})
    for vertex_id, spent in committed.items():
        of_vertex[vertex_id]["commit_ms"] = round(spent.took_ms, 2)
    bottleneck = _press(graph, of_vertex, acks, duration_ms, committed, bounds.least_share(read)) if held_up else None
    return EpochReport(
        epoch=plan.epoch,
        wall_ms=wall_ms,
        checkpoint=plan.checkpoint,
        duration_ms=duration_ms,
        records_in=sum(v["records_in"] for v in sources),
        records_out=sum(sink["records_in"] for sink in sinks),
        watermark=min(watermarks, default=None),
        feedback=sum(sum(ack.feedback.values()) for ack in acks.values()),
        checkpoint_bytes=checkpoint_bytes,
        manifest_ms=manifest_ms,
        commit_ms=sum(spent.took_ms for spent in committed.values()),
        job_attempt=plan.job_attempt,
        generation=generation,
        restored_tasks=sum(ack.recovered == "restored" for ack in acks.values()),
        replayed_tasks=sum(ack.recovered == "replayed" for ack in acks.values()),
        vertices=list(of_vertex.values()),
        slots=sorted({ack.slot for ack in acks.values()}),
        machines={ack.slot: dict(ack.machine) for ack in acks.values() if ack.machine},
        latency=latency or [],
        admitted=bounds.admitted,
        held_up=held_up,
        bottleneck=bottleneck,
    )


def _press(
    graph: ExecutionGraph,
    reports: Mapping[VertexId, dict[str, Any]],
    acks: Mapping[TaskId, TaskAck],
    duration_ms: float,
    committed: Mapping[VertexId, CommitTime],
    least_share: float,
) -> int | None:
    """The vertex that held the epoch up; those that feed it get the time they waited for it."""
    work = {vertex: _work_ms([ack for task, ack in acks.items() if task.vertex == vertex]) for vertex in reports}
    work |= {vertex: spent.after(work[vertex]) for vertex, spent in committed.items()}
    found = slowest(work, duration_ms, least_share)
    if found is None:
        return None
    for vertex in feeders(graph.job, found):
        columns = reports[vertex]["subtasks"]
        columns["back_pressured_ms"] = [
            round(waited_ms(duration_ms=duration_ms, busy_ms=busy, blocked_ms=blocked, bottleneck_ms=work[found]), 2)
            for busy, blocked in zip(columns["busy_ms"], columns["back_pressured_ms"], strict=True)
        ]
        reports[vertex]["back_pressured_ms"] = round(sum(columns["back_pressured_ms"]), 2)
    return int(found)


def _by_vertex(graph: ExecutionGraph, commits: Mapping[str, CommitTime]) -> dict[VertexId, CommitTime]:
    found: dict[VertexId, CommitTime] = {}
    for vertex in graph.job.vertices.values():
        for node in vertex.nodes:
            if node.operator_id in commits:
                found[vertex.id] = found.get(vertex.id, CommitTime()).and_(commits[node.operator_id])
    return found


def _work_ms(acks: list[TaskAck]) -> float:
    """How long an epoch must take because of a vertex: subtasks of one process run one after the other."""
    of_process: dict[str, float] = {}
    for ack in acks:
        of_process[ack.slot] = of_process.get(ack.slot, 0.0) + ack.busy_ms
    return max(of_process.values(), default=0.0)


def _vertex_report(vertex: JobVertex, acks: list[TaskAck]) -> dict[str, Any]:
    def total(operator_id: str, counter: str) -> int:
        return sum(ack.metrics.get(operator_id, {}).get(counter, 0) for ack in acks)

    operators = [node.operator_id for node in vertex.nodes]
    return {
        "id": vertex.id,
        "name": vertex.name,
        "level": vertex.level,
        "parallelism": vertex.parallelism,
        "records_in": total(operators[0], "records_in"),
        "records_out": total(operators[-1], "records_out"),
        "busy_ms": round(sum(ack.busy_ms for ack in acks), 2),
        "back_pressured_ms": round(sum(ack.back_pressured_ms for ack in acks), 2),
        "blocked_ms": round(sum(ack.back_pressured_ms for ack in acks), 2),
        "watermark": min(ack.watermark for ack in acks),
        "state_entries": sum(ack.state_entries for ack in acks),
        "snapshot_ms": round(max(ack.snapshot_ms for ack in acks), 2),
        "commit_ms": 0.0,
        "late_dropped": sum(total(operator, "late_dropped") for operator in operators),
        "operators": {
            operator: {
                "records_in": total(operator, "records_in"),
                "records_out": total(operator, "records_out"),
                "user": _user_metrics(operator, acks),
            }
            for operator in operators
        },
        "recovered": [ack.recovered for ack in acks],
        "subtasks": {
            **_subtask_columns(operators[0], operators[-1], acks),
            **_latency_columns(operators, acks),
        },
    }


def _subtask_columns(first: str, last: str, acks: list[TaskAck]) -> dict[str, list[Any]]:
    """One list a measure, one entry a subtask: a report of a wide job stays small."""
    return {
        "records_in": [ack.metrics.get(first, {}).get("records_in", 0) for ack in acks],
        "records_out": [ack.metrics.get(last, {}).get("records_out", 0) for ack in acks],
        "busy_ms": [round(ack.busy_ms, 2) for ack in acks],
        "back_pressured_ms": [round(ack.back_pressured_ms, 2) for ack in acks],
        "watermark": [ack.watermark for ack in acks],
        "state_entries": [ack.state_entries for ack in acks],
        "snapshot_bytes": [ack.snapshot_bytes for ack in acks],
        "snapshot_ms": [round(ack.snapshot_ms, 2) for ack in acks],
        "idle_ms": [round(ack.idle_ms, 2) for ack in acks],
        "start_delay_ms": [round(ack.start_delay_ms, 2) for ack in acks],
        "alignment_ms": [round(ack.alignment_ms, 2) for ack in acks],
        "alignment_buffered_bytes": [ack.alignment_buffered_bytes for ack in acks],
        "overtaken": [ack.overtaken for ack in acks],
        "sync_ms": [round(ack.sync_ms, 2) for ack in acks],
        "slot": [ack.slot for ack in acks],
    }


def _latency_columns(operators: list[str], acks: list[TaskAck]) -> dict[str, list[Any]]:
    """How long latency markers took, if there were any: from each source to each operator of the chain, and to its end."""
    of_operators = [
        {name: told for name in operators if (told := ack.metrics.get(name, {}).get("latency"))} for ack in acks
    ]
    if not any(of_operators):
        return {}
    ends: list[dict[str, Any]] = [{} for _ in acks]
    for end, of_subtask in zip(ends, of_operators, strict=True):
        for told in of_subtask.values():  # in the order of the chain
            end |= told
    return {"latency": ends, "operator_latency": of_operators}


def _user_metrics(operator: str, acks: list[TaskAck]) -> dict[str, list[float | None]]:
    """By name, for each subtask: only the function knows whether a sum of them would mean anything."""
    values = [ack.metrics.get(operator, {}).get("user", {}) for ack in acks]
    names = sorted({name for part in values for name in part})
    return {name: [part.get(name) for part in values] for name in names}


Accumulated: TypeAlias = dict[str, Accumulator[Any, Any]]


class JobAccumulators:
    """The accumulators of the whole job, as of the last epoch that completed. `results` may be called from any
    thread.
    """

    def __init__(self) -> None:
        self._values: Accumulated = {}
        self._epoch = 0

    def results(self) -> dict[str, Any]:
        """The values of all accumulators, by name."""
        return {name: accumulator.get_local_value() for name, accumulator in self._values.items()}

    def completed(self, epoch: int, parts: Iterable[Mapping[str, Accumulator[Any, Any]]]) -> None:
        """Every task brings its own whole."""
        self._epoch, self._values = epoch, _merged(parts)

    def went_back_to(self, epoch: int) -> None:
        """Until an epoch has completed nobody knows them, unless it is the last one that did."""
        if self._epoch != epoch:
            self._values = {}

    def read(self, manifest: Manifest, read: Callable[[StateHandle], bytes]) -> None:
        """Reads the accumulators of a job that had ended before its driver could say so, from the state of all
        tasks.
        """
        self._values = _of_checkpoint(manifest, read)


def _merged(parts: Iterable[Mapping[str, Accumulator[Any, Any]]]) -> Accumulated:
    total: Accumulated = {}
    for part in parts:
        for name, accumulator in part.items():
            merge_into(total, name, accumulator)
    return total


def _of_checkpoint(manifest: Manifest, read: Callable[[StateHandle], bytes]) -> Accumulated:
    total: Accumulated = {}
    for task in manifest.tasks:
        chain = [
            read_tables(read(handle), name=ACCUMULATORS, source=f"state of {task.vertex}") for handle in task.handles
        ]
        for tables in newest_lists(chain):
            for table in tables:
                for name, accumulator in table.values:
                    merge_into(total, name, accumulator)
    return total
