"""Completing a checkpoint: carries out, one after the other, what the checkpoint machine says.

What decides is `protocol/checkpoints.py`; here is what it takes: storage, sinks, savepoints, and telling those who asked. Read
`Checkpoints._carry_out` from top to bottom: it is the way of a checkpoint from the last acknowledgement to its committed output.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from penstock.checkpoint.manifest import Manifest, StateHandle, TaskState
from penstock.checkpoint.manifest_file import pack_committables
from penstock.checkpoint.ownership import StartPermit
from penstock.checkpoint.savepoint import is_external, read_absolute
from penstock.checkpoint.store import AlreadyCommitted, CheckpointStore, Committed, Fenced
from penstock.driver import rescaling
from penstock.driver.checkpoint_statistics import StatisticsKeeper
from penstock.driver.description import JobDescription
from penstock.driver.faults import KillPoint
from penstock.driver.planning import PlannedEpoch
from penstock.driver.requests import PendingSavepoint, answer_checkpoint, refuse
from penstock.driver.sink_commits import SinkCommits
from penstock.engine.messages import TaskAck
from penstock.engine.uploads import UploadInbox
from penstock.errors import CheckpointFailedError, FencedError, PenstockError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.protocol.chains import Chains
from penstock.protocol.checkpoint_messages import (
    Abandoned,
    AbortBarrier,
    Acknowledged,
    Asked,
    AwaitSinks,
    Begun,
    CheckpointEvent,
    CheckpointInstruction,
    CommitSinks,
    Decline,
    Ended,
    EndRun,
    EpochEnded,
    FailJob,
    ManifestPermit,
    ManifestWritten,
    Notify,
    Recovered,
    Refuse,
    SavepointFailed,
    SavepointWritten,
    SinksCommitted,
    Skipped,
    Subsume,
    TimePassed,
    WriteManifest,
    WriteSavepoint,
)
from penstock.protocol.checkpoints import CheckpointMachine, CheckpointRules
from penstock.protocol.ids import CheckpointId, TaskId
from penstock.state.keys import key_group_range

_log = logging.getLogger("penstock")


@dataclass(slots=True, kw_only=True)
class UploadWatch:
    """How the driver hears that snapshots are stored, and what it does to hear it soon. Its runtime may change that."""

    inbox: UploadInbox = field(default_factory=UploadInbox)  # what hosts report of snapshots they store
    patience_ms: float = 50.0  # how long an epoch's end may wait for them
    finish: Callable[[], None] = lambda: None  # for a runtime that stores nothing by itself: now it must


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEpoch:
    """Every task has acknowledged it."""

    planned: PlannedEpoch
    acks: Mapping[TaskId, TaskAck]


class Checkpoints:
    """Belongs to the JobMaster's thread; only the uploads' inbox is shared, and `newest` may be read from any thread."""

    def __init__(
        self,
        job: JobDescription,
        store: CheckpointStore | None,
        *,
        sinks: SinkCommits,
        uploads: UploadWatch,
        statistics: StatisticsKeeper,
        clock: Callable[[], int],
        reach: Callable[[KillPoint, int], None],
        epoch_ended: Callable[[PlannedEpoch, Mapping[TaskId, TaskAck]], bool],
        checkpoint_completed: Callable[[Manifest], None],
    ) -> None:
        """`epoch_ended` takes note of an epoch and says whether anything is left to do for the job."""
        self._job, self._store, self._sinks = job, store, sinks
        self._uploads, self._statistics = uploads, statistics
        self._clock, self._reach = clock, reach
        self._epoch_ended, self._checkpoint_completed = epoch_ended, checkpoint_completed
        settings = job.settings
        self.machine: CheckpointMachine[TaskAck] = CheckpointMachine(
            job.graph.tasks(),
            CheckpointRules(
                stored=store is not None,
                exactly_once=settings.mode == "EXACTLY_ONCE",
                interval_ms=settings.checkpoint_interval_ms,
                min_pause_ms=settings.min_pause_ms,
                timeout_s=settings.checkpoint_timeout_ms / 1000,
                max_concurrent=settings.max_concurrent_checkpoints,
                tolerable_failures=settings.tolerable_checkpoint_failures,
            ),
            Chains(compact_after=settings.compact_after, incremental=settings.incremental),
            now_ms=clock(),
        )
        self.newest: Manifest | None = None  # the job's newest complete checkpoint
        self._aborting: list[int] = []  # barriers that tasks are to be told not to wait for
        self.end: EndRun | None = None  # the run is over
        self._start = StartPermit.without_folder()  # until it has recovered
        self._events: deque[CheckpointEvent[TaskAck]] = deque()
        self._busy = False
        self._ended: list[EndedEpoch] = []
        self._patient = True
        self._bytes, self._manifest_ms = 0, 0.0  # since the last report

    # ---------------------------------------------------------------- the way of an epoch

    def recovered(self, job: JobDescription, manifest: Manifest | None, start: StartPermit, attempt: int) -> None:
        """The job goes on from `manifest`; None: from nothing."""
        self._job, self._start, self.newest, self.end = job, start, manifest, None
        self._events.clear()
        self._ended.clear()
        self._aborting.clear()
        self._patient = True
        self.machine.chains.adopt({} if manifest is None else _chains(manifest, job.graph))
        epoch = None if manifest is None else int(manifest.epoch)
        self._handle(
            Recovered(
                epoch=epoch or 0,
                newest=epoch,
                job_attempt=attempt,
                tasks=frozenset(job.graph.tasks()),
                now_ms=self._clock(),
            )
        )

    def begin(self, planned: PlannedEpoch, asked: Asked | None, *, streaming: bool = False) -> None:
        """The epoch is about to run; in a stream, its barrier is about to be sent."""
        plan = planned.plan
        self._handle(
            Begun(
                epoch=plan.epoch,
                checkpoint=plan.checkpoint,
                last=plan.last,
                asked=asked,
                planned=planned,
                now_ms=self._clock(),
                now_s=time.monotonic() if streaming else None,
            )
        )

    def skip(self, epoch: int) -> None:
        """It has nothing to do and is not run."""
        self._handle(Skipped(epoch=epoch))

    def acknowledge(self, ack: TaskAck) -> list[EndedEpoch]:
        """One task has run its part of an epoch. The epochs, oldest first, that lack nothing now: usually none or one, more
        when an older one was awaited."""
        self._handle(Acknowledged(ack=ack))
        ended, self._ended = self._ended, []
        if ended:
            self._await_snapshots(last=any(epoch.planned.plan.last for epoch in ended))
        return ended

    def _await_snapshots(self, *, last: bool) -> None:
        if last:  # nothing follows, so all of it must be stored, now
            self._uploads.finish()
            limit_ms = self._job.settings.checkpoint_timeout_ms
            self.settle(limit_ms)
            if self.machine.storing:
                raise CheckpointFailedError(
                    f"the last checkpoint was not stored within {limit_ms / 1000:.0f} s (execution.checkpointing.timeout): the "
                    "job goes back to the one before it"
                )
            return
        # A store that is fast is worth a moment: the checkpoint is then complete with its epoch, and a host that is lost
        # later is restored alone. One that was not done in time is not waited for again until it is fast.
        self.settle(self._uploads.patience_ms if self._patient else 0)
        self._patient = self._patient and not self.machine.storing

    def settle(self, wait_ms: float = 0) -> None:
        """Take note of what has happened meanwhile; wait so long for snapshots that are on their way."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            wait_s = deadline - time.monotonic() if self.machine.storing else 0.0
            for event in self._uploads.inbox.take(max(0.0, wait_s)):
                self._handle(event)
            if (committed := self._sinks.take_committed()) is not None:
                self._handle(SinksCommitted(epoch=committed))
            self._handle(TimePassed(now_s=time.monotonic()))
            if not self.machine.storing or time.monotonic() >= deadline:
                return

    def time_out(self) -> None:
        """For simulations: everything that is under way takes too long, from now on."""
        self._handle(TimePassed(now_s=math.inf))

    def take_aborted(self) -> list[int]:
        """Epochs whose barriers are on their way and need not be waited for, since the last call."""
        aborting, self._aborting = self._aborting, []
        return aborting

    def abandon(self, reason: str) -> None:
        """Gives up what clients have asked of epochs that are under way."""
        self._handle(Abandoned(reason=reason))

    def take_spent(self) -> tuple[int, float]:
        """Bytes that became durable since the last call, and milliseconds for their manifests."""
        spent, self._bytes, self._manifest_ms = (self._bytes, self._manifest_ms), 0, 0.0
        return spent

    # ---------------------------------------------------------------- the way of a checkpoint

    def _handle(self, event: CheckpointEvent[TaskAck]) -> None:
        """What an instruction brings about is the next event, when all instructions of the last one are carried out."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for instruction in self.machine.handle(self._events.popleft()):
                    self._carry_out(instruction)
        except BaseException:
            self._events.clear()
            raise
        finally:
            self._busy = False

    def _carry_out(self, instruction: CheckpointInstruction[TaskAck]) -> None:
        match instruction:
            case EpochEnded():
                self._end_epoch(instruction)
            case WriteManifest(permit=permit):
                self._write_manifest(permit)
            case CommitSinks(epoch=epoch, committables=committables, beside=beside):
                if self._sinks.commit(epoch, committables, beside=beside):
                    self._events.append(SinksCommitted(epoch=epoch))
            case AwaitSinks(epoch=epoch):
                self._sinks.wait()
                self._events.append(SinksCommitted(epoch=epoch))
            case Subsume():
                assert self._store is not None
                self._store.subsume(self._start)
            case Notify():
                self._notify(instruction)
            case WriteSavepoint(epoch=epoch, asked=asked):
                self._write_savepoint(epoch, asked.request)
            case Decline(epoch=epoch, reason=reason):
                self._statistics.failed(epoch, reason)
                _log.warning("checkpoint %d was declined: %s", epoch, reason)
            case AbortBarrier(epoch=epoch):
                self._aborting.append(epoch)
            case Refuse(epoch=epoch, asked=asked, reason=reason):
                refuse(asked, epoch, reason)
            case FailJob(reason=reason):
                raise CheckpointFailedError(reason)
            case EndRun():
                self.end = instruction
            case _:
                assert_never(instruction)

    def _end_epoch(self, ended: EpochEnded[TaskAck]) -> None:
        planned: PlannedEpoch = ended.planned
        finished = self._epoch_ended(planned, ended.acks)
        not_saved = None
        if ended.asked is not None and isinstance(savepoint := ended.asked.request, PendingSavepoint):
            not_saved = self._describe_savepoint(savepoint, planned, ended.acks, finished)
        self._ended.append(EndedEpoch(planned=planned, acks=ended.acks))
        self._events.append(Ended(epoch=ended.epoch, finished=finished, now_s=time.monotonic(), not_saved=not_saved))

    def _write_manifest(self, permit: ManifestPermit[TaskAck]) -> None:
        """The instant of commit. FencedError if another driver owns the job folder: then nothing of this checkpoint may be
        committed."""
        assert self._store is not None
        started = time.perf_counter()
        tasks = tuple(task_state(self._job.graph, task, handles) for task, handles in permit.chains.items())
        manifest = self._manifest(permit.planned, tasks, permit.committables, finished=permit.finished)
        self._start.check()
        self._reach("before-manifest", permit.epoch)
        match self._store.commit(manifest, permit):
            case Committed() | AlreadyCommitted():
                # The store may have taken its time. A driver that came meanwhile did not see this checkpoint and makes its
                # output itself; one that comes from now on sees it, and commits what is staged for it.
                self._start.check()
            case Fenced(by_generation=other):
                raise FencedError(
                    f"checkpoint {manifest.checkpoint_id} of job {manifest.job_id} was written by generation {other} while this "
                    f"driver is generation {manifest.generation}: another driver runs this job; this one stops and changes nothing"
                )
        self.newest = manifest
        self._bytes += permit.size
        self._manifest_ms += (time.perf_counter() - started) * 1000
        self._reach("after-manifest", permit.epoch)
        self._events.append(ManifestWritten(epoch=permit.epoch, now_ms=self._clock()))

    def _notify(self, notice: Notify[TaskAck]) -> None:
        assert self.newest is not None
        self._checkpoint_completed(self.newest)
        acks = notice.acks.values()
        self._statistics.completed(
            notice.completed,
            notice.size,
            (time.monotonic() - notice.since_s) * 1000,
            start_delay_ms=max((ack.start_delay_ms for ack in acks), default=0.0),
            alignment_ms=max((ack.alignment_ms for ack in acks), default=0.0),
            alignment_buffered_bytes=sum(ack.alignment_buffered_bytes for ack in acks),
            overtaken=sum(ack.overtaken for ack in acks),
            sync_ms=max((ack.sync_ms for ack in acks), default=0.0),
            async_ms=max(notice.upload_ms, max((ack.snapshot_ms for ack in acks), default=0.0)),
        )
        self._patient = notice.upload_ms < self._uploads.patience_ms
        if notice.asked is not None:
            answer_checkpoint(notice.asked, notice.completed)

    def _write_savepoint(self, epoch: int, savepoint: PendingSavepoint) -> None:
        self._reach("before-savepoint", epoch)
        try:
            savepoint.complete()
        except (PenstockError, OSError) as error:
            savepoint.problem = error
            self._events.append(SavepointFailed(epoch=epoch, reason=str(error)))
            return
        self._reach("after-savepoint", epoch)
        self._events.append(SavepointWritten(epoch=epoch))

    # ---------------------------------------------------------------- manifests

    def _describe_savepoint(
        self, savepoint: PendingSavepoint, planned: PlannedEpoch, acks: Mapping[TaskId, TaskAck], finished: bool
    ) -> str | None:
        """What its manifest will say, at the end of its epoch; or why there will be none. That is for who asked: the job goes
        on."""
        try:
            savepoint.check(acks)
            graph = self._job.graph
            tasks = tuple(
                task_state(graph, task, () if ack.savepoint is None else (ack.savepoint,))
                for task, ack in sorted(acks.items())
            )
            read = read_absolute if self._store is None else self._store.read_state
            savepoint.describe(self._manifest(planned, tasks, {}, finished=finished), tasks, read)
        except (PenstockError, OSError) as error:
            savepoint.problem = error
            return str(error)
        return None

    def _manifest(
        self,
        planned: PlannedEpoch,
        tasks: tuple[TaskState, ...],
        committables: Mapping[str, list[object]],
        *,
        finished: bool,
    ) -> Manifest:
        """Where the job's newest checkpoint came from is where this one comes from."""
        graph, plan = self._job.graph, planned.plan
        return Manifest(
            job_id=self._job.job_id,
            job_name=graph.job.job_name,
            checkpoint_id=CheckpointId(plan.epoch),
            epoch=plan.epoch,
            generation=self._start.generation,
            created_ms=self._clock(),
            processing_time_ms=plan.processing_time,
            max_parallelism=graph.job.max_parallelism,
            sources=planned.states,
            spark=planned.spark,
            tasks=tasks,
            stateful=tuple(sorted(n.operator_id for v in graph.job.vertices.values() for n in v.nodes if n.stateful)),
            committables={sink: pack_committables(made) for sink, made in committables.items()},
            finished=finished,
            rescaled=rescaling.noted_parallelism(self._job),
            restored_from=None if self.newest is None else self.newest.restored_from,
        )


