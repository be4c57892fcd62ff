"""ExecutionGraph: the JobGraph spread over subtasks, channels, levels and slots.

A channel of a subtask's gate is numbered (offset of the edge) + (upstream subtask); the numbers are the order in which an
epoch's channels are read, so they are part of what makes an epoch deterministic.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.graph.iterations import loops_of
from penstock.graph.job_graph import JobEdge, JobGraph, JobVertex
from penstock.graph.partitioner import Forward, Rescale, targets
from penstock.protocol.ids import NodeId, TaskId, VertexId
from penstock.protocol.input_facts import Edge, Lineage, Sender


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChannel:
    """One channel of a gate: its number, which input of the operator it feeds, and where it comes from."""

    channel: int
    input: int
    edge: JobEdge
    upstream: TaskId
    sender: Sender  # the same in every graph in which it is the same


class ExecutionGraph:
    """The job graph with its subtasks and channels, numbered alike in every process."""

    def __init__(self, job: JobGraph) -> None:
        self.job = job
        self.loops = loops_of(job)
        self._offsets: dict[tuple[VertexId, int], int] = {}
        for vertex in job.vertices.values():
            offset = 0
            for index, edge in enumerate(vertex.inputs):
                self._offsets[(vertex.id, index)] = offset
                offset += job.vertices[edge.source].parallelism
        self._names: dict[NodeId, str] = {
            node.id: node.operator_id for vertex in job.vertices.values() for node in vertex.nodes
        }
        self._lineages: dict[VertexId, Lineage] = {}
        for vertex in job.vertices.values():  # sources first
            self._lineages[vertex.id] = self._lineage_of(vertex)

    @property
    def slots(self) -> int:
        """The number of slots: the largest parallelism."""
        return self.job.slots

    @property
    def levels(self) -> int:
        """The number of levels."""
        return self.job.levels

    def tasks(self) -> Iterator[TaskId]:
        """All subtasks of all vertices."""
        for vertex in self.job.vertices.values():
            for subtask in range(vertex.parallelism):
                yield TaskId(vertex.id, subtask)

    def tasks_of_slot(self, slot: int, level: int) -> list[TaskId]:
        """The tasks that a slot runs in a level."""
        return [TaskId(v.id, slot) for v in self.job.at_level(level) if slot < v.parallelism]

    def vertex(self, task: TaskId) -> JobVertex:
        """The vertex of a task."""
        return self.job.vertices[task.vertex]

    def channel_of(self, edge: JobEdge, upstream: int) -> int:
        """The channel on which subtasks behind the edge hear subtask `upstream`."""
        target = self.job.vertices[edge.target]
        return self._offsets[(target.id, next(i for i, e in enumerate(target.inputs) if e is edge))] + upstream

    def targets_of(self, edge: JobEdge, upstream: int) -> range:
        """The subtasks to which subtask `upstream` may send on the edge."""
        source, target = self.job.vertices[edge.source], self.job.vertices[edge.target]
        return targets(edge.stream_edge.partitioner, upstream, source.parallelism, target.parallelism)

    def lineage(self, vertex: VertexId) -> Lineage:
        """What decides who the senders of a vertex are, and what they read: the same for `a.union(b)` and `b.union(a)`."""
        return self._lineages[vertex]

    def _lineage_of(self, vertex: JobVertex) -> Lineage:
        inputs = []
        sources = {vertex.state_id} if vertex.is_source else set()
        for edge, exchange in zip(self._edges(vertex), vertex.inputs, strict=True):
            upstream = self._lineages[exchange.source]
            partitioner = exchange.stream_edge.partitioner
            connected = partitioner.name if isinstance(partitioner, Forward | Rescale) else "all"
            inputs.append([edge.sender, edge.input, edge.tag or "", edge.copy, connected, upstream.fingerprint])
            sources |= upstream.sources
        described = json.dumps([vertex.state_id, vertex.parallelism, sorted(inputs)])
        return Lineage(fingerprint=hashlib.sha256(described.encode()).hexdigest()[:32], sources=frozenset(sources))

    def _edges(self, vertex: JobVertex) -> list[Edge]:
        edges: list[Edge] = []
        for exchange in vertex.inputs:
            of = exchange.stream_edge
            name = self._names[of.source]
            copy = sum(1 for e in edges if (e.sender, e.input, e.tag) == (name, of.input, of.tag))
            edges.append(Edge(sender=name, input=of.input, tag=of.tag, copy=copy))
        return edges

    def input_channels(self, task: TaskId) -> list[InputChannel]:
        """The channels of a task, in the order of their numbers."""
        vertex = self.vertex(task)
        out = []
        edges = self._edges(vertex)
        for index, edge in enumerate(vertex.inputs):
            for upstream in range(self.job.vertices[edge.source].parallelism):
                if task.subtask in self.targets_of(edge, upstream):
                    out.append(
                        InputChannel(
                            channel=self._offsets[(vertex.id, index)] + upstream,
                            input=edge.stream_edge.input,
                            edge=edge,
                            upstream=TaskId(edge.source, upstream),
                            sender=Sender(edge=edges[index], subtask=upstream),
                        )
                    )
        return out
