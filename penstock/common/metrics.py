"""What a function measures about itself; `pyflink.metrics` under another path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class MetricGroup(ABC):
    """Metrics of one function in one subtask. Asking twice for one name gives the same metric."""

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group inside this one; with `extra`, the key `name` with the value `extra`."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """The counter of this name."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """`obj` is called, in the subtask's thread, whenever metrics are reported."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """The meter of this name; its rate is over the last `time_span_in_seconds`."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """The distribution of this name."""


class Metric(ABC):  # noqa: B024 - a marker, as in PyFlink
    """Base of all metrics."""


class Counter(Metric):
    """A number that goes up and down."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Adds `n`."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Subtracts `n`."""

    @abstractmethod
    def get_count(self) -> int:
        """The number now, in this subtask."""


class Meter(Metric):
    """A rate: how many events a second."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Says that `value` events happened now."""

    @abstractmethod
    def get_count(self) -> int:
        """How many events were marked, in this subtask."""


class Distribution(Metric):
    """Sum, count, minimum, maximum and mean of what it was given."""

    @abstractmethod
    def update(self, value: int) -> None:
        """Adds a value."""
