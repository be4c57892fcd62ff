"""The embedded runtime: a whole job in one thread, without a JVM, in milliseconds, and the same every time.

It drives the JobMaster and the task hosts of the Spark runtime; only the exchange is different. Two schedules:

* "ordered": epoch by epoch, level by level, channel by channel, as Spark's slots do (`levels`). Same offsets, same bytes.
* "random": a seeded choice among everything that could happen next (`queues`), with several barriers under way. Here the three
  ways of treating a barrier differ visibly, and exactly-once has to hold for every interleaving.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

from penstock.common.options import JobOptions
from penstock.driver.description import JobDescription
from penstock.driver.failures import RestartState, is_final
from penstock.driver.job_master import JobMaster
from penstock.engine.host import TaskHost
from penstock.engine.messages import EpochPlan, TaskAck
from penstock.engine.sampling import Sample, take_samples
from penstock.engine.uploads import BackgroundUploads, ImmediateUploads, Uploads
from penstock.errors import FINAL_ERRORS, ConfigurationError, CorruptSnapshotError, JobFailedError, ProtocolError
from penstock.protocol.gate import BarrierMode
from penstock.runtime.embedded.clock import ManualClock
from penstock.runtime.embedded.crash import CrashPlan, CrashPoint, SimulatedCrash
from penstock.runtime.embedded.levels import LevelExchange, Mischief
from penstock.runtime.embedded.queues import QueueExchange
from penstock.runtime.embedded.stepped_uploads import SteppedUploads

# In simulated time a strategy that never gives up (Flink's default) would turn a test that fails into one that hangs.
_HOPELESS = 100
_TICKS = 0.1  # of all steps: looks of a host at its clock
_LAST_UPLOADS_MS = 10_000  # a cancelled job lets a checkpoint that is being stored complete, if it does soon


class EmbeddedJob:
    """Runs a job to its end. `run` blocks; `cancel` may be called from another thread or from a user's function.

    With a `ManualClock` in the JobMaster nothing ever sleeps: epochs and restart delays move the clock. With a real one,
    unbounded sources are asked once an epoch interval and restart delays are waited for.

    `channel_capacity` bounds the events on a channel ("random" only): a task runs only while there is room behind it,
    though one step may add more than one event. `max_in_flight` barriers may be under way at once ("random" only). `mode`
    says how a barrier is treated ("random" only): an exchange of epochs has all of an epoch when it ends. `apart` ("random"
    only): as in a pipelined job on Spark each level of each slot is a host of its own, what driver and hosts tell each other
    takes time, and watermarks and timers follow the clock. `late` ("random" only): how often, for each step, checkpoints that are
    under way are found to take too long.
    """

    def __init__(
        self,
        job: JobDescription,
        master: JobMaster,
        *,
        schedule: Literal["ordered", "random"] = "ordered",
        seed: int = 0,
        mode: BarrierMode = BarrierMode.EXACTLY_ONCE,
        channel_capacity: int | None = None,
        max_in_flight: int = 1,
        apart: bool = False,
        late: float = 0.0,
        crashes: CrashPlan | None = None,
        mischief: Mischief | None = None,
    ) -> None:
        if max_in_flight < 1 or (channel_capacity is not None and channel_capacity < 1):
            raise ValueError("max_in_flight and channel_capacity must be at least 1")
        self._job, self._schedule = job, schedule
        self._mode = mode if schedule == "random" else BarrierMode.EXACTLY_ONCE
        self._capacity = channel_capacity if schedule == "random" else None
        self._max_in_flight = max_in_flight if schedule == "random" else 1
        self.apart = apart and schedule == "random"
        self._rng = random.Random(seed)
        self._late, self._late_rng = late, random.Random(f"{seed} late")
        self._crashes, self._mischief = crashes, mischief
        self._unbounded = not all(source.bounded for source in job.sources.values())
        self._cancelled = threading.Event()
        self.on_state: Callable[[str], None] = lambda state: None
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.failures = 0  # errors, each a question to the restart strategy
        self.crashes = 0  # simulated deaths of the process, which no strategy can refuse
        self._in_a_row, self._failed_after = 0, -1
        self.delayed_ms = 0  # restart delays so far
        self._adopt(master)

    def _adopt(self, master: JobMaster) -> None:
        """What a process has: a JobMaster and the memory of its failures."""
        self.master = master
        # What is read at most once must be logged before it is read.
        master.streaming = self._schedule == "random" and self._job.settings.mode != "AT_MOST_ONCE"
        if self._crashes is not None:
            master.reach = self._crashes.reach_driver
        self._restarts = RestartState(
            self._job.settings.restart,
            checkpointing=self._job.settings.checkpoint_interval_ms is not None,
            rng=random.Random(self._rng.random()),
        )
        self._in_flight = 0
        self._planned_last = False
        self._next_plan_at = 0.0

    # ---------------------------------------------------------------- life cycle

    def run(self) -> None:
        """Runs the job to its end in this thread, and raises what made it fail."""
        self.master.take_over()
        try:
            try:
                self.master.recover()
            except (CorruptSnapshotError, *FINAL_ERRORS):
                raise  # waiting does not mend these
            except (Exception, SimulatedCrash) as error:
                self._recover(error)
            while not self.master.finished and not self._cancelled.is_set():
                # At the parallelism that an earlier driver gave it, or a rescale, also one that failed on its way.
                self._job = self.master.job
                try:
                    self._attempt()
                    if self.master.rescaling:
                        self.master.change_parallelism()
                except (Exception, SimulatedCrash) as error:
                    self._recover(error)
            if self._cancelled.is_set() and not self.master.finished:
                self.master.cancelled()
        finally:
            self.master.close()

    def cancel(self) -> None:
        """Stop when the epochs under way have ended; nothing more is committed than what they commit."""
        self._cancelled.set()

    def sample(self, seconds: float) -> Counter[Sample]:
        """Where its subtasks spend their time, looked at for so long."""
        return take_samples(self._job.job_id, seconds=seconds)

    def _recover(self, error: Exception | SimulatedCrash) -> None:
        """Back to the last checkpoint; what fails on the way there is one more failure."""
        while True:
            try:
                if isinstance(error, SimulatedCrash):
                    self._start_new_process(error)
                else:
                    error = self.master.cause_of(error)
                    self._restart_or_fail(error)
                return
            except JobFailedError:
                raise
            except (Exception, SimulatedCrash) as next_error:
                if next_error is error:
                    raise
                error = next_error

    def _start_new_process(self, crash: SimulatedCrash) -> None:
        """Nothing in memory survives and nobody says goodbye: a new JobMaster finds what is in storage."""
        self.crashes += 1
        self.on_failure(crash)
        self.on_state("RESTARTING")
        dead = self.master
        master = JobMaster(self._job, dead.storage, clock=dead.clock)
        master.reports, master.on_report = dead.reports, dead.on_report
        dead.abandon_requests(ended=True)
        master.requests = dead.requests  # clients ask the job, whichever process runs it
        self._adopt(master)
        master.start()
        self.on_state("RUNNING")

    def _restart_or_fail(self, error: Exception) -> None:
        self.on_failure(error)
        self.master.failed(error)
        if is_final(error, self._job.settings):
            raise error
        self.failures += 1
        delay = self._restarts.delay_ms(self.master.clock())
        self._in_a_row = self._in_a_row + 1 if self.master.epoch == self._failed_after else 1
        self._failed_after = self.master.epoch
        if isinstance(self.master.clock, ManualClock) and self._in_a_row >= _HOPELESS:
            delay = None
        if delay is None:
            raise self._restarts.exhausted(self._job.graph.job.job_name, self.master.epoch + 1, error) from error
        self.on_state("RESTARTING")
        self.delayed_ms += delay
        if isinstance(self.master.clock, ManualClock):
            self.master.clock.advance(delay)
        elif self._cancelled.wait(delay / 1000):
            return
        self.master.recover()
        self.on_state("RUNNING")

    # ---------------------------------------------------------------- one attempt

    def _attempt(self) -> None:
        master = self.master
        self._in_flight = 0
        uploads = self._uploads()
        graph = self._job.graph
        levels: list[tuple[int] | None] = [(level,) for level in range(graph.levels)] if self.apart else [None]
        placed = [(self._new_host(index, uploads), level) for index in range(graph.slots) for level in levels]
        self._hosts = [host for host, _ in placed]
        version = f"{master.generation}.{master.job_attempt}"
        try:
            if self._schedule == "random":
                self._run_randomly(
                    QueueExchange(
                        placed,
                        version=version,
                        checkpoint=None if master.restored is None else int(master.restored.checkpoint_id),
                        epoch=master.epoch + 1,
                        now=master.processing_time,
                        job_attempt=master.job_attempt,
                        capacity=self._capacity,
                        acknowledge=self._acknowledge,
                        apart=self.apart,
                    )
                )
            else:
                self._run_in_order(
                    LevelExchange(
                        self._hosts,
                        version=version,
                        acknowledge=self._acknowledge,
                        new_host=lambda index: self._new_host(index, uploads),
                        mischief=self._mischief,
                    )
                )
            for host in self._hosts:
                host.finish(None if master.restored is None else int(master.restored.checkpoint_id))
        except Exception:
            for host in self._hosts:
                host.close()
            raise
        finally:  # of a process that died, too, nothing stays in memory or on its disk
            for host in self._hosts:
                host.release()
            if isinstance(uploads, BackgroundUploads):
                uploads.close()

    def _new_host(self, index: int, uploads: Uploads) -> TaskHost:
        master = self.master
        return TaskHost(
            master.host_job,
            master.store,
            uploads,
            name="embedded",
            index=index,
            mode=self._mode,
            by_clock=self.apart,
            reach=self._reach,
        )

    def _uploads(self) -> Uploads:
        """In real time snapshots are stored by threads, as in a slot. In simulated time that must be deterministic: at once,
        or when the random schedule chooses."""
        report = self.master.uploads.inbox.put
        self._stepped = SteppedUploads(report, self._reach)
        if not self._job.settings.asynchronous:
            return ImmediateUploads(report)
        if not isinstance(self.master.clock, ManualClock):
            return BackgroundUploads(report)
        if self._schedule == "ordered":
            return ImmediateUploads(report)
        self.master.uploads.patience_ms = 0
        self.master.uploads.finish = self._stepped.finish
        return self._stepped

    def _run_in_order(self, exchange: LevelExchange) -> None:
        self._planned_last = False
        while not self._over():
            if self._planned_last or self._cancelled.is_set():
                self._stand_still()
                return
            if self._throttled():
                continue
            plan = self._plan()
            if plan is not None:
                exchange.run(plan)

    def _run_randomly(self, exchange: QueueExchange) -> None:
        self._planned_last = False
        while not self._over():
            if self.apart and self._rng.random() < _TICKS:
                newest = self.master.restored
                completed = None if newest is None else int(newest.checkpoint_id)
                exchange.tick(self._rng, self.master.processing_time, completed)
            if self._late and self._in_flight and self._late_rng.random() < self._late:
                self.master.time_out()
            for epoch in self.master.take_aborted():
                exchange.abort(epoch)
            can_plan = not self._planned_last and self._may_plan()
            steps = exchange.runnable()
            if self._stepped.waiting and self._rng.randrange(len(steps) + 2) == 0:
                self._stepped.step(self._rng)
            elif steps and not (can_plan and self._rng.randrange(len(steps) + 1) == 0):
                self._rng.choice(steps)()
            elif can_plan:
                if not self._throttled():
                    self._go_on(exchange)
            elif self._stepped.waiting:
                self._stepped.step(self._rng)
            else:
                self._stand_still()
                return

    def _go_on(self, exchange: QueueExchange) -> None:
        """A barrier; sources read before it what it brings along, or what they were granted, perhaps in several parts."""
        if self.master.streaming and self._rng.random() < 0.5:
            if sources := self.master.grant():
                exchange.grant(sources)
            if self._rng.random() < 0.5:
                return
        plan = self._plan(reads=not self.master.streaming or self._rng.random() < 0.5)
        if plan is not None:
            exchange.trigger(plan)

    def _over(self) -> bool:
        return self.master.finished or self.master.rescaling

    def _stand_still(self) -> None:
        """Nothing is left to do: right if the job was cancelled, and else a fault of ours."""
        if not self._cancelled.is_set():
            raise ProtocolError(
                f"job {self._job.graph.job.job_name!r} stands still after epoch {self.master.epoch}: {self._in_flight} "
                "epochs are under way and no task has anything to do: a barrier was lost"
            )
        self.master.settle(wait_ms=_LAST_UPLOADS_MS)

    def _may_plan(self) -> bool:
        if self._cancelled.is_set() or self._in_flight >= self._max_in_flight:
            return False
        return self._in_flight == 0 or not self.master.replaying

    def _throttled(self) -> bool:
        """Real time only: wait until the next epoch is due. True: look again at what there is to do."""
        remaining = 0.0 if self.master.looping else self._next_plan_at - time.monotonic()
        return remaining > 0 and self._cancelled.wait(remaining)

    def _plan(self, *, reads: bool = True) -> EpochPlan | None:
        """The next epoch, which starts now; None: there is nothing to do in it."""
        started = time.monotonic()
        plan = self.master.plan_epoch(self.master.epoch + 1 + self._in_flight, reads=reads)
        interval = self._job.settings.epoch_interval_ms
        if isinstance(self.master.clock, ManualClock):
            self.master.clock.advance(interval)
        elif self._unbounded or plan is None or plan.last:
            # One that turns out not to be the last is tried again in time.
            self._next_plan_at = started + interval / 1000
        if plan is not None:
            self._in_flight += 1
            self._planned_last = plan.last
        return plan

    def _acknowledge(self, ack: TaskAck) -> None:
        completed = len(self.master.acknowledge(ack))
        self._in_flight -= completed
        if completed and not self._in_flight:
            # If the job was to stop here and has not, it goes on: its savepoint failed, or a loop still holds records.
            self._planned_last = False

    def _reach(self, point: CrashPoint) -> None:
        if self._crashes is not None:
            self._crashes.reach(point)


def embedded_job(
    job: JobDescription, master: JobMaster, configuration: Mapping[str, str], spark_sources: Mapping[str, object]
) -> EmbeddedJob:
    """The factory of the runtime `embedded`."""
    if spark_sources:
        raise ConfigurationError(
            f"the embedded runtime has no Spark: from_spark streams run only with {JobOptions.RUNTIME} = epochs"
        )
    master.say_execution("embedded", "it was asked for")
    return EmbeddedJob(job, master)
