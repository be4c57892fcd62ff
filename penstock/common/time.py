"""Amounts of time (`Duration`, `Time`) and points in time (`Instant`).

The range of a timestamp or watermark in milliseconds: Java's long, so that values mean the same as in Flink.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, TypeAlias

_NANOS_PER_MILLI: Final = 1_000_000
_NANOS_PER_SECOND: Final = 1_000_000_000


class Duration:
    """An amount of time with nanosecond precision."""

    __slots__ = ("_nanos",)

    def __init__(self, nanos: int) -> None:
        self._nanos = nanos

    @staticmethod
    def of_days(days: int) -> Duration:
        """A duration of this many days of 24 hours."""
        return Duration.of_hours(days * 24)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """A duration of this many hours."""
        return Duration.of_minutes(hours * 60)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """A duration of this many minutes."""
        return Duration.of_seconds(minutes * 60)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """A duration of this many seconds."""
        return Duration(seconds * _NANOS_PER_SECOND)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """A duration of this many milliseconds."""
        return Duration(millis * _NANOS_PER_MILLI)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """A duration of this many nanoseconds."""
        return Duration(nanos)

    def to_nanos(self) -> int:
        """The duration in nanoseconds."""
        return self._nanos

    def to_millis(self) -> int:
        """Whole milliseconds, rounded towards zero as java.time.Duration does."""
        millis = abs(self._nanos) // _NANOS_PER_MILLI
        return millis if self._nanos >= 0 else -millis

    def to_milliseconds(self) -> int:
        """The same as `to_millis`, under the name `Time` uses: either can be given where an interval is wanted."""
        return self.to_millis()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self._nanos == other._nanos

    def __hash__(self) -> int:
        return hash((Duration, self._nanos))

    def __repr__(self) -> str:
        if self._nanos % _NANOS_PER_MILLI == 0:
            return f"Duration({self._nanos // _NANOS_PER_MILLI} ms)"
        return f"Duration({self._nanos} ns)"


@dataclass(slots=True, unsafe_hash=True, repr=False)
class Instant:
    """A point on the time line: seconds since the epoch plus 0 to 999,999,999 nanoseconds after that second."""

    seconds: int
    nanos: int

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """The instant this many milliseconds after the epoch; before it if negative."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def to_epoch_milli(self) -> int:
        """The milliseconds since the epoch, rounded down."""
        # PyFlink has a branch for negative seconds whose divisor is mistyped; with nanoseconds that always count
        # forward, as here, the floor is right on both sides of the epoch.
        return self.seconds * 1000 + self.nanos // _NANOS_PER_MILLI

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


class Time:
    """An interval in milliseconds: window sizes, slides, offsets, gaps and times to live."""

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def to_milliseconds(self) -> int:
        """The interval in milliseconds."""
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """An interval of this many milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """An interval of this many seconds."""
        return Time.milliseconds(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """An interval of this many minutes."""
        return Time.seconds(minutes * 60)

    @staticmethod
    def hours(hours: int) -> Time:
        """An interval of this many hours."""
        return Time.minutes(hours * 60)

    @staticmethod
    def days(days: int) -> Time:
        """An interval of this many days of 24 hours."""
        return Time.hours(days * 24)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash((Time, self._milliseconds))

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"

    def __repr__(self) -> str:
        return f"Time({self._milliseconds} ms)"


Interval: TypeAlias = Time | Duration
"""What window, trigger and TTL factories accept: PyFlink's `Time`, or the `Duration` that Flink 2 uses in Java."""


MAX_LONG_VALUE: Final = 2**63 - 1  # as a watermark: end of input
MIN_LONG_VALUE: Final = -(2**63)  # as a timestamp: none assigned; as a watermark: none seen yet


def now_ms() -> int:
    """The wall clock of this host, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
