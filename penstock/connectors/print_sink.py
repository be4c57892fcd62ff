"""Printing a stream, as `DataStream.print` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.records import Block, Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedLines:
    """A committable: the lines, rendered in the slot so that the driver need not know the values' classes."""

    epoch: int
    lines: tuple[str, ...]


class PrintSink(Sink):
    accepts_columns = False
    """Prints each value on the driver's standard output when its epoch is committed.

    As in Flink a line is `value`, `2> value` from the second of several subtasks, `id> value` or `id:2> value` with a
    sink identifier. A terminal cannot be asked what it has shown: an epoch that was printed just before the driver
    died, and whose commit it had not logged, is printed again by its successor. No committer prints an epoch twice.
    """

    def __init__(self, sink_identifier: str | None = None) -> None:
        self._identifier = sink_identifier

    def create_writer(self, context: WriterContext) -> SinkWriter:
        parts = [self._identifier] if self._identifier else []
        if context.parallelism > 1:
            parts.append(str(context.subtask + 1))
        return _PrintWriter(":".join(parts) + "> " if parts else "")

    def create_committer(self, sink_id: str) -> Committer:
        return _PrintCommitter()


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._epoch = 0
        self._lines: list[str] = []

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._lines = epoch, []

    def write(self, block: Block) -> None:
        values = block.batch.to_pylist() if isinstance(block, Columns) else block.values
        self._lines += [f"{self._prefix}{value}" for value in values]

    def prepare_commit(self) -> list[Any]:
        lines, self._lines = tuple(self._lines), []
        return [PrintedLines(epoch=self._epoch, lines=lines)] if lines else []


class _PrintCommitter(Committer):
    def __init__(self) -> None:
        self._printed_epoch = 0

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        if epoch <= self._printed_epoch:
            return
        self._printed_epoch = epoch
        lines = [line for committable in committables for line in committable.lines]
        if lines:
            # One write, so that lines of other threads do not come between.
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
