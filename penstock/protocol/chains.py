"""What each task is restored from: the handles of a full snapshot and of the deltas since. Pure: handles are opaque."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.errors import ProtocolError
from penstock.protocol.checkpoint_messages import Acknowledgement
from penstock.protocol.ids import TaskId

_MOST_HANDLES = 1000  # a restore reads every one of them
_INLINE_BYTES = 256 << 10  # a manifest is written whole at every checkpoint


class Handle(Protocol):
    """Where a snapshot is."""

    @property
    def size(self) -> int:
        """How many bytes the snapshot has."""

    @property
    def inline(self) -> bool:
        """It is in the manifest itself."""
        ...


@dataclass(frozen=True, slots=True)
class _Chain:
    handles: tuple[Handle, ...]
    full: int  # so many of them are the full snapshot, the others deltas

    @property
    def deltas(self) -> int:
        return len(self.handles) - self.full

    @property
    def worth_compacting(self) -> bool:
        """The deltas are as large as what they build on: rewriting all costs, per checkpoint, what a delta does."""
        sizes = [handle.size for handle in self.handles]
        return sum(sizes[self.full :]) >= sum(sizes[: self.full])

    @property
    def inline_bytes(self) -> int:
        return sum(handle.size for handle in self.handles if handle.inline)


class Chains:
    """One chain per task. A task without one writes a full snapshot next."""

    def __init__(self, *, compact_after: int, incremental: bool = True) -> None:
        """A full snapshot is asked for when there are more than `compact_after` deltas, together as large as the last one;
        if not `incremental`, always."""
        self._compact_after, self._incremental = compact_after, incremental
        self._chains: dict[TaskId, _Chain] = {}

    def adopt(self, chains: Mapping[TaskId, tuple[Any, ...]]) -> None:
        """Go on with those of a checkpoint, and with no others."""
        self._chains = {task: _Chain(handles, max(1, len(handles))) for task, handles in chains.items()}

    def lengths(self, tasks: Iterable[TaskId]) -> dict[TaskId, int]:
        """How many handles the next delta of each task would build on; 0: it should be a full snapshot."""
        return {task: 0 if self._wants_full(task) else len(self._chains[task].handles) for task in tasks}

    def _wants_full(self, task: TaskId) -> bool:
        chain = self._chains.get(task)
        if chain is None or not self._incremental or len(chain.handles) > _MOST_HANDLES:
            return True
        return chain.deltas > self._compact_after and chain.worth_compacting

    def no_inline(self) -> frozenset[TaskId]:
        """Tasks with enough small snapshots in the manifest."""
        return frozenset(t for t, c in self._chains.items() if c.deltas and c.inline_bytes > _INLINE_BYTES)

    def extend(
        self, acks: Mapping[TaskId, Acknowledgement], stored: Mapping[TaskId, tuple[Any, ...]]
    ) -> dict[TaskId, tuple[Any, ...]]:
        """A checkpoint's acknowledgements and what each has stored: what the manifest says of every task."""
        for task, ack in acks.items():
            handles = stored.get(task)
            if not handles:
                raise ProtocolError(f"task {task} acknowledged checkpoint {ack.epoch} without a state handle")
            known = self._chains.get(task)
            if ack.full:
                self._chains[task] = _Chain(handles, len(handles))
            elif known is not None:
                self._chains[task] = _Chain((*known.handles, *handles), known.full)
            else:
                raise ProtocolError(f"task {task} sent a delta for checkpoint {ack.epoch} with nothing to build on")
        return {task: self._chains[task].handles for task in sorted(acks)}

    def lacks_base(self, acks: Mapping[TaskId, Acknowledgement]) -> list[TaskId]:
        """Tasks that sent a delta although what it builds on was lost meanwhile (several barriers were under way)."""
        return [task for task, ack in sorted(acks.items()) if not ack.full and task not in self._chains]

    def keep(self, acks: Mapping[TaskId, Acknowledgement], stored: Mapping[TaskId, tuple[Any, ...]]) -> None:
        """A checkpoint was declined. What was stored of it is part of its tasks' chains all the same, since their next
        deltas build on it; tasks that stored nothing start again with a full snapshot, unless they took none."""
        acks = {task: ack for task, ack in acks.items() if not ack.skipped}
        lost = set(self.lacks_base(acks)) | {task for task in acks if task not in stored}
        self.extend({task: ack for task, ack in acks.items() if task not in lost}, stored)
        for task in lost:
            self._chains.pop(task, None)
