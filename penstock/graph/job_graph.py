"""JobGraph: operators chained into vertices, vertices placed on levels.

Two operators are chained when the edge between them is forward, the parallelism is the same, the downstream one has no
other input, both share a slot group and neither forbids it. A vertex is a tree of chained operators with one head.
`level(v)` is the largest number of exchanges on a path from a source to v.

The same job at another parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.errors import JobDefinitionError
from penstock.graph.iterations import Iteration
from penstock.graph.partitioner import Forward, Rebalance
from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from penstock.protocol.ids import NodeId, VertexId


@dataclass(slots=True, kw_only=True)
class JobEdge:
    """An exchange between two vertices."""

    stream_edge: StreamEdge
    source: VertexId
    target: VertexId


@dataclass(slots=True, kw_only=True)
class JobVertex:
    """A chain of operators that run in one task."""

    id: VertexId
    nodes: list[StreamNode]  # in topological order; the first is the head
    chained: list[StreamEdge] = field(default_factory=list)
    inputs: list[JobEdge] = field(default_factory=list)
    outputs: list[JobEdge] = field(default_factory=list)
    level: int = 0

    @property
    def head(self) -> StreamNode:
        """The first operator of the chain."""
        return self.nodes[0]

    @property
    def parallelism(self) -> int:
        """The number of its subtasks."""
        return self.head.parallelism

    @property
    def name(self) -> str:
        """The names of its operators."""
        return " → ".join(node.name for node in self.nodes)

    @property
    def state_id(self) -> str:
        """Names the vertex in checkpoints. State itself is matched by operator id, not by this."""
        return self.head.operator_id

    @property
    def is_source(self) -> bool:
        """True if the chain begins with a source."""
        return self.head.kind == "source"


@dataclass(slots=True, kw_only=True)
class JobGraph:
    """The chains of a program and the exchanges between them, level by level."""

    job_name: str
    max_parallelism: int
    vertices: dict[VertexId, JobVertex]
    iterations: tuple[Iteration, ...] = ()
    object_reuse: bool = False  # operators of one chain may share records

    @property
    def levels(self) -> int:
        """The number of levels."""
        return 1 + max(vertex.level for vertex in self.vertices.values())

    @property
    def slots(self) -> int:
        """Slot sharing: a slot runs one subtask of every vertex, so the widest vertex decides."""
        return max(vertex.parallelism for vertex in self.vertices.values())

    def feeding(self, vertex: VertexId) -> list[VertexId]:
        """The vertices with an edge to `vertex`."""
        return [edge.source for edge in self.vertices[vertex].inputs]

    def at_level(self, level: int) -> list[JobVertex]:
        """The vertices of a level."""
        return [vertex for vertex in self.vertices.values() if vertex.level == level]

    def operators(self) -> dict[str, StreamNode]:
        """All operators by their ids."""
        return {node.operator_id: node for vertex in self.vertices.values() for node in vertex.nodes}


def _chains(graph: StreamGraph, edge: StreamEdge) -> bool:
    up, down = graph.nodes[edge.source], graph.nodes[edge.target]
    return (
        isinstance(edge.partitioner, Forward)
        and up.parallelism == down.parallelism
        and len(graph.inputs(down.id)) == 1
        and up.slot_sharing_group == down.slot_sharing_group
        and down.chainable
        and not down.head
        and up.chainable
    )


def build_job_graph(graph: StreamGraph) -> JobGraph:
    """Checks a program's graph and chains its operators."""
    graph.validate()
    vertex_of: dict[NodeId, VertexId] = {}
    vertices: dict[VertexId, JobVertex] = {}
    for node in graph.topological():
        inputs = graph.inputs(node.id)
        chained = next((edge for edge in inputs if _chains(graph, edge)), None)
        if chained is not None:
            vertex = vertices[vertex_of[chained.source]]
            vertex.nodes.append(node)
            vertex.chained.append(chained)
        else:
            vertex = JobVertex(id=VertexId(len(vertices)), nodes=[node])
            vertices[vertex.id] = vertex
        vertex_of[node.id] = vertex.id
        if chained is None:
            for edge in inputs:
                source = vertices[vertex_of[edge.source]]
                exchange = JobEdge(stream_edge=edge, source=source.id, target=vertex.id)
                vertex.inputs.append(exchange)
                source.outputs.append(exchange)
                vertex.level = max(vertex.level, source.level + 1)
    return JobGraph(
        job_name=graph.job_name,
        max_parallelism=graph.max_parallelism,
        vertices=vertices,
        iterations=tuple(graph.iterations),
        object_reuse=graph.object_reuse,
    )


def rescaled(job: JobGraph, parallelism: int) -> JobGraph:
    """Operators that were given a parallelism of their own keep it, all others get `parallelism`, or as
    much of it as they may have. Chains are built anew;
    state finds its operator by uid. JobDefinitionError if the job does not allow it."""
    if not 1 <= parallelism <= job.max_parallelism:
        raise JobDefinitionError(
            f"job {job.job_name!r} cannot run at parallelism {parallelism}: it must be between 1 and the max parallelism "
            f"{job.max_parallelism}"
        )
    graph = StreamGraph(job.job_name, job.max_parallelism, object_reuse=job.object_reuse)
    for vertex in job.vertices.values():
        for node in vertex.nodes:
            if not node.fixed_parallelism:
                node = replace(node, parallelism=min(parallelism, node.max_parallelism or parallelism))
            graph.add_node(node)
    for vertex in job.vertices.values():
        for edge in [*vertex.chained, *(exchange.stream_edge for exchange in vertex.inputs)]:
            if edge.implicit:
                same = graph.nodes[edge.source].parallelism == graph.nodes[edge.target].parallelism
                edge = replace(edge, partitioner=Forward() if same else Rebalance())
            graph.add_edge(edge)
    for iteration in job.iterations:
        graph.add_iteration(iteration)
    return build_job_graph(graph)


def adjustable_parallelism(job: JobGraph) -> int | None:
    """The parallelism that `rescaled` would change; None if every operator has a parallelism of its own."""
    nodes = [node for vertex in job.vertices.values() for node in vertex.nodes if not node.fixed_parallelism]
    return max((node.parallelism for node in nodes), default=None)
