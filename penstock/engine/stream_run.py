"""A host's tasks through one attempt: each goes from epoch to epoch by itself, as barriers come.

Events wait in a queue for each channel until the task's gate takes them. `runnable` names every step that could be next, `step`
carries one out; who chooses among them is the runtime. An epoch's overlay is folded at its barrier: what fails takes the
whole attempt back to a checkpoint, so nothing is retried from confirmed state in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.engine.host import Exchange, HeldTask, TaskHost
from penstock.engine.messages import EpochPlan
from penstock.operators.iteration import Feedback
from penstock.protocol.events import Barrier, Event
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import NodeId, TaskId
from penstock.state.snapshot import SnapshotTaken

SourceBlock: TypeAlias = None
Step: TypeAlias = tuple[TaskId, int | SourceBlock]  # a task and the channel it reads from; None: a source reads on


@dataclass(slots=True)
class _Flow:
    """A task in the stream."""

    held: HeldTask
    inputs: dict[int, deque[Event]]
    epoch: int | None = None  # the one it is in; None: it waits for the next plan
    reading: Iterator[None] | None = None  # sources, inside an epoch
    feedback: dict[int, list[tuple[NodeId, Sequence[Feedback]]]] = field(default_factory=dict)  # by epoch and head


class StreamRun:
    """Runs the tasks of one host continuously, several epochs at a time, from events of an exchange."""

    def __init__(
        self, host: TaskHost, exchange: Exchange, *, version: str, checkpoint: int | None, job_attempt: int
    ) -> None:
        """Every task of the host as `checkpoint` has it, None: from nothing. `version` tells attempts apart."""
        self.host, self._version = host, version
        self._plans: dict[int, EpochPlan] = {}
        self._final: int | None = None
        self._handed_over = -1  # feedback up to the end of this epoch is on its way to the heads
        self._flows: dict[TaskId, _Flow] = {}
        host.exchange, host.on_ended = exchange, self._epoch_ended
        for level in range(host.graph.levels):
            for task in host.graph.tasks_of_slot(host.index, level):
                held = host.restore(task, version, checkpoint, job_attempt)
                inputs: dict[int, deque[Event]] = {channel.channel: deque() for channel in held.task.channels}
                for channel, event in held.on_the_way:  # before anything new: then it is like any other record
                    inputs[channel].append(event)
                self._flows[task] = _Flow(held, inputs)

    # ---------------------------------------------------------------- epochs

    def begin(self, plan: EpochPlan) -> None:
        """A planned epoch starts, for each task when it has ended the one before."""
        if plan.last:
            self._final = plan.epoch
        ahead = [flow for flow in self._flows.values() if flow.epoch is not None and flow.epoch not in self._plans]
        self._plans[plan.epoch] = plan
        for flow in ahead:  # unaligned: into an epoch that was then skipped if nothing was to be read in it
            flow.epoch = plan.epoch
            flow.held.task.renumber_epoch(plan.epoch)
        self._hand_over(plan)
        for flow in self._flows.values():
            if flow.epoch is None:
                self._enter(flow, plan)
            elif flow.epoch == plan.epoch:  # it went ahead
                flow.held.plan, flow.held.attempt = plan, self._attempt(plan.epoch)
                self.host.expect_snapshot(flow.held, plan)
                with self.host.working(flow.held):
                    flow.held.task.notify_checkpoints(plan.base_checkpoint, plan.aborted_checkpoints)
                    flow.held.task.advance_processing_time(plan.processing_time)
                    flow.held.task.hand_back(plan.feedback)
                    self._inject(flow, plan)

    def _hand_over(self, plan: EpochPlan) -> None:
        """Epochs up to `plan.feedback` are complete, so the tails have all of it and none has let go of it yet."""
        for loop in self.host.graph.loops:
            head = self._flows.get(TaskId(loop.head_vertex, self.host.index))
            if head is not None:  # then the tail of the same index is here, too
                tail = self._flows[TaskId(loop.tail_vertex, self.host.index)].held.task
                feedback = tail.kept_feedback(loop.tail, after=self._handed_over, upto=plan.feedback)
                head.feedback.setdefault(plan.epoch, []).append((loop.head, feedback))
        self._handed_over = plan.feedback

    @staticmethod
    def _inject(flow: _Flow, plan: EpochPlan) -> None:
        for head, feedback in flow.feedback.pop(plan.epoch, ()):
            flow.held.task.inject(head, feedback)

    def _enter(self, flow: _Flow, plan: EpochPlan) -> None:
        flow.epoch = plan.epoch
        self.host.enter(flow.held, plan, self._attempt(plan.epoch))
        self._inject(flow, plan)
        if flow.held.task.vertex.is_source:
            flow.reading = self.host.read(flow.held)

    def _attempt(self, epoch: int) -> str:
        return f"{epoch}-{self._version}"

    def _epoch_ended(self, held: HeldTask, taken: SnapshotTaken) -> None:
        flow, epoch = self._flows[held.id], taken.barrier.epoch
        self.host.fold(held, checkpointed=taken.barrier.checkpoint)
        flow.epoch = None
        following = min((planned for planned in self._plans if planned > epoch), default=None)
        if following is not None:
            self._enter(flow, self._plans[following])
        elif self.host.mode is BarrierMode.UNALIGNED and held.task.gate is not None and epoch != self._final:
            # Records from before the other channels' barriers still come: they belong to the epoch after this one.
            flow.epoch = epoch + 1
            held.task.begin_epoch(epoch + 1, self._attempt(epoch + 1), held.task.processing_time)

    # ---------------------------------------------------------------- steps

    def offer(self, task: TaskId, channel: int, event: Event) -> None:
        """An event has come on a channel."""
        self._flows[task].inputs[channel].append(event)

    def waiting(self, task: TaskId, channel: int) -> int:
        """How many events are on a channel."""
        return len(self._flows[task].inputs[channel])

    @property
    def tasks(self) -> list[HeldTask]:
        """The tasks of this host."""
        return [flow.held for flow in self._flows.values()]

    def runnable(self, task: TaskId) -> list[Step]:
        """Every step of the task that could be next."""
        flow = self._flows[task]
        if flow.reading is not None:
            return [(task, None)]
        return [(task, channel) for channel in flow.inputs if self._readable(flow, channel)]

    def _readable(self, flow: _Flow, channel: int) -> bool:
        waiting, gate = flow.inputs[channel], flow.held.task.gate
        if not waiting or gate is None or gate.blocked(channel):
            return False
        if isinstance(waiting[0], Barrier):
            return not self._held_back(flow, waiting[0])
        return flow.epoch is not None  # restored channel state waits for the first plan, too

    def _held_back(self, flow: _Flow, barrier: Barrier) -> bool:
        """Unaligned: the last barrier is aligned, because there is no later epoch for what would come behind it."""
        gate = flow.held.task.gate
        assert gate is not None
        unaligned = self.host.mode is BarrierMode.UNALIGNED
        if not unaligned or barrier.epoch != self._final or barrier.epoch in gate.open_epochs:
            return False
        return any(not channel or channel[0] != barrier for channel in flow.inputs.values())

    def step(self, step: Step) -> None:
        """Does one thing: a source reads its next block, or a task takes the next event of a channel."""
        task, channel = step
        flow = self._flows[task]
        if channel is None:
            reading, flow.reading = flow.reading, None
            assert reading is not None
            for _ in reading:
                flow.reading = reading  # there is more; else the next epoch may have set another
                break
        else:
            self.host.receive(flow.held, channel, flow.inputs[channel].popleft())
        self.host.acknowledge(flow.held)
