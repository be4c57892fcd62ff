"""A sink whose committed output a test can look at."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.records import Block, Columns

# What is visible to the outside world, by sink name and epoch: it survives every simulated crash, as a database would.
_committed: dict[str, dict[int, list[Any]]] = {}
_calls: dict[str, list[int]] = {}


class ListSink(Sink):
    """Collects committed values under `name` in this process. Idempotent by epoch: the first commit of one counts.

    Example:

        stream.sink_to(ListSink("numbers"))
        env.execute()
        assert sorted(ListSink.results("numbers")) == [1, 2, 3]
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _ListWriter()

    def create_committer(self, sink_id: str) -> Committer:
        return _ListCommitter(self.name)

    @staticmethod
    def results(name: str) -> list[Any]:
        """Everything committed, in the order of epochs, subtasks and writing."""
        return [value for _, values in sorted(_committed.get(name, {}).items()) for value in values]

    @staticmethod
    def by_epoch(name: str) -> dict[int, list[Any]]:
        """The committed values by epoch."""
        return {epoch: list(values) for epoch, values in sorted(_committed.get(name, {}).items())}

    @staticmethod
    def commits(name: str) -> list[int]:
        """The epoch of every call of `commit`, repeated ones included."""
        return list(_calls.get(name, ()))

    @staticmethod
    def clear(name: str) -> None:
        """Forgets what was committed under `name`."""
        _committed.pop(name, None)
        _calls.pop(name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """A committable: the values themselves, pickled, so that it can go through a manifest."""

    pickled: bytes


class _ListWriter(SinkWriter):
    def __init__(self) -> None:
        self._values: list[Any] = []

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._values = []

    def write(self, block: Block) -> None:
        self._values += block.batch.to_pylist() if isinstance(block, Columns) else block.values

    def prepare_commit(self) -> list[Any]:
        values, self._values = self._values, []
        return [_Staged(pickled=pickle.dumps(values, protocol=5))] if values else []


class _ListCommitter(Committer):
    def __init__(self, name: str) -> None:
        self._name = name

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        _calls.setdefault(self._name, []).append(epoch)
        epochs = _committed.setdefault(self._name, {})
        if epoch not in epochs:
            epochs[epoch] = [value for staged in committables for value in pickle.loads(staged.pickled)]
