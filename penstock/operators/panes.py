"""Where windows and panes lie in time. Panes are the longest slices of which every window is a whole number.

    size 15, slide 10:   window  [0 ──────── 15)
                         window           [10 ──────── 25)
                         panes   [0  5) [5 10) [10 15) [15 20) [20 25)      width 5

A record is aggregated into one pane, however many windows it is in; a window is the merge of its panes. A window is named
by its end, which no two windows share: cumulating windows have their start in common.

The blocks of every pane: a table of immutable entries, and an index that is derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.time import MAX_LONG_VALUE
from penstock.errors import JobDefinitionError
from penstock.functions.window import (
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from penstock.functions.window.windows import last_timestamp
from penstock.records import TimestampArray
from penstock.state.overlay import OverlayTable
from penstock.state.panes import BlockName, block_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneGrid:
    """Tumbling (slide == size), sliding or cumulating event-time windows; all times in milliseconds."""

    size: int  # of the longest window
    slide: int  # from the start of a longest window to the next one's
    offset: int
    lateness: int  # how long after its end a window can still fire again
    step: int | None = None  # cumulating windows: how much longer each is than the one before

    @staticmethod
    def of(assigner: WindowAssigner[Any, Any], lateness: int) -> PaneGrid:
        """The grid of an assigner's windows; JobDefinitionError for windows that are not made of panes."""
        if lateness < 0:
            raise JobDefinitionError(f"the allowed lateness must not be negative, but is {lateness} ms")
        # Exact types: a subclass may assign other windows than its size and slide say.
        if type(assigner) is TumblingEventTimeWindows:
            return PaneGrid(size=assigner._size, slide=assigner._size, offset=assigner._offset, lateness=lateness)
        if type(assigner) is SlidingEventTimeWindows:
            return PaneGrid(size=assigner._size, slide=assigner._slide, offset=assigner._offset, lateness=lateness)
        if type(assigner) is CumulativeEventTimeWindows:
            size, step = assigner._max_size, assigner._step
            return PaneGrid(size=size, slide=size, offset=assigner._offset, lateness=lateness, step=step)
        raise JobDefinitionError(
            "columnar windows are TumblingEventTimeWindows, SlidingEventTimeWindows or CumulativeEventTimeWindows, not "
            f"{assigner!r}: use the windows of a stream of rows for other assigners"
        )

    @property
    def described(self) -> str:
        """For a state's specification. Equal for assigners that make the same windows."""
        step = "" if self.step in (None, self.size) else f", growing by {self.step} ms"
        return f"{self.size} ms long, every {self.slide} ms from {self.offset % self.slide} ms on{step}"

    @property
    def width(self) -> int:
        """The length of a pane in milliseconds."""
        return math.gcd(self.size, self.slide) if self.step is None else self.step

    def pane(self, timestamp: int) -> int:
        """The pane of a timestamp, by its start."""
        return timestamp - (timestamp - self.offset) % self.width

    def last_start(self, timestamp: int) -> int:
        """The start of the latest window that has begun by `timestamp`."""
        return timestamp - (timestamp - self.offset) % self.slide

    def windows(self, pane: int) -> Sequence[int]:
        """Ends of all windows a pane is part of, in the order their assigner lists them: sliding windows latest first,
        cumulating ones shortest first. A record that fires several of them again fires them in this order."""
        last = self.last_start(pane) + self.size
        if self.step is None:
            return range(last, pane, -self.slide)
        # Time ends with the largest long: the windows that reach it are one, as they start together.
        steps = max(1, -((pane - MAX_LONG_VALUE) // self.step))  # to the first of them
        return range(pane + self.step, min(last, pane + steps * self.step) + 1, self.step)

    def first_end(self, pane: int) -> int:
        """The end of the window of a pane that ends first; no later than the pane's own if there is none."""
        windows = self.windows(pane)
        return min(windows[0], windows[-1]) if windows else pane

    def start(self, window: int) -> int:
        """The start of a window."""
        return window - self.size if self.step is None else self.last_start(window - 1)

    def panes(self, window: int) -> range:
        """The panes of a window."""
        return range(self.start(window), window, self.width)

    def end(self, window: int) -> int:
        """The end of a window as its assigner gives it: no later than time ends."""
        return min(window, MAX_LONG_VALUE)

    def fires_at(self, window: int) -> int:
        """The watermark at which a window fires."""
        return last_timestamp(self.end(window))

    def refires(self, window: int, watermark: int) -> bool:
        """Whether a record for the window fires it again: it has ended, and is kept for late records."""
        return self.fires_at(window) <= watermark < self._kept_until(window)

    def dropped_at(self, pane: int) -> int:
        """The watermark at which no window can need the pane any more."""
        return self._kept_until(self.last_start(pane) + self.size)

    def _kept_until(self, window: int) -> int:
        return min(self.fires_at(window) + self.lateness, MAX_LONG_VALUE)

    # ---------------------------------------------------------------- whole columns

    def pane_array(self, stamps: TimestampArray) -> TimestampArray:
        """The panes of many timestamps."""
        return stamps - self._into(stamps, self.width)

    def pane_numbers(self, stamps: TimestampArray, first: int) -> npt.NDArray[np.uint64]:
        """The panes of many timestamps as numbers, from 0 for the one that begins at `first`, which is the earliest of them."""
        return (stamps.view(np.uint64) - np.uint64(first % 2**64)) // np.uint64(self.width)

    def _into(self, stamps: TimestampArray, length: int) -> TimestampArray:
        """How far each is behind the start of its slice of this length; without an overflow at either end of time."""
        into: TimestampArray = np.mod(np.mod(stamps, length) - self.offset % length, length)
        return into

    def begin(self, lowest: int) -> int:
        """The start of the earliest window of records from `lowest` on."""
        windows = self.windows(self.pane(lowest))
        return min(self.start(window) for window in (windows[0], windows[-1])) if windows else lowest

    def all_taken(self, lowest: int, watermark: int) -> bool:
        """Whether no record from `lowest` on can be late or fall between windows."""
        return self.slide <= self.size and self.dropped_at(lowest) > watermark

    def taken(self, stamps: TimestampArray, watermark: int) -> npt.NDArray[np.bool_]:
        """Which records have a window that can still take them."""
        into = self._into(stamps, self.slide)
        # dropped_at <= watermark, with all that is not per record on one side, in Python's unbounded integers. What
        # reaches the end of time is dropped by the last watermark only, and that one drops everything.
        latest_late = min(watermark + 1 - self.lateness, MAX_LONG_VALUE - 1) - self.size
        if watermark == MAX_LONG_VALUE:
            latest_late = MAX_LONG_VALUE
        return np.logical_and(into < self.size, stamps - into > _int64(latest_late))

    def late(self, stamps: TimestampArray, watermark: int) -> npt.NDArray[np.bool_]:
        """Which records are behind the watermark and the allowed lateness, judged by their own time."""
        return stamps <= _int64(watermark - self.lateness)


def _int64(value: int) -> int:
    return max(-(2**63), min(value, 2**63 - 1))


MAX_BLOCKS = 16  # per pane, before some are merged


class PaneBlocks:
    """Appends, reads and drops; never changes a block, so that an epoch's delta is what the epoch appended."""

    def __init__(self, table: OverlayTable, owned: range) -> None:
        self._table = table
        self._owned = owned
        self._index: dict[int, list[tuple[BlockName, int, int]]] = {}  # pane → (name, rows, bytes), by sequence
        self._next = 0

    def rebuild(self) -> None:
        """The table was restored or rolled back."""
        self._index, self._next = {}, 0
        named: Iterable[tuple[Any, Any]] = self._table.items()
        for sequence, name, rows, size in sorted((name[1], name, b.num_rows, b.nbytes) for name, b in named):
            self._index.setdefault(name[0], []).append((name, rows, size))
            self._next = sequence + 1

    def __contains__(self, pane: int) -> bool:
        return pane in self._index

    def __iter__(self) -> Iterator[int]:
        return iter(self._index)

    def append(self, pane: int, block: pa.RecordBatch) -> BlockName:
        """Adds a block to a pane, and gives it a name."""
        name = block_name(pane, self._next, self._owned)
        self._next += 1
        self._table.put(name, block)
        self._index.setdefault(pane, []).append((name, block.num_rows, block.nbytes))
        return name

    def read(self, panes: Sequence[int]) -> list[pa.RecordBatch]:
        """All blocks of `panes`, which may be many more than there are."""
        if len(panes) > len(self._index):
            panes = sorted(pane for pane in self._index if pane in panes)
        return [self._table.peek(name) for pane in panes for name, _, _ in self._index.get(pane, ())]

    def names(self, pane: int) -> list[BlockName]:
        """The names of a pane's blocks, which no other block has or will have."""
        return [name for name, _, _ in self._index.get(pane, ())]

    def block(self, name: BlockName) -> pa.RecordBatch:
        """The block of a name."""
        block: pa.RecordBatch = self._table.peek(name)
        return block

    def drop(self, pane: int) -> None:
        """Removes a pane with all its blocks."""
        for name, _, _ in self._index.pop(pane, ()):
            self._table.delete(name)

    def compact(
        self, pane: int, merge: Callable[[Sequence[pa.RecordBatch]], pa.RecordBatch], large: int | None = None
    ) -> None:
        """Merge the newest blocks once there are many. An old, large block is left alone until the newer ones together
        are at least half its size: then a row is merged a logarithmic number of times, whatever the number of keys. Blocks
        of `large` bytes are left alone for good, and not counted."""
        entries = self._index[pane]
        bound = math.inf if large is None else large
        if sum(size < bound for _, _, size in entries) < MAX_BLOCKS or entries[-1][2] >= bound:
            return
        cut = len(entries) - 1
        _, rows, bytes_ = entries[-1]
        while cut > 0 and entries[cut - 1][1] <= 2 * rows and entries[cut - 1][2] < bound and bytes_ < bound:
            cut -= 1
            rows += entries[cut][1]
            bytes_ += entries[cut][2]
        if cut == len(entries) - 1:  # two at least
            if entries[cut - 1][2] >= bound:
                return
            cut -= 1
        merged = merge([self._table.peek(name) for name, _, _ in entries[cut:]])
        for name, _, _ in entries[cut:]:
            self._table.delete(name)
        del entries[cut:]
        self.append(pane, merged)
