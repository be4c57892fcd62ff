"""ExecutionGraph: the JobGraph spread over subtasks, channels, levels and slots.

A channel of a subtask's gate is numbered (offset of the edge) + (upstream subtask); the numbers are the order in which an
epoch's channels are read, so they are part of what makes an epoch deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.graph.iterations import loops_of
from penstock.graph.job_graph import JobEdge, JobGraph, JobVertex
from penstock.graph.partitioner import targets
from penstock.protocol.ids import TaskId, VertexId


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChannel:
    """One channel of a gate: its number, which input of the operator it feeds, and where it comes from."""

    channel: int
    input: int
    edge: JobEdge
    upstream: TaskId


class ExecutionGraph:
    def __init__(self, job: JobGraph) -> None:
        self.job = job
        self.loops = loops_of(job)
        self._offsets: dict[tuple[VertexId, int], int] = {}
        for vertex in job.vertices.values():
            offset = 0
            for index, edge in enumerate(vertex.inputs):
                self._offsets[(vertex.id, index)] = offset
                offset += job.vertices[edge.source].parallelism

    @property
    def slots(self) -> int:
        return self.job.slots

    @property
    def levels(self) -> int:
        return self.job.levels

    def tasks(self) -> Iterator[TaskId]:
        for vertex in self.job.vertices.values():
            for subtask in range(vertex.parallelism):
                yield TaskId(vertex.id, subtask)

    def tasks_of_slot(self, slot: int, level: int) -> list[TaskId]:
        return [TaskId(v.id, slot) for v in self.job.at_level(level) if slot < v.parallelism]

    def vertex(self, task: TaskId) -> JobVertex:
        return self.job.vertices[task.vertex]

    def channel_of(self, edge: JobEdge, upstream: int) -> int:
        target = self.job.vertices[edge.target]
        return self._offsets[(target.id, next(i for i, e in enumerate(target.inputs) if e is edge))] + upstream

    def targets_of(self, edge: JobEdge, upstream: int) -> range:
        source, target = self.job.vertices[edge.source], self.job.vertices[edge.target]
        return targets(edge.stream_edge.partitioner, upstream, source.parallelism, target.parallelism)

    def input_channels(self, task: TaskId) -> list[InputChannel]:
        vertex = self.vertex(task)
        out = []
        for index, edge in enumerate(vertex.inputs):
            for upstream in range(self.job.vertices[edge.source].parallelism):
                if task.subtask in self.targets_of(edge, upstream):
                    out.append(
                        InputChannel(
                            channel=self._offsets[(vertex.id, index)] + upstream,
                            input=edge.stream_edge.input,
                            edge=edge,
                            upstream=TaskId(edge.source, upstream),
                        )
                    )
        return out
