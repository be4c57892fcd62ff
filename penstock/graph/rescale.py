"""The same job at another parallelism."""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import JobDefinitionError
from penstock.graph.job_graph import JobGraph, build_job_graph
from penstock.graph.partitioner import Forward, Rebalance
from penstock.graph.stream_graph import StreamGraph


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
    """What `rescaled` would change; None if every operator has a parallelism of its own."""
    nodes = [node for vertex in job.vertices.values() for node in vertex.nodes if not node.fixed_parallelism]
    return max((node.parallelism for node in nodes), default=None)
