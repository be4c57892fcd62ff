"""The task host: holds tasks, and which version of its state each has. Every runtime runs its tasks in one.

The driver's plan names the version an epoch starts from. Whatever happened before (a retry, a zombie attempt, a lost process,
a job that went back), comparing versions decides: fold and go on, roll back and go on, or restore. How events come and go is an
exchange's business: `LevelRun` feeds a host one level of one epoch, `StreamRun` a whole attempt. Restoring, rolling back,
folding, taking and acknowledging a snapshot are here and nowhere else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.restore import contents_of
from penstock.checkpoint.store import CheckpointStore
from penstock.engine import machine
from penstock.engine.messages import EpochPlan, SourceRanges, TaskAck
from penstock.engine.settings import JobSettings
from penstock.engine.spill import SpillFile
from penstock.engine.task import Task, TaskSettings
from penstock.engine.uploads import SnapshotWriter, Uploads
from penstock.errors import FailedTask, ProtocolError, StateLostError, StorageError, blame
from penstock.graph.execution_graph import ExecutionGraph
from penstock.operators.base import OperatorMetrics
from penstock.operators.iteration import FEEDBACK, Feedback
from penstock.protocol.events import Barrier, Data, Event
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import TaskId, VertexId
from penstock.state.backends import keyspace_factory
from penstock.state.keyspace import Keyspace
from penstock.state.local_folder import LocalFolder
from penstock.state.snapshot import SnapshotContents, SnapshotTaken

HostPoint: TypeAlias = Literal[  # where a test may end a host
    "source-block",  # before a source reads its next block
    "process",  # before a task takes a block from a channel
    "barrier",  # before a task takes a barrier from a channel, so also in the middle of an alignment
    "before-snapshot",  # a task's snapshot is taken, but nothing of it is stored
    "after-snapshot",  # it is encoded, and stored unless that happens in the background; not acknowledged
    "during-restore",  # some tasks are restored
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJob:
    """The job as a host knows it. It travels from the driver with cloudpickle."""

    job_id: str
    graph: ExecutionGraph
    settings: JobSettings
    storage_url: str | None
    job_parameters: Mapping[str, str]
    graph_version: int = 0


class Exchange(Protocol):
    """Carries away what the tasks of a host send."""

    def send(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        """Takes an event to a subtask of `vertex`, on one of its channels."""

    def acknowledge(self, ack: TaskAck) -> None:
        """Takes a task's acknowledgement to the driver."""


@dataclass(slots=True, kw_only=True)
class HeldTask:
    """`base` is confirmed; `frozen` is what the last run made of it, confirmed when the next plan names it."""

    task: Task
    base: str
    gate: dict[str, Any] | None
    finished: bool
    dirty: bool = False  # an attempt has touched it since `base`
    frozen: str | None = None
    frozen_checkpoint: bool = False
    recovered: str = "no"
    restored: bool = False  # `base` is from a checkpoint: those behind are to be told where this task stands
    # What `base` has on its channels, of an unaligned checkpoint: comes before anything that is sent.
    on_the_way: tuple[tuple[int, Event], ...] = ()
    plan: EpochPlan | None = None  # of the epoch it is in
    attempt: str = ""  # at that epoch
    ended: dict[int, EndedTask] = field(default_factory=dict)  # epochs whose snapshot is taken and not acknowledged
    working_since: float | None = None
    busy: float = 0.0  # seconds of this epoch
    blocked: float = 0.0  # seconds of this epoch in which what it sent could not be carried away
    idle: float = 0.0  # seconds of this epoch in which nothing came, where that is known
    start_delay_ms: float = 0.0  # from the plan of the next snapshot to its first barrier, where that is known
    buffered_bytes: int = 0  # that came behind a barrier and waited for the others, where that is known

    @property
    def id(self) -> TaskId:
        """The task's id."""
        return self.task.task


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTask:
    """What an acknowledgement says of the end of an epoch. The task may be in the next one when it is written."""

    plan: EpochPlan
    attempt: str
    facts: dict[str, Any]


