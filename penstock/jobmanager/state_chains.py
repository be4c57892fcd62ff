"""The state handles of every task: a full snapshot and the deltas since, as the next manifest will list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.checkpoint.manifest import InlineState, Manifest, StateHandle, TaskState
from penstock.checkpoint.savepoint import is_external
from penstock.errors import ProtocolError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.jobmanager.epoch import TaskAck
from penstock.protocol.ids import TaskId
from penstock.state.key_groups import key_group_range

_MOST_HANDLES = 1000  # a restore reads every one of them
_INLINE_BYTES = 256 << 10  # a manifest is written whole at every checkpoint


@dataclass(frozen=True, slots=True)
class _Chain:
    handles: tuple[StateHandle, ...]
    full: int  # so many of them are the full snapshot, the others deltas

    def add(self, handles: tuple[StateHandle, ...]) -> _Chain:
        return _Chain((*self.handles, *handles), self.full)

    @property
    def deltas(self) -> int:
        return len(self.handles) - self.full

    @property
    def worth_compacting(self) -> bool:
        """The deltas are as large as what they build on: rewriting all costs, per checkpoint, what a delta does."""
        return sum(map(_size, self.handles[self.full :])) >= sum(map(_size, self.handles[: self.full]))

    @property
    def inline_bytes(self) -> int:
        return sum(_size(handle) for handle in self.handles if isinstance(handle, InlineState))


class StateChains:
    def __init__(self, graph: ExecutionGraph, *, compact_after: int, incremental: bool = True) -> None:
        """A full snapshot is asked for when there are more than `compact_after` deltas, together as large as the last one;
        if not `incremental`, always."""
        self._graph = graph
        self._compact_after, self._incremental = compact_after, incremental
        self._chains: dict[TaskId, _Chain] = {}

    def adopt(self, manifest: Manifest) -> None:
        """Go on with a checkpoint's chains. A vertex whose parallelism or operators changed starts with full snapshots: a chain
        must not keep state of operators that are elsewhere now, where they go on."""
        vertices = {v.state_id: v for v in self._graph.job.vertices.values()}
        for state in manifest.tasks:
            vertex = vertices.get(state.vertex)
            outside = any(map(is_external, state.handles))  # a savepoint: not ours to build on
            if vertex is None or outside or vertex.parallelism != state.parallelism:
                continue
            if state.operators == tuple(node.operator_id for node in vertex.nodes):
                self._chains[TaskId(vertex.id, state.subtask)] = _Chain(state.handles, max(1, len(state.handles)))

    def lengths(self, tasks: Iterable[TaskId]) -> dict[TaskId, int]:
        """How many handles the next delta of each task would build on; 0: it should be a full snapshot."""
        return {task: 0 if self._wants_full(task) else len(self._chains[task].handles) for task in tasks}

    def _wants_full(self, task: TaskId) -> bool:
        chain = self._chains.get(task)
        if chain is None or not self._incremental or len(chain.handles) > _MOST_HANDLES:
            return True
        return chain.deltas > self._compact_after and chain.worth_compacting

    def no_inline(self) -> frozenset[TaskId]:
        return frozenset(t for t, c in self._chains.items() if c.deltas and c.inline_bytes > _INLINE_BYTES)

    def extend(
        self, acks: Mapping[TaskId, TaskAck], stored: Mapping[TaskId, tuple[StateHandle, ...]]
    ) -> tuple[TaskState, ...]:
        """A checkpoint's acknowledgements and what each has stored: what the manifest says of every task."""
        for task, ack in acks.items():
            handles = stored.get(task)
            if not handles:
                raise ProtocolError(f"task {task} acknowledged checkpoint {ack.epoch} without a state handle")
            known = self._chains.get(task)
            if ack.full:
                self._chains[task] = _Chain(handles, len(handles))
            elif known is not None:
                self._chains[task] = known.add(handles)
            else:
                raise ProtocolError(f"task {task} sent a delta for checkpoint {ack.epoch} with nothing to build on")
        return tuple(task_state(self._graph, task, self._chains[task].handles) for task in sorted(acks))

    def lacks_base(self, acks: Mapping[TaskId, TaskAck]) -> list[TaskId]:
        """Tasks that sent a delta although what it builds on was lost meanwhile (several barriers were under way)."""
        return [task for task, ack in sorted(acks.items()) if not ack.full and task not in self._chains]

    def keep(self, acks: Mapping[TaskId, TaskAck], stored: Mapping[TaskId, tuple[StateHandle, ...]]) -> None:
        """A checkpoint was declined. What was stored of it is part of its tasks' chains all the same, since their next
        deltas build on it; tasks that stored nothing start again with a full snapshot."""
        lost = set(self.lacks_base(acks)) | {task for task in acks if task not in stored}
        kept = {task: ack for task, ack in acks.items() if task not in lost}
        self.extend(kept, stored)
        for task in lost:
            self._chains.pop(task, None)


def _size(handle: StateHandle) -> int:
    return len(handle.data) if isinstance(handle, InlineState) else handle.size


def task_state(graph: ExecutionGraph, task: TaskId, handles: tuple[StateHandle, ...]) -> TaskState:
    vertex = graph.vertex(task)
    return TaskState(
        vertex=vertex.state_id,
        subtask=task.subtask,
        parallelism=vertex.parallelism,
        key_group_range=key_group_range(task.subtask, vertex.parallelism, graph.job.max_parallelism),
        handles=handles,
        operators=tuple(node.operator_id for node in vertex.nodes),
    )
