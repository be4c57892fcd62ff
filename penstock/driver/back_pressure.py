"""Who waits for whom in an epoch. Pure.

Inside an epoch vertices run one after the other, level by level, so nobody is stopped by a full buffer: what a slow vertex
does is to make the epoch long. Then sources read late, and with a target time admission lets them read less. So an epoch is
held up when it takes longer than it should, or when it took about its target and a source had more to read than it was
given; its bottleneck is the vertex that worked longest in it; and whatever feeds that vertex is back-pressured while it
works. Time that a subtask really waited for space in its output counts as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

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
    """What an epoch was given."""

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
        """What part of a held-up epoch a vertex has to have worked to be the reason."""
        bounded = self.target_ms is not None and self._more_to_read(read)
        return _SHARE_OF_BOUNDED if bounded else _SHARE

    def _more_to_read(self, read: Iterable[int]) -> bool:
        admitted = self.admitted
        return admitted is not None and any(records >= admitted * _ALL_IT_GOT for records in read)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTime:
    """Of one sink, in an epoch."""

    took_ms: float = 0.0  # beside other epochs or not
    held_ms: float = 0.0  # the part of it in which the job waited for it

    def and_(self, other: CommitTime) -> CommitTime:
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
    found: set[VertexId] = set()
    ahead = [vertex]
    while ahead:
        for edge in graph.vertices[ahead.pop()].inputs:
            if edge.source not in found:
                found.add(edge.source)
                ahead.append(edge.source)
    return frozenset(found - {vertex})


def waited_ms(*, duration_ms: float, busy_ms: float, blocked_ms: float, bottleneck_ms: float) -> float:
    """Of one subtask upstream of the bottleneck: as long as that worked, but not longer than the subtask did nothing."""
    return max(blocked_ms, min(bottleneck_ms, duration_ms - busy_ms))
