"""From the program to vertices, levels and channels."""

from __future__ import annotations

import json

import pytest

from penstock.errors import JobDefinitionError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.explain import explain, plan_json
from penstock.graph.job_graph import build_job_graph
from penstock.graph.partitioner import Forward, Global, Hash, Partitioner, Rebalance, Rescale, targets
from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from penstock.protocol.ids import NodeId, TaskId, VertexId


def graph_of(nodes: list[tuple[str, int]], edges: list[tuple[int, int, Partitioner]]) -> StreamGraph:
    graph = StreamGraph("test")
    for index, (name, parallelism) in enumerate(nodes):
        kind = "source" if name.startswith("source") else "sink" if name.startswith("sink") else "operator"
        graph.add_node(StreamNode(id=NodeId(index), name=name, kind=kind, operator=None, parallelism=parallelism))
    for source, target, partitioner in edges:
        graph.add_edge(StreamEdge(source=NodeId(source), target=NodeId(target), partitioner=partitioner))
    return graph


def test_forward_neighbours_of_one_parallelism_are_chained() -> None:
    job = build_job_graph(graph_of([("source", 2), ("map", 2), ("sink", 2)], [(0, 1, Forward()), (1, 2, Forward())]))
    assert [vertex.name for vertex in job.vertices.values()] == ["source → map → sink"]
    assert job.levels == 1


def test_a_key_exchange_ends_a_chain_and_starts_a_level() -> None:
    job = build_job_graph(graph_of([("source", 2), ("count", 2), ("sink", 2)], [(0, 1, Hash(None)), (1, 2, Forward())]))
    assert [(v.name, v.level) for v in job.vertices.values()] == [("source", 0), ("count → sink", 1)]


def test_an_operator_with_two_inputs_is_never_chained_to_one_of_them() -> None:
    job = build_job_graph(
        graph_of([("source a", 1), ("source b", 1), ("map", 1)], [(0, 2, Forward()), (1, 2, Forward())])
    )
    assert len(job.vertices) == 3
    assert job.vertices[VertexId(2)].level == 1


def test_the_level_of_a_vertex_is_its_longest_path_of_exchanges() -> None:
    job = build_job_graph(
        graph_of(
            [("source", 1), ("a", 1), ("b", 1)],
            [(0, 1, Hash(None)), (1, 2, Hash(None)), (0, 2, Rebalance())],
        )
    )
    assert [vertex.level for vertex in job.vertices.values()] == [0, 1, 2]


def test_disabled_chaining_and_new_chains_are_respected() -> None:
    graph = graph_of([("source", 1), ("a", 1), ("b", 1)], [(0, 1, Forward()), (1, 2, Forward())])
    graph.nodes[NodeId(1)].head = True
    assert [v.name for v in build_job_graph(graph).vertices.values()] == ["source", "a → b"]
    graph.nodes[NodeId(1)].chainable = False
    assert [v.name for v in build_job_graph(graph).vertices.values()] == ["source", "a", "b"]


def test_forward_between_different_parallelisms_is_refused_with_a_way_out() -> None:
    with pytest.raises(JobDefinitionError, match=r"forward\(\) from 'source'.*rebalance"):
        build_job_graph(graph_of([("source", 1), ("map", 2)], [(0, 1, Forward())]))


def test_two_operators_with_one_uid_are_refused() -> None:
    graph = graph_of([("source", 1), ("map", 1)], [(0, 1, Forward())])
    graph.nodes[NodeId(0)].uid = graph.nodes[NodeId(1)].uid = "same"
    with pytest.raises(JobDefinitionError, match="same uid 'same'"):
        build_job_graph(graph)


def test_an_empty_job_says_what_is_missing() -> None:
    with pytest.raises(JobDefinitionError, match="no operators"):
        build_job_graph(StreamGraph("empty"))


def test_parallelism_above_the_number_of_key_groups_is_refused() -> None:
    with pytest.raises(JobDefinitionError, match="max parallelism 128"):
        build_job_graph(graph_of([("source", 129)], []))


@pytest.mark.parametrize(("up", "down"), [(1, 4), (2, 4), (3, 7), (4, 2), (7, 3), (5, 5), (4, 1)])
def test_rescale_connects_every_subtask_on_both_sides(up: int, down: int) -> None:
    reached = [t for u in range(up) for t in targets(Rescale(), u, up, down)]
    assert sorted(set(reached)) == list(range(down))
    assert all(len(targets(Rescale(), u, up, down)) > 0 for u in range(up))
    if up <= down:
        assert len(reached) == down, "with more targets than sources nobody has two sources"


def test_channels_are_numbered_by_edge_and_upstream_subtask() -> None:
    graph = ExecutionGraph(
        build_job_graph(
            graph_of([("source a", 2), ("source b", 3), ("union", 2)], [(0, 2, Rebalance()), (1, 2, Rebalance())])
        )
    )
    channels = graph.input_channels(TaskId(VertexId(2), 1))
    assert [(c.channel, str(c.upstream)) for c in channels] == [
        (0, "0/0"),
        (1, "0/1"),
        (2, "1/0"),
        (3, "1/1"),
        (4, "1/2"),
    ]


def test_a_slot_runs_one_subtask_of_every_vertex_of_a_level() -> None:
    graph = ExecutionGraph(build_job_graph(graph_of([("source", 3), ("total", 1)], [(0, 1, Global())])))
    assert graph.slots == 3
    assert [str(t) for t in graph.tasks_of_slot(0, 1)] == ["1/0"]
    assert graph.tasks_of_slot(2, 1) == []


def test_the_plan_names_every_operator_and_ship_strategy() -> None:
    graph = graph_of([("source", 2), ("count", 2)], [(0, 1, Hash(None))])
    nodes = json.loads(plan_json(graph))["nodes"]
    assert nodes[1]["predecessors"] == [{"id": 0, "ship_strategy": "HASH", "side": "first"}]
    text = explain(build_job_graph(graph))
    assert "level 1" in text
    assert "← HASH from [0]" in text
