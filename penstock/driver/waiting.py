"""Who waits for whom in an epoch. Pure.

Inside an epoch vertices run one after the other, level by level, so nobody is stopped by a full buffer: what a slow vertex
does is to make the epoch long. Then sources read late, and with a target time admission lets them read less. So an epoch is
held up when it takes longer than it should, or when it took about its target and a source had more to read than it was
given; its bottleneck is the vertex that worked longest in it; and whatever feeds that vertex is back-pressured while it
works. Time that a subtask really waited for space in its output counts as well.

Latency from source to sink, for each pair of them. Pure.

Flink sends markers through the streams. Here an epoch is the marker: everything a source reads in it is planned at one
moment, and is out when a sink's commit covers the epoch. The time between is the longest any of its records took inside
the job, processing and the wait for the checkpoint included (Flink's markers overtake both). A repeated epoch counts from
its first plan, also under another driver: the plan is logged with its time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.graph.iterations import reached
from penstock.graph.job_graph import JobGraph
from penstock.protocol.ids import VertexId

# Of the epoch: if even the slowest vertex worked less, the time went elsewhere (planning, Spark, storage). Where admission has
# bounded what was read, so that the records' part of a long epoch is small, less is enough: they were bounded because of it.
_SHARE: Final = 0.25
_SHARE_OF_BOUNDED: Final = 0.1
_ALL_IT_GOT: Final = 0.95
_A_MOMENT_MS: Final = 1.0  # it takes as much to ask whether a commit is over


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBounds:
    """The bounds that an epoch was given: interval or target time, and records."""

    interval_ms: int = 200
    target_ms: int | None = None
    admitted: int | None = None  # records each source may read; None: no bound

    def held_up(self, duration_ms: float, read: Iterable[int]) -> bool:
        """`read`: records of each source."""
        if self.target_ms is None:
            return duration_ms > self.interval_ms
        if duration_ms > self.target_ms:
            return True
        return self._more_to_read(read) and duration_ms >= self.target_ms / 2

    def least_share(self, read: Iterable[int]) -> float:
        """The part of a held-up epoch that a vertex must have worked to be the reason."""
        bounded = self.target_ms is not None and self._more_to_read(read)
        return _SHARE_OF_BOUNDED if bounded else _SHARE

    def _more_to_read(self, read: Iterable[int]) -> bool:
        admitted = self.admitted
        return admitted is not None and any(records >= admitted * _ALL_IT_GOT for records in read)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTime:
    """The time that the commit of one sink took in an epoch."""

    took_ms: float = 0.0  # beside other epochs or not
    held_ms: float = 0.0  # the part of it in which the job waited for it

    def and_(self, other: CommitTime) -> CommitTime:
        """The time of both commits together."""
        return CommitTime(took_ms=self.took_ms + other.took_ms, held_ms=self.held_ms + other.held_ms)

    def after(self, work_ms: float) -> float:
        """How long an epoch must take because of a sink that worked so long in the slots: what was waited for comes on top,
        and once commits are waited for, epochs follow each other as fast as they do."""
        return max(work_ms + self.held_ms, self.took_ms) if self.held_ms > _A_MOMENT_MS else work_ms


def slowest(work_ms: Mapping[VertexId, float], duration_ms: float, least_share: float = _SHARE) -> VertexId | None:
    """The vertex that worked longest; None if that does not explain the epoch's length."""
    found = max(work_ms, key=lambda vertex: work_ms[vertex], default=None)
    return None if found is None or work_ms[found] < duration_ms * least_share else found


def feeders(graph: JobGraph, vertex: VertexId) -> frozenset[VertexId]:
    """All vertices upstream of `vertex`."""
    return frozenset(reached([vertex], graph.feeding) - {vertex})


def waited_ms(*, duration_ms: float, busy_ms: float, blocked_ms: float, bottleneck_ms: float) -> float:
    """The time that a subtask upstream of the bottleneck waited: as long as that worked, but not longer than the
    subtask did nothing.
    """
    return max(blocked_ms, min(bottleneck_ms, duration_ms - busy_ms))


HISTORY: Final = 128  # epochs; Flink's metrics.latency.history-size


def sources_of_sinks(graph: JobGraph) -> dict[str, frozenset[str]]:
    """By sink, the sources whose records can reach it. A source is the head of its chain, so whole vertices tell."""
    reaching = {
        start: frozenset(
            graph.vertices[vertex].nodes[0].operator_id
            for vertex in reached([start], graph.feeding)
            if graph.vertices[vertex].is_source
        )
        for start in graph.vertices
    }
    return {
        node.operator_id: reaching[vertex.id]
        for vertex in graph.vertices.values()
        for node in vertex.nodes
        if node.kind == "sink"
    }


class LatencyTracker:
    """Measures the time from a source's plan to a sink's commit. Belongs to the JobMaster's thread."""

    def __init__(self, graph: JobGraph) -> None:
        self._reach = sources_of_sinks(graph)
        # By epoch: when it was planned, and the sources that bring records.
        self._underway: dict[int, tuple[int, frozenset[str]]] = {}
        self._samples: dict[tuple[str, str], deque[int]] = {}

    def planned(self, epoch: int, at_ms: int, sources: Iterable[str]) -> None:
        """An epoch in which these sources bring something was planned at this time."""
        self._underway[epoch] = (at_ms, frozenset(sources))

    def committed(self, sink: str, epoch: int, at_ms: int) -> None:
        """The sink's output of all epochs up to this one is out."""
        reaching = self._reach.get(sink, frozenset())
        for number, (planned_ms, sources) in self._underway.items():
            for source in sources & reaching if number <= epoch else ():
                samples = self._samples.setdefault((source, sink), deque(maxlen=HISTORY))
                samples.append(max(0, at_ms - planned_ms))

    def all_committed(self, epoch: int) -> None:
        """Everything up to this epoch is committed: its marks are no longer needed."""
        self._underway = {number: marker for number, marker in self._underway.items() if number > epoch}

    def went_back(self) -> None:
        """Later epochs are planned again; what was committed stays measured."""
        self._underway.clear()

    def summary(self) -> list[dict[str, Any]]:
        """The median, the 99th percentile and the last latency of each source and sink."""
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
