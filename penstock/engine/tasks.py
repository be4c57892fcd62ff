"""The subtasks a slot holds and which version of their state each has.

The driver's plan names the version an epoch starts from. Whatever happened before (a retry, a zombie attempt, a lost process,
a job that went back), comparing versions decides: fold and go on, roll back and go on, or restore.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.restore import contents_of
from penstock.checkpoint.store import CheckpointStore
from penstock.engine.messages import EpochPlan
from penstock.engine.task import Task, TaskSettings
from penstock.errors import StateLostError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.operators.iteration import FEEDBACK, Feedback
from penstock.operators.wiring import Emit
from penstock.protocol.ids import TaskId
from penstock.state.keyspace import HashMapKeyspace, Keyspace


@dataclass(slots=True)
class HeldTask:
    """`base` is confirmed; `frozen` is what the last run made of it, confirmed when the next plan names it."""

    subtask: Task
    base: str
    gate: dict[str, Any] | None
    finished: bool
    dirty: bool = False  # an attempt has touched it since `base`
    frozen: str | None = None
    frozen_checkpoint: bool = False
    recovered: str = "no"
    restored: bool = False  # `base` is from a checkpoint: those behind are to be told where this task stands


class HeldTasks:
    def __init__(
        self,
        graph: ExecutionGraph,
        store: CheckpointStore | None,
        new_keyspace: Callable[[], Keyspace] = HashMapKeyspace,
    ) -> None:
        self._graph = graph
        self._new_keyspace = new_keyspace
        self._store = store
        self._held: dict[TaskId, HeldTask] = {}

    def prepare(self, task: TaskId, plan: EpochPlan, settings: TaskSettings, emit: Emit) -> HeldTask:
        """The task at exactly the version the plan starts from."""
        wanted = plan.accepted[task]
        held = self._held.get(task)
        if held is not None and held.frozen == wanted:
            # A fold that fails half-way (a full disk) leaves neither version: nothing may match until it is done.
            held.base, held.frozen = "", None
            held.subtask.fold(checkpointed=held.frozen_checkpoint)
            held.base, held.frozen, held.dirty, held.restored = wanted, None, False, False
            held.gate = None if held.subtask.gate is None else held.subtask.gate.snapshot()
            held.finished = held.subtask.finished
            held.recovered = "no"
        elif held is not None and held.base == wanted:
            if held.dirty:
                held = self._again(held, task, settings, emit)
        else:
            held = self._restore(task, plan, wanted, settings, emit)
        held.subtask.rebind(settings, emit)
        self._held[task] = held
        return held

    def feedback(
        self, task: TaskId, tail: str, plan: EpochPlan, settings: TaskSettings, emit: Emit
    ) -> list[Feedback]:
        """What the loop's tail in `task` kept when the last epoch ended, for its head in the same slot. Only looked at: the
        tail may have run this epoch already, when Spark repeats a head whose shuffle files were lost."""
        held = self._held.get(task)
        if held is None or held.base != plan.accepted[task]:
            held = self.prepare(task, plan, settings, emit)
        return held.subtask.states[tail].confirmed_list(FEEDBACK)

    def _again(self, held: HeldTask, task: TaskId, settings: TaskSettings, emit: Emit) -> HeldTask:
        """A retry: confirmed tables are kept, everything an attempt touched is dropped."""
        _abandon(held)
        held.subtask.rollback()
        subtask = Task(self._graph, task, settings, emit, keyspace=held.subtask.keyspace, states=held.subtask.states)
        subtask.resume(held.gate, held.finished, held.subtask.confirmed, announce=held.restored)
        subtask.open()
        return HeldTask(subtask, held.base, held.gate, held.finished, recovered="replayed", restored=held.restored)

    def _restore(self, task: TaskId, plan: EpochPlan, wanted: str, settings: TaskSettings, emit: Emit) -> HeldTask:
        if not plan.restorable:
            raise StateLostError(
                f"task {task} is not in this slot at version {wanted}, and epochs have run since checkpoint "
                f"{plan.base_checkpoint}: the job goes back to that checkpoint"
            )
        replaced = self._held.pop(task, None)
        if replaced is not None:
            _abandon(replaced)
            replaced.subtask.release()
        subtask = Task(self._graph, task, settings, emit, keyspace=self._new_keyspace())
        recovered = "no"
        if plan.base_checkpoint is not None:
            assert self._store is not None
            manifest = self._store.load(plan.base_checkpoint)
            subtask.restore(contents_of(manifest, self._graph, task, self._store.read_state), plan.base_checkpoint)
            recovered = "restored"
        subtask.open()
        gate = None if subtask.gate is None else subtask.gate.snapshot()
        return HeldTask(
            subtask, wanted, gate, subtask.finished, recovered=recovered, restored=plan.base_checkpoint is not None
        )

    def finish(self, completed: int | None) -> None:
        """The job is over: listeners hear of its last checkpoint, and functions are closed. Nobody is left to tell of what
        they raise but the process's own output."""
        for held in self._held.values():
            try:
                held.subtask.notify_checkpoints(completed, ())
                held.subtask.close()
            except Exception:
                traceback.print_exc()
            held.subtask.release()
        self._held.clear()

    def close(self) -> None:
        """The job goes on with other subtasks: those of before are let go."""
        for held in self._held.values():
            _abandon(held)
            held.subtask.release()
        self._held.clear()


def _abandon(held: HeldTask) -> None:
    """Let functions release what they hold (threads, connections); what they say now would hide the next error."""
    with contextlib.suppress(Exception):
        held.subtask.close()
