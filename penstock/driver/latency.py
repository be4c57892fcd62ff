"""Latency from source to sink, for each pair of them. Pure.

Flink sends markers through the streams. Here an epoch is the marker: everything a source reads in it is planned at one
moment, and is out when a sink's commit covers the epoch. The time between is the longest any of its records took inside
the job, processing and the wait for the checkpoint included (Flink's markers overtake both). A repeated epoch counts from
its first plan, also under another driver: the plan is logged with its time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from penstock.graph.job_graph import JobGraph

HISTORY: Final = 128  # epochs; Flink's metrics.latency.history-size


def sources_of_sinks(graph: JobGraph) -> dict[str, frozenset[str]]:
    """By sink, the sources whose records can reach it. A source is the head of its chain, so whole vertices tell."""
    reaching: dict[int, frozenset[str]] = {}
    for start in graph.vertices:
        seen, todo = {start}, [start]
        while todo:  # loops lead back: each vertex once
            inputs = {edge.source for edge in graph.vertices[todo.pop()].inputs} - seen
            seen |= inputs
            todo += inputs
        reaching[start] = frozenset(
            graph.vertices[vertex].nodes[0].operator_id for vertex in seen if graph.vertices[vertex].is_source
        )
    return {
        node.operator_id: reaching[vertex.id]
        for vertex in graph.vertices.values()
        for node in vertex.nodes
        if node.kind == "sink"
    }


class LatencyTracker:
    """Belongs to the JobMaster's thread."""

    def __init__(self, graph: JobGraph) -> None:
        self._reach = sources_of_sinks(graph)
        self._underway: dict[
            int, tuple[int, frozenset[str]]
        ] = {}  # epoch → when it was planned, sources that bring records
        self._samples: dict[tuple[str, str], deque[int]] = {}

    def planned(self, epoch: int, at_ms: int, sources: Iterable[str]) -> None:
        self._underway[epoch] = (at_ms, frozenset(sources))

    def committed(self, sink: str, epoch: int, at_ms: int) -> None:
        """The sink's output of all epochs up to this one is out."""
        reaching = self._reach.get(sink, frozenset())
        for number, (planned_ms, sources) in self._underway.items():
            for source in sources & reaching if number <= epoch else ():
                samples = self._samples.setdefault((source, sink), deque(maxlen=HISTORY))
                samples.append(max(0, at_ms - planned_ms))

    def all_committed(self, epoch: int) -> None:
        self._underway = {number: marker for number, marker in self._underway.items() if number > epoch}

    def went_back(self) -> None:
        """Later epochs are planned again; what was committed stays measured."""
        self._underway.clear()

    def summary(self) -> list[dict[str, Any]]:
        return [
            {
                "source": source,
                "sink": sink,
                "p50_ms": _quantile(samples, 0.5),
                "p99_ms": _quantile(samples, 0.99),
                "last_ms": samples[-1],
                "epochs": len(samples),
            }
            for (source, sink), samples in sorted(self._samples.items())
        ]


def _quantile(samples: Iterable[int], q: float) -> int:
    """The nearest rank: a value that was measured."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
