"""Which epochs are under way and which are complete. Pure: acknowledgements in, outcomes out.

An epoch is pending until every task has acknowledged its barrier; then it is complete and, if it was a checkpoint, may
be committed. Pending and completed are different types, so that nothing incomplete can be committed by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from penstock.errors import ProtocolError
from penstock.protocol.ids import TaskId

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Counted; other tasks are still missing."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """This task has acknowledged this epoch already; the first one counts."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No such epoch is pending (it completed or failed earlier) or no such task exists: discard what it carries."""


@dataclass(frozen=True, slots=True)
class CompletedEpoch(Generic[A]):
    """Every task has acknowledged: the only thing a checkpoint can be committed from."""

    epoch: int
    checkpoint: bool
    acks: Mapping[TaskId, A]


AckOutcome: TypeAlias = Acknowledged | Duplicate | Unknown | CompletedEpoch[A]


@dataclass(slots=True)
class PendingEpoch(Generic[A]):
    epoch: int
    checkpoint: bool
    missing: set[TaskId]
    acks: dict[TaskId, A] = field(default_factory=dict)


class CheckpointCoordinator(Generic[A]):
    """Tracks pending epochs; several may be in flight. Completion is reported in epoch order: epoch n+1 is held back
    until n has completed, because a checkpoint builds on the one before it."""

    def __init__(self, tasks: Iterable[TaskId]) -> None:
        self._tasks = frozenset(tasks)
        self._pending: dict[int, PendingEpoch[A]] = {}
        self._last_begun = 0
        self.completed = 0

    @property
    def pending(self) -> tuple[int, ...]:
        return tuple(sorted(self._pending))

    def begin(self, epoch: int, *, checkpoint: bool) -> None:
        if epoch <= self._last_begun:
            raise ProtocolError(f"epoch {epoch} was begun after epoch {self._last_begun}: epochs only go forward")
        self._last_begun = epoch
        self._pending[epoch] = PendingEpoch(epoch, checkpoint, set(self._tasks))

    def acknowledge(self, epoch: int, task: TaskId, ack: A) -> list[AckOutcome[A]]:
        """One outcome for this acknowledgement, then one for each epoch that is now complete, oldest first."""
        pending = self._pending.get(epoch)
        if pending is None or task not in self._tasks:
            return [Unknown()]
        if task not in pending.missing:
            return [Duplicate()]
        pending.missing.discard(task)
        pending.acks[task] = ack
        out: list[AckOutcome[A]] = [Acknowledged()]
        for first in sorted(self._pending):
            ready = self._pending[first]
            if ready.missing:
                break
            del self._pending[first]
            self.completed = first
            out.append(CompletedEpoch(first, ready.checkpoint, ready.acks))
        return out

    def missing(self, epoch: int) -> list[TaskId]:
        return sorted(self._pending[epoch].missing)

    def abort(self, epoch: int) -> None:
        """Forget this epoch and every later one: their acknowledgements will be `Unknown`."""
        for later in [e for e in self._pending if e >= epoch]:
            del self._pending[later]

    def reset(self, epoch: int) -> None:
        """Go back to the state right after `epoch` completed (recovery)."""
        self._pending.clear()
        self._last_begun = self.completed = epoch
