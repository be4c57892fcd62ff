"""Loops: the graph stays a DAG, and what leads back is named beside it.

An iteration is two nodes: its *head*, where input and feedback meet, and its *tail*, which ends the feedback stream. No
edge leads from tail to head; what the tail collected in one epoch, the runtime hands to the head in a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstock.protocol.ids import NodeId, VertexId

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph

N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """A loop of the program: records that reach its tail come out of its head in a later epoch."""

    head: NodeId
    tail: NodeId
    max_wait_ms: int = 0  # how long the loop must have been empty before its input counts as ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """An iteration as the runtime needs it. Subtask i of the tail feeds subtask i of the head."""

    head: NodeId
    head_vertex: VertexId
    tail: str  # operator id: the feedback is in this operator's state
    tail_vertex: VertexId
    sources: frozenset[str]  # operator ids of the sources whose records can reach it
    tails: frozenset[str]  # of the loops whose records can reach it: itself, those before it, those inside it
    max_wait_ms: int = 0


def reached(starts: Iterable[N], beyond: Callable[[N], Iterable[N]]) -> set[N]:
    """The starts, and all that they lead to. Loops lead back: each is looked at once."""
    found: set[N] = set()
    waiting = list(starts)
    while waiting:
        if (place := waiting.pop()) not in found:
            found.add(place)
            waiting += beyond(place)
    return found


def feedback_edges(job: JobGraph) -> list[tuple[VertexId, VertexId]]:
    """(vertex of the tail, vertex of the head) of every iteration: what a picture of the job draws beside its edges."""
    vertex_of = {node.id: vertex.id for vertex in job.vertices.values() for node in vertex.nodes}
    return [(vertex_of[iteration.tail], vertex_of[iteration.head]) for iteration in job.iterations]


def loops_of(job: JobGraph) -> tuple[Loop, ...]:
    """Every iteration of the job, with what must be at rest before it is."""
    nodes = {node.id: node for vertex in job.vertices.values() for node in vertex.nodes}
    vertex_of = {node.id: vertex.id for vertex in job.vertices.values() for node in vertex.nodes}
    before: dict[NodeId, set[NodeId]] = {node: set() for node in nodes}
    for vertex in job.vertices.values():
        for edge in (*vertex.chained, *(exchange.stream_edge for exchange in vertex.inputs)):
            before[edge.target].add(edge.source)
    for iteration in job.iterations:
        before[iteration.head].add(iteration.tail)
    loops = []
    for iteration in job.iterations:
        reaching = reached(before[iteration.head], before.__getitem__)
        loops.append(
            Loop(
                head=iteration.head,
                head_vertex=vertex_of[iteration.head],
                tail=nodes[iteration.tail].operator_id,
                tail_vertex=vertex_of[iteration.tail],
                sources=frozenset(nodes[n].operator_id for n in reaching if nodes[n].kind == "source"),
                tails=frozenset(nodes[i.tail].operator_id for i in job.iterations if i.tail in reaching),
                max_wait_ms=iteration.max_wait_ms,
            )
        )
    return tuple(loops)
