"""The JobMaster: plans epochs, completes them, takes a job back to its last checkpoint.

It knows neither Spark nor threads: a runtime asks `plan_epoch`, runs the plan, and hands the acknowledgements to
`complete_epoch`, or one by one to `acknowledge` when several epochs are under way. The order there is the protocol of
docs/design/0002: manifest (the instant of commit), then sinks, and only then may the runtime log the epoch as done. What an epoch
reads is decided in `planning`, what makes it last is in `checkpoints`, where a job goes back to in `recovery`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from penstock.checkpoint import ownership
from penstock.checkpoint.manifest import Manifest, SparkPosition
from penstock.checkpoint.ownership import Ownership, StartPermit
from penstock.checkpoint.state_data import Read, read_newest
from penstock.checkpoint.storage import Storage
from penstock.checkpoint.store import CheckpointStore, KeptAll
from penstock.common.time import now_ms
from penstock.driver import faults, rescaling
from penstock.driver.admission import Admission
from penstock.driver.checkpoint_statistics import StatisticsKeeper
from penstock.driver.checkpoints import Checkpoints, EndedEpoch, UploadWatch
from penstock.driver.description import JobDescription
from penstock.driver.failures import Notices, RepeatedFailures
from penstock.driver.planning import EpochPlanner, PlannedEpoch, SparkInput
from penstock.driver.recovery import check_claims, find_checkpoint
from penstock.driver.reporting import JobAccumulators, epoch_report
from penstock.driver.requests import CheckpointRequest, PendingRescale, PendingSavepoint, Requests
from penstock.driver.rescaling import Rescales
from penstock.driver.sink_commits import SinkCommits
from penstock.driver.sources import JobSources
from penstock.driver.splits import SplitWatch
from penstock.driver.waiting import EpochBounds, LatencyTracker
from penstock.engine.host import HostJob
from penstock.engine.messages import EpochPlan, EpochReport, SourceRanges, Splits, TaskAck
from penstock.errors import CorruptSnapshotError, FencedError, PenstockError, ProtocolError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import rescaled
from penstock.protocol.checkpoint_messages import End
from penstock.protocol.ids import Generation, TaskId

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
_log = logging.getLogger("penstock")


class JobMaster:
    """The brain of a job: plans epochs, runs the checkpoint machine, commits, answers requests. It knows no runtime,
    and one thread drives it.
    """

    def __init__(
        self,
        job: JobDescription,
        storage: Storage | None,
        *,
        clock: Callable[[], int] = now_ms,
        reach: Callable[[faults.KillPoint, int], None] = faults.reach,
    ) -> None:
        self.reach = reach  # called at the named points where a test may kill the driver
        # Set by a runtime whose tasks go from epoch to epoch by themselves: it grants what sources read, and each plan is a barrier
        # behind that. Before `start`.
        self.streaming = False
        self.execution: dict[str, str] = {}  # how it is run, and why so: for the facts
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
            job_id=job.job_id,
        )
        self._admission = Admission(
            most=job.settings.epoch_max_records,
            target_ms=job.settings.epoch_target_ms,
        )
        self._ownership: Ownership | None = None  # of the job folder, once it was taken over
        self._start = StartPermit.without_folder()  # until the job has recovered
        self.job_attempt = -1
        self.epoch = 0  # the last epoch that completed
        self.finished = False
        self._stopped: PendingSavepoint | None = None  # the job ends with it; who asked hears of it when it has
        self.reports: list[EpochReport] = []
        self.on_report: Callable[[EpochReport], None] | None = None
        self.requests = Requests()
        self.notices = Notices()
        self._repeated = RepeatedFailures(self.notices)
        self._splits = SplitWatch(self.notices)
        self.graph_version = 0
        self._parallelism_known = False  # until the first recovery: the job may have been rescaled by an earlier driver
        self._rescales = Rescales(job.settings.autoscale)
        self._sources = JobSources(job.sources, self._admission, job.alignments)
        self.uploads = UploadWatch()
        self.statistics = StatisticsKeeper(storage, clock)
        self.accumulators = JobAccumulators()
        self._checkpoints = Checkpoints(
            job,
            self.store,
            sinks=self._sinks,
            uploads=self.uploads,
            statistics=self.statistics,
            clock=lambda: self.clock(),
            reach=lambda point, epoch: self.reach(point, epoch),
            epoch_ended=self._epoch_ended,
            checkpoint_completed=lambda manifest: self._planner.checkpoint_completed(manifest),
        )
        self._begin_attempt(None)

    def _begin_attempt(self, manifest: Manifest | None) -> None:
        """Everything that a failure makes void is made anew: the job goes on behind `manifest`, None: from nothing."""
        self.epoch = 0 if manifest is None else int(manifest.epoch)
        self._checkpoints.recovered(self.job, manifest, self._start, self.job_attempt)
        self._accepted: dict[TaskId, str] = dict.fromkeys(self._tasks, self.base_version)
        self._last_planned = 0
        self._planner = EpochPlanner(
            self.job, self.storage, self._sources, self.requests, start=self._start, streaming=self.streaming
        )

    @property
    def restored(self) -> Manifest | None:
        """The newest complete checkpoint: where the job goes back to. May be read from any thread."""
        return self._checkpoints.newest

    def say_execution(self, mode: str, reason: str) -> None:
        """How the job is run, and why so: for those who watch it."""
        self.execution = {"execution_mode": mode, "execution_mode_reason": reason}

    # ---------------------------------------------------------------- start and recovery

    def start(self) -> None:
        """Take the job folder over and recover: the first attempt. Raises FencedError if a live driver owns it."""
        self.take_over()
        self.recover()

    def take_over(self) -> None:
        """Become the job folder's owner. `recover` comes next, and may fail and be called again."""
        if self.storage is not None:
            self._ownership = ownership.acquire(self.storage, ownership.OwnerInfo.current())
        self.statistics.load()

    def _renew(self) -> Ownership:
        """Go on as the next generation. FencedError if that is another driver."""
        assert self._ownership is not None
        self._ownership = ownership.renew(self._ownership)
        return self._ownership

    @property
    def generation(self) -> Generation:
        """0: the job folder was not taken over, or there is none."""
        return Generation(0) if self._ownership is None else self._ownership.generation

    def recover(self) -> None:
        """Go (back) to the newest checkpoint: state, positions, and output that was promised but perhaps not made."""
        try:
            self._go_back()
        except CorruptSnapshotError as error:  # nobody tries again, or asks why
            if (cause := self.cause_of(error)) is error:
                raise
            raise cause from error

    def _go_back(self) -> None:
        self.job_attempt += 1
        if self.storage is not None and not self.generation:  # taking over has failed before
            self.take_over()
        self._sinks.give_up()
        self.abandon_requests()
        if self.store is not None and self.store.in_doubt:
            # A manifest of ours may still appear. It must not be taken for this job's when what it promises has been discarded.
            self._renew()
            self.store.in_doubt = False
        self._sinks.check_targets()
        manifest = None
        if self.store is not None and self._ownership is not None:
            self._start, manifest = find_checkpoint(
                self.store,
                self.job,
                ownership=self._ownership,
                now_ms=self.clock(),
                committers=self._sinks.committers,
            )
        if not self._parallelism_known:
            self._parallelism_known = True
            self._go_on_as(rescaling.kept_parallelism(self.job, manifest, self.requests.claim_slots))
        if manifest is not None:
            check_claims(manifest, self.job.graph.job, ignore_unclaimed=self.settings.ignore_unclaimed_state)
        self._begin_attempt(manifest)
        self._latency.went_back()
        self.accumulators.went_back_to(self.epoch)
        self._sinks.recover(manifest, self.epoch, self._start)
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
        if self._ownership is None or isinstance(error, FencedError):
            return error
        try:
            self._ownership.check()
        except FencedError as replaced:
            replaced.__cause__ = error
            return replaced
        except Exception:  # the store is away: nothing is known
            return error
        return error

    def abandon_requests(self, *, ended: bool = False) -> None:
        """What an epoch should have brought that did not complete is given up; the job goes on, and it can be asked for
        again."""
        why = "the job has ended" if ended else "the job goes back to its last checkpoint"
        self._checkpoints.abandon(why)
        if self._stopped is not None:  # the end of the run has failed, in somebody's close() for one: the job goes on
            self._stopped.fail(PenstockError(why))
            self._stopped = None
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
        self._go_on_as(rescaling.rescaled_job(self.job, self._rescales.begin()))
        self.graph_version += 1
        self.recover()

    def go_on_at(self, parallelism: int, why: Exception) -> None:
        """Go on from the last checkpoint at this parallelism, because there is no room for the one the job had, or was to get:
        who asked for that hears why. Between two attempts; it may fail, like `recover`, and be called again."""
        self._rescales.refused(why)
        graph = ExecutionGraph(rescaled(self.job.graph.job, parallelism))
        self._go_on_as(rescaling.rescaled_job(self.job, graph))
        self.graph_version += 1
        self.recover()

    @property
    def host_job(self) -> HostJob:
        """The job as those that run its tasks need it."""
        return HostJob(
            job_id=self.job.job_id,
            graph=self.job.graph,
            settings=self.job.settings,
            storage_url=None if self.storage is None else self.storage.url,
            job_parameters=self.job.job_parameters,
            graph_version=self.graph_version,
        )

    def _go_on_as(self, job: JobDescription) -> None:
        self.job = job
        self._tasks = list(job.graph.tasks())

    @property
    def base_version(self) -> str:
        """The version of every task's state after a start: generation, attempt and epoch."""
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
        reads: bool = True,
    ) -> EpochPlan | None:
        """Decide and log what epoch `epoch` reads; None if there is nothing to do and the epoch may be skipped, which no epoch of
        a stream is: its tasks are in it already. Without `reads` sources read no more in it than they were granted.

        `stop` makes it a checkpoint whatever the interval says. `spark_finished` names the sources Spark reads and
        whether they have ended; `spark_data` says that they bring something in this epoch.
        """
        started = time.perf_counter()  # what is settled first, a slow commit for one, is time of this epoch
        self.settle()
        machine, running = self._checkpoints.machine, len(self._checkpoints.machine.running)
        if epoch != self.epoch + 1 + running:
            raise ProtocolError(f"epoch {epoch} was planned after {self.epoch} with {running} running")
        spark = SparkInput(finished=spark_finished or {}, data=spark_data)
        due = machine.due(self.clock())
        restorable = machine.covers(self._last_planned)
        planned = self._planner.next(
            epoch,
            self.clock(),
            spark,
            completed=self.epoch,
            alone=not running and not self.streaming,
            stop=stop,
            owed=not restorable and due,
            reads=reads,
        )
        self._splits.look(self.job, self._sources)
        if planned is None:
            self.epoch = epoch
            self._checkpoints.skip(epoch)
            return None
        asked, finished = planned.asked, planned.finished
        full = asked is not None and isinstance(asked.request, CheckpointRequest) and asked.request.full
        must = stop or finished or asked is not None
        plan = EpochPlan(
            epoch=epoch,
            checkpoint=self.store is not None and (must or due),
            processing_time=planned.processing_time,
            sources=planned.sources,
            accepted=dict(self._accepted),
            chain_lengths={} if full else machine.chains.lengths(self._tasks),
            no_inline=machine.chains.no_inline(),
            base_checkpoint=machine.newest,
            restorable=restorable,
            job_attempt=self.job_attempt,
            savepoint=planned.savepoint,
            last=finished or (asked is not None and asked.purpose.ends_run),
            feedback=self.epoch,
            graph_version=self.graph_version,
            aborted_checkpoints=machine.aborted,
        )
        self._planner.log(plan, planned)
        self._last_planned = epoch
        self._latency.planned(epoch, plan.processing_time, planned.bringing)
        self._planned = PlannedEpoch(
            plan=plan, states=planned.states, started=started, admitted=self._admission.max_records
        )
        self._checkpoints.begin(self._planned, asked, streaming=self.streaming)
        self.reach("before-run", epoch)
        return plan

    def grant(
        self, most: Mapping[str, int] | None = None, only: Collection[str] | None = None
    ) -> dict[str, SourceRanges]:
        """What sources may read on, before the next barrier; {}: nothing. `most`: records for each at once. `only`: of these."""
        granted = self._planner.grant(self.clock(), most, only)
        self._splits.look(self.job, self._sources)
        return granted

    def splits_read(self, operator_id: str, subtask: int, splits: Splits) -> None:
        """So far event time has come in the splits of one subtask of a source, which may have to wait for each other."""
        self._sources.splits_read(operator_id, subtask, splits)

    @property
    def checkpoint_due(self) -> bool:
        """It is time for a checkpoint."""
        return self._checkpoints.machine.due(self.clock())

    @property
    def processing_time(self) -> int:
        """The time at which an epoch that is planned now runs."""
        return self._planner.time(self.clock())

    @property
    def sources_done(self) -> frozenset[str]:
        """The sources that have been granted, or planned, their last."""
        return self._sources.done

    @property
    def exhausted(self) -> bool:
        """Every source has been granted its last: a barrier that ends the job is due."""
        return self._planner.exhausted

    @property
    def looping(self) -> bool:
        """Records are on the way back in a loop: the next epoch need not wait for data."""
        return self._planner.looping

    # ---------------------------------------------------------------- completion

    def complete_epoch(self, epoch: int, acks: Iterable[TaskAck], *, spark: SparkPosition | None = None) -> EpochReport:
        """All tasks have run `epoch`, which was planned last: manifest, then sinks. A missing acknowledgement is an error."""
        self._planned.spark = spark
        reports = [report for ack in acks for report in self.acknowledge(ack)]
        if not reports or reports[-1].epoch != epoch:
            missing = ", ".join(str(task) for task in self._checkpoints.machine.missing(epoch))
            raise ProtocolError(f"epoch {epoch} ended without the acknowledgement of tasks {missing}")
        return reports[-1]

    def acknowledge(self, ack: TaskAck) -> list[EpochReport]:
        """One task has run its part of an epoch, durably. Reports of the epochs that have ended with it."""
        ended = self._checkpoints.acknowledge(ack)
        if (end := self._checkpoints.end) is not None and ended:
            self.finished = end.end is not End.MOVED
            request = None if end.asked is None else end.asked.request
            if isinstance(request, PendingRescale):
                self._rescales.run_ended(end.epoch, request, finished=self.finished)
            elif isinstance(request, PendingSavepoint):
                self._stopped = request
        return [self._report(epoch) for epoch in ended]

    def _epoch_ended(self, planned: PlannedEpoch, acks: Mapping[TaskId, TaskAck]) -> bool:
        """Take note of an epoch that every task has acknowledged. True: nothing is left to do for the job."""
        epoch = planned.plan.epoch
        self._accepted.update((task, ack.attempt) for task, ack in acks.items())
        self.epoch = epoch
        self._repeated.epoch_completed(epoch)
        self._rescales.epoch_ended()
        self.accumulators.completed(epoch, (ack.accumulators for _, ack in sorted(acks.items())))
        self._planner.epoch_completed(planned.plan, acks.values())
        return planned.plan.finished and self._planner.loops_empty

    def _report(self, ended: EndedEpoch) -> EpochReport:
        planned = ended.planned
        size, manifest_ms = self._checkpoints.take_spent()
        report = epoch_report(
            self.job.graph,
            planned.plan,
            ended.acks,
            wall_ms=self.clock(),
            duration_ms=(time.perf_counter() - planned.started) * 1000,
            checkpoint_bytes=size,
            manifest_ms=manifest_ms,
            commits=self._sinks.take_times(),
            generation=int(self.generation),
            latency=self._latency.summary(),
            bounds=EpochBounds(
                interval_ms=self.settings.epoch_interval_ms,
                target_ms=self.settings.epoch_target_ms,
                admitted=planned.admitted,
            ),
        )
        self._admission.observe(records=report.records_in, duration_ms=report.duration_ms)
        self.reports.append(report)
        del self.reports[:-1000]
        if not self.finished:
            self._rescales.follow(report, self.job.graph, self.requests)
        if self.on_report is not None:
            self.on_report(report)
        self.reach("before-spark-log", report.epoch)
        return report

    def take_aborted(self) -> list[int]:
        """Epochs whose checkpoint was declined while their barrier is on its way, since the last call: tasks are to be told."""
        return self._checkpoints.take_aborted()

    def time_out(self) -> None:
        """For simulations: checkpoints that are under way take too long, from now on."""
        self._checkpoints.time_out()

    def settle(self, wait_ms: float = 0) -> None:
        """Complete what has been stored meanwhile. Called before every epoch; a runtime that ends may wait a while."""
        self._checkpoints.settle(wait_ms)

    # ---------------------------------------------------------------- the end

    def cancelled(self) -> None:
        """The user has cancelled the job; `close` follows. Checkpoints go if nobody wants to resume from them, and if they are
        this driver's: one that was replaced leaves them to its successor."""
        if self.store is None or not self.settings.delete_on_cancel:
            return
        self._sinks.wait()  # if it failed, the checkpoint is still needed
        try:
            # As a generation that starts from nothing: a driver that comes while they are deleted does not go on from half of them.
            kept = self.store.discard_all(self.store.begin(self._renew(), None))
        except FencedError as error:
            kept = KeptAll(reason=str(error))
        if kept is not None:
            _log.warning(
                "job %r was cancelled and its checkpoints were kept: %s", self.job.graph.job.job_name, kept.reason
            )

    def close(self) -> None:
        """Ends the job in this driver: statistics are written, requests answered, committers and enumerators closed."""
        with contextlib.suppress(PenstockError, OSError):  # numbers are not worth an error
            if self._ownership is not None:
                self._ownership.check()  # how a successor's checkpoints go is the successor's to say
            self.statistics.write()
        if self._stopped is not None:
            self._stopped.stopped()
            self._stopped = None
        self.abandon_requests(ended=True)
        self.requests.close("the job has ended")
        self._sources.close()
        self._sinks.close()
        if self._ownership is not None:
            self._ownership.release()
