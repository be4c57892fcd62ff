"""Handing a stream's values to the program that runs in the driver's process, as `execute_and_collect` does."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.errors import ProtocolError
from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.pickling import dump_by_value
from penstock.records import Block, Columns

Delivery: TypeAlias = Callable[[int, list[Any]], None]

deliveries: dict[str, Delivery] = {}
"""Who takes the values, by sink id. Set before the job starts; called by the committing thread with an epoch and the
values committed with it, in order, each epoch once. Putting a new callable in starts anew."""

_delivered: dict[str, tuple[Delivery, int]] = {}  # the last epoch each callable got, across committers of a restart


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedValues:
    """A committable: pickled values inline."""

    epoch: int
    count: int
    pickled: bytes


class CollectSink(Sink):
    accepts_columns = False
    """Values go through checkpoints and the driver's memory: for tests, notebooks and small results."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _CollectWriter()

    def create_committer(self, sink_id: str) -> Committer:
        return _CollectCommitter(sink_id)


class _CollectWriter(SinkWriter):
    def __init__(self) -> None:
        self._epoch = 0
        self._values: list[Any] = []

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._values = epoch, []

    def write(self, block: Block) -> None:
        self._values += block.batch.to_pylist() if isinstance(block, Columns) else block.values

    def prepare_commit(self) -> list[Any]:
        values, self._values = self._values, []
        if not values:
            return []
        return [CollectedValues(epoch=self._epoch, count=len(values), pickled=dump_by_value(values))]


class _CollectCommitter(Committer):
    def __init__(self, sink_id: str) -> None:
        self._sink_id = sink_id

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        delivery = deliveries.get(self._sink_id)
        if delivery is None:
            raise ProtocolError(
                f"CollectSink {self._sink_id}: cannot commit epoch {epoch}: nobody in this process collects it. "
                "Collected streams end with the program that collects them; use a durable sink to resume the job."
            )
        last_delivery, last_epoch = _delivered.get(self._sink_id, (delivery, 0))
        if last_delivery is delivery and epoch <= last_epoch:
            return
        values = [value for committable in committables for value in pickle.loads(committable.pickled)]
        delivery(epoch, values)
        _delivered[self._sink_id] = (delivery, epoch)
