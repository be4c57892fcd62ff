"""Functions that write records out of the job."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.functions.base import Function

TXN = TypeVar("TXN")


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Time, and the timestamp of the record that is written."""

    _timestamp: int | None
    _processing_time: int
    _watermark: int

    def timestamp(self) -> int | None:
        """The record's event time in milliseconds, if it has one."""
        return self._timestamp

    def current_processing_time(self) -> int:
        """The processing time in milliseconds."""
        return self._processing_time

    def current_watermark(self) -> int:
        """The watermark of the subtask in milliseconds."""
        return self._watermark


class SinkFunction(Function):
    """Writes each record where it likes, while the epoch runs: at least once, since an epoch may run again."""

    @abstractmethod
    def invoke(self, value: Any, context: SinkContext) -> None:
        """Writes one record. Called again for the same record if its epoch runs again."""


class TwoPhaseCommitSinkFunction(Function, Generic[TXN]):
    """Writes into transactions of another system, exactly once, as Flink's class of this name.

    `begin_transaction`, `invoke`, `pre_commit` and `abort` run in the slots, on a function that was opened. A transaction must be
    picklable, as it is committed elsewhere: `commit`, `recover_and_commit` and `recover_and_abort` run on the driver, on a copy of
    the function that was not opened. What was pre-committed must outlive the process, and time-outs of the other system must be
    longer than a job may be down.
    """

    @abstractmethod
    def begin_transaction(self) -> TXN:
        """Called with the first record of an epoch."""

    @abstractmethod
    def invoke(self, transaction: TXN, value: Any, context: SinkContext) -> None:
        """Write one record into the transaction."""

    @abstractmethod
    def pre_commit(self, transaction: TXN) -> None:
        """The epoch has ended: flush. When this returns, the transaction can be committed whatever dies."""

    @abstractmethod
    def commit(self, transaction: TXN) -> None:
        """The checkpoint is complete. Must succeed in the end, and change nothing when it is called again. If it raises, the
        job restarts and `recover_and_commit` is called."""

    @abstractmethod
    def abort(self, transaction: TXN) -> None:
        """The attempt failed. May be called again, also for a transaction the other system has forgotten."""

    def recover_and_commit(self, transaction: TXN) -> None:
        """`commit` of a transaction that may be committed already, after a restart."""
        self.commit(transaction)

    def recover_and_abort(self, transaction: TXN) -> None:
        """`abort` of a transaction that a failed attempt left behind, whatever became of it."""
        self.abort(transaction)
