"""The life of a job as a state machine: which state may follow which, and when each was entered. Pure."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.common.job import JobStatus
from penstock.common.secrets import hide_in_text
from penstock.errors import ProtocolError, failed_task

_S = JobStatus
# Flink's transitions. A failure passes through FAILING even when the next step follows at once, so that every failure
# is visible in the history. Terminal states have no successor, except that a suspended job may be taken over.
SUCCESSORS: Final[dict[JobStatus, frozenset[JobStatus]]] = {
    _S.INITIALIZING: frozenset({_S.CREATED, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    _S.CREATED: frozenset({_S.RUNNING, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    _S.RUNNING: frozenset({_S.FAILING, _S.CANCELLING, _S.FINISHED, _S.SUSPENDED}),
    _S.FAILING: frozenset({_S.FAILED, _S.RESTARTING, _S.CANCELLING, _S.SUSPENDED}),
    _S.RESTARTING: frozenset({_S.RUNNING, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    _S.CANCELLING: frozenset({_S.CANCELED, _S.FAILED}),
    _S.RECONCILING: frozenset({_S.INITIALIZING, _S.CREATED, _S.RUNNING, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    _S.SUSPENDED: frozenset({_S.RECONCILING}),
    _S.FAILED: frozenset(),
    _S.CANCELED: frozenset(),
    _S.FINISHED: frozenset(),
}
_KEPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A job's entry into a state."""

    state: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One entry of the exceptions history."""

    at_ms: int
    name: str  # the exception's class
    message: str
    stacktrace: str
    epoch: int | None = None  # the one that failed
    task: str | None = None  # vertex and subtask, if it came from one
    process: str | None = None  # where that ran; empty: in the driver

    @staticmethod
    def of(error: BaseException, at_ms: int, epoch: int | None = None) -> Failure:
        """The entry for an error, with secrets hidden."""
        task = failed_task(error)
        text = hide_in_text("".join(traceback.format_exception(error)))
        return Failure(
            at_ms=at_ms,
            name=f"{type(error).__module__}.{type(error).__qualname__}",
            message=hide_in_text(str(error))[:4000],
            stacktrace=text if len(text) <= 20_000 else f"{text[:2000]}\n…\n{text[-18_000:]}",
            epoch=epoch,
            task=None if task is None else str(task),
            process=None if task is None else task.process,
        )


class LifeCycle:
    """Where a job is and where it has been. `advance` is the only way to move."""

    def __init__(self, now_ms: int, state: JobStatus = JobStatus.INITIALIZING) -> None:
        self.state = state
        self.transitions = [Transition(state=state.name, at_ms=now_ms)]
        self.failures: list[Failure] = []

    def advance(self, to: JobStatus, now_ms: int) -> bool:
        """Enter `to`. False when it changes nothing: the job is there already, or it is on its way out and `to` would
        call it back (a restart that was under way when the job was cancelled). A transition that no order of events
        explains is a ProtocolError."""
        if to is self.state:
            return False
        if self.state is JobStatus.CANCELLING and not to.is_terminal_state():
            return False
        if self.state.is_globally_terminal_state():
            return False
        if to not in SUCCESSORS[self.state]:
            raise ProtocolError(
                f"a job cannot go from {self.state.name} to {to.name}; its story: "
                + " → ".join(step.state for step in self.transitions[-10:])
            )
        self.state = to
        self.transitions.append(Transition(state=to.name, at_ms=now_ms))
        del self.transitions[:-_KEPT]
        return True

    def failed(self, failure: Failure) -> None:
        """Remember what went wrong and enter FAILING."""
        self.failures.append(failure)
        del self.failures[:-_KEPT]
        self.advance(JobStatus.FAILING, failure.at_ms)

    def reached(self, to: JobStatus, now_ms: int) -> None:
        """A terminal state, by the legal way there: CANCELED through CANCELLING, FAILED through FAILING."""
        through = {JobStatus.CANCELED: JobStatus.CANCELLING, JobStatus.FAILED: JobStatus.FAILING}.get(to)
        if through is not None and self.state is not JobStatus.CANCELLING:
            self.advance(through, now_ms)
        self.advance(to, now_ms)

    def timestamps(self) -> dict[str, int]:
        """When each state was last entered, 0 for those it was never in: Flink's `timestamps`."""
        return {state.name: 0 for state in JobStatus} | {step.state: step.at_ms for step in self.transitions}

    def to_json(self) -> dict[str, Any]:
        """State, transitions and failures, for the facts."""
        return {
            "state": self.state.name,
            "transitions": [asdict(step) for step in self.transitions],
            "exceptions": [asdict(failure) for failure in self.failures],
        }
