"""A source that gives as much as the test allows: for what happens while nothing comes, or while one split is ahead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.records import Block, Rows


class ControlledSource(Source):
    """Unbounded. Record n of split s is `(s, n)`, at event time n × `steps[s]`."""

    def __init__(self, folder: Path, *steps: int) -> None:
        self.folder, self.steps = folder, steps
        folder.mkdir(parents=True, exist_ok=True)

    def allow(self, split: int, records: int) -> None:
        """So many records of the split there are from now on, in all."""
        new = self.folder / f"{split}.new"
        new.write_text(str(records))
        new.rename(self.folder / str(split))

    def allowed(self, split: int) -> int:
        file = self.folder / str(split)
        return int(file.read_text()) if file.exists() else 0

    gives_columns = False
    has_timestamps = True

    @property
    def bounded(self) -> bool:
        return False

    def create_enumerator(self) -> SplitEnumerator:
        return _Enumerator(self)

    def create_reader(self) -> SplitReader:
        return _Reader(self)


class _Enumerator(SplitEnumerator):
    def __init__(self, source: ControlledSource) -> None:
        self._source, self._at = source, [0] * len(source.steps)
        self._paused: frozenset[str] = frozenset()

    def restore(self, state: Json) -> None:
        self._at = list(state)

    def pause(self, splits: frozenset[str]) -> None:
        self._paused = splits

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        ranges = []
        for split, start in enumerate(self._at):
            end = min(self._source.allowed(split), start + (max_records or 1000))
            if str(split) in self._paused:
                end = start
            ranges.append(SplitRange(split=str(split), ordinal=split, start=start, end=end))
            self._at[split] = end
        return SourcePlan(ranges=tuple(ranges), state=list(self._at), finished=False)


class _Reader(SplitReader):
    def __init__(self, source: ControlledSource) -> None:
        self._source = source

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        number, step = int(split.split), self._source.steps[int(split.split)]
        for start in range(split.start, split.end, block_size):
            here = range(start, min(start + block_size, split.end))
            yield Rows([(number, n) for n in here], [n * step for n in here])
