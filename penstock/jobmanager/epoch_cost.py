"""What an epoch costs by itself, and what each record adds: learnt from epochs as they end. Pure.

A straight line through the latest epochs (records, time) would give both. But a job that runs evenly has epochs of one size,
and then there is no line, only noise: so the line is drawn only while sizes differ, and gives the fixed part; the rest of
each epoch's time is its records'.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_MEMORY: Final = 0.5  # weight of the newest epoch in what a record costs
_LINE: Final = 8  # epochs
_DECAY: Final = 0.6  # of the weight of a point of the line, from one epoch to the next
_SPREAD: Final = 0.2  # of the mean size: standard deviation from which on sizes differ
_MOST_FIXED: Final = 0.95  # of an epoch's time: records are never free


class EpochCost:
    def __init__(self) -> None:
        self._fixed_ms: float | None = None
        self._ms_per_record: float | None = None
        self._recent: deque[tuple[int, float]] = deque(maxlen=_LINE)

    @property
    def fixed_ms(self) -> float:
        return self._fixed_ms or 0.0

    @property
    def ms_per_record(self) -> float:
        """Only when an epoch was observed."""
        assert self._ms_per_record is not None
        return self._ms_per_record

    def observe_quiet(self, duration_ms: float) -> None:
        """An epoch that brought next to nothing."""
        self._fixed_ms = _blend(self._fixed_ms, duration_ms)

    def observe(self, records: int, duration_ms: float) -> None:
        self._recent.append((records, duration_ms))
        found = self._intercept()
        if found is not None:
            self._fixed_ms = found
        if self._fixed_ms is not None:  # no epoch takes less than its fixed part
            self._fixed_ms = min(self._fixed_ms, duration_ms * _MOST_FIXED)
        self._ms_per_record = _blend(self._ms_per_record, (duration_ms - self.fixed_ms) / records)

    def _intercept(self) -> float | None:
        """Where the line through the latest epochs begins; None while their sizes are too much alike for one."""
        points = [(_DECAY**age, *point) for age, point in enumerate(reversed(self._recent))]
        total = sum(weight for weight, _, _ in points)
        size = sum(weight * records for weight, records, _ in points) / total
        time = sum(weight * ms for weight, _, ms in points) / total
        variance = sum(weight * (records - size) ** 2 for weight, records, _ in points) / total
        if variance < (size * _SPREAD) ** 2:
            return None
        together = sum(weight * (records - size) * (ms - time) for weight, records, ms in points) / total
        slope = max(0.0, together / variance)
        return max(0.0, time - slope * size)


def _blend(before: float | None, now: float) -> float:
    return now if before is None else before * (1 - _MEMORY) + now * _MEMORY
