"""A job on Spark's pipelined shuffle: one long Spark job an attempt, all levels at work at the same time.

`PipelinedJob` runs attempts; `_Attempt` is the driver's loop of one: it hears the hosts, grants what sources read, triggers
barriers, and hands acknowledgements to the JobMaster, which decides what a checkpoint is and when the job has ended.
"""

from __future__ import annotations

import contextlib
import logging
import math
import pickle
import queue
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, assert_never

import cloudpickle
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.checkpoint import layout
from penstock.checkpoint.object_storage import DriverStorage
from penstock.common import terminal
from penstock.common.options import JobOptions
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.driver.restarts import RestartingJob
from penstock.engine.messages import EpochPlan, SourceRanges, TaskAck
from penstock.engine.sampling import Sample
from penstock.errors import ConfigurationError, JobFailedError, PenstockError, blame, from_text
from penstock.functions.connectors import SplitRange
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import adjustable_parallelism, rescaled
from penstock.pickling import travelling
from penstock.protocol.checkpoint_messages import Uploaded
from penstock.protocol.gate import BarrierMode
from penstock.runtime.connection.messages import HostFailed, Sampled
from penstock.runtime.epochs.job import SparkSource
from penstock.runtime.epochs.session import spark_session
from penstock.runtime.pipelined import spark_plan
from penstock.runtime.pipelined.frames import flush_gap_ms
from penstock.runtime.pipelined.grants import Grants
from penstock.runtime.pipelined.hosts import HostGone, Hosts
from penstock.runtime.pipelined.messages import (
    AbortCheckpoint,
    Acknowledge,
    CheckpointsSettled,
    EndAttempt,
    FeedbackSent,
    FeedbackTaken,
    FromHost,
    GrantRead,
    GrantSources,
    HostId,
    HostReady,
    StartHost,
    TriggerBarrier,
)
from penstock.runtime.pipelined.worker import ATTEMPT, DriverAddress, level_host

_START_S: Final = 120.0  # for all hosts to be ready
_SLOTS_S: Final = 20.0  # for executors to come, and for tasks of what was cancelled to end
_END_S: Final = 30.0  # for Spark's job to end when the attempt is over
_CANCEL_S: Final = 1.0  # for hosts to close their functions when the job is cancelled
_LAST_UPLOADS_MS: Final = 10_000  # a cancelled job lets a checkpoint that is being stored complete, if it does soon
_LAST_WORDS_S: Final = 0.1  # in which a host that failed says why, if Spark was faster
_LOOK_S: Final = 0.05  # how long nothing need be heard before Spark's job is looked at
_GAPS_A_GRANT: Final = 1.5  # sources are asked a little more rarely than hosts may send: what they read leaves at once
_QUIET_S: Final = 1.0  # between two barriers, when checkpoints are taken and nothing else wants one

_log = logging.getLogger("penstock")


