"""What an epoch costs by itself, and what each record adds: learnt from epochs as they end. Pure.

A straight line through the latest epochs (records, time) gives both, if their sizes differ; the median of the slopes between
each two is not led astray by one epoch that something else held up. Epochs of one size tell nothing about it, so the fixed
part stays what it was. A job that suddenly takes much longer, or shorter, than it should has changed: what was before does
not count any more.
"""

from __future__ import annotations

from collections import deque
from itertools import combinations
from statistics import median
from typing import Final

_MEMORY: Final = 0.5  # weight of the newest epoch in what a record costs
_LINE: Final = 8  # epochs
_DIFFERENT: Final = 0.1  # of the larger size: from there on two epochs differ
_CHANGED: Final = 1.7  # times as long as expected, or shorter
_SURE: Final = 3  # epochs, after which there is something to expect
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
        if self._has_changed(records, duration_ms):
            self._recent.clear()
            self._ms_per_record = None
            self._fixed_ms = min(self.fixed_ms, duration_ms * _MOST_FIXED)
        self._recent.append((records, duration_ms))
        found = self._intercept()
        if found is not None:
            self._fixed_ms = found
        of_records = duration_ms - min(self.fixed_ms, duration_ms * _MOST_FIXED)
        self._ms_per_record = _blend(self._ms_per_record, of_records / records)

    def _has_changed(self, records: int, duration_ms: float) -> bool:
        if len(self._recent) < _SURE or self._ms_per_record is None:
            return False
        expected = self.fixed_ms + self._ms_per_record * records
        return not expected / _CHANGED <= duration_ms <= expected * _CHANGED

    def _intercept(self) -> float | None:
        """Where the line through the latest epochs begins; None while their sizes are too much alike for one."""
        slopes = [
            (one_ms - other_ms) / (one - other)
            for (one, one_ms), (other, other_ms) in combinations(self._recent, 2)
            if abs(one - other) >= max(one, other) * _DIFFERENT
        ]
        if not slopes:
            return None
        slope = max(0.0, median(slopes))
        return max(0.0, median(duration_ms - slope * records for records, duration_ms in self._recent))


def _blend(before: float | None, now: float) -> float:
    return now if before is None else before * (1 - _MEMORY) + now * _MEMORY
