"""One subtask of one vertex: gate in front, a chain of operators, routers behind.

Both runtimes drive the same object: they feed it events per channel and carry away what it sends. It knows
neither Spark nor sockets nor storage.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

from penstock.common.accumulators import Accumulator, merge_into
from penstock.common.values import own_all
from penstock.errors import ProtocolError
from penstock.functions.connectors import SplitRange
from penstock.graph.execution_graph import ExecutionGraph
from penstock.operators import checkpointing
from penstock.operators.base import Operator, OperatorContext, OperatorMetrics
from penstock.operators.iteration import Feedback, IterationHead, IterationTail
from penstock.operators.source import SourceOperator
from penstock.operators.wiring import COLUMN_BLOCKS, Emit, share_of, wire
from penstock.protocol.events import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Barrier,
    Data,
    EndOfData,
    Event,
    IdleStatus,
    LatencyMarker,
    Watermark,
)
from penstock.protocol.gate import (
    AdvanceWatermark,
    BarrierMode,
    ChannelsRecorded,
    FinishInput,
    InputGate,
    Instruction,
    PassMarker,
    Process,
    Record,
    SetIdle,
    TakeSnapshot,
    Unaligned,
)
from penstock.protocol.ids import NodeId, TaskId
from penstock.protocol.input_facts import is_of, renumbered, reopened, store
from penstock.protocol.input_facts import restore as restore_facts
from penstock.records import Columns, Rows
from penstock.state import specification
from penstock.state.backend import OperatorState
from penstock.state.keys import key_group_range
from penstock.state.keyspace import HashMapKeyspace, Keyspace
from penstock.state.snapshot import SnapshotContents, SnapshotTaken, grouped

if TYPE_CHECKING:
    from penstock.checkpoint.storage import Storage

_PART_ENTRIES = 100_000  # of a full snapshot that does not fit in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """The facts of a job that a task needs."""

    job_id: str
    block_size: int = 10_000
    mode: BarrierMode = BarrierMode.EXACTLY_ONCE
    attempt: int = 0
    job_parameters: dict[str, str] = field(default_factory=dict)
    storage: Storage | None = None
    allow_changed_windows: bool = False
    by_clock: bool = False
    clock_ms: Callable[[], float] | None = None  # for latency markers; None: processing time


class Task:
    """One subtask of one vertex: its gate, its operators, their state and its routers. Restore, roll back, confirm and
    snapshot exist here, once for all runtimes.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        task: TaskId,
        settings: TaskSettings,
        emit: Emit,
        keyspace: Keyspace | None = None,
        states: Mapping[str, OperatorState] | None = None,
    ) -> None:
        """`states` are those of an earlier object for the same task: a retry keeps the confirmed tables but starts
        with fresh operators, so that nothing a failed attempt left in a user's object can leak into the next."""
        self.task = task
        self.vertex = graph.vertex(task)
        self.settings = settings
        self._graph = graph
        self._emit = emit
        self.processing_time = 0
        self.epoch = 0  # the one that is running or ran last
        self.confirmed: int | None = None  # the epoch whose end the confirmed state is from; None: there is none
        self._notified: int | None = None
        self.owned = key_group_range(task.subtask, self.vertex.parallelism, graph.job.max_parallelism)
        self.channels = graph.input_channels(task)
        self._input_of = {c.channel: c.input for c in self.channels}
        self._senders = {c.channel: c.sender for c in self.channels}
        self._lineage = graph.lineage(task.vertex)
        self.gate: InputGate | None = (
            InputGate.create([c.channel for c in self.channels], settings.mode) if self.channels else None
        )
        self.states: dict[str, OperatorState] = {}
        self.metrics: dict[str, OperatorMetrics] = {}
        self._open_snapshots: dict[int, SnapshotTaken] = {}
        self._first_barriers: dict[int, float] = {}  # epoch → when its barrier first came on a channel
        self.snapshots: list[SnapshotTaken] = []
        self.finished = False
        self._settled = False  # whether what follows from restored facts has been carried out
        self.announces = False  # whether those behind it are still to be told where it stands, after a restore
        # Called at every barrier, before anything of the snapshot: what it is to be like.
        self.before_snapshot: Callable[[Barrier], None] = lambda barrier: None
        # Called at every barrier when the snapshot is taken and the barrier sent on, before anything that follows it.
        self.on_snapshot: Callable[[SnapshotTaken], None] = lambda taken: None
        self.keyspace: Keyspace = HashMapKeyspace() if keyspace is None else keyspace
        self._build(states or {})

    # ---------------------------------------------------------------- construction

    def _build(self, states: Mapping[str, OperatorState]) -> None:
        wiring = wire(
            self._graph,
            self.task,
            send=lambda vertex, target, channel, event: self._emit(vertex, target, channel, event),
            block_size=self.settings.block_size,
        )
        self.operators, self._outputs, self._routers = wiring.operators, wiring.outputs, wiring.routers
        self._gathering = [operator for operator in self.chain if operator.gathers]
        columnar = all(operator.columnar for operator in self.operators.values())
        for node in self.vertex.nodes:
            state = states.get(node.operator_id) or OperatorState(
                node.operator_id, self._graph.job.max_parallelism, self.keyspace
            )
            metrics = OperatorMetrics()
            self.states[node.operator_id] = state
            self.metrics[node.operator_id] = metrics
            self.operators[node.id].setup(
                OperatorContext(
                    operator_id=node.operator_id,
                    name=node.name,
                    uid=node.uid,
                    subtask=self.task.subtask,
                    parallelism=self.vertex.parallelism,
                    max_parallelism=self._graph.job.max_parallelism,
                    attempt=self.settings.attempt,
                    state=state,
                    output=wiring.outputs[node.id],
                    metrics=metrics,
                    job_parameters=self.settings.job_parameters,
                    job_id=self.settings.job_id,
                    block_size=self.settings.block_size * (COLUMN_BLOCKS if columnar else 1),
                    processing_time=lambda: self.processing_time,
                    clock_ms=self.clock_ms,
                    restored_checkpoint=lambda: self.confirmed,
                    storage=self.settings.storage,
                    by_clock=self.settings.by_clock,
                )
            )

    def clock_ms(self) -> float:
        """The time that latency is measured by."""
        clock = self.settings.clock_ms
        return self.processing_time if clock is None else clock()

    @property
    def head(self) -> Operator:
        """The first operator of the chain."""
        return self.operators[self.vertex.head.id]

    @property
    def chain(self) -> list[Operator]:
        """The operators in the order in which records pass them."""
        return [self.operators[node.id] for node in self.vertex.nodes]

    # ---------------------------------------------------------------- life cycle

    def open(self) -> None:
        """After `restore`, if there is something to restore."""
        for operator in self.chain:
            before = specification.settle(
                operator.ctx.state,
                operator.specification(),
                formerly=operator.formerly(),
                allow_changed_windows=self.settings.allow_changed_windows,
            )
            if before is not None:
                operator.migrate_state(before)
            operator.restore_state()
        if self.gate is not None:
            self.head.resume_at(self.gate.valve.watermark, self.gate.valve.idle)
        for edge in self.vertex.chained:  # heads first
            upstream = self.operators[edge.source]
            self.operators[edge.target].resume_at(upstream.current_watermark, upstream.idle)
        for operator in reversed(self.chain):
            operator.open()

    def close(self) -> None:
        """Closes every operator."""
        self._gathering = []
        for operator in self.chain:
            operator.close()

    def release(self) -> None:
        """Nobody will use this subtask's state again: give its memory and local files back."""
        self.keyspace.close()

    def notify_checkpoints(self, completed: int | None, aborted: Sequence[int]) -> None:
        """Before an epoch begins: the newest complete checkpoint, and attempts at checkpoints that have failed. To a
        fresh object they may be old news; better twice than not at all."""
        for checkpoint in aborted:
            for operator in self.chain:
                checkpointing.notify_aborted(operator, checkpoint)
        if completed is not None and completed != self._notified:
            self._notified = completed
            for operator in self.chain:
                checkpointing.notify_complete(operator, completed)

    def begin_epoch(self, epoch: int, attempt: str, processing_time: int) -> None:
        """Begins an epoch in every operator and router, and fires processing-time timers that are due."""
        self.epoch = epoch
        for router in self._routers:
            router.begin_epoch(epoch)
        for operator in self.chain:
            operator.begin_epoch(epoch, attempt)
        if self.announces:
            self._announce()
        if not self._settled:
            self._settle()
        self.advance_processing_time(processing_time)

    def _announce(self) -> None:
        """Those behind may know nothing of this sender: it is new to them, or took over from others. Who knows it all already
        ignores it."""
        self.announces = False
        for node in self.vertex.nodes:
            operator, output = self.operators[node.id], self._outputs[node.id]
            watermark = MAX_WATERMARK if self.finished else operator.current_watermark
            for router in output.all_routers():
                if watermark > MIN_WATERMARK:
                    router.broadcast(Watermark(watermark))
                router.broadcast(IdleStatus(operator.idle))
                if self.finished:
                    router.broadcast(EndOfData())

    def _settle(self) -> None:
        self._settled = True
        if self.gate is None:
            assert isinstance(self.head, SourceOperator)
            self.head.settle()
            return
        self.execute(self.gate.settle())
        if self.gate.ended:
            self.finish()

    def hand_back(self, taken: int) -> None:
        """What came to the tails of loops in here up to the end of epoch `taken` is their heads' from now on. Called when
        an epoch starts, before anything in it."""
        for tail in self._tails():
            tail.forget(taken)

    def inject(self, head: NodeId, feedback: Iterable[Feedback]) -> None:
        """Sends what came back in an iteration through its head."""
        operator = self.operators[head]
        assert isinstance(operator, IterationHead)
        operator.inject(feedback)

    def feedback(self) -> dict[str, int]:
        """Records on the way back, by tail."""
        return {tail.ctx.operator_id: tail.waiting for tail in self._tails()}

    def tail(self, operator_id: str) -> IterationTail:
        """The tail of a loop, by the operator's id."""
        return next(tail for tail in self._tails() if tail.ctx.operator_id == operator_id)

    def _tails(self) -> list[IterationTail]:
        return [operator for operator in self.operators.values() if isinstance(operator, IterationTail)]

    def advance_processing_time(self, now: int) -> None:
        """Processing time never goes back, even when the machine's clock does."""
        self.processing_time = max(self.processing_time, now)
        for operator in self.chain:
            operator.on_processing_time(self.processing_time)

    def next_processing_timer(self) -> int | None:
        """The time of the earliest processing-time timer; None if there is none."""
        times = [t for operator in self.chain if (t := operator.next_processing_timer()) is not None]
        return min(times, default=None)

    @property
    def watermark(self) -> int:
        """The event time of the task."""
        return self.head.current_watermark if self.gate is None else self.gate.valve.watermark

    @property
    def gathered(self) -> bool:
        """Records wait in an operator or a router for more to go on with them, and have no time-out of their own."""
        return any(router.gathered for router in self._routers if router.timeout_ms is None) or any(
            operator.gathered for operator in self._gathering
        )

    def flush(self) -> None:
        """Everything that was gathered leaves, but for streams with a time-out of their own."""
        for operator in self._gathering:
            operator.flush()
        for router in self._routers:
            if router.timeout_ms is None:
                router.flush()

    @property
    def timed(self) -> bool:
        """Some stream that leaves here has a time-out of its own."""
        return any(router.timeout_ms is not None for router in self._routers)

    def flush_timed(self, now: float) -> bool:
        """What has waited as long as the time-out of its own stream allows leaves. Called again and again, with the seconds of one
        clock. Whether something left."""
        left = False
        for router in self._routers:
            if not router.gathered:
                router.waits_since = None
            elif router.waits_since is None:
                router.waits_since = now
            if (due := router.due) is not None and due <= now:
                router.waits_since, left = None, True
                router.flush()
        return left

    def next_flush(self) -> float | None:
        """When `flush_timed` has something to do, as far as it knows."""
        return min((due for router in self._routers if (due := router.due) is not None), default=None)

    def on_interval(self) -> None:
        """Periodic watermarks are due, and idleness is looked for."""
        for operator in self.chain:
            operator.on_interval()

    def send_marker(self) -> None:
        """A source sends a latency marker behind what it has sent."""
        if not self.finished:
            self._outputs[self.vertex.head.id].marker(LatencyMarker(self.vertex.head.operator_id, self.clock_ms()))

    def poll(self) -> None:
        """Answers that asynchronous functions have got go on."""
        for operator in self.chain:
            operator.poll()

    # ---------------------------------------------------------------- events

    def receive(self, channel: int, event: Event) -> None:
        """Takes an event of a channel. A source has none."""
        assert self.gate is not None, "a source has no channels"
        if isinstance(event, Barrier):
            self._first_barriers.setdefault(event.epoch, time.perf_counter())
        self.execute(self.gate.receive(channel, event))

    def overtake(self, channel: int, barrier: Barrier, overtaken: Iterable[Event]) -> None:
        """A barrier goes before these events of its channel, which are received after it. Unaligned."""
        assert isinstance(self.gate, Unaligned), "only unaligned barriers overtake"
        self._first_barriers.setdefault(barrier.epoch, time.perf_counter())
        self.execute(self.gate.overtake(channel, barrier, overtaken))

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carries out what the gate says."""
        head = self.head
        for instruction in instructions:
            match instruction:
                case Record(channel, event, epochs):
                    for epoch in epochs:
                        taken = self._open_snapshots[epoch]
                        taken.overtaken += len(event.block) if isinstance(event, Data) else 0
                        if taken.contents is not None:
                            taken.contents.channel_state.append((channel, _kept(event)))
                case Process(channel, block):
                    head.process(self._input_of[channel], block)
                case PassMarker(marker):
                    head.on_marker(marker)
                case AdvanceWatermark(timestamp):
                    head.on_watermark(timestamp)
                case SetIdle(idle):
                    head.on_idle(idle)
                case FinishInput():
                    self.finish()
                case TakeSnapshot(barrier):
                    self.take_snapshot(barrier)
                case ChannelsRecorded(barrier):
                    self._all_barriers_came(barrier)
                case _:
                    assert_never(instruction)

    def source_steps(self, ranges: Sequence[SplitRange], finished: bool) -> Iterable[None]:
        """Source vertices: read this epoch's part, yielding after each block; the caller then calls `take_snapshot`."""
        head = self.head
        if not isinstance(head, SourceOperator):
            raise ProtocolError(f"vertex {self.vertex.name!r} is not a source")
        yield from head.steps(ranges, finished)
        if finished and not self.finished:
            self.finish()

    def finish(self) -> None:
        """All input has ended. What the operators still hold is emitted; barriers go on."""
        if self.finished:  # before a restore; those behind know
            return
        self.finished = True
        for operator in self.chain:
            operator.end_input()
        for router in self._routers:
            router.broadcast(EndOfData())

    # ---------------------------------------------------------------- snapshots

    def take_snapshot(self, barrier: Barrier) -> None:
        """The barrier has come (on every channel, when aligned): end the epoch, snapshot, send the barrier on."""
        began = time.perf_counter()
        self.before_snapshot(barrier)
        for operator in self.chain:
            operator.end_epoch()
        committables = {
            node.operator_id: made for node in self.vertex.nodes if (made := self.operators[node.id].prepare_commit())
        }
        for operator in self.chain:
            checkpointing.snapshot_functions(operator, barrier.epoch)
            operator.snapshot_state()
        taken = SnapshotTaken(
            barrier=barrier,
            contents=self.contents(full=self.full_snapshots) if barrier.checkpoint else None,
            committables=committables,
            complete=self.gate is None,
            sync_ms=(time.perf_counter() - began) * 1000,
        )
        if self.gate is not None:
            self._open_snapshots[barrier.epoch] = taken
        self.snapshots.append(taken)
        for router in self._routers:
            router.broadcast(barrier)
        self.on_snapshot(taken)

    def end_aborted(self, epoch: int) -> None:
        """The epoch was to end with a checkpoint that is aborted: it ends here, without a snapshot, and nothing is sent on."""
        for operator in self.chain:
            operator.end_epoch()
        committables = {
            node.operator_id: made for node in self.vertex.nodes if (made := self.operators[node.id].prepare_commit())
        }
        taken = SnapshotTaken(
            barrier=Barrier(epoch, checkpoint=False),
            contents=None,
            committables=committables,
            complete=True,
            skipped=True,
        )
        self.snapshots.append(taken)
        self.on_snapshot(taken)

    def abort_barriers(self, epoch: int) -> None:
        """The barriers of an epoch are awaited no more."""
        self._first_barriers.pop(epoch, None)
        if self.gate is not None:
            self.execute(self.gate.abort(epoch))

    def _all_barriers_came(self, barrier: Barrier) -> None:
        taken = self._open_snapshots.pop(barrier.epoch)
        taken.complete = True
        if (arrived := self._first_barriers.pop(barrier.epoch, None)) is not None:
            taken.alignment_ms = max(0.0, (time.perf_counter() - arrived) * 1000 - taken.sync_ms)

    full_snapshots = True  # the slot turns this off between compactions

    in_parts = False  # whether a full snapshot may come in parts: a savepoint's may not

    def contents(self, *, full: bool) -> SnapshotContents:
        """The contents of a snapshot of this task, taken now."""
        in_parts = full and self.in_parts and self.keyspace.on_disk
        return SnapshotContents(
            tables=[t for state in self.states.values() for t in state.snapshot(full=full, frozen=in_parts)],
            parts=grouped(
                itertools.chain.from_iterable([state.freeze(_PART_ENTRIES) for state in self.states.values()]),
                _PART_ENTRIES,
            )
            if in_parts
            else None,
            gate=None if self.gate is None else store(self.gate.snapshot(), self._senders, self._lineage),
            finished=self.finished,
            full=full,
        )

    def restore(self, contents: Iterable[SnapshotContents], checkpoint: int) -> None:
        """Load snapshots of this vertex's operators: for each old subtask its full snapshot first, then its deltas.
        Entries of other subtasks' key groups are left out, so any old parallelism will do."""
        self.confirmed = checkpoint
        self.announces = True
        gates: list[dict[str, Any]] = []
        gates_finished = True
        for snapshot in contents:
            for table in snapshot.tables:
                state = self.states.get(table.operator)
                if state is not None:
                    state.restore(table, self.owned)
            if snapshot.gate is not None:
                gates.append(snapshot.gate)
                gates_finished = gates_finished and snapshot.finished
            self.finished = self.finished or snapshot.finished
        if self.gate is not None and gates:
            self.gate.restore(restore_facts(gates, self._senders, self._lineage))
            self.finished = gates_finished and not reopened(gates, self._lineage)
            for operator in self.chain:
                operator.current_watermark = self.gate.valve.watermark
        for state in self.states.values():
            state.restored()

    def fold(self, *, checkpointed: bool) -> None:
        """The epoch is confirmed: its changes become part of the base. `checkpointed` if a checkpoint holds them."""
        self.confirmed = self.epoch
        for state in self.states.values():
            state.fold(checkpointed=checkpointed)

    def rollback(self) -> None:
        """Drops everything since the last confirmed epoch."""
        for state in self.states.values():
            state.rollback()

    def on_the_way(self, contents: SnapshotContents) -> Iterator[tuple[int | None, Event]]:
        """What a snapshot of this subtask, or of those that it goes on from, has on its channels (unaligned), by today's numbers;
        None: nobody sends on it any more. Where senders changed only records count: of the rest the restored senders say what
        holds now."""
        numbers = renumbered(contents.gate, self._senders)
        unchanged = contents.gate is not None and is_of(contents.gate, self._lineage)
        edges = {c.channel: c.edge for c in self.channels}
        for channel, event in contents.channel_state:
            today = channel if numbers is None else numbers.get(channel)
            if not unchanged and not isinstance(event, Data):
                continue
            if today not in self._senders:
                yield None, event
            elif contents.moved_from is None:
                yield today, event
            else:
                assert isinstance(event, Data)  # a snapshot of another subtask has another lineage
                for block in share_of(
                    self._graph,
                    edges[today],
                    event.block,
                    self.task.subtask,
                    contents.moved_from,
                    self.settings.block_size,
                ):
                    yield today, Data(block)

    def resume(self, gate: dict[str, Any] | None, finished: bool, confirmed: int | None, *, announce: bool) -> None:
        """Go on from confirmed state in memory (a retry): the gate as it was at the last barrier. `announce`: that state was
        restored, and no epoch has come to its end since."""
        self.confirmed = confirmed
        self.announces = announce
        self.finished = finished
        if self.gate is not None and gate is not None:
            self.gate.restore(gate)
            for operator in self.chain:
                operator.current_watermark = self.gate.valve.watermark

    def accumulators(self) -> dict[str, Accumulator[Any, Any]]:
        """Copies, by name: all of this subtask so far."""
        merged: dict[str, Accumulator[Any, Any]] = {}
        for state in self.states.values():
            for name, accumulator in state.accumulators.values().items():
                merge_into(merged, name, accumulator)
        return merged

    def take_metrics(self) -> dict[str, OperatorMetrics]:
        """The metrics since the last call, by operator."""
        taken = {}
        for operator_id, metrics in self.metrics.items():
            taken[operator_id] = OperatorMetrics(
                records_in=metrics.records_in,
                records_out=metrics.records_out,
                late_dropped=metrics.late_dropped,
                user={**metrics.user, **{name: gauge() for name, gauge in metrics.gauges.items()}},
                splits=metrics.splits,
                latency=metrics.latency,
            )
            metrics.records_in = metrics.records_out = metrics.late_dropped = 0
        return taken


def _kept(event: Event) -> Event:
    """An event on the way as part of a snapshot: its records are processed before the snapshot is written."""
    if not isinstance(event, Data) or isinstance(event.block, Columns):
        return event
    return Data(Rows(own_all(event.block.values), event.block.timestamps))