class PipelinedJob(RestartingJob):
    """Runs a job to its end. `run` blocks; `cancel` may be called from other threads."""

    def __init__(self, job: JobDescription, master: JobMaster, session: SparkSession) -> None:
        super().__init__(job, master)
        master.streaming = True
        master.uploads.patience_ms = 0.0  # grants are not held up by a store
        self._session = session
        self._hosts: Hosts | None = None
        self._plan: tuple[ExecutionGraph, Any] | None = None
        self._planning = threading.Lock()
        self._before: int | None = None  # the parallelism before it was rescaled, until it has run at the new one
        self.ran = False  # all hosts of an attempt were ready once: there were enough task slots

    def run(self) -> None:
        """Runs the job to its end in this thread, and raises what made it fail."""
        master = self.master
        master.take_over()
        try:
            self.insist(master.recover)
            self._job = master.job  # at the parallelism an earlier driver had rescaled it to
            self._hosts = self._open_hosts()
            while not master.finished and not self._cancelled.is_set():
                error = _Attempt(self, self._hosts).run()
                if isinstance(error, TooFewSlotsError):
                    self._go_on_smaller_or_fail(error)
                elif error is not None:
                    self.restart_or_fail(error)
                elif master.rescaling and not self._cancelled.is_set():
                    self._before = adjustable_parallelism(self._job.graph.job)
                    self.insist(master.change_parallelism)
                    self._job = master.job
            if self._cancelled.is_set() and not master.finished:
                master.cancelled()
        finally:
            if self._hosts is not None:
                self._hosts.close()
            master.close()

    def _go_on_smaller_or_fail(self, error: TooFewSlotsError) -> None:
        """A job that was rescaled to more than fits goes back to what it had. One that may change its parallelism by itself takes
        the largest that fits. Another one has waited for its executors as long as it may; if it has never run, its program asks for
        too much, and is told so."""
        fitting, self._before = self._before or fitting_parallelism(self._job, error.free), None
        if fitting is not None:
            _log.warning("%s. The job goes on at parallelism %d", error, fitting)
            self.insist(lambda: self.master.go_on_at(fitting, error))
            self._job = self.master.job
        elif self.ran:
            raise error
        else:
            raise ConfigurationError(str(error))

    def waits_for_slots(self, free: int) -> bool:
        """With so few free task slots it waits for more, since there is nothing else it could do and there have been enough."""
        return self.ran and self._before is None and fitting_parallelism(self._job, free) is None

    def all_ready(self) -> None:
        """All hosts of an attempt are ready: there are enough task slots for it."""
        self.ran, self._before = True, None

    def sample(self, seconds: float) -> Counter[Sample]:
        """Where its subtasks spend their time, looked at for so long."""
        return Counter() if self._hosts is None else self._hosts.sample(seconds)

    def spark_plan(self, graph: ExecutionGraph) -> Any:
        """Spark's plan of the job. Made once for each graph: planning takes Spark longer than all else of a restart.
        Thread-safe."""
        with self._planning:
            if self._plan is None or self._plan[0] is not graph:
                assert self._hosts is not None
                address = DriverAddress(host=str(self._hosts.host), port=self._hosts.port, token=self._hosts.token)
                levels = [level_host(address, level) for level in range(graph.levels)]
                self._plan = graph, spark_plan.planned(self._session, graph.slots, levels)
            return self._plan[1]

    def _open_hosts(self) -> Hosts:
        context = self._session.sparkContext
        host = self._session.conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
        local = str(context.master).startswith("local") or host.startswith("127.")
        storage = self.master.storage
        return Hosts(
            "127.0.0.1" if local else host,
            storage if isinstance(storage, DriverStorage) else None,
            self.master.uploads.inbox.put,
        )


