"""The handle of a submitted job."""

from __future__ import annotations

import copy
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.state_data import Read, query
from penstock.common.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.common.time import now_ms
from penstock.driver.checkpoint_statistics import CheckpointStatistics
from penstock.driver.control.rates import WINDOW_MS, vertex_rates
from penstock.driver.job_master import JobMaster
from penstock.driver.life_cycle import Failure, LifeCycle
from penstock.driver.requests import CheckpointRequest, RescaleRequest, RescaleResult, SavepointRequest
from penstock.engine.messages import EpochReport
from penstock.engine.sampling import Sample
from penstock.errors import PenstockError
from penstock.graph.explain import plan_svg, table

T = TypeVar("T")


def _record_end(error: BaseException, life: LifeCycle) -> None:
    """The error that ends a job usually wraps the one that was recorded when its epoch failed."""
    cause = error.__cause__ or error
    if not (life.failures and life.failures[-1].message == str(cause)[:4000]):
        life.failed(Failure.of(error, now_ms()))
    life.reached(JobStatus.FAILED, now_ms())


class RunningJob(Protocol):
    """The job as a runtime runs it; every runtime offers this."""

    on_state: Callable[[str], None]
    master: JobMaster
    on_failure: Callable[[BaseException], None]  # an epoch failed; what follows is on_state or the end of run()

    def run(self) -> None:
        """Runs the job to its end, and raises what made it fail."""

    def cancel(self) -> None:
        """Asks the job to end after the epoch that runs; returns at once."""

    def sample(self, seconds: float) -> Counter[Sample]:
        """Where its subtasks spend their time, looked at for so long."""
        ...


