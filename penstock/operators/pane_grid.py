"""Where windows and panes lie in time. Panes are the longest slices of which every window is a whole number.

    size 15, slide 10:   window  [0 ──────── 15)
                         window           [10 ──────── 25)
                         panes   [0  5) [5 10) [10 15) [15 20) [20 25)      width 5

A record is aggregated into one pane, however many windows it is in; a window is the merge of its panes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows, WindowAssigner
from penstock.errors import JobDefinitionError
from penstock.records import TimestampArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneGrid:
    """Tumbling (slide == size) or sliding event-time windows; all times in milliseconds."""

    size: int
    slide: int
    offset: int
    lateness: int  # how long after its end a window can still fire again

    @staticmethod
    def of(assigner: WindowAssigner[Any, Any], lateness: int) -> PaneGrid:
        if lateness < 0:
            raise JobDefinitionError(f"the allowed lateness must not be negative, but is {lateness} ms")
        # Exact types: a subclass may assign other windows than its size and slide say.
        if type(assigner) is TumblingEventTimeWindows:
            return PaneGrid(size=assigner._size, slide=assigner._size, offset=assigner._offset, lateness=lateness)
        if type(assigner) is SlidingEventTimeWindows:
            return PaneGrid(size=assigner._size, slide=assigner._slide, offset=assigner._offset, lateness=lateness)
        raise JobDefinitionError(
            f"columnar windows are TumblingEventTimeWindows or SlidingEventTimeWindows, not {assigner!r}: "
            "use the windows of a stream of rows for other assigners"
        )

    @property
    def width(self) -> int:
        return math.gcd(self.size, self.slide)

    def pane(self, timestamp: int) -> int:
        return timestamp - (timestamp - self.offset) % self.width

    def last_window(self, timestamp: int) -> int:
        """The start of the latest window that has begun by `timestamp`."""
        return timestamp - (timestamp - self.offset) % self.slide

    def windows(self, pane: int) -> range:
        """Starts of all windows a pane is part of, latest first."""
        return range(self.last_window(pane), pane - self.size, -self.slide)

    def panes(self, window: int) -> range:
        return range(window, window + self.size, self.width)

    def fires_at(self, window: int) -> int:
        return window + self.size - 1

    def dropped_at(self, pane: int) -> int:
        """The watermark at which no window can need the pane any more."""
        return self.fires_at(self.last_window(pane)) + self.lateness

    # ---------------------------------------------------------------- whole columns

    def pane_array(self, stamps: TimestampArray) -> TimestampArray:
        return stamps - np.mod(stamps - self.offset, self.width)

    def all_taken(self, lowest: int, watermark: int) -> bool:
        """Whether no record from `lowest` on can be late or fall between windows."""
        return self.slide <= self.size and self.dropped_at(lowest) > watermark

    def taken(self, stamps: TimestampArray, watermark: int) -> npt.NDArray[np.bool_]:
        """Which records have a window that can still take them."""
        into = np.mod(stamps - self.offset, self.slide)
        # dropped_at <= watermark, with all that is not per record on one side, in Python's unbounded integers.
        latest_late = watermark + 1 - self.size - self.lateness
        return np.logical_and(into < self.size, stamps - into > _int64(latest_late))

    def late(self, stamps: TimestampArray, watermark: int) -> npt.NDArray[np.bool_]:
        """Which records are behind the watermark and the allowed lateness, judged by their own time."""
        return stamps <= _int64(watermark - self.lateness)


def _int64(value: int) -> int:
    return max(-(2**63), min(value, 2**63 - 1))
