"""What comes in: records of splits that begin, lag behind, fall idle and end each in their own time.

Records arrive by the clock, and how many of them an epoch reads is up to the driver's settings and to when it looks. So two
drivers that plan the same epoch plan it differently: what one has logged matters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.records import Block, Rows
from penstock.testing.simulate import outside
from penstock.testing.simulate.oracle import Record

STEP_MS: Final = 200  # by which an epoch moves the clock
_BERLIN: Final = ZoneInfo("Europe/Berlin")
# Keys that Python and a hash see differently: made anew for every record, as a user's key function would.
_ODD_KEYS: Final[dict[str, Callable[[], Any]]] = {
    "not a number": lambda: float("nan"),
    "in a tuple": lambda: ("x", float("nan")),
    "zero": lambda: 0.0,
    "minus zero": lambda: -0.0,
    "the hour": lambda: datetime(2026, 10, 25, 2, 30, tzinfo=_BERLIN),
    "the hour again": lambda: datetime(2026, 10, 25, 2, 30, tzinfo=_BERLIN, fold=1),
}
PLAIN: Final = tuple("abcdefg")
ODD: Final = ("a", *_ODD_KEYS)


def key_of(record: Any) -> Any:
    """A record's label names its key; the oracle goes by labels alone."""
    make = _ODD_KEYS.get(record[0])
    return record[0] if make is None else make()


class Arrival(NamedTuple):
    """A record can be read from `due_ms` after the beginning on."""

    due_ms: int
    record: Record


@dataclass(frozen=True, slots=True)
class Input:
    """What one source brings, by split."""

    name: str
    splits: dict[str, tuple[Arrival, ...]]

    def records(self) -> dict[str, list[Record]]:
        """The records of each split in their order."""
        return {split: [arrival.record for arrival in arrivals] for split, arrivals in self.splits.items()}

    def describe(self) -> str:
        """The input as a line of the story."""

        def of(split: str, arrivals: tuple[Arrival, ...]) -> str:
            if not arrivals:
                return f"{split} empty"
            times = [arrival.record[2] for arrival in arrivals]
            return f"{split} {len(arrivals)} records at {times[0]}–{times[-1]} ms, from {arrivals[0].due_ms} ms on"

        return "; ".join(of(split, arrivals) for split, arrivals in self.splits.items())


def uneven(name: str, rng: random.Random, labels: Sequence[str]) -> Input:
    """Some splits lag far behind in event time, some begin late, some end at once, some never bring anything."""
    steps = rng.randint(3, 6)
    splits: dict[str, tuple[Arrival, ...]] = {}
    for index in range(rng.choice([1, 1, 2, 2, 3])):
        split = f"{name}{index}"
        first = rng.choice([0, 0, rng.randrange(steps)])
        last = rng.choice([steps - 1, steps - 1, rng.randrange(first, steps)])
        at = rng.choice([0, 0, 20_000])  # lagging splits are those that begin at 0 beside one that does not
        pace = rng.choice([40, 150, 400])
        arrivals: list[Arrival] = []
        due_ms = 0
        for step in range(first, last + 1):
            for _ in range(rng.choice([0, 1, 2, 5])):
                at += rng.randrange(0, pace, 10)
                due_ms = max(due_ms, step * STEP_MS + rng.randrange(-STEP_MS, STEP_MS, 10))
                label = rng.choice([labels[0], labels[0], rng.choice(labels)])  # a skewed key has most records
                arrivals.append(Arrival(due_ms, (label, f"{split}.{len(arrivals)}", at)))
        splits[split] = tuple(arrivals)
    return Input(name, splits)


class ArrivingSource(Source):
    """Bounded and replayable; runs in the embedded runtime, in the process of its `World`."""

    gives_columns = False

    def __init__(self, world: str, brings: Input) -> None:
        self._world, self._brings = world, brings

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self) -> SplitEnumerator:
        return _Enumerator(outside.world(self._world).began_ms, self._brings)

    def create_reader(self) -> SplitReader:
        return _Reader(self._world, self._brings)


class _Enumerator(SplitEnumerator):
    def __init__(self, began_ms: int, brings: Input) -> None:
        self._began_ms, self._splits = began_ms, brings.splits
        self._read: dict[str, int] | None = None  # None: nobody has heard of the splits yet

    def restore(self, state: Json) -> None:
        self._read = dict(state)

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        first, read = self._read is None, self._read or dict.fromkeys(self._splits, 0)
        left = sum(map(len, self._splits.values())) if max_records is None else max_records
        ranges = []
        for ordinal, (split, arrivals) in enumerate(self._splits.items()):
            start, end = read[split], read[split]
            while left and end < len(arrivals) and arrivals[end].due_ms <= now_ms - self._began_ms:
                end, left = end + 1, left - 1
            if first or start < len(arrivals):
                ranges.append(SplitRange(split=split, ordinal=ordinal, start=start, end=end, last=end == len(arrivals)))
            read[split] = end
        self._read = read
        finished = all(read[split] == len(arrivals) for split, arrivals in self._splits.items())
        return SourcePlan(ranges=tuple(ranges), state=dict(read), finished=finished)


class _Reader(SplitReader):
    def __init__(self, world: str, brings: Input) -> None:
        self._world, self._splits = world, brings.splits

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        records = [arrival.record for arrival in self._splits[split.split][split.start : split.end]]
        for start in range(0, len(records), block_size):
            outside.world(self._world).is_read()
            block = records[start : start + block_size]
            yield Rows([list(record) for record in block], [record[2] for record in block])
