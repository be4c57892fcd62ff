"""Values from and to the program itself: a source over values that it holds, and sinks that hand values to it or print them.

They are behind `from_collection`, `execute_and_collect` and `print`. The data of the source travels with it; what the sinks get
is handed over in the driver's process, when it is committed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.common.java_text import java_text
from penstock.common.terminal import end_line
from penstock.errors import JobDefinitionError, ProtocolError
from penstock.functions.connectors import (
    Committer,
    Json,
    Sink,
    SinkWriter,
    Source,
    SourcePlan,
    SplitEnumerator,
    SplitRange,
    SplitReader,
    WriterContext,
)
from penstock.pickling import dump_by_value, load_stored
from penstock.records import Block, Columns, Rows
from penstock.records.sizes import gathered

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation


_SPLIT = "0"


class CollectionSource(Source):
    """Bounded, one split; a record's position is its index in `values`.

    `epochs` forces cuts: the k-th epoch ends at `epochs[k]` at the latest (values must not decrease; an equal one
    gives an empty epoch) and the rest follows in one more epoch. `max_records` of `plan` cuts further.
    """

    bounded = True
    has_timestamps = False
    gives_columns = False

    def __init__(
        self,
        values: Sequence[Any],
        type_info: TypeInformation | None = None,
        *,
        epochs: Sequence[int] | None = None,
    ) -> None:
        self._values = list(values)
        self._type_info = type_info
        self._cuts = tuple(epochs or ())
        if any(a > b for a, b in zip(self._cuts, self._cuts[1:], strict=False)) or any(
            not 0 <= cut <= len(self._values) for cut in self._cuts
        ):
            raise JobDefinitionError(
                f"CollectionSource: epochs={list(self._cuts)} must not decrease and must lie in 0..{len(self._values)}"
            )

    def create_enumerator(self) -> SplitEnumerator:
        return _CollectionEnumerator(len(self._values), self._cuts)

    def create_reader(self) -> SplitReader:
        return _CollectionReader(self._values)

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info


class _CollectionEnumerator(SplitEnumerator):
    def __init__(self, size: int, cuts: tuple[int, ...]) -> None:
        self._size = size
        self._cuts = cuts
        self._position = 0
        self._cuts_passed = 0
        self._finished = False

    def restore(self, state: Json) -> None:
        position, cuts_passed, finished = state["position"], state["cuts_passed"], state["finished"]
        if position > self._size:
            raise JobDefinitionError(
                f"CollectionSource: cannot go on from position {position}: the collection has only {self._size} "
                "values. Resume with the collection that the checkpoint was taken with."
            )
        self._position, self._cuts_passed, self._finished = position, cuts_passed, finished

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        if self._finished:
            return SourcePlan(ranges=(), state=self._state(), finished=True, records=0)
        start = self._position
        cut = self._cuts[self._cuts_passed] if self._cuts_passed < len(self._cuts) else self._size
        cut = max(cut, start)  # the cuts may have changed since the checkpoint
        end = cut if max_records is None else min(cut, start + max_records)
        if end == cut:
            self._cuts_passed = min(self._cuts_passed + 1, len(self._cuts))
        self._position = end
        self._finished = end == self._size and self._cuts_passed >= len(self._cuts)
        split = SplitRange(split=_SPLIT, ordinal=0, start=start, end=end, last=self._finished)
        return SourcePlan(ranges=(split,), state=self._state(), finished=self._finished, records=end - start)

    def _state(self) -> Json:
        return {"position": self._position, "cuts_passed": self._cuts_passed, "finished": self._finished}


class _CollectionReader(SplitReader):
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        for part in gathered(self._values[split.start : split.end], block_size):
            yield Rows(part)


HandOver: TypeAlias = Callable[[int, list[Any]], None]

deliveries: dict[str, HandOver] = {}
"""Who takes the values, by sink id. Set before the job starts; called by the committing thread with an epoch and the
values committed with it, in order, each epoch once. Putting a new callable in starts anew."""

_delivered: dict[str, tuple[HandOver, int]] = {}  # the last epoch each callable got, across committers of a restart


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedValues:
    """A committable: pickled values inline."""

    epoch: int
    count: int
    pickled: bytes


class CollectSink(Sink):
    """Values go through checkpoints and the driver's memory: for tests, notebooks and small results."""

    accepts_columns = False

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
        values = [value for committable in committables for value in load_stored(committable.pickled)]
        delivery(epoch, values)
        _delivered[self._sink_id] = (delivery, epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedLines:
    """A committable: the lines, rendered in the slot so that the driver need not know the values' classes."""

    epoch: int
    lines: tuple[str, ...]


class DiscardingSink(Sink):
    """Takes every record and keeps none: for measurements, and for streams whose side effects are what counts."""

    accepts_columns = True

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Discard()

    def create_committer(self, sink_id: str) -> Committer:
        return _NothingToCommit()


class _Discard(SinkWriter):
    def begin_epoch(self, epoch: int, attempt: str) -> None:
        """Nothing begins."""

    def write(self, block: Block) -> None:
        """Drops it."""

    def prepare_commit(self) -> list[Any]:
        return []


class _NothingToCommit(Committer):
    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        """There is nothing."""


class PrintSink(Sink):
    """Prints each value on the driver's standard output when its epoch is committed.

    As in Flink a value of a declared type is shown as Java would, any other as `str` does. A line is `value`, `2> value`
    from the second of several subtasks, `id> value` or `id:2> value` with a sink identifier. A terminal cannot be asked
    what it has shown: an epoch that was printed just before the driver died, and whose commit it had not logged, is
    printed again by its successor. No committer prints an epoch twice.
    """

    accepts_columns = False

    def __init__(self, sink_identifier: str | None = None, type_info: TypeInformation | None = None) -> None:
        self._identifier, self._type_info = sink_identifier, type_info

    def create_writer(self, context: WriterContext) -> SinkWriter:
        parts = [self._identifier] if self._identifier else []
        if context.parallelism > 1:
            parts.append(str(context.subtask + 1))
        return _PrintWriter(":".join(parts) + "> " if parts else "", self._type_info)

    def create_committer(self, sink_id: str) -> Committer:
        return _PrintCommitter()


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str, type_info: TypeInformation | None) -> None:
        self._prefix, self._type_info = prefix, type_info
        self._epoch = 0
        self._lines: list[str] = []

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._lines = epoch, []

    def write(self, block: Block) -> None:
        values = block.batch.to_pylist() if isinstance(block, Columns) else block.values
        self._lines += [f"{self._prefix}{java_text(value, self._type_info)}" for value in values]

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
            end_line()
            # One write, so that lines of other threads do not come between.
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
