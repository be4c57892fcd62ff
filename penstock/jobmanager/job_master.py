"""The JobMaster: plans epochs, completes checkpoints, commits sinks, takes a job back to its last checkpoint.

It knows neither Spark nor threads: a runtime asks `plan_epoch`, runs the plan, and hands the acknowledgements to
`complete_epoch`, or one by one to `acknowledge` when several epochs are under way. The order there is the protocol of the
design's §4: manifest (the instant of commit), then sinks, and only then may the runtime log the epoch as done.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.checkpoint import ownership
from penstock.checkpoint.manifest import Manifest, TaskState, pack_committables
from penstock.checkpoint.state_data import query_newest
from penstock.checkpoint.storage import CheckpointStorage
from penstock.checkpoint.store import AlreadyCommitted, CheckpointStore, Committed, Fenced
from penstock.checkpoint.upload import UploadInbox
from penstock.connectors.base import Json
from penstock.errors import FencedError, PenstockError, ProtocolError
from penstock.jobmanager import faults
from penstock.jobmanager.aborted import AbortedCheckpoints
from penstock.jobmanager.accumulators import JobAccumulators
from penstock.jobmanager.admission import Admission
from penstock.jobmanager.back_pressure import EpochBounds
from penstock.jobmanager.checkpoint_statistics import StatisticsKeeper
from penstock.jobmanager.checkpointing import PATIENCE_MS, Checkpointing, Settled
from penstock.jobmanager.claims import check_claims
from penstock.jobmanager.description import JobDescription
from penstock.jobmanager.epoch import EpochPlan, EpochReport, SourceRanges, TaskAck
from penstock.jobmanager.latency import LatencyTracker
from penstock.jobmanager.loops import LoopTracker
from penstock.jobmanager.pending_checkpoints import PendingCheckpoint
from penstock.jobmanager.plan_log import PlanLog
from penstock.jobmanager.recovery import import_savepoint
from penstock.jobmanager.reporting import epoch_report
from penstock.jobmanager.requests import Requests
from penstock.jobmanager.rescales import Rescales
from penstock.jobmanager.savepoints import PendingSavepoint
from penstock.jobmanager.serving import Asked, give_up, next_asked
from penstock.jobmanager.sink_commits import SinkCommits
from penstock.jobmanager.skip_ahead import skip_ahead
from penstock.jobmanager.source_planner import SourcePlanner
from penstock.jobmanager.state_chains import StateChains, task_state
from penstock.protocol.coordinator import CheckpointCoordinator, CompletedEpoch, Duplicate, Unknown
from penstock.protocol.ids import CheckpointId, Epoch, Generation, TaskId

_log = logging.getLogger("penstock")


@dataclass(slots=True, kw_only=True)
class _Pending:
    """An epoch that was planned and has not completed."""

    plan: EpochPlan
    states: dict[str, Json]  # of the sources, once the epoch is done
    started: float
    spark_offsets: Json = None
    asked: Asked | None = None  # what is served with it
    admitted: int | None = None  # records each source may read


class JobMaster:
    def __init__(
        self,
        job: JobDescription,
        storage: CheckpointStorage | None,
        *,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
        reach: Callable[[faults.CrashPoint, int], None] = faults.reach,
    ) -> None:
        self.reach = reach  # called at the named points where a test may kill the driver
        self.job = job
        self.settings = job.settings
        self.storage = storage
        self.store = None if storage is None else CheckpointStore(storage, job.settings.retained)
        self.clock = clock
        self._tasks = list(job.graph.tasks())
        self._latency = LatencyTracker(job.graph.job)
        self._sinks = SinkCommits(
            job.sinks,
            storage,
            reach=lambda point, epoch: self.reach(point, epoch),
            timeout_ms=job.settings.epoch_timeout_ms,
            now_ms=lambda: self.clock(),
            latency=self._latency,
        )
        self._admission = Admission(
            most=job.settings.epoch_max_records,
            target_ms=job.settings.epoch_target_ms,
        )
        self.generation = Generation(0)
        self.job_attempt = -1
        self.epoch = 0  # the last epoch that completed
        self.finished = False
        self.restored: Manifest | None = None
        self.reports: list[EpochReport] = []
        self.on_report: Callable[[EpochReport], None] | None = None
        self.requests = Requests()
        self.graph_version = 0
        self._rescales = Rescales(job.settings.autoscale)
        self._sources = SourcePlanner(job.sources, self._admission, job.alignments)
        self.inbox = UploadInbox()  # what slots report of snapshots they store
        self.statistics = StatisticsKeeper(storage, clock)
        self.patience_ms = PATIENCE_MS
        self.finish_uploads: Callable[[], None] = lambda: None  # for a runtime that stores nothing by itself
        self.accumulators = JobAccumulators()
        self._aborted = AbortedCheckpoints()
        self._reset_volatile()

    def _reset_volatile(self) -> None:
        self._coordinator: CheckpointCoordinator[TaskAck] = CheckpointCoordinator(self._tasks)
        self._accepted: dict[TaskId, str] = {}
        self._chains = StateChains(
            self.job.graph, compact_after=self.settings.compact_after, incremental=self.settings.incremental
        )
        self._checkpoints = Checkpointing(
            self.settings,
            self.inbox,
            self._chains,
            complete=self._complete_checkpoint,
            inherit=self._inherit,
            declined=lambda checkpoint: self._aborted.declined(checkpoint),
            patience_ms=lambda: self.patience_ms,
            finish_uploads=lambda: self.finish_uploads(),
            now_ms=self.clock,
            statistics=self.statistics,
        )
        self._last_planned = 0
        self._between = Settled()  # between two epochs: in the next one's report
        self._plans = PlanLog(self.storage)
        self._pending: dict[int, _Pending] = {}
        self._uncommitted: dict[str, list[Any]] = {}  # pre-committed since the last checkpoint, by sink
        self._last_run_ms = 0
        self._dirty = False
        self._processing_time = 0
        self._next_timer: int | None = None
        self._loops = LoopTracker(self.job.graph.loops)

    # ---------------------------------------------------------------- start and recovery

    def start(self) -> None:
        """Take the job folder over and recover: the first attempt. Raises FencedError if a live driver owns it."""
        self.take_over()
        self.recover()

    def take_over(self) -> None:
        """Become the job folder's owner. `recover` comes next, and may fail and be called again."""
        if self.storage is not None:
            self.generation = ownership.acquire(self.storage, ownership.OwnerInfo.current())
        self.statistics.load()

    def recover(self) -> None:
        """Go (back) to the newest checkpoint: state, positions, and output that was promised but perhaps not made."""
        self.job_attempt += 1
        self._sinks.give_up()
        self.abandon_requests()
        self._reset_volatile()
        manifest = None if self.store is None else self._find_checkpoint(self.store)
        self.restored = manifest
        self.epoch = 0 if manifest is None else int(manifest.epoch)
        self._coordinator.reset(self.epoch)
        self._aborted.went_back_to(self.epoch)
        self._latency.went_back()
        self.accumulators.went_back_to(self.epoch)
        version = self.base_version
        self._accepted = dict.fromkeys(self._tasks, version)
        if manifest is not None:
            self._adopt(manifest)
        self._sinks.recover(manifest, self.epoch)
        self.finished = manifest is not None and manifest.finished
        if manifest is not None and manifest.finished and self.store is not None:
            self.accumulators.read(manifest, self.store.read_state)
        if manifest is not None:
            self.statistics.restored(int(manifest.checkpoint_id))
        self._sources.restart({} if manifest is None else manifest.sources)
        self._plans.load(self.epoch)

    def _find_checkpoint(self, store: CheckpointStore) -> Manifest | None:
        found = store.latest_readable(fall_back=self.settings.fall_back_to_older)
        own = found.manifest
        for checkpoint, problem in zip(found.skipped, found.problems, strict=True):
            _log.warning("checkpoint %d is damaged and an older one is used instead: %s", checkpoint, problem)
            store.set_aside(checkpoint)
        path = self.settings.recovery_path
        if path is None or (own is not None and own.statistics.get("restored_from") == path):
            return self._skip_ahead(store, own) if self.settings.mode == "AT_MOST_ONCE" else own
        return import_savepoint(
            path,
            store,
            own=own,
            job_id=self.job.job_id,
            generation=self.generation,
            claim=self.settings.claim,
            now_ms=self.clock(),
            committers=self._sinks.committers,
            check=lambda manifest: check_claims(
                manifest, self.job.graph.job, ignore_unclaimed=self.settings.ignore_unclaimed_state
            ),
        )

    def _skip_ahead(self, store: CheckpointStore, own: Manifest | None) -> Manifest | None:
        return skip_ahead(
            store,
            store.storage,
            own,
            job_id=self.job.job_id,
            job_name=self.job.graph.job.job_name,
            max_parallelism=self.job.graph.job.max_parallelism,
            generation=self.generation,
            now_ms=self.clock(),
        )

    def abandon_requests(self, *, ended: bool = False) -> None:
        """What an epoch should have brought that did not complete is given up; the job goes on, and it can be asked for
        again."""
        for epoch, pending in self._pending.items():
            if pending.asked is not None:
                give_up(pending.asked, epoch)
        if ended:  # a job that goes back does so at its new parallelism
            self._rescales.job_ended()

    def query_state(self, uid: str, state_name: str, key: Any) -> Any:
        """From any thread: what the last checkpoint holds of one key. Retention may delete it meanwhile; then there is a
        newer one."""
        return query_newest(lambda: self.restored, self.store, uid, state_name, key)

    # ---------------------------------------------------------------- rescaling

    @property
    def rescaling(self) -> bool:
        """The running epochs are over and a checkpoint is complete: the runtime is to end its attempt and call
        `change_parallelism`."""
        return self._rescales.due is not None

    def change_parallelism(self) -> None:
        """Go on, at the parallelism that was asked for, from the checkpoint just taken. `job` is another one then."""
        self.job = replace(self.job, graph=self._rescales.begin())
        self._tasks = list(self.job.graph.tasks())
        self.graph_version += 1
        self.recover()

    @property
    def base_version(self) -> str:
        return f"{self.generation}.{self.job_attempt}@{self.epoch if self.restored else 0}"

    def _adopt(self, manifest: Manifest) -> None:
        check_claims(manifest, self.job.graph.job, ignore_unclaimed=self.settings.ignore_unclaimed_state)
        self._loops.restored()
        self._processing_time = manifest.processing_time_ms
        self._chains.adopt(manifest)

    @property
    def replaying(self) -> bool:
        """Plans of an earlier attempt are still to be run again: epochs skipped then are skipped now, so nothing may be
        pending when the next one is planned."""
        return self._plans.replaying

    # ---------------------------------------------------------------- planning

    def plan_epoch(
        self,
        epoch: int,
        *,
        stop: bool = False,
        spark_finished: Mapping[str, bool] | None = None,
        spark_data: bool = False,
    ) -> EpochPlan | None:
        """Decide and log what epoch `epoch` reads; None if there is nothing to do and the epoch may be skipped.

        `stop` makes it a checkpoint whatever the interval says. `spark_finished` names the sources Spark reads and
        whether they have ended; `spark_data` says that they bring something in this epoch.
        """
        self._sinks.check()
        self._between = self._between.and_(self.settle())
        if epoch != self.epoch + 1 + len(self._pending):
            raise ProtocolError(f"epoch {epoch} was planned after {self.epoch} with {len(self._pending)} pending")
        now = max(self.clock(), self._processing_time)
        logged = self._plans.take(epoch)
        if logged is None and self._plans.replaying:
            # This epoch brought nothing and was skipped, and later ones were planned from where it started.
            if not (stop or spark_data or self._pending):
                self._skip(epoch)
                return None
            self._plans.drop()
        if logged is not None:
            now = max(int(logged["processing_time"]), self._processing_time)
        serve = logged is None and not self._plans.replaying
        asked = next_asked(self.requests, self.job, self.storage) if serve else None
        savepoint = asked if isinstance(asked, PendingSavepoint) else None
        drain = savepoint is not None and savepoint.request.drain
        stop = stop or asked is not None
        sources, states = self._sources.drain(now) if drain else self._sources.plan(now, logged)
        for operator_id, done in (spark_finished or {}).items():
            done = done or drain
            sources[operator_id] = SourceRanges(ranges=(), finished=done)
            states[operator_id] = {"state": None, "finished": done}
        exhausted = {operator_id for operator_id, state in states.items() if state["finished"]}
        if not drain:  # draining does not wait for loops: what is on the way back is in the savepoint
            for operator_id in self._loops.plan(epoch, completed=self.epoch, exhausted=exhausted, now=now):
                sources[operator_id] = replace(sources[operator_id], finished=False)
        finished = all(ranges.finished for ranges in sources.values())
        has_data = spark_data or self._sources.brings_something(sources) or self._loops.due()
        if not (stop or finished or has_data or logged is not None or self._due(now)) and not self._pending:
            self._skip(epoch)
            return None
        self._processing_time = now
        self._last_run_ms = now
        restorable, self._dirty = not self._dirty, True
        plan = EpochPlan(
            epoch=epoch,
            checkpoint=self.store is not None and (stop or finished or self._checkpoints.due),
            processing_time=now,
            sources=sources,
            accepted=dict(self._accepted),
            chain_lengths=self._chains.lengths(self._tasks),
            no_inline=self._chains.no_inline(),
            base_checkpoint=None if self.restored is None else int(self.restored.checkpoint_id),
            restorable=restorable,
            job_attempt=self.job_attempt,
            savepoint=None if savepoint is None else savepoint.folder,
            last=finished or (asked is not None and asked.ends_run),
            feedback=self.epoch,
            graph_version=self.graph_version,
            aborted_checkpoints=self._aborted.to_tell,
        )
        if plan.checkpoint:
            self._aborted.begun(epoch)
        if not drain:  # a drain that fails is not done again: the sources did not really end here
            self._plans.add(plan, states, known=logged is not None)
        self._last_planned = epoch
        bringing = {uid for uid, part in sources.items() if part.ranges} | set(
            spark_finished or () if spark_data else ()
        )
        self._latency.planned(epoch, now, bringing)
        if plan.checkpoint:
            self._checkpoints.triggered_ms = self.clock()
        self._coordinator.begin(epoch, checkpoint=plan.checkpoint)
        self._pending[epoch] = _Pending(
            plan=plan, states=states, started=time.perf_counter(), asked=asked, admitted=self._admission.max_records
        )
        self.reach("before-run", epoch)
        return plan

    @property
    def looping(self) -> bool:
        """Records are on the way back in a loop: the next epoch need not wait for data."""
        return self._loops.due()

    def _skip(self, epoch: int) -> None:
        self.epoch = epoch
        self._coordinator.reset(epoch)

    def _due(self, now: int) -> bool:
        """Reasons to run an epoch that brings no data: a timer, a checkpoint owed, idleness to be noticed."""
        timer = self._next_timer is not None and self._next_timer <= now
        owed = self._dirty and self.store is not None and self._checkpoints.due
        return timer or owed or now - self._last_run_ms >= self.settings.quiet_interval_ms

    # ---------------------------------------------------------------- completion

    def complete_epoch(self, epoch: int, acks: Iterable[TaskAck], *, spark_offsets: Json = None) -> EpochReport:
        """All tasks have run `epoch`: manifest, then sinks. A missing acknowledgement is an error."""
        self._pending[epoch].spark_offsets = spark_offsets
        reports = [report for ack in acks for report in self.acknowledge(ack)]
        if not reports or reports[-1].epoch != epoch:
            missing = ", ".join(str(task) for task in self._coordinator.missing(epoch))
            raise ProtocolError(f"epoch {epoch} ended without the acknowledgement of tasks {missing}")
        return reports[-1]

    def acknowledge(self, ack: TaskAck) -> list[EpochReport]:
        """One task has run its part of an epoch, durably. Completes, oldest first, the epochs that now lack nothing:
        usually none or one, more when an older one was awaited."""
        reports = []
        for outcome in self._coordinator.acknowledge(ack.epoch, ack.task, ack):
            match outcome:
                case CompletedEpoch():
                    reports.append(self._complete(outcome))
                case Unknown() | Duplicate():
                    raise ProtocolError(
                        f"task {ack.task} acknowledged epoch {ack.epoch} as {type(outcome).__name__} while epochs "
                        f"{list(self._coordinator.pending)} were pending: two attempts of one task reached the driver"
                    )
        return reports

    def _complete(self, completed: CompletedEpoch[TaskAck]) -> EpochReport:
        epoch = completed.epoch
        pending = self._pending[epoch]
        plan = pending.plan
        savepoint = pending.asked if isinstance(pending.asked, PendingSavepoint) else None
        if savepoint is not None and savepoint.request.drain:
            savepoint.check(completed.acks)  # drained and no savepoint: the only way is back
        for task, ack in sorted(completed.acks.items()):  # committables are handed over in the order of subtasks
            self._accepted[task] = ack.attempt
            for sink_id, made in ack.committables.items():
                self._uncommitted.setdefault(sink_id, []).extend(made)
        self._sources.observe(completed.acks.values())
        timers = [t for ack in completed.acks.values() if (t := ack.next_processing_timer) is not None]
        self._next_timer = min(timers, default=None)
        self.epoch = epoch
        self._aborted.epoch_completed()
        self.accumulators.completed(epoch, (ack.accumulators for _, ack in sorted(completed.acks.items())))
        self._loops.completed(completed.acks.values(), plan.processing_time)
        settled, self._between = self._between.and_(self._make_durable(pending, completed)), Settled()
        if plan.last or pending.asked is not None:  # what ends or moves the job finds all output visible
            settled = settled.and_(Settled(commit_ms=self._sinks.wait()))
        saved = savepoint is not None and self._save(pending, savepoint, completed)
        stopped = savepoint is not None and savepoint.ends_run and saved
        self.finished = stopped or (plan.finished and self._loops.empty)
        del self._pending[epoch]
        self._rescales.epoch_completed(epoch, pending.asked, finished=self.finished)
        report = epoch_report(
            self.job.graph,
            plan,
            completed.acks,
            wall_ms=self.clock(),
            duration_ms=(time.perf_counter() - pending.started) * 1000,
            checkpoint_bytes=settled.size,
            manifest_ms=settled.manifest_ms,
            commit_ms=settled.commit_ms,
            generation=int(self.generation),
            latency=self._latency.summary(),
            bounds=EpochBounds(
                interval_ms=self.settings.epoch_interval_ms,
                target_ms=self.settings.epoch_target_ms,
                admitted=pending.admitted,
            ),
        )
        self._admission.observe(records=report.records_in, duration_ms=report.duration_ms)
        self.reports.append(report)
        del self.reports[:-1000]
        if not self.finished:
            self._rescales.follow(report, self.job.graph, self.requests)
        if self.on_report is not None:
            self.on_report(report)
        self.reach("before-spark-log", epoch)
        return report

    def settle(self, wait_ms: float = 0) -> Settled:
        """Complete what has been stored meanwhile. Called before every epoch; a runtime that ends may wait a while."""
        return self._checkpoints.settle(wait_ms)

    def _make_durable(self, pending: _Pending, completed: CompletedEpoch[TaskAck]) -> Settled:
        """Without checkpoints the epoch's output is committed now; with them it waits for the next that completes."""
        plan = pending.plan
        if self.store is None:
            return Settled(commit_ms=self._sinks.commit(plan.epoch, self._take_committables()))
        at_once = Settled()
        if self.settings.mode != "EXACTLY_ONCE":  # what a failure repeats, or skips, is then the mode's promise
            at_once = Settled(commit_ms=self._sinks.commit(plan.epoch, self._take_committables()))
        if not plan.checkpoint:
            self._checkpoints.epoch_without_checkpoint(plan.epoch)
            return at_once.and_(self.settle())
        finished = plan.finished and self._loops.empty
        checkpoint = PendingCheckpoint(
            epoch=plan.epoch,
            completed=completed,
            committables=self._take_committables(),
            describe=functools.partial(self._manifest, pending, finished=finished),
        )
        return at_once.and_(self._checkpoints.acknowledged(checkpoint, last=plan.last))

    def _take_committables(self) -> dict[str, list[Any]]:
        taken, self._uncommitted = dict(sorted(self._uncommitted.items())), {}
        return taken

    def _inherit(self, committables: dict[str, list[Any]]) -> None:
        for sink_id, made in committables.items():
            self._uncommitted[sink_id] = [*made, *self._uncommitted.get(sink_id, [])]

    def _complete_checkpoint(self, checkpoint: PendingCheckpoint) -> Settled:
        """The manifest, which is the instant of commit, then the sinks, then what is no longer needed goes."""
        assert self.store is not None
        commit_ms = self._sinks.wait()  # a later manifest does not list that output any more
        started = time.perf_counter()
        size = self._write_manifest(checkpoint)
        manifest_ms = (time.perf_counter() - started) * 1000
        self.reach("after-manifest", checkpoint.epoch)
        if self.settings.mode == "EXACTLY_ONCE":
            commit_ms += self._sinks.commit(checkpoint.epoch, checkpoint.committables, background=True)
        self.store.subsume()
        self._plans.forget(checkpoint.epoch)
        assert self.restored is not None
        self._sources.checkpoint_complete(self.restored.sources)
        return Settled(size=size, manifest_ms=manifest_ms, commit_ms=commit_ms)

    def _save(self, pending: _Pending, savepoint: PendingSavepoint, completed: CompletedEpoch[TaskAck]) -> bool:
        """Whether the savepoint is there. If not, that is for who asked: the job goes on."""
        self.reach("before-savepoint", completed.epoch)
        try:
            savepoint.check(completed.acks)
            tasks = tuple(
                task_state(self.job.graph, task, () if ack.savepoint is None else (ack.savepoint,))
                for task, ack in sorted(completed.acks.items())
            )
            size = sum(ack.snapshot_bytes for ack in completed.acks.values())
            finished = pending.plan.finished and self._loops.empty
            savepoint.complete(self._manifest(pending, tasks, {}, size, finished=finished), tasks)
        except (PenstockError, OSError) as error:
            savepoint.fail(error)
            return False
        self.reach("after-savepoint", completed.epoch)
        return True

    def _write_manifest(self, checkpoint: PendingCheckpoint) -> int:
        assert self.store is not None
        assert self.storage is not None
        tasks = self._chains.extend(checkpoint.completed.acks, checkpoint.handles)
        size = sum(checkpoint.sizes.values())
        manifest: Manifest = checkpoint.describe(tasks, checkpoint.committables, size)
        ownership.check_current(self.storage, self.generation)
        self.reach("before-manifest", checkpoint.epoch)
        match self.store.commit(manifest):
            case Committed() | AlreadyCommitted():
                pass
            case Fenced(by_generation=other):
                raise FencedError(
                    f"checkpoint {checkpoint.epoch} of job {self.job.job_id} was written by generation {other} while this driver "
                    f"is generation {self.generation}: another driver runs this job; this one stops and changes nothing"
                )
        self.restored = manifest
        self._aborted.committed(checkpoint.epoch)
        self._dirty = self._last_planned > checkpoint.epoch
        return size

    def _manifest(
        self,
        pending: _Pending,
        tasks: tuple[TaskState, ...],
        committables: dict[str, list[Any]],
        size: int,
        *,
        finished: bool,
    ) -> Manifest:
        graph, plan = self.job.graph, pending.plan
        origin = None if self.restored is None else self.restored.statistics.get("restored_from")
        return Manifest(
            job_id=self.job.job_id,
            job_name=graph.job.job_name,
            checkpoint_id=CheckpointId(plan.epoch),
            epoch=Epoch(plan.epoch),
            generation=self.generation,
            created_ms=self.clock(),
            processing_time_ms=plan.processing_time,
            max_parallelism=graph.job.max_parallelism,
            sources=pending.states,
            spark_offsets=pending.spark_offsets,
            tasks=tasks,
            committables={sink: pack_committables(made) for sink, made in committables.items()},
            finished=finished,
            statistics={
                "bytes": size,
                **({} if origin is None else {"restored_from": origin}),
                "stateful": sorted(n.operator_id for v in graph.job.vertices.values() for n in v.nodes if n.stateful),
            },
        )

    def cancelled(self) -> None:
        """The user has cancelled the job; `close` follows. Checkpoints go if nobody wants to resume from them."""
        if self.store is not None and self.settings.delete_on_cancel:
            self._sinks.wait()  # if it failed, the checkpoint is still needed
            self.store.discard_all()

    def close(self) -> None:
        self.statistics.write()
        self.abandon_requests(ended=True)
        self.requests.close("the job has ended")
        self._sources.close()
        self._sinks.close()
        if self.storage is not None and self.generation:
            ownership.release(self.storage, self.generation)