class _Attempt:
    """One Spark job, and the driver's loop beside it."""

    def __init__(self, job: PipelinedJob, hosts: Hosts) -> None:
        self._running, self._hosts, self._master = job, hosts, job.master
        self._job, self._session = job._job, job._session
        settings, graph = self._job.settings, self._job.graph
        self._settings = settings
        self._expected = {HostId(level, index) for level in range(graph.levels) for index in range(graph.slots)}
        self._ready: set[HostId] = set()
        self._loops = {loop.tail: loop for loop in graph.loops}
        self._level_of = {vertex.id: vertex.level for vertex in graph.job.vertices.values()}
        self._source_of = {v.id: v.head.operator_id for v in graph.job.vertices.values() if v.is_source}
        self._parallelism = {v.head.operator_id: v.parallelism for v in graph.job.vertices.values() if v.is_source}
        gap = settings.flush_gap_ms
        cores = spark_plan.cores(self._session)
        self._gap_ms = flush_gap_ms(graph.levels, graph.slots, cores) if gap is None else float(gap)
        self._grants = Grants(
            self._parallelism,
            (settings.grant_interval_ms or max(5.0, _GAPS_A_GRANT * self._gap_ms)) / 1000,
            settings.epoch_max_records,
        )
        self._in_flight: dict[int, float] = {}  # barriers under way, and since when
        self._checkpoints: set[int] = set()  # those of them that are checkpoints
        self._planned_last = self._said_goodbye = False
        self._triggered = time.monotonic()
        self._told: int | None = None  # the newest checkpoint that hosts have heard of
        self._failure: HostFailed | None = None
        self._spark_error: BaseException | None = None
        self._ended = threading.Event()

    # ---------------------------------------------------------------- the life of an attempt

    def run(self) -> BaseException | None:
        """Until the job finishes (None), is to be rescaled (None), is cancelled (None) or fails."""
        self._hosts.begin(self._master.job_attempt, self._start())
        self._inbox = self._hosts.inbox
        spark = InheritableThread(target=self._run_spark, name="penstock-spark-job", daemon=True)
        error: BaseException | None = None
        try:
            self._plan_ahead()
            self._await_task_slots()
            terminal.progress("task hosts…")
            began = time.monotonic()
            spark.start()
            self._await_hosts()
            _log.info(
                "attempt %d of job %r: %d task hosts were ready after %.0f ms",
                self._master.job_attempt,
                self._job.graph.job.job_name,
                len(self._ready),
                (time.monotonic() - began) * 1000,
            )
            terminal.progress("running", last=True)
            self._running.all_ready()
            self._drive()
            self._say_goodbye()
        except BaseException as problem:
            if spark.is_alive():
                self._session.sparkContext.cancelJobGroup(self._group)  # its tasks end while we look for the cause
            error = self._explain(problem)
        finally:
            self._hosts.end()
            if spark.is_alive():
                self._await_spark(spark, cancel=error is not None or self._running._cancelled.is_set())
        return error

    def _start(self) -> StartHost:
        master, settings = self._master, self._settings
        mode = BarrierMode.EXACTLY_ONCE
        if settings.mode == "AT_LEAST_ONCE":
            mode = BarrierMode.AT_LEAST_ONCE
        elif settings.unaligned and settings.checkpoint_interval_ms is not None:
            mode = BarrierMode.UNALIGNED
        return StartHost(
            job=cloudpickle.dumps(travelling(master.host_job)),
            version=f"{master.generation}.{master.job_attempt}",
            checkpoint=None if master.restored is None else int(master.restored.checkpoint_id),
            epoch=master.epoch + 1,
            processing_time=master.processing_time,
            mode=mode,
            flush_gap_ms=self._gap_ms,
        )

    def _plan_ahead(self) -> None:
        """The plan is made while executors come: each takes a new driver seconds. What goes wrong is seen when it is needed."""

        def plan() -> None:
            with contextlib.suppress(Exception):
                self._running.spark_plan(self._job.graph)

        InheritableThread(target=plan, name="penstock-plan", daemon=True).start()

    def _await_task_slots(self) -> None:
        """A lost executor is no failure of the job: what it waits for, and since when, is a notice, and no restart."""
        needed, cancelled, began = slots_needed(self._job), self._running._cancelled, time.monotonic()
        limit_s = math.inf if self._settings.slots_timeout_ms is None else self._settings.slots_timeout_ms / 1000
        wait_s = min(_SLOTS_S, limit_s)
        try:
            while True:
                free = spark_plan.await_task_slots(self._session, needed, at_most_s=wait_s, given_up=cancelled.is_set)
                waited_s = time.monotonic() - began
                if free >= needed or cancelled.is_set():
                    return
                if waited_s >= limit_s or not self._running.waits_for_slots(free):
                    raise TooFewSlotsError(too_few_slots(self._job, free), free)
                self._master.notices.say("task-slots", f"{too_few_slots(self._job, free)}. The job waits for them")
                wait_s = min(_SLOTS_S, limit_s - waited_s)
                cancelled.wait(_LOOK_S)  # a local Spark does not wait for what it never gets
        finally:
            self._master.notices.over("task-slots")

    def _run_spark(self) -> None:
        graph = self._job.graph
        try:
            spark_plan.run(
                self._session,
                self._running.spark_plan(graph),
                group=self._group,
                description=f"penstock {graph.job.job_name}",
                properties={ATTEMPT: str(self._master.job_attempt)},
            )
        except BaseException as error:
            self._spark_error = error
        finally:
            self._ended.set()

    @property
    def _group(self) -> str:
        return f"penstock-{self._job.job_id}-{self._master.job_attempt}"

    def _await_spark(self, spark: threading.Thread, *, cancel: bool) -> None:
        """The hosts' connections are closed: they end by themselves. One that hangs is ended by Spark."""
        if cancel:
            spark.join(0.5)
        else:
            spark.join(_END_S)
        if spark.is_alive():
            self._session.sparkContext.cancelJobGroup(self._group)
            spark.join(_END_S)
        if spark.is_alive():
            _log.warning("Spark's job of attempt %d does not end; the next attempt begins", self._master.job_attempt)

    def _await_hosts(self) -> None:
        until = time.monotonic() + min(_START_S, self._settings.epoch_timeout_ms / 1000)
        while self._ready != self._expected and not self._running._cancelled.is_set():
            self._listen(_LOOK_S)
            if time.monotonic() > until:
                absent = len(self._expected - self._ready)
                raise JobFailedError(
                    f"{absent} of {len(self._expected)} task hosts were not ready after {_START_S:.0f} s: Spark did not start "
                    f"their tasks (are {len(self._expected)} task slots free?), or restoring their state takes longer"
                )

    def _drive(self) -> None:
        while not (self._master.finished or self._master.rescaling):
            if self._running._cancelled.is_set():
                self._master.settle(wait_ms=_LAST_UPLOADS_MS)
                return
            self._grant()
            if self._barrier_due():
                self._trigger()
            self._listen(self._patience())
            self._master.settle()
            self._tell_aborted()
            self._tell_checkpoints()
            self._check_hanging()

    def _say_goodbye(self) -> None:
        self._said_goodbye = True  # from now on hosts may go
        newest = self._master.restored
        over = self._master.finished or self._running._cancelled.is_set()
        completed = None if newest is None else int(newest.checkpoint_id)
        self._hosts.tell(EndAttempt(completed=completed, over=over))
        # A cancelled job does not wait for a function that hangs: Spark ends its process.
        until = time.monotonic() + (_CANCEL_S if self._running._cancelled.is_set() else _END_S)
        while not self._ended.wait(0.002) and time.monotonic() < until:
            self._listen(0.0)
        if self._failure is not None:  # of a function's close()
            raise JobFailedError(self._failure.message)

    # ---------------------------------------------------------------- what hosts say

    def _listen(self, timeout_s: float) -> None:
        """Takes note of all that hosts have said; if nothing, waits so long for the first word."""
        try:
            heard = self._inbox.get(timeout=timeout_s) if timeout_s > 0 else self._inbox.get_nowait()
            while True:
                self._hear(*heard)
                heard = self._inbox.get_nowait()
        except queue.Empty:
            if self._ended.is_set() and not self._said_goodbye:
                raise JobFailedError(f"Spark ended the job: {self._spark_error}") from self._spark_error

    def _hear(self, host: HostId, message: FromHost | HostGone) -> None:
        match message:
            case HostReady():
                self._ready.add(host)
            case Acknowledge(ack=data):
                self._acknowledge(pickle.loads(data))
            case GrantRead(task=task, seconds=seconds, splits=splits):
                self._grants.read(self._source_of[task.vertex], task.subtask, seconds)
                self._master.splits_read(self._source_of[task.vertex], task.subtask, splits)
            case FeedbackSent(tail=tail, subtask=subtask):
                self._hosts.tell_one(HostId(self._level_of[self._loops[tail].head_vertex], subtask), message)
            case FeedbackTaken(tail=tail, subtask=subtask):
                self._hosts.tell_one(HostId(self._level_of[self._loops[tail].tail_vertex], subtask), message)
            case Uploaded():
                pass  # the JobMaster has it; this wakes us, and `settle` follows
            case HostFailed():
                if message.job_attempt == self._master.job_attempt and self._failure is None:
                    self._failure = message
                    raise JobFailedError(message.message)
            case HostGone(name=name):
                if not (self._ended.is_set() or self._said_goodbye):
                    raise JobFailedError(f"task host {name} is gone: its process died, or was killed")
            case Sampled():
                pass  # its asker has it
            case _:
                assert_never(message)

    def _acknowledge(self, ack: TaskAck) -> None:
        reports = self._master.acknowledge(ack)
        for report in reports:
            self._in_flight.pop(report.epoch, None)
            self._checkpoints.discard(report.epoch)
        if reports and not self._in_flight:
            # If the job was to stop here and has not, it goes on: its savepoint failed, or a loop still holds records.
            self._planned_last = False

    def _explain(self, error: BaseException) -> BaseException:
        """The host's own words instead of Spark's wrapping of them."""
        if self._failure is None:  # a host that failed may say so a moment later than its Spark task
            until = time.monotonic() + _LAST_WORDS_S
            while self._failure is None and time.monotonic() < until:
                try:
                    _, message = self._inbox.get(timeout=0.05)
                except queue.Empty:
                    continue
                if isinstance(message, HostFailed):
                    self._failure = message
        failure = self._failure
        if failure is None or not isinstance(error, JobFailedError):
            return error
        explained = from_text({"type": failure.type, "message": failure.message})
        if failure.task is not None:
            blame(explained, failure.task)
        explained.add_note(f"in task host {failure.slot}:\n{failure.traceback}")
        return explained

    # ---------------------------------------------------------------- grants and barriers

    def _grant(self) -> None:
        now = time.monotonic()
        if self._planned_last or not (asked := self._grants.askable(now)):
            return
        granted = self._master.grant(self._grants.most(asked), asked)
        self._grants.gave(asked, granted, now)
        for name in granted:
            if name in self._master.sources_done:
                self._grants.ended(name)
        if granted:
            shares = {name: _shares(part, self._parallelism[name]) for name, part in granted.items()}
            for index in range(self._job.graph.slots):
                mine = {name: by_subtask[index] for name, by_subtask in shares.items() if index < len(by_subtask)}
                if mine:
                    self._hosts.tell_one(HostId(0, index), GrantSources(sources=mine))

    def _barrier_due(self) -> bool:
        """When something asks for one; else as often as checkpoints are taken, or output is committed. A checkpoint does not wait
        for a barrier that is none."""
        master = self._master
        if self._planned_last or len(self._checkpoints) >= self._settings.max_concurrent_checkpoints:
            return False
        if master.requests.waiting or master.checkpoint_due:
            return True
        if self._in_flight:
            return False
        since = time.monotonic() - self._triggered
        if master.exhausted and (not self._loops or since >= self._settings.epoch_interval_ms / 1000):
            return True
        quiet = self._settings.epoch_interval_ms / 1000 if master.store is None else _QUIET_S
        return since >= quiet

    def _trigger(self) -> None:
        plan: EpochPlan | None = self._master.plan_epoch(self._master.epoch + 1 + len(self._in_flight), reads=False)
        assert plan is not None  # no epoch of a stream is skipped
        self._triggered = time.monotonic()
        self._in_flight[plan.epoch] = self._triggered
        if plan.checkpoint:
            self._checkpoints.add(plan.epoch)
        self._planned_last = plan.last
        self._hosts.tell(TriggerBarrier(plan=replace(plan, accepted={})))  # versions are for hosts that stay

    def _patience(self) -> float:
        now = time.monotonic()
        return _LOOK_S if self._planned_last else min(_LOOK_S, self._grants.next_s(now))

    def _tell_aborted(self) -> None:
        """Before the next barrier is triggered: hosts hear of both in this order."""
        for epoch in self._master.take_aborted():
            self._checkpoints.discard(epoch)
            self._hosts.tell(AbortCheckpoint(epoch=epoch))

    def _tell_checkpoints(self) -> None:
        newest = self._master.restored
        completed = None if newest is None else int(newest.checkpoint_id)
        if newest is not None and completed is not None and completed != self._told:
            self._told = completed
            written = (layout.checkpoint_of_state(state.path) for state in newest.file_states())
            oldest = min((int(number) for number in written if number is not None), default=completed)
            self._hosts.tell(CheckpointsSettled(completed=completed, oldest=oldest))

    def _check_hanging(self) -> None:
        limit = self._settings.epoch_timeout_ms / 1000
        for epoch, since in self._in_flight.items():
            if time.monotonic() - since > limit:
                raise PenstockError(
                    f"barrier {epoch} did not come through within {limit:.0f} s and the attempt is given up; a slow function or "
                    "sink may need a larger penstock.epoch.timeout"
                )


