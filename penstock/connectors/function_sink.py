"""Sinks made of user functions: what `add_sink` puts behind a `SinkFunction` or a `TwoPhaseCommitSinkFunction`.

Each transaction is written down in the job folder when it begins: the driver can then abort those of attempts that died, and the
other system is not left with transactions that nobody will ever end.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.layout import file_name_part
from penstock.checkpoint.storage import Storage
from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.functions.sinks import SinkContext, SinkFunction, TwoPhaseCommitSinkFunction
from penstock.pickling import dump_by_value, load_stored
from penstock.records import Block
from penstock.records.convert import to_rows

_FOLDER = "transactions"


class FunctionSink(Sink):
    """The sink that runs a SinkFunction (at least once) or a TwoPhaseCommitSinkFunction (exactly once)."""

    accepts_columns = False

    def __init__(self, function: SinkFunction | TwoPhaseCommitSinkFunction[Any]) -> None:
        self.function = function

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if isinstance(self.function, TwoPhaseCommitSinkFunction):
            return _TransactionWriter(self.function, context)
        return _InvokingWriter(self.function, context)

    def create_committer(self, sink_id: str) -> Committer:
        if isinstance(self.function, TwoPhaseCommitSinkFunction):
            return _TransactionCommitter(self.function, sink_id)
        return _NothingToCommit()


class _NothingToCommit(Committer):
    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        return None


class _InvokingWriter(SinkWriter):
    def __init__(self, function: SinkFunction, context: WriterContext) -> None:
        self.function, self._context = function, context

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        return None

    def write(self, block: Block) -> None:
        for value, context in _records(block, self._context):
            self.function.invoke(value, context)

    def prepare_commit(self) -> list[Any]:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class PreCommitted:
    """A committable: the pickled transaction, and the file that says it was begun."""

    transaction: bytes
    path: str


class _TransactionWriter(SinkWriter):
    def __init__(self, function: TwoPhaseCommitSinkFunction[Any], context: WriterContext) -> None:
        self.function, self._context = function, context
        self._epoch = 0
        self._open: tuple[Any, str] | None = None  # the transaction and its file

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._abort()
        self._epoch = epoch

    def write(self, block: Block) -> None:
        if not len(block):
            return
        if self._open is None:
            self._open = self._begin()
        transaction, _ = self._open
        for value, context in _records(block, self._context):
            self.function.invoke(transaction, value, context)

    def prepare_commit(self) -> list[Any]:
        if self._open is None:
            return []
        transaction, path = self._open
        self.function.pre_commit(transaction)
        self._open = None
        return [PreCommitted(transaction=dump_by_value(transaction), path=path)]

    def close(self) -> None:
        self._abort()

    def _begin(self) -> tuple[Any, str]:
        transaction = self.function.begin_transaction()
        folder = _folder(self._context.sink_id)
        path = f"{folder}/{self._epoch}-{self._context.subtask}-{uuid.uuid4().hex[:12]}"
        if self._context.storage is not None:
            self._context.storage.put(path, dump_by_value(transaction))
        return transaction, path

    def _abort(self) -> None:
        """What an attempt that failed has begun. Its file stays until the driver looks: aborting twice does no harm."""
        if self._open is not None:
            transaction, self._open = self._open[0], None
            self.function.abort(transaction)


class _TransactionCommitter(Committer):
    def __init__(self, function: TwoPhaseCommitSinkFunction[Any], sink_id: str) -> None:
        self._function, self._sink_id = function, sink_id
        self._storage: Storage | None = None
        self._recovered = False
        self._tried = 0  # the newest epoch this committer has tried to commit

    def open(self, storage: Storage | None) -> None:
        self._storage = storage

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        promised: Sequence[PreCommitted] = committables
        first_try = self._recovered and epoch > self._tried
        self._tried = max(self._tried, epoch)
        for one in promised:
            transaction = load_stored(one.transaction)
            if first_try:
                self._function.commit(transaction)
            else:
                self._function.recover_and_commit(transaction)
        kept = {one.path for one in promised}
        for begun, path in self._begun():
            if begun <= epoch:
                self._end(path, abort=path not in kept)

    def discard_after(self, epoch: int) -> None:
        behind = [path for begun, path in self._begun() if begun > epoch]
        if behind:
            self.still_mine()
        for path in behind:
            self._end(path, abort=True)
        self._recovered = True

    def _begun(self) -> Iterator[tuple[int, str]]:
        if self._storage is not None:
            for path in self._storage.list(_folder(self._sink_id)):
                yield int(path.rpartition("/")[2].partition("-")[0]), path

    def _end(self, path: str, *, abort: bool) -> None:
        assert self._storage is not None
        if abort:
            self._function.recover_and_abort(load_stored(self._storage.get(path)))
        self._storage.delete(path)


def _records(block: Block, context: WriterContext) -> Iterator[tuple[Any, SinkContext]]:
    rows = to_rows(block)
    now, watermark = context.processing_time(), context.current_watermark()
    if rows.timestamps is None:
        same = SinkContext(None, now, watermark)
        for value in rows.values:
            yield value, same
    else:
        for value, timestamp in zip(rows.values, rows.timestamps, strict=True):
            yield value, SinkContext(timestamp, now, watermark)


def _folder(sink_id: str) -> str:
    return f"{_FOLDER}/{file_name_part(sink_id)}"
