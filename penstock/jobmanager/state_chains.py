"""The state handles of every task: a full snapshot and the deltas since, as the next manifest will list them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.checkpoint.manifest import Manifest, StateHandle, TaskState
from penstock.checkpoint.savepoint import is_external
from penstock.errors import ProtocolError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.jobmanager.epoch import TaskAck
from penstock.protocol.ids import TaskId
from penstock.state.key_groups import key_group_range


class StateChains:
    def __init__(self, graph: ExecutionGraph) -> None:
        self._graph = graph
        self._chains: dict[TaskId, tuple[StateHandle, ...]] = {}

    def adopt(self, manifest: Manifest) -> None:
        """Go on with a checkpoint's chains. A vertex whose parallelism changed starts with full snapshots."""
        vertices = {v.state_id: v for v in self._graph.job.vertices.values()}
        for state in manifest.tasks:
            vertex = vertices.get(state.vertex)
            outside = any(map(is_external, state.handles))  # a savepoint: not ours to build on
            if vertex is not None and vertex.parallelism == state.parallelism and not outside:
                self._chains[TaskId(vertex.id, state.subtask)] = state.handles

    def lengths(self, tasks: Iterable[TaskId]) -> dict[TaskId, int]:
        return {task: len(self._chains.get(task, ())) for task in tasks}

    def extend(self, acks: Mapping[TaskId, TaskAck]) -> tuple[TaskState, ...]:
        """A checkpoint's acknowledgements, each with a handle: what the manifest says of every task."""
        tasks = []
        for task, ack in sorted(acks.items()):
            if ack.handle is None:
                raise ProtocolError(f"task {task} acknowledged checkpoint {ack.epoch} without a state handle")
            chain = (ack.handle,) if ack.full else (*self._chains.get(task, ()), ack.handle)
            self._chains[task] = chain
            tasks.append(task_state(self._graph, task, chain))
        return tuple(tasks)


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