def task_state(graph: ExecutionGraph, task: TaskId, handles: tuple[StateHandle, ...]) -> TaskState:
    """The entry of a subtask in the manifest."""
    vertex = graph.vertex(task)
    return TaskState(
        vertex=vertex.state_id,
        subtask=task.subtask,
        parallelism=vertex.parallelism,
        key_group_range=key_group_range(task.subtask, vertex.parallelism, graph.job.max_parallelism),
        handles=handles,
        operators=tuple(node.operator_id for node in vertex.nodes),
    )


def _chains(manifest: Manifest, graph: ExecutionGraph) -> dict[TaskId, tuple[StateHandle, ...]]:
    """What the next snapshots may build on. A vertex whose parallelism or operators changed, or whose state is a savepoint's, which
    is not ours to build on, starts with full snapshots: a chain must not keep state of operators that are elsewhere now, where
    they go on."""
    vertices = {vertex.state_id: vertex for vertex in graph.job.vertices.values()}
    return {
        TaskId(vertex.id, state.subtask): state.handles
        for state in manifest.tasks
        if (vertex := vertices.get(state.vertex)) is not None
        and vertex.parallelism == state.parallelism
        and state.operators == tuple(node.operator_id for node in vertex.nodes)
        and not any(map(is_external, state.handles))
    }
