"""Windows: the buckets records are grouped in. Immutable by convention, equal and hashable by value.

Windows as bytes: big-endian and of fixed length, so that time windows of positive time sort as they are written.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from penstock.common.serialization import TypeSerializer
from penstock.common.time import MAX_LONG_VALUE


class Window(ABC):
    """A bucket. Once event time has passed `max_timestamp`, all its records should have arrived."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """The largest timestamp that still belongs to it."""


class _MergeTimeWindows(Protocol):
    def merge(self, to_be_merged: Iterable[TimeWindow], merge_result: TimeWindow) -> None: ...


class TimeWindow(Window):
    """The interval from `start` (inclusive) to `end` (exclusive), in milliseconds. Sorted by start, then end.

    Time ends with the largest long, and so does the last window of an assigner, that one inclusive. (In Flink the end wraps
    around to a negative number.) Only the last watermark ends it.
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        return last_timestamp(self.end)

    def intersects(self, other: TimeWindow) -> bool:
        """Whether they overlap or touch: sessions exactly one gap apart are one session."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """The start of the window of `timestamp` on the grid `offset` + n * `window_size`."""
        # Python's % has the sign of the divisor, so this is a floor also before the epoch.
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: _MergeTimeWindows) -> None:
        """Tell `callback` of every group of two or more windows that overlap or touch, in the order of time."""
        # The group is passed as a sorted list: the order in which state is merged must not depend on hashes.
        result: TimeWindow | None = None
        group: list[TimeWindow] = []
        for candidate in sorted(set(windows)):
            if result is not None and result.intersects(candidate):
                result = result.cover(candidate)
                group.append(candidate)
                continue
            if result is not None and len(group) > 1:
                callback.merge(group, result)
            result, group = candidate, [candidate]
        if result is not None and len(group) > 1:
            callback.merge(group, result)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __lt__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) < (other.start, other.end)

    def __le__(self, other: TimeWindow) -> bool:
        return (self.start, self.end) <= (other.start, other.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


def last_timestamp(end: int) -> int:
    """The last one of a window that ends here."""
    return end - 1 if end < MAX_LONG_VALUE else MAX_LONG_VALUE


@dataclass(slots=True, order=True, unsafe_hash=True)
class CountWindow(Window):
    """The `id`-th group of records of a key, counted from 0."""

    id: int

    def max_timestamp(self) -> int:
        return MAX_LONG_VALUE


class GlobalWindow(Window):
    """The one window that holds everything."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """The window; there is only one object of it."""
        return _GLOBAL_WINDOW

    def max_timestamp(self) -> int:
        return MAX_LONG_VALUE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        return hash(GlobalWindow)

    def __lt__(self, other: GlobalWindow) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindow"


_GLOBAL_WINDOW = GlobalWindow()


_TWO_LONGS: Final = struct.Struct(">qq")
_LONG: Final = struct.Struct(">q")


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Start and end, 16 bytes."""

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        stream.write(_TWO_LONGS.pack(element.start, element.end))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        start, end = _TWO_LONGS.unpack(stream.read(_TWO_LONGS.size))
        return TimeWindow(start, end)


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """The id, 8 bytes."""

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        stream.write(_LONG.pack(element.id))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        (window_id,) = _LONG.unpack(stream.read(_LONG.size))
        return CountWindow(window_id)


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """One zero byte."""

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        stream.write(b"\0")

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow.get()
