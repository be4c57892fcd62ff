"""All subtasks of a job in memory, with bounded channels between them: one attempt of the embedded runtime.

It only offers steps (`runnable`, `step`) and carries them out; who chooses among them is the schedule. The same `Task`,
gates, state and snapshot files as in the slots of the Spark runtime.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.restore import contents_of
from penstock.checkpoint.store import CheckpointStore
from penstock.driver.description import JobDescription
from penstock.engine.exchange_rows import decode_event, encode_event
from penstock.engine.messages import EpochPlan, TaskAck
from penstock.engine.snapshot_writer import SnapshotWriter
from penstock.engine.task import Task, TaskSettings
from penstock.engine.uploads import Uploads
from penstock.errors import FailedTask, StorageError, blame
from penstock.operators.iteration import Feedback
from penstock.protocol.events import Barrier, Data, Event
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import NodeId, TaskId, VertexId
from penstock.runtime.embedded.crash import CrashPoint
from penstock.state.backends import keyspace_factory
from penstock.state.local_folder import LocalFolder
from penstock.state.snapshot import SnapshotContents, SnapshotTaken

SourceBlock: TypeAlias = None
Step: TypeAlias = tuple[TaskId, int | SourceBlock]  # a subtask and the channel it reads from; None: a source reads on


@dataclass(slots=True)
class _Task:
    subtask: Task
    inputs: dict[int, deque[Event]]
    feeds: list[deque[Event]] = field(default_factory=list)  # the channels behind it
    epoch: int | None = None  # the one it is in; None: it waits for the next plan
    reading: Iterator[None] | None = None  # sources, inside an epoch
    boundaries: dict[int, dict[str, Any]] = field(default_factory=dict)  # what an ack says about the epoch's end
    recovered: str = "no"
    feedback: dict[int, list[tuple[NodeId, Sequence[Feedback]]]] = field(default_factory=dict)  # by epoch and head
    busy: float = 0.0  # seconds of finished steps of this epoch
    stepped: float = 0.0  # when the step under way began
    blocked: float = 0.0  # seconds of this epoch in which a channel behind it was full
    blocked_since: float | None = None


class Execution:
    """Built from a checkpoint or from nothing. Not thread-safe."""

    def __init__(
        self,
        job: JobDescription,
        *,
        store: CheckpointStore | None,
        restore_from: Manifest | None,
        version: str,
        job_attempt: int,
        mode: BarrierMode,
        capacity: int | None,
        uploads: Uploads,
        reach: Callable[[CrashPoint], None],
        acknowledge: Callable[[TaskAck], None],
    ) -> None:
        self._job, self._store, self._version = job, store, version
        self._mode, self._capacity = mode, capacity
        self._reach, self._acknowledge = reach, acknowledge
        self._plans: dict[int, EpochPlan] = {}
        self._final: int | None = None
        self._handed_over = -1  # feedback up to the end of this epoch is on its way to the heads
        self._writer = SnapshotWriter(store, job.settings, uploads)
        self._folder = LocalFolder(job.settings.state.rocksdb.local_dirs)
        self._new_keyspace = keyspace_factory(job.settings.state, job.graph.job.max_parallelism, self._folder.path)
        self._tasks: dict[TaskId, _Task] = {}
        graph = job.graph
        settings = TaskSettings(
            job_id=job.job_id,
            block_size=job.settings.block_size,
            mode=mode,
            attempt=job_attempt,
            job_parameters=dict(job.job_parameters),
            storage=None if store is None else store.storage,
            allow_changed_windows=job.settings.allow_changed_windows,
        )
        for level in range(graph.levels):
            for slot in range(graph.slots):
                for task in graph.tasks_of_slot(slot, level):  # the order in which a slot would run them
                    self._add(task, Task(graph, task, settings, self._emit, keyspace=self._new_keyspace()))
        for task, held in self._tasks.items():
            for edge in graph.vertex(task).outputs:
                channel = graph.channel_of(edge, task.subtask)
                for target in graph.targets_of(edge, task.subtask):
                    held.feeds.append(self._tasks[TaskId(edge.target, target)].inputs[channel])
            if restore_from is not None:
                self._reach("during-restore")
                self._restore(task, held, restore_from)
            with self._blamed(held):
                held.subtask.open()

    def _add(self, task: TaskId, subtask: Task) -> None:
        held = self._tasks[task] = _Task(subtask, {c.channel: deque() for c in subtask.channels})
        subtask.on_snapshot = lambda taken: self._epoch_ended(task, held, taken)

    def _restore(self, task: TaskId, held: _Task, manifest: Manifest) -> None:
        assert self._store is not None
        vertex = self._job.graph.vertex(task)
        on_the_way: list[tuple[int | None, Event]] = []

        def contents() -> Iterator[SnapshotContents]:  # one file after the other: the state may be larger than memory
            assert self._store is not None
            for snapshot in contents_of(manifest, self._job.graph, task, self._store.read_state):
                on_the_way.extend(held.subtask.on_the_way(snapshot))
                yield snapshot

        held.subtask.restore(contents(), int(manifest.checkpoint_id))
        held.recovered = "restored"
        for channel, event in on_the_way:
            if channel is None:
                raise StorageError(
                    f"checkpoint {manifest.checkpoint_id} holds events that were on a channel to {vertex.name!r} which the "
                    "job no longer has: resume with the graph the unaligned checkpoint was taken with"
                )
            # Back on the channel, before anything new: from there on it is like any other record.
            held.inputs[channel].append(event)

    # ---------------------------------------------------------------- epochs

    def begin(self, plan: EpochPlan) -> None:
        """A planned epoch starts, for each subtask when it has ended the one before."""
        if plan.last:
            self._final = plan.epoch
        ahead = [held for held in self._tasks.values() if held.epoch is not None and held.epoch not in self._plans]
        self._plans[plan.epoch] = plan
        for held in ahead:  # unaligned: into an epoch that was then skipped if nothing was to be read in it
            held.epoch = plan.epoch
            held.subtask.renumber_epoch(plan.epoch)
        self._hand_over(plan)
        for held in self._tasks.values():
            if held.epoch is None:
                self._enter(held, plan)
            elif held.epoch == plan.epoch:  # it went ahead
                held.subtask.full_snapshots = self._full(held, plan)
                held.subtask.notify_checkpoints(plan.base_checkpoint, plan.aborted_checkpoints)
                held.subtask.advance_processing_time(plan.processing_time)
                held.subtask.hand_back(plan.feedback)
                self._inject(held, plan)

    def _hand_over(self, plan: EpochPlan) -> None:
        """Epochs up to `plan.feedback` are complete, so the tails have all of it and none has let go of it yet."""
        for loop in self._job.graph.loops:
            for subtask in range(self._job.graph.job.vertices[loop.head_vertex].parallelism):
                tail, head = (self._tasks[TaskId(v, subtask)] for v in (loop.tail_vertex, loop.head_vertex))
                feedback = tail.subtask.kept_feedback(loop.tail, after=self._handed_over, upto=plan.feedback)
                head.feedback.setdefault(plan.epoch, []).append((loop.head, feedback))
        self._handed_over = plan.feedback

    @staticmethod
    def _inject(held: _Task, plan: EpochPlan) -> None:
        for head, feedback in held.feedback.pop(plan.epoch, ()):
            held.subtask.inject(head, feedback)

    def _enter(self, held: _Task, plan: EpochPlan) -> None:
        subtask = held.subtask
        held.epoch = plan.epoch
        subtask.full_snapshots = self._full(held, plan)
        subtask.hand_back(plan.feedback)
        subtask.notify_checkpoints(plan.base_checkpoint, plan.aborted_checkpoints)
        subtask.begin_epoch(plan.epoch, self._attempt(plan.epoch), plan.processing_time)
        self._inject(held, plan)
        if subtask.vertex.is_source:
            source = plan.sources[subtask.vertex.head.operator_id]
            held.reading = iter(subtask.source_steps(source.ranges, source.finished))

    def _full(self, held: _Task, plan: EpochPlan) -> bool:
        held.subtask.in_parts = plan.savepoint is None
        return plan.full_snapshot(held.subtask.task)

    def _attempt(self, epoch: int) -> str:
        return f"{epoch}-{self._version}"

    def _epoch_ended(self, task: TaskId, held: _Task, taken: SnapshotTaken) -> None:
        """The subtask's snapshot is taken: freeze, note what the acknowledgement says, go on with the next epoch.

        The overlay is folded at once: in this runtime nothing is ever retried from confirmed state in memory.
        """
        subtask, epoch = held.subtask, taken.barrier.epoch
        subtask.fold(checkpointed=taken.barrier.checkpoint)
        held.boundaries[epoch] = {
            "watermark": subtask.watermark,
            "next_processing_timer": subtask.next_processing_timer(),
            "feedback": subtask.feedback(),
            "accumulators": subtask.accumulators(),
            "metrics": {name: asdict(metrics) for name, metrics in subtask.take_metrics().items()},
            "state_entries": subtask.keyspace.entries(),
            "recovered": held.recovered,
            "alignment_ms": taken.alignment_ms,
            "back_pressured_ms": held.blocked * 1000,
            "busy_ms": (held.busy + (time.perf_counter() - held.stepped if held.stepped else 0.0)) * 1000,
        }
        held.busy, held.stepped, held.blocked = 0.0, time.perf_counter() if held.stepped else 0.0, 0.0
        held.recovered = "no"
        held.epoch = None
        following = min((e for e in self._plans if e > epoch), default=None)
        if following is not None:
            self._enter(held, self._plans[following])
        elif self._mode is BarrierMode.UNALIGNED and subtask.gate is not None and epoch != self._final:
            # Records from before the other channels' barriers still come: they belong to the epoch after this one.
            held.epoch = epoch + 1
            subtask.begin_epoch(epoch + 1, self._attempt(epoch + 1), subtask.processing_time)

    # ---------------------------------------------------------------- steps

    def runnable(self) -> list[Step]:
        """Every step that could be next. A subtask behind which a channel is full waits: that is back pressure."""
        steps: list[Step] = []
        for task, held in self._tasks.items():
            if self._capacity is not None and self._is_blocked(held, self._capacity):
                continue
            if held.reading is not None:
                steps.append((task, None))
            else:
                steps.extend((task, channel) for channel in held.inputs if self._readable(held, channel))
        return steps

    @staticmethod
    def _is_blocked(held: _Task, capacity: int) -> bool:
        full = any(len(channel) >= capacity for channel in held.feeds)
        now = time.perf_counter()
        if held.blocked_since is not None:
            held.blocked += now - held.blocked_since
        held.blocked_since = now if full else None
        return full

    def _readable(self, held: _Task, channel: int) -> bool:
        waiting = held.inputs[channel]
        if not waiting or held.subtask.gate is None or held.subtask.gate.blocked(channel):
            return False
        if isinstance(waiting[0], Barrier):
            return not self._held_back(held, waiting[0])
        return held.epoch is not None  # restored channel state waits for the first plan, too

    def _held_back(self, held: _Task, barrier: Barrier) -> bool:
        """Unaligned: the last barrier is aligned, because there is no later epoch for what would come behind it."""
        gate = held.subtask.gate
        assert gate is not None
        if self._mode is not BarrierMode.UNALIGNED or barrier.epoch != self._final or barrier.epoch in gate.open_epochs:
            return False
        return any(not channel or channel[0] != barrier for channel in held.inputs.values())

    def step(self, step: Step) -> None:
        task, channel = step
        held = self._tasks[task]
        held.stepped = time.perf_counter()
        if channel is None:
            self._read_on(held)
        else:
            event = held.inputs[channel][0]
            if isinstance(event, Data):
                self._reach("process")
            elif isinstance(event, Barrier):
                self._reach("barrier")
            held.inputs[channel].popleft()
            with self._blamed(held):
                held.subtask.receive(channel, event)
        held.busy += time.perf_counter() - held.stepped
        held.stepped = 0.0
        self._acknowledge_complete(task, held)

    @contextlib.contextmanager
    def _blamed(self, held: _Task) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            task, vertex = held.subtask.task, held.subtask.vertex
            blame(error, FailedTask(vertex=vertex.name, subtask=task.subtask, parallelism=vertex.parallelism))
            raise

    def _read_on(self, held: _Task) -> None:
        assert held.reading is not None
        assert held.epoch is not None
        self._reach("source-block")
        with self._blamed(held):
            try:
                next(held.reading)
            except StopIteration:
                held.reading = None
                held.subtask.take_snapshot(Barrier(held.epoch, self._plans[held.epoch].snapshot))

    def run_in_order(self) -> None:
        """Everything under way, level by level, subtask by subtask, channel by channel: what the slots do."""
        for task, held in self._tasks.items():
            while held.reading is not None:
                self.step((task, None))
            while (channel := next((c for c in held.inputs if self._readable(held, c)), None)) is not None:
                self.step((task, channel))

    # ---------------------------------------------------------------- out

    def _emit(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        inputs = self._tasks[TaskId(vertex, target)].inputs[channel]
        # Through bytes, as between two processes: nobody shares objects, and what cannot travel fails here too.
        inputs.extend(decode_event(*encoded) for encoded in encode_event(event))

    def _acknowledge_complete(self, task: TaskId, held: _Task) -> None:
        snapshots = held.subtask.snapshots
        for taken in [s for s in snapshots if s.complete]:
            snapshots.remove(taken)
            epoch = taken.barrier.epoch
            started = time.perf_counter()
            state_id = self._job.graph.vertex(task).state_id
            if taken.contents is not None:
                self._reach("before-snapshot")
            written = self._writer.write(self._plans[epoch], task, state_id, self._attempt(epoch), taken.contents)
            if taken.contents is not None:
                self._reach("after-snapshot")
            self._acknowledge(
                TaskAck(
                    task=task,
                    epoch=epoch,
                    attempt=self._attempt(epoch),
                    job_attempt=self._plans[epoch].job_attempt,
                    handle=written.handle,
                    uploading=written.uploading,
                    full=taken.contents is None or taken.contents.full,
                    **written.saved,
                    committables=taken.committables,
                    overtaken=taken.overtaken,
                    snapshot_bytes=written.size,
                    snapshot_ms=(time.perf_counter() - started) * 1000,
                    slot="embedded",
                    **held.boundaries.pop(epoch),
                )
            )

    # ---------------------------------------------------------------- end

    def finish(self, checkpoint: int | None) -> None:
        """The job has ended well: listeners hear of its last checkpoint, then functions are closed."""
        try:
            for held in self._tasks.values():
                held.subtask.notify_checkpoints(checkpoint, ())
            for held in self._tasks.values():
                held.subtask.close()
        finally:
            self._release()

    def _release(self) -> None:
        for held in self._tasks.values():
            held.subtask.release()
        self._folder.remove()

    def abandon(self) -> None:
        """After a failure: let functions release what they hold; what they say now would hide the first error."""
        for held in self._tasks.values():
            with contextlib.suppress(Exception):
                held.subtask.close()
        self._release()
