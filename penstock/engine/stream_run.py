"""A host's tasks through one attempt: each goes from epoch to epoch by itself, as barriers come.

Sources read what they are granted, and send a barrier where the driver has put one between two grants. Other tasks take events
from a queue for each channel as their gate allows. A task is always in an epoch: when its snapshot is taken it is in the
next one, whose plan comes with the next barrier. `runnable` names every step that could be next, `step` carries one out; who
chooses among them is the runtime. An epoch's overlay is folded at its barrier: what fails takes the whole attempt back to a
checkpoint, so nothing is retried from confirmed state in memory.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from penstock.engine.host import Exchange, HeldTask, TaskHost
from penstock.engine.messages import EpochPlan, SourceRanges, Splits
from penstock.engine.spill import Spilled
from penstock.graph.iterations import Loop
from penstock.graph.partitioner import Forward
from penstock.operators.iteration import Feedback, IterationTail
from penstock.protocol.events import Barrier, Data, Event
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import TaskId
from penstock.state.snapshot import SnapshotTaken

NoChannel: TypeAlias = None
# A task and the channel it reads from; None: a source reads on, or the head of a loop takes what has come back.
Step: TypeAlias = tuple[TaskId, int | NoChannel]


class StreamExchange(Exchange, Protocol):
    """Carries away what the tasks of a host send, also round a loop, and hears how far they have come."""

    def feed_back(self, loop: Loop, subtask: int, feedback: Feedback) -> None:
        """Takes records from the tail of a loop to its head, in order."""

    def feedback_taken(self, loop: Loop, subtask: int, epoch: int, taken: int) -> None:
        """Tells the tail how many blocks its head had taken when the epoch ended there."""

    def grant_read(self, task: TaskId, seconds: float, splits: Splits) -> None:
        """A source has read all of one grant, and needed so long for it. `splits`: if it is in an alignment group, how far
        event time has come in each of its splits."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What a source is to read, and the barrier behind it, if there is one."""

    part: SourceRanges
    plan: EpochPlan | None
    granted: bool = True  # False: planned with a barrier, which may have been aborted since


@dataclass(slots=True)
class _Flow:
    """A task in the stream."""

    held: HeldTask
    inputs: dict[int, deque[Event | Spilled]]
    epoch: int  # the one it is in
    # What the checkpoint has on its channels. Taken before anything new on any channel, barriers included: at another parallelism
    # what follows a record may come from another sender.
    restored: deque[tuple[int, Event]]
    pointwise: bool  # an input comes from one subtask only: its barriers align
    barriers: dict[int, int] = field(default_factory=dict)  # by channel: how many are in `inputs`
    came: dict[int, int] = field(default_factory=dict)  # by epoch: when its first barrier did
    buffered: int = 0  # bytes that came behind a barrier since the last snapshot
    resting: bool = False  # the last barrier has passed: nothing follows, as things stand
    work: deque[_Work] = field(default_factory=deque)  # of a source, in order
    reading: Iterator[None] | None = None  # the work that it is at
    at: _Work | None = None
    since: float = 0.0
    returned: deque[tuple[Loop, Feedback]] = field(default_factory=deque)  # to the head of a loop
    taken: dict[str, int] = field(default_factory=dict)  # by tail: blocks that this head has taken
    loops: list[Loop] = field(default_factory=list)  # of which it is the head
    tails: dict[str, IterationTail] = field(default_factory=dict)  # of loops, by operator id
    short: set[str] = field(default_factory=set)  # tails whose head is in the same task


