"""A job on Spark: one Structured Streaming query, one Spark job an epoch.

The plan is built once: heartbeats (and whatever Spark itself reads) → level 0 → shuffle → level 1 → … → acknowledgements,
which `foreachBatch` collects. Spark schedules, shuffles and retries; the JobMaster decides; the slots compute.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from penstock.checkpoint.object_storage import DriverStorage
from penstock.common import terminal
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.driver.restarts import RestartingJob
from penstock.engine.exchange_rows import SPARK_SCHEMA
from penstock.engine.messages import EpochPlan
from penstock.engine.sampling import Sample
from penstock.errors import CheckpointFailedError, JobFailedError, UserFunctionError, blame, from_text
from penstock.pickling import travelling
from penstock.runtime.connection.messages import HostFailed
from penstock.runtime.epochs.client import RegistryAddress
from penstock.runtime.epochs.executors import ExecutorWatch, executor_hosts, runs_in_driver, say_loopback
from penstock.runtime.epochs.registry import SlotRegistry
from penstock.runtime.epochs.relay import heartbeat_relay, ingest_relay, level_relay
from penstock.runtime.epochs.session import QUERY_CONF, close_unused_callbacks, spark_session
from penstock.runtime.epochs.spark_log import SparkLog
from penstock.state.local_folder import LocalFolder

_LAST_UPLOADS_MS = 10_000  # a cancelled job lets a checkpoint that is being stored complete, if it does soon
_SHARED_MEMORY = "/dev/shm"
_STOP_S = 60.0  # for Spark to stop a query

_log = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSource:
    """A streaming DataFrame as a source of the job."""

    frame: DataFrame
    split: str | None = None
    bounded: bool = False  # ends when a trigger finds nothing new
    forgets: str | None = None  # in words, what may be thrown away when Spark commits a batch


class SparkJob(RestartingJob):
    """Runs a job to its end. `run` blocks; `cancel` and `stop` may be called from other threads."""

    def __init__(
        self,
        job: JobDescription,
        master: JobMaster,
        session: SparkSession,
        spark_sources: Mapping[str, SparkSource],
    ) -> None:
        super().__init__(job, master)
        self._session = session
        self._spark_sources = dict(spark_sources)
        self.registry: SlotRegistry | None = None

    # ---------------------------------------------------------------- life cycle

    def run(self) -> None:
        """Runs the job to its end in this thread, and raises what made it fail."""
        master = self.master
        master.take_over()
        completed: int | None = None
        try:
            self.insist(master.recover)
            self._job = master.job  # at the parallelism an earlier driver had rescaled it to
            self.registry = self._open_registry()
            while not master.finished and not self._cancelled.is_set():
                error = self._attempt()
                if error is None and not self._rescale():
                    break
                if error is not None:
                    self.restart_or_fail(error)
            completed = None if master.restored is None else int(master.restored.checkpoint_id)
            if self._cancelled.is_set() and not master.finished:
                self.registry.close(completed)
                master.cancelled()
        finally:
            if self.registry is not None:
                self.registry.close(completed)
            master.close()

    def sample(self, seconds: float) -> Counter[Sample]:
        """Where its subtasks spend their time, looked at for so long."""
        return Counter() if self.registry is None else self.registry.sample(seconds)

    def _rescale(self) -> bool:
        """Whether the query ended only because the job goes on at another parallelism: the number of partitions is in the
        plan, so the query is made anew, while the job, and slots that are still needed, stay."""
        if not self.master.rescaling or self._cancelled.is_set():
            return False
        assert self.registry is not None
        self.insist(self.master.change_parallelism)
        self._job = self.master.job
        self.registry.change_job(self._slot_job(), self._job.graph.slots)
        return True

    def _open_registry(self) -> SlotRegistry:
        terminal.progress("task hosts…")
        host = self._session.conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
        say_loopback(self.master.notices, str(self._session.sparkContext.master), host)
        local = str(self._session.sparkContext.master).startswith("local") or host.startswith("127.")
        self._bind = "127.0.0.1" if local else None
        storage = self.master.storage
        in_driver = storage if isinstance(storage, DriverStorage) else None
        return SlotRegistry(
            "127.0.0.1" if local else host,
            self._slot_job(),
            in_driver,
            self.master.uploads.inbox.put,
            epoch_timeout_s=self._job.settings.epoch_timeout_ms / 1000,
        )

    def _tidy_slots(self) -> None:
        """Before another attempt: a slot that cannot be reached would hold it up, and slots that a lost host has crowded
        together may have a place of their own again."""
        assert self.registry is not None
        for name in self.registry.drop_unreachable():
            _log.warning("slot process %s does not answer: another takes its place", name)
        context = self._session.sparkContext
        if not runs_in_driver(context) and self.registry.spread(len(set(executor_hosts(context)))):
            _log.info("slots are spread over the executors' hosts again")

    def _slot_job(self) -> bytes:
        pickled: bytes = cloudpickle.dumps(travelling(self.master.host_job))
        return pickled

    # ---------------------------------------------------------------- one attempt

    def _attempt(self) -> BaseException | None:
        """Run the query until the job finishes (None), is cancelled (None) or an epoch fails."""
        assert self.registry is not None
        self._tidy_slots()
        run = _Attempt(self, self.registry)
        folder = self._log_folder()
        location = folder.path()
        attempt = f"{self.master.generation}.{self.master.job_attempt}"
        log = SparkLog(location=location, store=self.master.store, attempt=attempt)
        log.seed(self.master.restored, self._job.graph.slots, len(self._spark_sources))
        run.log = log
        query: StreamingQuery | None = None
        try:
            query = (
                self._frame()
                .writeStream.foreachBatch(run.on_batch)
                .queryName(f"penstock-{self._job.job_id}")
                .option("checkpointLocation", str(location))
                .trigger(processingTime=f"{self._job.settings.epoch_interval_ms} milliseconds")
                .start()
            )
            return run.wait(query, self._cancelled)
        finally:
            if query is not None and query.isActive:
                query.stop()
            close_unused_callbacks(self._session)
            folder.remove()

    def _log_folder(self) -> LocalFolder:
        """Spark's own log, thrown away with the query because ours is the truth: in memory, unless a source of Spark's keeps a
        log of all files it has seen in it."""
        in_memory = os.path.isdir(_SHARED_MEMORY) and not self._spark_sources
        return LocalFolder((_SHARED_MEMORY,) if in_memory else (), kind="log")

    def _frame(self) -> DataFrame:
        assert self.registry is not None
        graph = self._job.graph
        slots = graph.slots
        session = self._session
        for key, value in QUERY_CONF.items():
            with contextlib.suppress(PySparkException):  # a key this Spark does not know or does not let us set
                session.conf.set(key, value)
        address = RegistryAddress(
            host=str(self.registry.host),
            port=self.registry.port,
            token=self.registry.token,
            bind=self._bind,
            job_attempt=self.master.job_attempt,
            epoch_timeout_s=self._job.settings.epoch_timeout_ms / 1000,
        )
        heartbeats = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", slots)
            .option("numPartitions", slots)
            .option("startTimestamp", 0)
            .option("advanceMillisPerBatch", 1)
            .load()
        )
        if not self._spark_sources:
            frame = heartbeats.mapInArrow(level_relay(address, 0, heartbeat=True), SPARK_SCHEMA)
        else:
            rows = heartbeats.mapInArrow(heartbeat_relay(slots), SPARK_SCHEMA)
            vertices = {v.head.operator_id: v for v in graph.job.vertices.values() if v.is_source}
            for operator_id, source in self._spark_sources.items():
                vertex = vertices[operator_id]
                relay = ingest_relay(int(vertex.id), vertex.parallelism, source.split)
                rows = rows.unionAll(source.frame.mapInArrow(relay, SPARK_SCHEMA))
            frame = rows.repartitionById(slots, F.col("target")).mapInArrow(
                level_relay(address, 0, heartbeat=False), SPARK_SCHEMA
            )
        for level in range(1, graph.levels):
            frame = frame.repartitionById(slots, F.col("target")).mapInArrow(
                level_relay(address, level, heartbeat=False), SPARK_SCHEMA
            )
        return frame


class _Attempt:
    """The `foreachBatch` callback of one query and its meeting point with the thread that waits for it.

    The callback does not raise: a failure is recorded and the query is stopped between two epochs, because stopping Spark
    in the middle of one makes it print errors of its own. But Spark takes a batch whose callback has returned for done, and the
    next one tells its sources so. So the callback of an epoch that failed returns only into a query that is stopped.
    """

    def __init__(self, job: SparkJob, registry: SlotRegistry) -> None:
        self._spark_job, self._registry = job, registry
        self._master = job.master
        self._over = threading.Event()
        self._stopped = threading.Event()  # Spark begins no further batch
        self._error: BaseException | None = None
        self._timeout_s = job._job.settings.epoch_timeout_ms / 1000
        self.log: SparkLog | None = None
        self._query: StreamingQuery | None = None
        registry.on_failure = self._slot_failed

    def on_batch(self, frame: DataFrame, batch: int) -> None:
        try:
            if self._spark_job._cancelled.is_set():
                self._over.set()
                self._master.settle(wait_ms=_LAST_UPLOADS_MS)
            elif not self._over.is_set():
                self._run_epoch(frame, batch + 1)
        except BaseException as error:
            # Spark would lose it on its way through the JVM: it is raised where the job is run.
            self._error = self._explain(error)
            self._over.set()
        if self._over.is_set():
            if not self._stopped.wait(_STOP_S):
                raise JobFailedError(
                    f"Spark did not stop the query within {_STOP_S:.0f} s; its last batch is not committed"
                )
            time.sleep(0.02)  # stop() interrupts this thread: better here than while Spark writes its log

    def _run_epoch(self, frame: DataFrame, epoch: int) -> None:
        master, log = self._master, self.log
        assert log is not None
        progress = log.progress(epoch - 1)
        sources = self._spark_job._spark_sources
        finished = {
            operator_id: source.bounded and not progress.changed(index)
            for index, (operator_id, source) in enumerate(sources.items())
        }
        bringing = [source for index, source in enumerate(sources.values()) if progress.changed(index)]
        # Spark commits the batch when this returns: where a source throws away what is committed, a checkpoint comes first.
        held = next((source.forgets for source in bringing if source.forgets is not None), None)
        plan = master.plan_epoch(epoch, stop=held is not None, spark_finished=finished, spark_data=bool(bringing))
        if plan is None:
            return
        self._registry.begin(plan)
        watchdog = threading.Timer(self._timeout_s, self._give_up, args=(plan,))
        watchdog.daemon = True
        watchdog.start()
        try:
            rows = frame.toArrow()
        finally:
            watchdog.cancel()
            self._registry.end()
        acks = [pickle.loads(payload.as_py()) for payload in rows.column("payload")]
        terminal.progress("running", last=True)
        master.complete_epoch(epoch, acks, spark=log.position(progress) if sources and plan.snapshot else None)
        if held is not None:
            self._wait_for_checkpoint(epoch, held)
        if master.finished or master.rescaling:
            self._over.set()

    def _wait_for_checkpoint(self, epoch: int, held: str) -> None:
        self._master.settle(wait_ms=self._spark_job._job.settings.checkpoint_timeout_ms)
        newest = self._master.restored
        if newest is None or int(newest.epoch) < epoch:
            raise CheckpointFailedError(
                f"epoch {epoch} has read from {held}, which throws away what is committed, and the epoch's checkpoint was not "
                "completed: nothing is committed, and the job goes back to its last checkpoint"
            )

    def _give_up(self, plan: EpochPlan) -> None:
        """An epoch that takes this long hangs: fail it, so that the job goes back to its checkpoint."""
        hangs = self._registry.fail(
            plan,
            f"epoch {plan.epoch} did not end within {self._timeout_s:.0f} s and was given up; a slow function or sink may need a "
            "larger penstock.epoch.timeout",
        )
        if hangs:
            self._end_spark_job()

    def _end_spark_job(self) -> None:
        if self._query is not None:
            # Spark's job group is the run: other jobs of the session are not ours to end.
            self._spark_job._session.sparkContext.cancelJobGroup(self._query.runId)

    def _slot_failed(self, failure: HostFailed) -> None:
        """Spark tries a failed task again, in case its slot is gone. What the user's code raised, it raises again."""
        if failure.type == UserFunctionError.__name__:
            self._end_spark_job()

    def _explain(self, error: BaseException) -> BaseException:
        """The slot's own words instead of Spark's wrapping of them."""
        failure: HostFailed | None = self._registry.failure
        if failure is None:
            return error
        explained = from_text({"type": failure.type, "message": failure.message})
        if failure.task is not None:
            blame(explained, failure.task)
        explained.add_note(f"in slot {failure.slot}, epoch {failure.epoch}:\n{failure.traceback}")
        return explained

    def wait(self, query: StreamingQuery, cancelled: threading.Event) -> BaseException | None:
        self._query = query
        context = self._spark_job._session.sparkContext
        watch = ExecutorWatch(
            self._master.notices, lambda: len(executor_hosts(context)), f"{self._registry.host}"
        )  # fmt: skip
        while not self._over.wait(0.05):
            if not runs_in_driver(context):
                watch.look()
            if not query.isActive:
                problem = query.exception()
                return JobFailedError(f"Spark ended the query by itself: {problem}")
        stopper: Any = threading.Thread(target=query.stop, daemon=True)
        stopper.start()
        while query.isActive and stopper.is_alive():  # the first thing that stop() does is to say that it is not
            time.sleep(0.002)
        if not query.isActive:
            self._stopped.set()
        stopper.join(_STOP_S)
        return self._error


def spark_job(
    job: JobDescription, master: JobMaster, configuration: Mapping[str, str], spark_sources: Mapping[str, SparkSource]
) -> SparkJob:
    """The factory of the runtime `epochs`."""
    if not master.execution:
        master.say_execution("epochs", "it was asked for")
    return SparkJob(job, master, spark_session(configuration), spark_sources)
