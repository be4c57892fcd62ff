"""A job as clients know it: its id, its status, the future that asynchronous calls return, the result of one that ended well."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar


class JobStatus(Enum):
    """The states of a job, with Flink's names."""

    CREATED = 0  # received, no task runs yet
    RUNNING = 1
    FAILING = 2  # failed; its tasks are being ended
    FAILED = 3  # failed and not to be tried again
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6  # all sources ended and every result is committed
    RESTARTING = 7
    SUSPENDED = 8  # this JobManager let go of it, another may take it over
    RECONCILING = 9  # a new JobManager is taking it over
    INITIALIZING = 10  # submitted, its JobMaster is not there yet (Java's name; PyFlink has none)

    def is_globally_terminal_state(self) -> bool:
        """Nobody will run this job again."""
        return self in _GLOBALLY_TERMINAL

    def is_terminal_state(self) -> bool:
        """This JobManager will not run this job again."""
        return self is JobStatus.SUSPENDED or self in _GLOBALLY_TERMINAL


_GLOBALLY_TERMINAL = frozenset({JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED})


@dataclass(frozen=True, slots=True, order=True)
class JobID:
    """An opaque unique name; `str` gives the text that REST paths and job folders use."""

    value: str

    def __str__(self) -> str:
        return self.value


class JobExecutionResult:
    """The id, duration and accumulators of a finished job."""

    def __init__(self, job_id: JobID, net_runtime: int, accumulators: Mapping[str, Any] | None = None) -> None:
        self._job_id = job_id
        self._net_runtime = net_runtime
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        """The id of the job."""
        return self._job_id

    def get_net_runtime(self) -> int:
        """Milliseconds from the start to the end of the job."""
        return self._net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """The final value of an accumulator; None if the job has none of this name."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """The final values of all accumulators, by name."""
        return dict(self._accumulators)

    def __str__(self) -> str:
        lines = [
            "Program execution finished",
            f"Job with JobID {self._job_id} has finished.",
            f"Job Runtime: {self._net_runtime} ms",
        ]
        if self._accumulators:
            lines.append("Accumulator Results:")
            lines.extend(f"- {name}: {value}" for name, value in self._accumulators.items())
        return "\n".join(lines)


T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """A `concurrent.futures.Future` under PyFlink's name. Thread-safe as that one is."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def cancel(self) -> bool:
        """Whether it could be cancelled: work that has begun cannot."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """True if the future was cancelled before it was done."""
        return self._future.cancelled()

    def done(self) -> bool:
        """True if the result or an exception is there, or the future was cancelled."""
        return self._future.done()

    def result(self) -> T:
        """Wait for the result; raises what the work raised."""
        return self._future.result()

    def exception(self) -> BaseException | None:
        """The exception that the work raised; None if it succeeded or, without waiting, has not ended yet."""
        return self._future.exception() if self._future.done() and not self._future.cancelled() else None

    def __str__(self) -> str:
        return str(self._future)