def _shares(part: SourceRanges, parallelism: int) -> list[SourceRanges]:
    """What of a grant each subtask reads."""
    ranges: list[list[SplitRange]] = [[] for _ in range(parallelism)]
    for split in part.ranges:
        ranges[split.ordinal % parallelism].append(split)
    return [replace(part, ranges=tuple(mine), records=None) for mine in ranges]


class TooFewSlotsError(JobFailedError):
    """Spark cannot run all tasks of the job at once now. `free`: so many it can."""

    def __init__(self, message: str, free: int) -> None:
        super().__init__(message)
        self.free = free


def fitting_parallelism(job: JobDescription, free: int) -> int | None:
    """The largest parallelism below its own at which the job fits into so many task slots, if it may change it by itself."""
    now, autoscale = adjustable_parallelism(job.graph.job), job.settings.autoscale
    if now is None or autoscale is None or job.settings.checkpoint_interval_ms is None:
        return None
    for parallelism in range(now - 1, autoscale.least - 1, -1):
        graph = ExecutionGraph(rescaled(job.graph.job, parallelism))
        if slots_needed(job, graph) <= free:
            return parallelism
    return None


def slots_needed(job: JobDescription, graph: ExecutionGraph | None = None) -> int:
    """The task slots of a pipelined job, if need be with another graph: one for each host, and one in which Spark can write what a
    SparkSink commits. Without that one it would wait for the job, and the job for it."""
    graph = graph or job.graph
    return graph.levels * graph.slots + any(sink.commits_on_spark for sink in job.sinks.values())


