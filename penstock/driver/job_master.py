"""The JobMaster: plans epochs, completes them, takes a job back to its last checkpoint.

It knows neither Spark nor threads: a runtime asks `plan_epoch`, runs the plan, and hands the acknowledgements to
`complete_epoch`, or one by one to `acknowledge` when several epochs are under way. The order there is the protocol of the
design's §4: manifest (the instant of commit), then sinks, and only then may the runtime log the epoch as done. What an epoch
reads is decided in `planning`, what makes it last is in `commits`, where a job goes back to in `recovery`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from penstock.checkpoint import ownership
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.state_data import Read, read_newest
from penstock.checkpoint.storage import CheckpointStorage
from penstock.checkpoint.store import CheckpointStore, KeptAll
from penstock.driver import faults, kept_parallelism
from penstock.driver.aborted import AbortedCheckpoints
from penstock.driver.accumulators import JobAccumulators
from penstock.driver.admission import Admission
from penstock.driver.asked_checkpoints import AskedCheckpoints, PendingCheckpointRequest
from penstock.driver.back_pressure import EpochBounds
from penstock.driver.checkpoint_statistics import StatisticsKeeper
from penstock.driver.checkpointing import Settled, UploadWatch
from penstock.driver.claims import check_claims
from penstock.driver.commits import EpochCommits
from penstock.driver.description import JobDescription
from penstock.driver.latency import LatencyTracker
from penstock.driver.notices import Notices
from penstock.driver.planning import EpochPlanner, PendingEpoch, SparkInput
from penstock.driver.recovery import find_checkpoint
from penstock.driver.repeated_failures import RepeatedFailures
from penstock.driver.reporting import epoch_report
from penstock.driver.requests import Requests
from penstock.driver.rescales import Rescales
from penstock.driver.savepoints import PendingSavepoint
from penstock.driver.serving import give_up
from penstock.driver.sink_commits import SinkCommits
from penstock.driver.source_planner import SourcePlanner
from penstock.engine.messages import EpochPlan, EpochReport, TaskAck
from penstock.errors import CheckpointFailedError, FencedError, PenstockError, ProtocolError
from penstock.functions.connectors import Json
from penstock.protocol.coordinator import CheckpointCoordinator, CompletedEpoch, Duplicate, Unknown
from penstock.protocol.ids import Generation, TaskId

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
_log = logging.getLogger("penstock")


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
        self._owner = ownership.OwnerInfo.current()
        self.job_attempt = -1
        self.epoch = 0  # the last epoch that completed
        self.finished = False
        self._stopped: PendingSavepoint | None = None  # the job ends with it; who asked hears of it when it has
        self.reports: list[EpochReport] = []
        self.on_report: Callable[[EpochReport], None] | None = None
        self.requests = Requests()
        self.notices = Notices()
        self._repeated = RepeatedFailures(self.notices)
        self.asked_checkpoints = AskedCheckpoints()
        self.graph_version = 0
        self._parallelism_known = False  # until the first recovery: the job may have been rescaled by an earlier driver
        self._rescales = Rescales(job.settings.autoscale)
        self._sources = SourcePlanner(job.sources, self._admission, job.alignments)
        self.uploads = UploadWatch()
        self.statistics = StatisticsKeeper(storage, clock)
        self.accumulators = JobAccumulators()
        self._aborted = AbortedCheckpoints()
        self._begin_attempt(newest=None)

    def _begin_attempt(self, newest: Manifest | None) -> None:
        """Everything that a failure makes void is made anew."""
        self._coordinator: CheckpointCoordinator[TaskAck] = CheckpointCoordinator(self._tasks)
        self._accepted: dict[TaskId, str] = {}
        self._last_planned = 0
        self._between = Settled()  # between two epochs: in the next one's report
        self._pending: dict[int, PendingEpoch] = {}
        self._planner = EpochPlanner(self.job, self.storage, self._sources, self.requests, generation=self.generation)
        self._commits = EpochCommits(
            self.job,
            self.store,
            newest=newest,
            generation=self.generation,
            planner=self._planner,
            sinks=self._sinks,
            aborted=self._aborted,
            uploads=self.uploads,
            statistics=self.statistics,
            clock=lambda: self.clock(),
            reach=lambda point, epoch: self.reach(point, epoch),
        )

    @property
    def restored(self) -> Manifest | None:
        """The newest complete checkpoint: where the job goes back to. May be read from any thread."""
        return self._commits.newest

    # ---------------------------------------------------------------- start and recovery

    def start(self) -> None:
        """Take the job folder over and recover: the first attempt. Raises FencedError if a live driver owns it."""
        self.take_over()
        self.recover()

    def take_over(self) -> None:
        """Become the job folder's owner. `recover` comes next, and may fail and be called again."""
        if self.storage is not None:
            self._owner = ownership.OwnerInfo.current()
            self._is_generation(ownership.acquire(self.storage, self._owner))
        self.statistics.load()

    def _renew(self) -> None:
        """Go on as the next generation. FencedError if that is another driver."""
        assert self.storage is not None
        self._is_generation(ownership.renew(self.storage, self.generation, self._owner))

    def _is_generation(self, generation: Generation) -> None:
        assert self.store is not None
        self.generation = self.store.generation = generation

    def recover(self) -> None:
        """Go (back) to the newest checkpoint: state, positions, and output that was promised but perhaps not made."""
        self.job_attempt += 1
        if self.storage is not None and not self.generation:  # taking over has failed before
            self.take_over()
        self._sinks.give_up()
        self.abandon_requests()
        if self.store is not None and self.store.in_doubt:
            # A manifest of ours may still appear. It must not be taken for this job's when what it promises has been discarded.
            self._renew()
            self.store.in_doubt = False
        self._begin_attempt(newest=self.restored)
        self._sinks.check_targets()
        manifest = None
        if self.store is not None:
            manifest = find_checkpoint(
                self.store,
                self.job,
                generation=self.generation,
                now_ms=self.clock(),
                committers=self._sinks.committers,
            )
        if not self._parallelism_known:
            self._parallelism_known = True
            self._go_on_as(kept_parallelism.kept(self.job, manifest, self.requests.claim_slots))
            self._begin_attempt(newest=None)
        self._commits.newest = manifest
        self.epoch = 0 if manifest is None else int(manifest.epoch)
        self._coordinator.reset(self.epoch)
        self._aborted.went_back_to(self.epoch)
        self._latency.went_back()
        self.accumulators.went_back_to(self.epoch)
        version = self.base_version
        self._accepted = dict.fromkeys(self._tasks, version)
        if manifest is not None:
            check_claims(manifest, self.job.graph.job, ignore_unclaimed=self.settings.ignore_unclaimed_state)
            self._commits.adopt(manifest)
        self._sinks.recover(manifest, self.epoch)
        self.finished = manifest is not None and manifest.finished
        if manifest is not None and manifest.finished and self.store is not None:
            self.accumulators.read(manifest, self.store.read_state)
        if manifest is not None:
            self.statistics.restored(int(manifest.checkpoint_id))
        self._planner.restart(manifest)

    def failed(self, error: BaseException) -> None:
        """An epoch, or going back, has failed; the runtime asks its restart strategy next."""
        self._repeated.failed(
            error, self.epoch + 1, None if self.restored is None else int(self.restored.checkpoint_id)
        )

    def cause_of(self, error: E) -> E | FencedError:
        """What ended an attempt. A driver that was replaced stumbles over what its successor no longer needs, such as an older
        checkpoint: nothing is damaged then, and that it was replaced is what its user should read."""
        if self.storage is None or not self.generation or isinstance(error, FencedError):
            return error
        try:
            ownership.check_current(self.storage, self.generation)
        except FencedError as replaced:
            replaced.__cause__ = error
            return replaced
        except Exception:  # the store is away: nothing is known
            return error
        return error

    def abandon_requests(self, *, ended: bool = False) -> None:
        """What an epoch should have brought that did not complete is given up; the job goes on, and it can be asked for
        again."""
        for epoch, pending in self._pending.items():
            if pending.asked is not None:
                give_up(pending.asked, epoch)
        why = "the job has ended" if ended else "the job goes back to its last checkpoint"
        self.asked_checkpoints.give_up(why)
        if (
            self._stopped is not None
        ):  # the end of the run has failed, in somebody's close() for one, and the job goes on
            self._stopped.fail(PenstockError(why))
            self._stopped = None
        self._commits.give_up_savepoints(why)
        if ended:  # a job that goes back does so at its new parallelism
            self._rescales.job_ended()

    def read_checkpoint(self, use: Callable[[Manifest, Read], T]) -> T:
        """From any thread: `use(manifest, read)` of the last checkpoint, and again of a newer one if retention deletes it
        meanwhile."""
        return read_newest(lambda: self.restored, self.store, use)

    # ---------------------------------------------------------------- rescaling

    @property
    def rescaling(self) -> bool:
        """The running epochs are over and a checkpoint is complete: the runtime is to end its attempt and call
        `change_parallelism`."""
        return self._rescales.due is not None

    def change_parallelism(self) -> None:
        """Go on, at the parallelism that was asked for, from the checkpoint just taken. `job` is another one then."""
        self._go_on_as(kept_parallelism.rescaled_job(self.job, self._rescales.begin()))
        self.graph_version += 1
        self.recover()

    def _go_on_as(self, job: JobDescription) -> None:
        self.job = job
        self._tasks = list(job.graph.tasks())

    @property
    def base_version(self) -> str:
        return f"{self.generation}.{self.job_attempt}@{self.epoch if self.restored else 0}"

    @property
    def replaying(self) -> bool:
        """Plans of an earlier attempt are still to be run again: epochs skipped then are skipped now, so nothing may be
        pending when the next one is planned."""
        return self._planner.replaying

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
        started = time.perf_counter()  # what is settled first, a slow commit for one, is time of this epoch
        self._sinks.check()
        self._between = self._between.and_(self.settle())
        self.asked_checkpoints.answer(self.statistics.statistics)
        if epoch != self.epoch + 1 + len(self._pending):
            raise ProtocolError(f"epoch {epoch} was planned after {self.epoch} with {len(self._pending)} pending")
        spark = SparkInput(finished=spark_finished or {}, data=spark_data)
        restorable = self._commits.covers(self._last_planned)
        planned = self._planner.next(
            epoch,
            self.clock(),
            spark,
            completed=self.epoch,
            alone=not self._pending,
            stop=stop,
            owed=not restorable and self._commits.due,
        )
        if planned is None:
            self.epoch = epoch
            self._coordinator.reset(epoch)
            return None
        asked, finished = planned.asked, planned.finished
        full = isinstance(asked, PendingCheckpointRequest) and asked.request.full
        self.asked_checkpoints.planned(epoch, asked)
        must = stop or finished or asked is not None
        plan = EpochPlan(
            epoch=epoch,
            checkpoint=self.store is not None and (must or self._commits.due),
            processing_time=planned.processing_time,
            sources=planned.sources,
            accepted=dict(self._accepted),
            chain_lengths={} if full else self._commits.chains.lengths(self._tasks),
            no_inline=self._commits.chains.no_inline(),
            base_checkpoint=None if self.restored is None else int(self.restored.checkpoint_id),
            restorable=restorable,
            job_attempt=self.job_attempt,
            savepoint=None if planned.savepoint is None else planned.savepoint.folder,
            last=finished or (asked is not None and asked.ends_run),
            feedback=self.epoch,
            graph_version=self.graph_version,
            aborted_checkpoints=self._aborted.to_tell,
        )
        if plan.checkpoint:
            self._commits.triggered(epoch)
        self._planner.log(plan, planned)
        self._last_planned = epoch
        self._latency.planned(epoch, plan.processing_time, planned.bringing)
        self._coordinator.begin(epoch, checkpoint=plan.checkpoint)
        self._pending[epoch] = PendingEpoch(
            plan=plan,
            states=planned.states,
            started=started,
            asked=asked,
            admitted=self._admission.max_records,
        )
        self.reach("before-run", epoch)
        return plan

    @property
    def looping(self) -> bool:
        """Records are on the way back in a loop: the next epoch need not wait for data."""
        return self._planner.looping

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
        usually none or one, more when an older one was awaited. What an earlier attempt of the job still says is not for
        this one, which may be running the same epoch."""
        if ack.job_attempt != self.job_attempt:
            return []
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
        savepoint = pending.savepoint
        if savepoint is not None and savepoint.request.drain:
            savepoint.check(completed.acks)  # drained and no savepoint: the only way is back
        self._accepted.update((task, ack.attempt) for task, ack in completed.acks.items())
        self.epoch = epoch
        self._repeated.epoch_completed(epoch)
        self._aborted.epoch_completed()
        self.accumulators.completed(epoch, (ack.accumulators for _, ack in sorted(completed.acks.items())))
        self._planner.epoch_completed(plan, completed.acks.values())
        finished = plan.finished and self._planner.loops_empty
        settled = self._between.and_(self._commits.epoch_completed(pending, completed, finished=finished))
        self._between = Settled()
        if plan.last:  # what ends or moves the job finds all output visible
            self._sinks.wait()
        # Nothing ends the job, stops or moves it without its output. If the checkpoint of this barrier was declined, and that
        # is tolerated, the job goes on: its next epoch, though it may read nothing, is a checkpoint again and has the output.
        committed = self.store is None or self._commits.covers(epoch)
        if plan.last and not committed:
            self._not_the_last(epoch, pending)
        stopped = savepoint is not None and savepoint.ends_run and savepoint.saved
        self.finished = committed and (finished or stopped)
        self._stopped = savepoint if stopped else None
        del self._pending[epoch]
        self._rescales.epoch_completed(epoch, pending.asked, finished=self.finished, committed=committed)
        report = epoch_report(
            self.job.graph,
            plan,
            completed.acks,
            wall_ms=self.clock(),
            duration_ms=(time.perf_counter() - pending.started) * 1000,
            checkpoint_bytes=settled.size,
            manifest_ms=settled.manifest_ms,
            commits=self._sinks.take_times(),
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
        self.asked_checkpoints.answer(self.statistics.statistics)
        self.reach("before-spark-log", epoch)
        return report

    def _not_the_last(self, epoch: int, pending: PendingEpoch) -> None:
        """The checkpoint of the barrier that was to be the last one was declined. Who asked for it hears so."""
        error = CheckpointFailedError(
            f"checkpoint {epoch} was declined, and without it the output of the job would not be complete: what was asked for "
            "did not come about. Ask for it again when the storage answers"
        )
        if pending.savepoint is not None and pending.savepoint.request.drain:
            raise error  # the sources did not really end here: the only way is back
        if pending.asked is not None:
            pending.asked.fail(error)

    def settle(self, wait_ms: float = 0) -> Settled:
        """Complete what has been stored meanwhile. Called before every epoch; a runtime that ends may wait a while."""
        return self._commits.settle(wait_ms)

    # ---------------------------------------------------------------- the end

    def cancelled(self) -> None:
        """The user has cancelled the job; `close` follows. Checkpoints go if nobody wants to resume from them, and if they are
        this driver's: one that was replaced leaves them to its successor."""
        if self.store is None or not self.settings.delete_on_cancel:
            return
        self._sinks.wait()  # if it failed, the checkpoint is still needed
        try:
            # As a generation that starts from nothing: a driver that comes while they are deleted does not go on from half of them.
            self._renew()
            self.store.begin(self.generation, None)
            kept = self.store.discard_all()
        except FencedError as error:
            kept = KeptAll(reason=str(error))
        if kept is not None:
            _log.warning(
                "job %r was cancelled and its checkpoints were kept: %s", self.job.graph.job.job_name, kept.reason
            )

    def close(self) -> None:
        with contextlib.suppress(PenstockError, OSError):  # numbers are not worth an error
            if (
                self.store is None or not self.store.replaced
            ):  # how the successor's checkpoints go is the successor's to say
                self.statistics.write()
        if self._stopped is not None:
            self._stopped.stopped()
            self._stopped = None
        self.abandon_requests(ended=True)
        self.requests.close("the job has ended")
        self._sources.close()
        self._sinks.close()
        if self.storage is not None and self.generation:
            ownership.release(self.storage, self.generation)
