"""What makes an epoch last: its checkpoint's manifest, which is the instant of commit, then its output, in that order.

Without checkpoints output is committed when its epoch has ended; with them it waits for the next that completes. A savepoint
is made from the same acknowledgements, holds no committables and commits nothing: it exists only when the output of its epoch
is committed, so that whoever resumes from it, however soon the job dies, finds that output there and makes none of it again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.checkpoint.manifest import Manifest, TaskState
from penstock.checkpoint.savepoint import read_external_state
from penstock.checkpoint.store import CheckpointStore
from penstock.driver.aborted import AbortedCheckpoints
from penstock.driver.checkpoint_statistics import StatisticsKeeper
from penstock.driver.checkpointing import Checkpointing, Settled, UploadWatch
from penstock.driver.description import JobDescription
from penstock.driver.faults import CrashPoint
from penstock.driver.manifests import commit_manifest, epoch_manifest
from penstock.driver.pending_checkpoints import PendingCheckpoint
from penstock.driver.planning import EpochPlanner, PendingEpoch
from penstock.driver.pre_committed import PreCommitted
from penstock.driver.savepoints import PendingSavepoint
from penstock.driver.sink_commits import SinkCommits
from penstock.driver.state_chains import StateChains, task_state
from penstock.engine.messages import TaskAck
from penstock.errors import CheckpointFailedError, PenstockError
from penstock.protocol.coordinator import CompletedEpoch
from penstock.protocol.ids import Generation


class EpochCommits:
    """Of one attempt of the job. Belongs to the JobMaster's thread; others may read `newest`."""

    def __init__(
        self,
        job: JobDescription,
        store: CheckpointStore | None,
        *,
        newest: Manifest | None,
        generation: Generation,
        planner: EpochPlanner,
        sinks: SinkCommits,
        aborted: AbortedCheckpoints,
        uploads: UploadWatch,
        statistics: StatisticsKeeper,
        clock: Callable[[], int],
        reach: Callable[[CrashPoint, int], None],
    ) -> None:
        self._job, self._store, self._generation = job, store, generation
        self.newest = newest  # the job's newest complete checkpoint
        self._planner, self._sinks, self._aborted = planner, sinks, aborted
        self._clock, self._reach = clock, reach
        settings = job.settings
        self._exactly_once = settings.mode == "EXACTLY_ONCE"
        self.chains = StateChains(job.graph, compact_after=settings.compact_after, incremental=settings.incremental)
        self._pre_committed = PreCommitted()
        self._savepoints: dict[int, PendingSavepoint] = {}  # by epoch: their output is not committed yet
        self._checkpoints = Checkpointing(
            settings,
            uploads,
            self.chains,
            complete=self._complete,
            inherit=self._pre_committed.give_back,
            declined=self._declined,
            now_ms=clock,
            statistics=statistics,
        )

    def adopt(self, manifest: Manifest) -> None:
        """Later checkpoints build on this one."""
        self.chains.adopt(manifest)

    @property
    def due(self) -> bool:
        """It is time for a checkpoint."""
        return self._store is not None and self._checkpoints.due

    def covers(self, epoch: int) -> bool:
        """The newest checkpoint holds all that was done up to `epoch`."""
        return epoch <= (0 if self.newest is None else int(self.newest.epoch))

    def triggered(self, epoch: int) -> None:
        """`epoch` is about to run, and is a checkpoint."""
        self._aborted.begun(epoch)
        self._checkpoints.triggered_ms = self._clock()

    def settle(self, wait_ms: float = 0) -> Settled:
        """Complete the checkpoints that have been stored meanwhile."""
        return self._checkpoints.settle(wait_ms)

    def epoch_completed(self, pending: PendingEpoch, completed: CompletedEpoch[TaskAck], *, finished: bool) -> Settled:
        """All tasks have acknowledged. `finished`: nothing is left to do for the job."""
        epoch = completed.epoch
        self._pre_committed.add(completed.acks)
        save = None if pending.savepoint is None else self._saving(pending.savepoint, pending, completed, finished)
        if self._store is None:
            self._sinks.commit(epoch, self._pre_committed.take())
            if save is not None:
                save()
            return Settled()
        if not self._exactly_once:  # what a failure repeats, or skips, is then the mode's promise
            self._sinks.commit(epoch, self._pre_committed.take())
        if not pending.plan.checkpoint:
            self._checkpoints.epoch_without_checkpoint(epoch)
            return self.settle()
        checkpoint = PendingCheckpoint(
            epoch=epoch,
            completed=completed,
            committables=self._pre_committed.take(),
            describe=functools.partial(self._manifest, pending, finished=finished),
            save=save,
        )
        return self._checkpoints.acknowledged(checkpoint, last=pending.plan.last)

    def _complete(self, checkpoint: PendingCheckpoint) -> Settled:
        """The manifest, which is the instant of commit, then the sinks, then what is no longer needed goes."""
        assert self._store is not None
        self._sinks.wait()  # a later manifest does not list that output any more
        started = time.perf_counter()
        tasks = self.chains.extend(checkpoint.completed.acks, checkpoint.handles)
        size = sum(checkpoint.sizes.values())
        manifest: Manifest = checkpoint.describe(tasks, checkpoint.committables, size)
        commit_manifest(self._store, manifest, about_to=lambda: self._reach("before-manifest", checkpoint.epoch))
        self.newest = manifest
        self._aborted.committed(checkpoint.epoch)
        manifest_ms = (time.perf_counter() - started) * 1000
        self._reach("after-manifest", checkpoint.epoch)
        if self._exactly_once:
            self._sinks.commit(checkpoint.epoch, checkpoint.committables, background=True)
        self._store.subsume()
        self._planner.checkpoint_completed(manifest)
        if checkpoint.save is not None:
            self._sinks.wait()
            checkpoint.save()
        return Settled(size=size, manifest_ms=manifest_ms)

    def _declined(self, epoch: int) -> None:
        self._aborted.declined(epoch)
        if (savepoint := self._savepoints.pop(epoch, None)) is not None:
            # A later checkpoint commits its output, but together with that of later epochs, which the savepoint makes again.
            savepoint.fail(
                CheckpointFailedError(
                    f"savepoint {savepoint.folder} was not taken: checkpoint {epoch} was declined, and with it the output up to "
                    "there. The job goes on; ask for the savepoint again when the storage answers"
                )
            )

    def give_up_savepoints(self, reason: str) -> None:
        """The checkpoints they wait for will not complete any more."""
        for savepoint in self._savepoints.values():
            savepoint.fail(PenstockError(f"savepoint {savepoint.folder} was not taken: {reason}. Ask for it again"))
        self._savepoints.clear()

    def _saving(
        self, savepoint: PendingSavepoint, pending: PendingEpoch, completed: CompletedEpoch[TaskAck], finished: bool
    ) -> Callable[[], None] | None:
        """How to write it; None if a task could not store its part. That is for who asked: the job goes on."""
        epoch = completed.epoch
        try:
            savepoint.check(completed.acks)
            tasks = tuple(
                task_state(self._job.graph, task, () if ack.savepoint is None else (ack.savepoint,))
                for task, ack in sorted(completed.acks.items())
            )
            size = sum(ack.snapshot_bytes for ack in completed.acks.values())
            read = read_external_state if self._store is None else self._store.read_state
            manifest = savepoint.described(self._manifest(pending, tasks, {}, size, finished=finished), tasks, read)
        except (PenstockError, OSError) as error:
            savepoint.fail(error)
            return None
        self._savepoints[epoch] = savepoint

        def save() -> None:
            self._reach("before-savepoint", epoch)
            del self._savepoints[epoch]
            try:
                savepoint.complete(manifest)
            except (PenstockError, OSError) as error:
                savepoint.fail(error)
                return
            self._reach("after-savepoint", epoch)

        return save

    def _manifest(
        self,
        pending: PendingEpoch,
        tasks: tuple[TaskState, ...],
        committables: Mapping[str, list[Any]],
        size: int,
        *,
        finished: bool,
    ) -> Manifest:
        return epoch_manifest(
            self._job,
            pending,
            tasks,
            committables=committables,
            size=size,
            finished=finished,
            previous=self.newest,
            generation=self._generation,
            now_ms=self._clock(),
        )