class TaskHost:
    """Not thread-safe: whoever runs it sees to that. One run at a time uses it, and is its `exchange` meanwhile."""

    def __init__(
        self,
        job: HostJob,
        store: CheckpointStore | None,
        uploads: Uploads,
        *,
        name: str,
        index: int = 0,
        mode: BarrierMode = BarrierMode.EXACTLY_ONCE,
        by_clock: bool = False,
        clock_ms: Callable[[], float] | None = None,
        reach: Callable[[HostPoint], None] = lambda point: None,
    ) -> None:
        """`by_clock`: periodic watermarks and idleness follow the clock of whoever runs it, not the ends of epochs. `clock_ms`:
        what latency is measured by; None: processing time."""
        self.name, self.index, self.by_clock, self._clock_ms = name, index, by_clock, clock_ms
        # A tail waits with its barrier for its head's. Where barriers overtake, that may be in front of full buffers: round a loop
        # everybody would wait for everybody.
        self.mode = BarrierMode.EXACTLY_ONCE if job.graph.loops and mode is BarrierMode.UNALIGNED else mode
        self.store = store
        self.reach = reach
        self._writer = SnapshotWriter(store, job.settings, uploads)
        self.folder = LocalFolder(job.settings.state.rocksdb.local_dirs, choose=index)
        self.spill = SpillFile(self.folder.path)
        self._held: dict[TaskId, HeldTask] = {}
        self._manifest: tuple[int, Manifest] | None = None  # of the attempt, the checkpoint it started from
        self.exchange: Exchange = _Nowhere()
        self.on_ended: Callable[[HeldTask, SnapshotTaken], None] = lambda held, taken: None
        self.change_job(job)

    def change_job(self, job: HostJob) -> None:
        """The job runs at another parallelism from now on: tasks of before are let go."""
        self.close()
        self.job, self.graph = job, job.graph
        self._new_keyspace: Callable[[], Keyspace] = keyspace_factory(
            job.settings.state, job.graph.job.max_parallelism, self.folder.path
        )

    # ---------------------------------------------------------------- versions

    def begin(self, task: TaskId, plan: EpochPlan, attempt: str) -> HeldTask:
        """Bring the task to exactly the version the plan starts from, and begin the planned epoch with it."""
        held = self._at_version(task, plan)
        held.dirty = True
        with self.working(held):
            self.enter(held, plan, attempt)
            for loop in self.graph.loops:
                if loop.head_vertex == task.vertex:
                    tail = TaskId(loop.tail_vertex, task.subtask)
                    held.task.inject(loop.head, self._feedback(tail, loop.tail, plan))
            for channel, event in held.on_the_way:
                held.task.receive(channel, event)
        return held

    def enter(self, held: HeldTask, plan: EpochPlan, attempt: str) -> None:
        """The task is where the planned epoch starts."""
        held.plan, held.attempt = plan, attempt
        held.task.hand_back(plan.feedback)
        held.task.notify_checkpoints(plan.base_checkpoint, plan.aborted_checkpoints)
        self.expect_snapshot(held, plan)
        held.task.begin_epoch(plan.epoch, attempt, plan.processing_time)

    def expect_snapshot(self, held: HeldTask, plan: EpochPlan) -> None:
        """Tells the task what the plan wants of its snapshot: full or not, in parts or whole."""
        held.task.full_snapshots = plan.full_snapshot(held.id)
        held.task.in_parts = plan.savepoint is None

    def _at_version(self, task: TaskId, plan: EpochPlan) -> HeldTask:
        wanted = plan.accepted[task]
        held = self._held.get(task)
        if held is not None and held.frozen == wanted:
            # A fold that fails half-way (a full disk) leaves neither version: nothing may match until it is done.
            held.base, held.frozen = "", None
            self.fold(held, checkpointed=held.frozen_checkpoint)
            held.base = wanted
        elif held is not None and held.base == wanted:
            if held.dirty:
                held = self._roll_back(held, plan)
        else:
            held = self._restore_planned(task, plan, wanted)
        return held

    def fold(self, held: HeldTask, *, checkpointed: bool) -> None:
        """Confirms what the last epoch made of the task: nothing goes back behind it in memory."""
        held.task.fold(checkpointed=checkpointed)
        held.gate = None if held.task.gate is None else held.task.gate.snapshot()
        held.finished = held.task.finished
        held.dirty = held.restored = False
        held.on_the_way = ()
        held.recovered = "no"

    def _roll_back(self, held: HeldTask, plan: EpochPlan) -> HeldTask:
        """A retry: confirmed tables are kept, everything an attempt touched is dropped."""
        _abandon(held)
        before = held.task
        before.rollback()
        task = self._new_task(held.id, plan.job_attempt, keyspace=before.keyspace, states=before.states)
        task.resume(held.gate, held.finished, before.confirmed, announce=held.restored)
        return self._hold(
            task,
            held.base,
            recovered="replayed",
            restored=held.restored,
            on_the_way=held.on_the_way,
            gate=held.gate,
            finished=held.finished,
        )

    def _restore_planned(self, task: TaskId, plan: EpochPlan, wanted: str) -> HeldTask:
        if not plan.restorable:
            raise StateLostError(
                f"task {task} is not in this slot at version {wanted}, and epochs have run since checkpoint "
                f"{plan.base_checkpoint}: the job goes back to that checkpoint"
            )
        return self.restore(task, wanted, plan.base_checkpoint, plan.job_attempt)

    def restore(self, task: TaskId, version: str, checkpoint: int | None, job_attempt: int) -> HeldTask:
        """The task as the checkpoint has it; None: as it is before its first record."""
        replaced = self._held.pop(task, None)
        if replaced is not None:
            _abandon(replaced)
            replaced.task.release()
        fresh = self._new_task(task, job_attempt, keyspace=self._new_keyspace())
        if checkpoint is None:
            return self._hold(fresh, version)
        self.reach("during-restore")
        manifest = self._load(checkpoint, job_attempt)
        assert self.store is not None
        on_the_way: list[tuple[int, Event]] = []

        def contents() -> Iterator[SnapshotContents]:  # one file after the other: the state may be larger than memory
            assert self.store is not None
            store = self.store
            for snapshot in contents_of(manifest, self.graph, task, store.read_state, readers=store.readers):
                for channel, event in fresh.on_the_way(snapshot):
                    if channel is None:
                        raise StorageError(
                            f"checkpoint {checkpoint} holds events that were on a channel to {fresh.vertex.name!r} which the job "
                            "no longer has: resume with the graph the unaligned checkpoint was taken with"
                        )
                    on_the_way.append((channel, event))
                yield snapshot

        fresh.restore(contents(), checkpoint)
        return self._hold(fresh, version, recovered="restored", restored=True, on_the_way=tuple(on_the_way))

    def _load(self, checkpoint: int, job_attempt: int) -> Manifest:
        assert self.store is not None
        if self._manifest is None or (self._manifest[0], int(self._manifest[1].checkpoint_id)) != (
            job_attempt,
            checkpoint,
        ):
            self._manifest = job_attempt, self.store.load(checkpoint)
        return self._manifest[1]

    def _new_task(self, task: TaskId, job_attempt: int, **kept: Any) -> Task:
        settings = TaskSettings(
            job_id=self.job.job_id,
            block_size=self.job.settings.block_size,
            mode=self.mode,
            attempt=job_attempt,
            job_parameters=dict(self.job.job_parameters),
            storage=self._writer.storage,
            allow_changed_windows=self.job.settings.allow_changed_windows,
            by_clock=self.by_clock,
            clock_ms=self._clock_ms,
        )
        return Task(self.graph, task, settings, lambda *event: self.exchange.send(*event), **kept)

    def _hold(
        self,
        task: Task,
        base: str,
        *,
        recovered: str = "no",
        restored: bool = False,
        on_the_way: tuple[tuple[int, Event], ...] = (),
        **known: Any,
    ) -> HeldTask:
        held = HeldTask(
            task=task,
            base=base,
            gate=None if task.gate is None else task.gate.snapshot(),
            finished=task.finished,
            recovered=recovered,
            restored=restored,
            on_the_way=on_the_way,
        )
        for name, value in known.items():
            setattr(held, name, value)
        task.on_snapshot = lambda taken: self._snapshot_taken(held, taken)
        with self.working(held):
            task.open()
        self._held[task.task] = held
        return held

    def _feedback(self, task: TaskId, tail: str, plan: EpochPlan) -> list[Feedback]:
        """What the loop's tail in `task` kept when the last epoch ended, for its head in the same host. Only looked at: the
        tail may have run this epoch already, when Spark repeats a head whose shuffle files were lost."""
        held = self._held.get(task)
        if held is None or held.base != plan.accepted[task]:
            held = self._at_version(task, plan)
        return held.task.states[tail].confirmed_list(FEEDBACK)

    # ---------------------------------------------------------------- events

    def receive(self, held: HeldTask, channel: int, event: Event) -> None:
        """Hands an event to a task and carries out what its gate says."""
        if isinstance(event, Data):
            self.reach("process")
        elif isinstance(event, Barrier):
            self.reach("barrier")
        with self.working(held):
            held.task.receive(channel, event)

    def overtake(self, held: HeldTask, channel: int, barrier: Barrier, overtaken: Iterable[Event]) -> None:
        """Hands a task a barrier before these events of its channel, which are on the way when its snapshot is taken."""
        self.reach("barrier")
        with self.working(held):
            held.task.overtake(channel, barrier, overtaken)

    def read(self, held: HeldTask, part: SourceRanges) -> Iterator[None]:
        """A source reads a part of its splits, block by block."""
        blocks = iter(held.task.source_steps(part.ranges, part.finished))
        while True:
            self.reach("source-block")
            with self.working(held):
                try:
                    next(blocks)
                except StopIteration:
                    return
            yield

    def end_source(self, held: HeldTask, barrier: Barrier) -> None:
        """Ends the epoch of a source, which has no channels for a barrier to come on."""
        with self.working(held):
            held.task.take_snapshot(barrier)

    def working(self, held: HeldTask) -> _Working:
        """The task works: its time is counted, and it is to blame for what goes wrong."""
        return _Working(self, held)

    def failed_task(self, task: TaskId) -> FailedTask:
        """Names a task for the message about its failure."""
        vertex = self.graph.vertex(task)
        return FailedTask(vertex=vertex.name, subtask=task.subtask, parallelism=vertex.parallelism, process=self.name)

    # ---------------------------------------------------------------- snapshots

    def _snapshot_taken(self, held: HeldTask, taken: SnapshotTaken) -> None:
        """The epoch has ended for the task: note what the acknowledgement will say of this instant."""
        task, now = held.task, time.perf_counter()
        assert held.plan is not None
        if held.working_since is not None:
            held.busy += now - held.working_since
            held.working_since = now
        held.ended[taken.barrier.epoch] = EndedTask(
            plan=held.plan,
            attempt=held.attempt,
            facts={
                "next_processing_timer": task.next_processing_timer(),
                "feedback": task.feedback(),
                "accumulators": task.accumulators(),
                "metrics": {name: _told(metrics) for name, metrics in task.take_metrics().items()},
                "state_entries": task.keyspace.entries(),
                "recovered": held.recovered,
                "start_delay_ms": held.start_delay_ms,
                "alignment_buffered_bytes": held.buffered_bytes,
                "back_pressured_ms": held.blocked * 1000,
                "busy_ms": held.busy * 1000,
                "idle_ms": held.idle * 1000,
                "machine": machine.figures(),
            },
        )
        held.busy = held.blocked = held.idle = held.start_delay_ms = 0.0
        held.buffered_bytes = 0
        self.on_ended(held, taken)

    def acknowledge(self, held: HeldTask) -> int:
        """Write the snapshots of the task that are complete, and acknowledge their barriers. How many there were."""
        complete = [taken for taken in held.task.snapshots if taken.complete]
        for taken in complete:
            held.task.snapshots.remove(taken)
            ended = held.ended.pop(taken.barrier.epoch)
            started = time.perf_counter()
            if taken.contents is not None:
                self.reach("before-snapshot")
            try:
                written = self._writer.write(
                    ended.plan, held.id, held.task.vertex.state_id, ended.attempt, taken.contents
                )
            except Exception as error:
                blame(error, self.failed_task(held.id))
                raise
            if taken.contents is not None:
                self.reach("after-snapshot")
            held.frozen, held.frozen_checkpoint = ended.attempt, taken.barrier.checkpoint
            self.exchange.acknowledge(
                TaskAck(
                    task=held.id,
                    epoch=taken.barrier.epoch,
                    attempt=ended.attempt,
                    job_attempt=ended.plan.job_attempt,
                    handle=written.handle,
                    uploading=written.uploading,
                    full=taken.contents is None or taken.contents.full,
                    skipped=taken.skipped,
                    **written.saved,
                    committables=taken.committables,
                    overtaken=taken.overtaken,
                    alignment_ms=taken.alignment_ms,
                    sync_ms=taken.sync_ms,
                    snapshot_bytes=written.size,
                    snapshot_ms=(time.perf_counter() - started) * 1000,
                    slot=self.name,
                    # Now that the barrier has come on every channel: unaligned, it may have overtaken watermarks.
                    watermark=held.task.watermark,
                    **ended.facts,
                )
            )
        return len(complete)

    # ---------------------------------------------------------------- the end

    def finish(self, completed: int | None) -> None:
        """The job is over: listeners hear of its last checkpoint, and functions are closed. Raises the first of their errors
        when all have had their turn."""
        first: Exception | None = None
        for held in self._held.values():
            try:
                held.task.notify_checkpoints(completed, ())
                held.task.close()
            except Exception as error:
                blame(error, self.failed_task(held.id))
                first = first or error
        self._let_go()
        if first is not None:
            raise first

    def close(self) -> None:
        """The tasks are not needed any more, and nobody listens to what their functions say."""
        for held in self._held.values():
            _abandon(held)
        self._let_go()

    def _let_go(self) -> None:
        for held in self._held.values():
            held.task.release()
        self._held.clear()
        self.spill.close()

    def release(self) -> None:
        """Without a word to any function: what a process leaves behind that dies, less its files."""
        self._let_go()
        self.folder.remove()


def _told(metrics: OperatorMetrics) -> dict[str, Any]:
    """As an acknowledgement has them."""
    latency = {source: measured.summary() for source, measured in metrics.latency.items()}
    return {**asdict(replace(metrics, latency={})), "latency": latency}


class _Working:
    __slots__ = ("_held", "_host")

    def __init__(self, host: TaskHost, held: HeldTask) -> None:
        self._host, self._held = host, held

    def __enter__(self) -> None:
        self._held.working_since = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            blame(error, self._host.failed_task(self._held.id))
        since, self._held.working_since = self._held.working_since, None
        if since is not None:
            self._held.busy += time.perf_counter() - since


class _Nowhere:
    """No run uses the host."""

    def send(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        raise ProtocolError(f"vertex {vertex} was sent {event} while nobody was there to carry it")

    def acknowledge(self, ack: TaskAck) -> None:
        raise ProtocolError(f"task {ack.task} acknowledged epoch {ack.epoch} while nobody was there to carry it")


def _abandon(held: HeldTask) -> None:
    """Let functions release what they hold (threads, connections); what they say now would hide the next error."""
    with contextlib.suppress(Exception):
        held.task.close()
