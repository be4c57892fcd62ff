"""Checkpoints that clients ask for: from the request, through the epoch that ends with one, to its number.

An epoch's snapshots may be stored long after it has ended, so the answer follows the statistics, which hear of both ends a
checkpoint can have.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from penstock.driver.checkpoint_statistics import CheckpointStatistics
from penstock.errors import CheckpointFailedError


@dataclass(slots=True, kw_only=True)
class CheckpointRequest:
    full: bool = False  # of everything, not only of what changed since the last one
    answer: Future[int] = field(default_factory=Future)  # its number


class PendingCheckpointRequest:
    """`fail` and `ends_run` as of other requests that an epoch serves."""

    ends_run = False

    def __init__(self, request: CheckpointRequest) -> None:
        self.request = request

    def fail(self, error: Exception) -> None:
        if not self.request.answer.done():
            self.request.answer.set_exception(error)


class AskedCheckpoints:
    """Those whose epoch was planned and whose end nobody has heard of yet. Belongs to the JobMaster's thread."""

    def __init__(self) -> None:
        self._waiting: dict[int, PendingCheckpointRequest] = {}

    def planned(self, epoch: int, asked: object) -> None:
        if isinstance(asked, PendingCheckpointRequest):
            self._waiting[epoch] = asked

    def answer(self, statistics: CheckpointStatistics) -> None:
        """Tell those who asked for a checkpoint that has an end now."""
        for record in statistics.history if self._waiting else ():
            if record.status == "restored" or record.checkpoint_id not in self._waiting:
                continue
            asked = self._waiting.pop(record.checkpoint_id)
            if record.status == "completed":
                asked.request.answer.set_result(record.checkpoint_id)
            else:
                asked.fail(CheckpointFailedError(f"checkpoint {record.checkpoint_id} was declined: {record.reason}"))

    def give_up(self, why: str) -> None:
        for epoch, asked in self._waiting.items():
            asked.fail(CheckpointFailedError(f"checkpoint {epoch} was not completed: {why}. Ask for it again"))
        self._waiting.clear()