def too_few_slots(job: JobDescription, free: int) -> str:
    """The sentence about a Spark that cannot run all of a pipelined job's tasks at once."""
    levels, slots, needed = job.graph.levels, job.graph.slots, slots_needed(job)
    more = "" if needed == levels * slots else f" and one for what Spark commits, {needed} in all"
    return (
        f"a pipelined job runs all its tasks at once: {levels} levels × parallelism {slots} = {levels * slots} task slots{more}, "
        f"and this Spark has {free} free. Give it more cores, lower the parallelism, or set penstock.execution.mode to epochs"
    )


def pipelined_job(
    job: JobDescription, master: JobMaster, configuration: Mapping[str, str], spark_sources: Mapping[str, SparkSource]
) -> PipelinedJob:
    """The factory of the runtime `pipelined`."""
    why = unfit(job, spark_sources)
    if why is None:
        session = spark_session(configuration, task_slots=slots_needed(job))
        why = spark_plan.missing(session)
    if why is not None:
        raise ConfigurationError(f"the job cannot be pipelined: {why}. Set {JobOptions.RUNTIME} to epochs or auto")
    master.say_execution("pipelined", "it was asked for")
    return PipelinedJob(job, master, session)


def unfit(job: JobDescription, spark_sources: Mapping[str, SparkSource]) -> str | None:
    """Why a job cannot be pipelined on any Spark, in words; None if it can."""
    if spark_sources:
        return "it reads from_spark streams, which Spark reads in micro-batches"
    if job.settings.mode == "AT_MOST_ONCE":
        return "AT_MOST_ONCE has to log what is read before it is read"
    return None