class JobClient:
    """Watch and steer a job from the process that started it. All methods may be called from any thread.

    Example:

        client = env.execute_async("orders")
        path = client.stop_with_savepoint(False, "/data/savepoints").result()
    """

    def __init__(self, job_id: str, job: RunningJob, reports: list[EpochReport]) -> None:
        self._job_id = JobID(job_id)
        self._job = job
        self._reports = reports
        self._lock = threading.Lock()
        self._life = LifeCycle(now_ms())
        self._cancelled = False
        self._listeners: list[Callable[[], None]] = []
        self._result: Future[JobExecutionResult] = Future()
        job.on_state = self._on_state
        job.on_failure = self._on_failure
        # A daemon: the job lives as long as the driver process. A script that wants its end waits for the result.
        self._thread = threading.Thread(target=self._run, name=f"penstock-{job_id[:8]}", daemon=True)

    def _start(self) -> JobClient:
        self._change(lambda life: life.advance(JobStatus.CREATED, now_ms()))
        self._thread.start()
        return self

    def _change(self, step: Callable[[LifeCycle], object]) -> None:
        with self._lock:
            step(self._life)
        for listener in self._listeners:
            listener()

    def _on_state(self, state: str) -> None:
        self._change(lambda life: life.advance(JobStatus[state], now_ms()))

    def _on_failure(self, error: BaseException) -> None:
        self._change(lambda life: life.failed(Failure.of(error, now_ms())))

    def _run(self) -> None:
        started = time.monotonic()
        self._on_state("RUNNING")
        try:
            self._job.run()
        except BaseException as error:  # whatever it is, who waits for the result must hear of it
            self._change(functools.partial(_record_end, error))
            self._result.set_exception(error)
            return
        end = JobStatus.CANCELED if self._cancelled else JobStatus.FINISHED
        self._change(lambda life: life.reached(end, now_ms()))
        runtime = int((time.monotonic() - started) * 1000)
        self._result.set_result(JobExecutionResult(self._job_id, runtime, self._job.master.accumulators.results()))

    def life_cycle(self) -> dict[str, Any]:
        """State, transitions with their times, and the exceptions history, as JSON."""
        with self._lock:
            return self._life.to_json()

    def get_job_id(self) -> JobID:
        """The id of the job."""
        return self._job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """The state the job is in now."""
        future: Future[JobStatus] = Future()
        future.set_result(self._life.state)
        return CompletableFuture(future)

    def cancel(self) -> CompletableFuture[None]:
        """Stop after the epoch that is running. The future is done when the job has ended."""
        self._cancelled = True
        self._on_state("CANCELLING")
        self._job.cancel()
        ended: Future[None] = Future()
        self._result.add_done_callback(lambda _: ended.set_result(None))
        return CompletableFuture(ended)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """A savepoint at the end of the next epoch; the job goes on. The future gives its folder, a new one below the
        directory, or else below `execution.checkpointing.savepoint-dir`, or else below the job folder's `savepoints`. It
        fails if the savepoint does: then there is none, and the job goes on."""
        request = SavepointRequest(directory=savepoint_directory)
        return CompletableFuture(self._job.master.requests.savepoint(request))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """End the job with a savepoint; the job is FINISHED then, and the future gives the savepoint's folder.

        With `advance_to_end_of_event_time` the job is drained first: event time goes to its end, so every window and
        event-time timer fires, and a job resumed from that savepoint has nothing left to do. If the savepoint fails, the
        future says why and the job goes on; a drained one from its last checkpoint, unless its output was out already.
        """
        request = SavepointRequest(directory=savepoint_directory, stop=True, drain=advance_to_end_of_event_time)
        return CompletableFuture(self._job.master.requests.savepoint(request))

    def trigger_checkpoint(self, checkpoint_type: str = "CONFIGURED") -> CompletableFuture[int]:
        """A checkpoint at the end of the next epoch, whatever the interval says; the future gives its number when it is
        complete. "FULL" holds all state instead of what changed since the last one; "INCREMENTAL" is as "CONFIGURED" here."""
        request = CheckpointRequest(full=checkpoint_type.upper() == "FULL")
        return CompletableFuture(self._job.master.requests.checkpoint(request))

    def rescale(self, parallelism: int) -> CompletableFuture[RescaleResult]:
        """Change the parallelism of the running job, between two epochs: operators that were given one of their own keep
        it. The future is done when the first epoch has run at the new one; it fails, and the job goes on as it was, if the
        job does not allow it."""
        return CompletableFuture(self._job.master.requests.rescale(RescaleRequest(parallelism=parallelism)))

    def query_state(self, uid: str, state_name: str, key: Any) -> CompletableFuture[Any]:
        """What one key has in a state, as of the job's last checkpoint: its value, or None; with windows a dict by
        window, of timers ("timer-event", "timer-processing") their timestamps. Reads the files of one subtask."""
        future: Future[Any] = Future()
        try:
            future.set_result(self.read_checkpoint(lambda manifest, read: query(manifest, uid, state_name, key, read)))
        except PenstockError as error:
            future.set_exception(error)
        return CompletableFuture(future)

    def sample(self, seconds: float) -> Counter[Sample]:
        """The stacks of the job's subtasks, looked at many times within `seconds`; for flame graphs."""
        return self._job.sample(seconds)

    def read_checkpoint(self, use: Callable[[Manifest, Read], T]) -> T:
        """`use(manifest, read)` of the job's last checkpoint: what looks at its state, in `penstock.checkpoint.state_data`.
        It may be called again, if that checkpoint is deleted meanwhile. PenstockError if there is none."""
        return self._job.master.read_checkpoint(use)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """The result of the job, when it has ended; the future raises if the job failed or was cancelled."""
        return CompletableFuture(self._result)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """The results of all accumulators as of the last epoch that completed."""
        future: Future[dict[str, Any]] = Future()
        future.set_result(self._job.master.accumulators.results())
        return CompletableFuture(future)

    def epoch_reports(self) -> list[EpochReport]:
        """The latest epochs, oldest first: rates, watermarks, checkpoint sizes, busy times."""
        return list(self._reports)

    def checkpoint_statistics(self) -> CheckpointStatistics:
        """Counts over all starts of this job folder, and the newest checkpoints with size, duration and reason of failure."""
        return copy.deepcopy(self._job.master.statistics.statistics)

    def _repr_html_(self) -> str:
        """For notebooks: the state, the graph, and each vertex over the last seconds and in all."""
        reports, now = self.epoch_reports(), now_ms()
        graph = self._job.master.job.graph.job
        state = self._life.state
        over = state.is_globally_terminal_state()
        recent = [] if over else [report for report in reports if report.wall_ms > now - WINDOW_MS]
        rows = []
        for vertex in graph.vertices.values():
            rates = vertex_rates(recent, vertex.id, vertex.parallelism, now)
            sums = [v for report in reports for v in report.vertices if v["id"] == vertex.id]
            slow = bool(recent) and recent[-1].bottleneck == vertex.id
            rows.append(
                (f"{vertex.name}{' ← bottleneck' if slow else ''}", vertex.parallelism,
                 f"{sum(rates['records_in_per_second']):,.0f}", f"{sum(rates['records_out_per_second']):,.0f}",
                 f"{max(rates['busy']):.0%}", f"{max(rates['back_pressured']):.0%}",
                 f"{sum(v['records_in'] for v in sums):,}", f"{sum(v['records_out'] for v in sums):,}")
            )  # fmt: skip
        columns = ("vertex", ">slots", ">in/s", ">out/s", ">busy", ">back-pressured", ">records in", ">records out")
        said = "no epoch yet" if not reports else f"epoch {reports[-1].epoch} took {reports[-1].duration_ms:.0f} ms"
        if reports and reports[0].epoch > 1:  # only the latest are kept
            said += f"; records since epoch {reports[0].epoch}"
        return plan_svg(graph) + table(f"{graph.job_name}: {state.name}, {said}", columns, rows)

    def __repr__(self) -> str:
        return f"<JobClient {self._job_id} {self._life.state.name}>"
