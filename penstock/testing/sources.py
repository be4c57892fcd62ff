"""A source that is a script: values, watermarks, epochs and a crash, read from top to bottom."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.protocol.events import Watermark
from penstock.records import Block, PunctuatedRows, Rows
from penstock.runtime.embedded.crash import SimulatedCrash


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch ends here: a barrier, for every split."""


@dataclass(frozen=True, slots=True)
class Split:
    """Says that the following items come from the split of this name, until the next `Split`. Before the first one
    it is split "0".
    """

    name: str


@dataclass(frozen=True, slots=True)
class Stamped:
    """A value with an event timestamp in milliseconds."""

    value: Any
    timestamp: int


@dataclass(frozen=True, slots=True)
class Abort:
    """The process dies when the reader comes here for the first time; afterwards it reads on."""


# Which `Abort`s have happened: outside of the job, because the job forgets everything when it dies.
_aborted: set[tuple[str, str, int]] = set()


class ScriptedSource(Source):
    """Bounded and replayable. Besides values the script may hold `Stamped` values, `Watermark(timestamp)` of the current
    split, `Split(name)`, `Epoch()` and `Abort()`. Runs in the embedded runtime only, because an abort is remembered in this
    process. Epochs are cut where the script says, whatever `penstock.epoch.max-records` allows.

    Example:

        source = ScriptedSource(["a", Epoch(), "b", Abort(), "c"])
        env.from_source(source, WatermarkStrategy.no_watermarks(), "script").sink_to(ListSink("out"))
        env.execute()
        assert source.aborts_fired == 1
    """

    def __init__(self, script: Sequence[Any]) -> None:
        self._id = uuid.uuid4().hex
        self._items: dict[str, list[Any]] = {}
        self._cuts: list[dict[str, int]] = []  # by epoch: how far each split has been read at its end
        current = "0"
        for item in script:
            if isinstance(item, Split):
                current = item.name
                self._items.setdefault(current, [])
            elif isinstance(item, Epoch):
                self._cut()
            else:
                self._items.setdefault(current, []).append(item)
        self._cut()

    def _cut(self) -> None:
        self._cuts.append({split: len(items) for split, items in self._items.items()})

    gives_columns = False

    @property
    def bounded(self) -> bool:
        return True

    @property
    def aborts_fired(self) -> int:
        """The number of the script's `Abort()`s that have happened."""
        return sum(1 for source, _, _ in _aborted if source == self._id)

    def create_enumerator(self) -> SplitEnumerator:
        return _ScriptEnumerator(self._cuts, {split: len(items) for split, items in self._items.items()})

    def create_reader(self) -> SplitReader:
        return _ScriptReader(self._id, self._items)


class _ScriptEnumerator(SplitEnumerator):
    def __init__(self, cuts: list[dict[str, int]], sizes: dict[str, int]) -> None:
        self._cuts, self._sizes = cuts, sizes
        self._epoch = 0

    def restore(self, state: Json) -> None:
        self._epoch = int(state)

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        before = self._cuts[self._epoch - 1] if self._epoch else {}
        if self._epoch >= len(self._cuts):
            return SourcePlan(ranges=(), state=self._epoch, finished=True, records=0)
        here = self._cuts[self._epoch]
        ranges = []
        for ordinal, (split, size) in enumerate(self._sizes.items()):
            start, end = before.get(split, 0), here.get(split, 0)
            # Every split is there from the first epoch on, so that the watermark waits for it; once read, it is gone.
            if start < size or self._epoch == 0:
                ranges.append(SplitRange(split=split, ordinal=ordinal, start=start, end=end, last=end == size))
        self._epoch += 1
        finished = self._epoch == len(self._cuts)
        return SourcePlan(ranges=tuple(ranges), state=self._epoch, finished=finished)


class _ScriptReader(SplitReader):
    def __init__(self, source: str, items: dict[str, list[Any]]) -> None:
        self._source, self._items = source, items

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        values: list[Any] = []
        stamps: list[int | None] = []

        def take() -> tuple[list[Any], list[int | None] | None]:
            nonlocal values, stamps
            taken = values, stamps if any(stamp is not None for stamp in stamps) else None
            values, stamps = [], []
            return taken

        for position in range(split.start, split.end):
            item = self._items[split.split][position]
            match item:
                case Watermark(timestamp):
                    yield PunctuatedRows(*take(), watermark=timestamp)
                    continue
                case Abort():
                    if values:
                        yield Rows(*take())
                    here = (self._source, split.split, position)
                    if here not in _aborted:
                        _aborted.add(here)
                        raise SimulatedCrash(f"the script aborts at item {position} of split {split.split!r}")
                    continue
                case Stamped(value, stamp):
                    values.append(value)
                    stamps.append(stamp)
                case _:
                    values.append(item)
                    stamps.append(None)
            if len(values) >= block_size:
                yield Rows(*take())
        if values:
            yield Rows(*take())
