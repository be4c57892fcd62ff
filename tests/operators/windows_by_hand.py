"""Window semantics in the plainest words we have, to compare the operators with: no state, no timers, no triggers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction
from penstock.testing.harness import OperatorHarness

MIN, MAX = -(2**63), 2**63 - 1


class Listing(ProcessWindowFunction[Any, Any, Any, Any]):
    """Emits (key, start, end, values)."""

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        yield key, window.start, window.end, tuple(value for _, value in elements)


class Tagging(ProcessWindowFunction[Any, Any, Any, Any]):
    """Emits (key, start, end, *result) after an aggregate."""

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        for element in elements:
            yield (key, window.start, window.end, *element)


class Statistics(AggregateFunction):
    """Count, sum, smallest, largest and mean of the second field; the accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[int]) -> Any:
        total, number = sum(accumulator), len(accumulator)
        return number, total, min(accumulator), max(accumulator), total / number

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a.extend(acc_b)
        return acc_a


@dataclass
class WindowsByHand:
    """Event-time windows that fire at their end and for each allowed late element. `gap` makes them sessions."""

    size: int = 0
    slide: int = 0
    offset: int = 0
    gap: int = 0
    lateness: int = 0
    watermark: int = MIN
    held: dict[tuple[Any, int, int], list[Any]] = field(default_factory=dict, init=False)
    fired: list[tuple[Any, int, int, tuple[Any, ...]]] = field(default_factory=list, init=False)
    late: list[Any] = field(default_factory=list, init=False)

    def element(self, key: Any, value: Any, timestamp: int) -> None:
        windows = [self._session(key, timestamp)] if self.gap else self._aligned(timestamp)
        open_windows = [(start, end) for start, end in windows if end - 1 + self.lateness > self.watermark]
        for start, end in open_windows:
            absorbed = self._absorbed(key, start, end) if self.gap else []
            contents = [v for window in absorbed for v in self.held.pop(window)]
            self.held.setdefault((key, start, end), contents).append(value)
            if end - 1 <= self.watermark:
                self._fire(key, start, end)
        if not open_windows and timestamp + self.lateness <= self.watermark:
            self.late.append(value)

    def advance(self, watermark: int) -> None:
        if watermark <= self.watermark:
            return
        before, self.watermark = self.watermark, watermark
        for key, start, end in sorted(self.held, key=repr):
            if before < end - 1 <= watermark:
                self._fire(key, start, end)
            if end - 1 + self.lateness <= watermark:
                del self.held[key, start, end]

    def _fire(self, key: Any, start: int, end: int) -> None:
        self.fired.append((key, start, end, tuple(sorted(self.held[key, start, end]))))

    def _aligned(self, timestamp: int) -> list[tuple[int, int]]:
        """All n with offset + n * slide <= timestamp < offset + n * slide + size, found by trying."""
        first = (timestamp - self.offset - self.size) // self.slide - 1
        starts = [self.offset + n * self.slide for n in range(first, first + self.size // self.slide + 5)]
        return [(start, start + self.size) for start in starts if start <= timestamp < start + self.size]

    def _session(self, key: Any, timestamp: int) -> tuple[int, int]:
        start, end = timestamp, timestamp + self.gap
        while True:
            touching = self._absorbed(key, start, end)
            grown = min([start, *(w[1] for w in touching)]), max([end, *(w[2] for w in touching)])
            if grown == (start, end):
                return grown
            start, end = grown

    def _absorbed(self, key: Any, start: int, end: int) -> list[tuple[Any, int, int]]:
        return sorted(w for w in self.held if w[0] == key and w[1] <= end and start <= w[2])


def listed(harness: OperatorHarness) -> list[Any]:
    """What a harness around `Listing` has emitted, with the values of a window sorted."""
    return [(key, start, end, tuple(sorted(values))) for key, start, end, values in harness.values()]
