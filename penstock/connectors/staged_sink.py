"""What sinks that stage their output have in common: Kafka's, PostgreSQL's, Spark's.

A writer gathers an epoch and stages it at pre-commit; nothing goes to the target before the checkpoint is complete, so no
transaction is open while a checkpoint, or a job that was stopped, takes its time. The committer carries it over afterwards.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from penstock.checkpoint.storage import CheckpointStorage
from penstock.connectors.staging import StagedOutput, commit_name, discard, stage
from penstock.errors import CommitRefusedError, PenstockError
from penstock.functions.connectors import Committer, SinkWriter, WriterContext
from penstock.records import Block

Part = TypeVar("Part")
_REFUSALS = 3


class StagingWriter(SinkWriter, Generic[Part]):
    """A block becomes a part when it is written, so that what cannot be written fails its own epoch."""

    def __init__(self, context: WriterContext) -> None:
        self.context = context
        self._epoch = 0
        self._parts: list[Part] = []

    @abstractmethod
    def encode(self, block: Block) -> Part | None:
        """None: nothing of it is to be written."""

    @abstractmethod
    def pack(self, parts: list[Part]) -> bytes:
        """All parts of an epoch, at least one, as they are staged."""

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._parts = epoch, []

    def write(self, block: Block) -> None:
        part = self.encode(block) if len(block) else None
        if part is not None:
            self._parts.append(part)

    def prepare_commit(self) -> list[Any]:
        if not self._parts:
            return []
        data, self._parts = self.pack(self._parts), []
        context = self.context
        return [
            stage(
                data,
                context.storage,
                job_id=context.job_id,
                sink_id=context.sink_id,
                epoch=self._epoch,
                subtask=context.subtask,
            )
        ]


class StagedCommitter(Committer):
    def __init__(self, sink_id: str) -> None:
        self.sink_id = sink_id
        self.storage: CheckpointStorage | None = None
        self._refused = 0  # times in a row

    @abstractmethod
    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        """Carry an epoch's output, at least one part, over to the target. `name` is that of these very outputs: an epoch that
        was run again has another one. Called again with the same after a crash whose moment is unknown. CommitRefusedError if
        the target would refuse the same again: after the third the job ends."""

    def open(self, storage: CheckpointStorage | None) -> None:
        self.storage = storage

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        if committables:
            self._insist(epoch, commit_name(committables), committables)
            discard(self.storage, self.sink_id, up_to=epoch)

    def _insist(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        """A refusal ends the job, but not the first: it may be because of what another sink of the job has yet to commit."""
        try:
            self.commit_staged(epoch, name, staged)
            self._refused = 0
        except CommitRefusedError as error:
            self._refused += 1
            if self._refused < _REFUSALS:
                raise PenstockError(f"{error} (try {self._refused} of {_REFUSALS})") from error
            raise

    def discard_after(self, epoch: int) -> None:
        discard(self.storage, self.sink_id, after=epoch)
