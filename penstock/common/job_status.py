"""Where a job is in its life."""

from __future__ import annotations

from enum import Enum


class JobStatus(Enum):
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