class StreamRun:
    """Runs tasks of one host continuously, several barriers at a time, from events of an exchange."""

    def __init__(
        self,
        host: TaskHost,
        exchange: StreamExchange,
        *,
        version: str,
        checkpoint: int | None,
        epoch: int,
        job_attempt: int,
        levels: Iterable[int] | None = None,
    ) -> None:
        """Every task of the host as `checkpoint` has it, None: from nothing. `epoch` is the first one. `version` tells attempts
        apart. `levels`: the tasks of these, None: of all. Call `start` when every other run can be sent to."""
        self.host, self._version, self._exchange = host, version, exchange
        self._plans: dict[int, EpochPlan] = {}
        self._aborted: set[int] = set()  # epochs whose barrier nobody waits for
        self._unaligned = host.mode is BarrierMode.UNALIGNED
        # Where nothing waits for a barrier, nothing is put away.
        self._most_waiting = host.job.settings.alignment_bytes if host.mode is BarrierMode.EXACTLY_ONCE else None
        self._taken: dict[tuple[str, int], int] = {}  # of a loop by tail and epoch: what its head had taken
        self._flows: dict[TaskId, _Flow] = {}
        host.exchange, host.on_ended = exchange, self._epoch_ended
        for level in range(host.graph.levels) if levels is None else levels:
            for task in host.graph.tasks_of_slot(host.index, level):
                self._flows[task] = self._flow(host.restore(task, version, checkpoint, job_attempt), epoch)

    def _flow(self, held: HeldTask, epoch: int) -> _Flow:
        inputs: dict[int, deque[Event | Spilled]] = {channel.channel: deque() for channel in held.task.channels}
        pointwise = any(isinstance(c.edge.stream_edge.partitioner, Forward) for c in held.task.channels)
        flow = _Flow(held, inputs, epoch, deque(held.on_the_way), pointwise)
        held.task.before_snapshot = lambda barrier: self._expect(flow, barrier)
        for loop in self.host.graph.loops:
            if loop.head_vertex == held.id.vertex:
                flow.loops.append(loop)
            if loop.tail_vertex == held.id.vertex:
                flow.tails[loop.tail] = held.task.tail(loop.tail)
                if loop.head_vertex == loop.tail_vertex:
                    flow.short.add(loop.tail)
        return flow

    def start(self, now: int) -> None:
        """Every task begins its first epoch."""
        for flow in self._flows.values():
            self._begin(flow, flow.epoch, now)
            for loop in self.host.graph.loops:
                if (tail := flow.tails.get(loop.tail)) is not None:
                    self._connect(flow, loop, tail)

    def _connect(self, flow: _Flow, loop: Loop, tail: IterationTail) -> None:
        """What the checkpoint has on the way back goes first."""

        def send_back(feedback: Feedback) -> None:
            self._exchange.feed_back(loop, flow.held.id.subtask, feedback)

        for kept in tail.kept:
            send_back(kept)
        tail.send_back = send_back

    # ---------------------------------------------------------------- what the driver says

    def grant(self, sources: Mapping[str, SourceRanges]) -> None:
        """Sources may read this, behind what they were granted before."""
        for flow in self._flows.values():
            part = sources.get(flow.held.task.vertex.head.operator_id) if flow.held.task.vertex.is_source else None
            if part is not None:
                flow.resting = False
                flow.work.append(_Work(part, None))

    def trigger(self, plan: EpochPlan) -> None:
        """A barrier behind all that was granted. Where it ends the epoch, tasks do what the plan says."""
        self._plans[plan.epoch] = plan
        for flow in self._flows.values():
            flow.resting = False
            if flow.held.task.vertex.is_source:
                flow.work.append(_Work(plan.sources[flow.held.task.vertex.head.operator_id], plan, granted=False))
        self.notify(plan.base_checkpoint, plan.aborted_checkpoints)

    def abort(self, epoch: int) -> None:
        """The checkpoint that a barrier stands for is aborted, after it was triggered. A task that the barrier has not come through
        ends the epoch where it is, without a snapshot; the barrier itself is ignored wherever it is, or comes."""
        self._aborted.add(epoch)
        for flow in self._flows.values():
            for channel, waiting in flow.inputs.items():
                for barrier in [e for e in waiting if isinstance(e, Barrier) and e.epoch == epoch]:
                    waiting.remove(barrier)
                    flow.barriers[channel] -= 1
            flow.came.pop(epoch, None)
            for work in [w for w in flow.work if w.plan is not None and w.plan.epoch == epoch]:
                flow.work[flow.work.index(work)] = replace(work, plan=None)
            if flow.at is not None and flow.at.plan is not None and flow.at.plan.epoch == epoch:
                flow.at = replace(flow.at, plan=None)
            for name in flow.tails:
                self._taken.pop((name, epoch), None)
            self._skip_aborted(flow)
            with self.host.working(flow.held):
                flow.held.task.abort_barriers(epoch)
            self.host.acknowledge(flow.held)

    def _skip_aborted(self, flow: _Flow) -> None:
        """Before anything that may end the next epoch: tasks go through all of them, one after the other."""
        while flow.epoch in self._aborted:
            flow.held.plan = self._plans[flow.epoch]
            with self.host.working(flow.held):
                flow.held.task.end_aborted(flow.epoch)

    def notify(self, completed: int | None, aborted: Iterable[int] = ()) -> None:
        """The newest complete checkpoint, and attempts at checkpoints that have failed."""
        for flow in self._flows.values():
            with self.host.working(flow.held):
                flow.held.task.notify_checkpoints(completed, tuple(aborted))

    def advance(self, now: int) -> None:
        """Processing time has come to `now`: timers that are due fire."""
        for flow in self._flows.values():
            if not flow.resting:
                with self.host.working(flow.held):
                    flow.held.task.advance_processing_time(now)

    def emit_watermarks(self) -> None:
        """The interval of periodic watermarks is over."""
        for flow in self._flows.values():
            if not flow.resting:
                with self.host.working(flow.held):
                    flow.held.task.on_interval()

    def send_markers(self) -> None:
        """The interval of latency markers is over."""
        for flow in self._flows.values():
            if flow.held.task.vertex.is_source and not flow.resting:
                with self.host.working(flow.held):
                    flow.held.task.send_marker()

    def poll(self) -> None:
        """Answers of asynchronous requests go on."""
        for flow in self._flows.values():
            with self.host.working(flow.held):
                flow.held.task.poll()

    def feedback_taken(self, loop: Loop, epoch: int, taken: int) -> None:
        """The loop's head of this index had taken so many blocks when the epoch ended there."""
        if epoch not in self._aborted:
            self._taken[loop.tail, epoch] = taken

    # ---------------------------------------------------------------- epochs

    def _begin(self, flow: _Flow, epoch: int, now: int) -> None:
        flow.epoch = epoch
        flow.held.attempt = f"{epoch}-{self._version}"
        with self.host.working(flow.held):
            flow.held.task.begin_epoch(epoch, flow.held.attempt, now)

    def _expect(self, flow: _Flow, barrier: Barrier) -> None:
        """The snapshot of this barrier is about to be taken."""
        flow.held.plan = plan = self._plans[barrier.epoch]
        came = flow.came.pop(barrier.epoch, flow.held.task.processing_time)
        flow.held.start_delay_ms = max(0, came - plan.processing_time)
        flow.held.buffered_bytes, flow.buffered = flow.buffered, 0
        self.host.expect_snapshot(flow.held, plan)
        for name, tail in flow.tails.items():
            tail.forget_first(flow.taken.get(name, 0) if name in flow.short else self._taken.pop((name, barrier.epoch)))

    def _epoch_ended(self, held: HeldTask, taken: SnapshotTaken) -> None:
        flow, epoch = self._flows[held.id], taken.barrier.epoch
        self.host.fold(held, checkpointed=taken.barrier.checkpoint)
        for loop in flow.loops:
            if loop.tail not in flow.short and not taken.skipped:
                self._exchange.feedback_taken(loop, held.id.subtask, epoch, flow.taken.get(loop.tail, 0))
        self._begin(flow, epoch + 1, held.task.processing_time)
        flow.resting = self._plans[epoch].last
        if all(other.epoch > epoch for other in self._flows.values()):
            self._plans = {planned: plan for planned, plan in self._plans.items() if planned >= epoch}

    # ---------------------------------------------------------------- steps

    def offer(self, task: TaskId, channel: int, event: Event, size: int = 0) -> None:
        """An event of so many bytes has come on a channel."""
        flow = self._flows[task]
        if isinstance(event, Barrier) and event.epoch in self._aborted:
            return
        flow.inputs[channel].append(event)
        if isinstance(event, Barrier):
            flow.barriers[channel] = flow.barriers.get(channel, 0) + 1
            if event.epoch >= flow.epoch:  # unaligned, one of an epoch whose snapshot is taken may come
                flow.came.setdefault(event.epoch, flow.held.task.processing_time)
        elif flow.barriers.get(channel) or (flow.held.task.gate is not None and flow.held.task.gate.blocked(channel)):
            flow.buffered += size
            # All channels come on one stream of rows: to stop reading would hold back the very barrier that is waited for.
            if self._most_waiting is not None and flow.buffered > self._most_waiting and isinstance(event, Data):
                flow.inputs[channel][-1] = self.host.spill.write(event)

    def offer_feedback(self, loop: Loop, feedback: Feedback) -> None:
        """Records have come back to the head of a loop."""
        self._flows[TaskId(loop.head_vertex, self.host.index)].returned.append((loop, feedback))

    def waiting(self, task: TaskId, channel: int) -> int:
        """How many events are on a channel."""
        return len(self._flows[task].inputs[channel])

    @property
    def awaits_barriers(self) -> bool:
        """A barrier was triggered that has not come on every channel."""
        newest = max(self._plans, default=0)
        return any(
            flow.epoch <= newest or (flow.held.task.gate is not None and bool(flow.held.task.gate.open_epochs))
            for flow in self._flows.values()
        )

    @property
    def tasks(self) -> list[HeldTask]:
        """The tasks of this run."""
        return [flow.held for flow in self._flows.values()]

    def runnable(self, task: TaskId) -> list[Step]:
        """Every step of the task that could be next."""
        flow = self._flows[task]
        if flow.held.task.vertex.is_source:
            own = flow.reading is not None or bool(flow.work)
            return [(task, None)] if own or flow.returned else []
        if flow.restored:
            return [(task, flow.restored[0][0])]
        steps: list[Step] = [(task, channel) for channel in flow.inputs if self._readable(flow, channel)]
        return [*steps, (task, None)] if flow.returned else steps

    def run_through(self, task: TaskId, until: float | None = None) -> bool:
        """Takes what has come on the task's channels, and back to it, as far as its gate allows; stops when `until` of the
        performance counter has passed. Whether there may be more."""
        flow, out_of_time = self._flows[task], False
        more, any_taken = True, False
        while flow.restored and not out_of_time:
            self._take_next(flow, flow.restored[0][0])
            out_of_time = until is not None and time.perf_counter() >= until
        while more and not out_of_time:
            more = False
            for channel in [c for c, barriers in flow.barriers.items() if barriers] if self._unaligned else ():
                while self._overtaking(flow, channel):  # before any record, of whatever channel
                    self._take_next(flow, channel)
                    any_taken = True
            while flow.returned and not out_of_time:
                self._take_back(flow)
                any_taken = True
                out_of_time = until is not None and time.perf_counter() >= until
            for channel, waiting in flow.inputs.items():
                while not out_of_time and waiting and self._readable(flow, channel):
                    self._take_next(flow, channel)
                    any_taken = more = True
                    out_of_time = until is not None and time.perf_counter() >= until
        if self._aborted:
            self._skip_aborted(flow)
        if any_taken:
            self.host.acknowledge(flow.held)
        return out_of_time

    def _take_next(self, flow: _Flow, channel: int) -> None:
        """The next event of a channel; unaligned, its next barrier before the events in front of that."""
        if self._aborted:
            self._skip_aborted(flow)
        if flow.restored:
            self.host.receive(flow.held, *flow.restored.popleft())
            return
        waiting = flow.inputs[channel]
        if at := self._overtaking(flow, channel):
            barrier = waiting[at]
            assert isinstance(barrier, Barrier)
            del waiting[at]
            flow.barriers[channel] -= 1
            overtaken: list[Event] = []
            for event in itertools.islice(waiting, at):
                assert not isinstance(event, Spilled), "only where barriers align is anything put away"
                overtaken.append(event)
            self.host.overtake(flow.held, channel, barrier, overtaken)
            return
        event = waiting.popleft()
        if isinstance(event, Spilled):
            first, *rest = self.host.spill.read(event)
            waiting.extendleft(reversed(rest))
            event = first
        if isinstance(event, Barrier):
            flow.barriers[channel] -= 1
        self.host.receive(flow.held, channel, event)

    def _overtaking(self, flow: _Flow, channel: int) -> int:
        """How many events the channel's next barrier goes before; 0: it stays where it is, or there is none."""
        if not self._unaligned or not flow.barriers.get(channel):
            return 0
        at, barrier = next((i, e) for i, e in enumerate(flow.inputs[channel]) if isinstance(e, Barrier))
        return 0 if at == 0 or self._held_back(flow, barrier) else at

    def _readable(self, flow: _Flow, channel: int) -> bool:
        waiting, gate = flow.inputs[channel], flow.held.task.gate
        if not waiting or gate is None or gate.blocked(channel):
            return False
        return not isinstance(waiting[0], Barrier) or not self._held_back(flow, waiting[0])

    def _held_back(self, flow: _Flow, barrier: Barrier) -> bool:
        """The driver's word of the barrier, or of what a loop's head has taken, may come later than the barrier itself."""
        gate = flow.held.task.gate
        assert gate is not None
        if self._unaligned and barrier.epoch in gate.open_epochs:
            return False  # its snapshot is taken
        plan = self._plans.get(barrier.epoch)
        if plan is None or any(
            (name, barrier.epoch) not in self._taken for name in flow.tails if name not in flow.short
        ):
            return True
        if not self._unaligned or not (plan.last or plan.savepoint is not None or flow.pointwise):
            return False
        # The last barrier is aligned, because there is no later epoch for what would come behind it, and a savepoint's, so that it
        # holds no records on their way: it can be resumed with another graph. So is one that comes from one subtask only: nobody
        # could tell, at another parallelism, which way the records behind those on their way will go.
        return any(not channel or channel[0] != barrier for channel in flow.inputs.values())

    def step(self, step: Step) -> None:
        """Does one thing: a source reads its next block, or a task takes the next event of a channel."""
        task, channel = step
        flow = self._flows[task]
        if channel is not None:
            self._take_next(flow, channel)
        elif flow.returned:
            self._take_back(flow)
        else:
            self._read_on(flow)
        if self._aborted:
            self._skip_aborted(flow)
        self.host.acknowledge(flow.held)

    def _take_back(self, flow: _Flow) -> None:
        loop, feedback = flow.returned.popleft()
        flow.taken[loop.tail] = flow.taken.get(loop.tail, 0) + 1
        with self.host.working(flow.held):
            flow.held.task.inject(loop.head, (feedback,))

    def _read_on(self, flow: _Flow) -> None:
        """One block; behind the last one of a grant its barrier, if it has one."""
        if flow.reading is None:
            flow.at, flow.since = flow.work.popleft(), time.perf_counter()
            flow.reading = self.host.read(flow.held, flow.at.part)
        for _ in flow.reading:
            return
        work, flow.reading, flow.at = flow.at, None, None
        assert work is not None
        if work.granted:
            splits = flow.held.task.chain[0].ctx.metrics.splits
            self._exchange.grant_read(flow.held.id, time.perf_counter() - flow.since, splits)
        elif work.plan is not None:
            self._skip_aborted(flow)
            self.host.end_source(flow.held, Barrier(work.plan.epoch, work.plan.snapshot))
