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
    def counter(self, name: str) -> Counter: ...

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """`obj` is called, in the subtask's thread, whenever metrics are reported."""

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter: ...

    @abstractmethod
    def distribution(self, name: str) -> Distribution: ...


class Metric(ABC):  # noqa: B024 - a marker, as in PyFlink
    """Any metric."""


class Counter(Metric):
    @abstractmethod
    def inc(self, n: int = 1) -> None: ...

    @abstractmethod
    def dec(self, n: int = 1) -> None: ...

    @abstractmethod
    def get_count(self) -> int: ...


class Meter(Metric):
    """Events per second."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None: ...

    @abstractmethod
    def get_count(self) -> int: ...


class Distribution(Metric):
    """Sum, count, minimum, maximum and mean of what it was given."""

    @abstractmethod
    def update(self, value: int) -> None: ...
