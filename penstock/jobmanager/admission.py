"""Admission control: how many records an epoch may read, so that it takes about as long as was asked for.

One place for all sources: every enumerator gets the number as `max_records`. What it decides is logged with the epoch's
plan, so a repeated epoch reads the same whatever the clock says then.
"""

from __future__ import annotations

FIRST_RECORDS = 10_000  # before anything is known about the job's speed
_LEAST = 100
_GROWTH = (
    2.0  # an epoch is at most this much larger than the largest seen lately: one lucky epoch must not flood the next
)
_MEMORY = 0.5  # weight of the newest epoch in the estimate


class Admission:
    """`most` bounds an epoch whatever its time; `target_ms` adapts the bound below that. Both None: unbounded."""

    def __init__(self, *, most: int | None, target_ms: int | None) -> None:
        self._most, self._target_ms = most, target_ms
        self._ms_per_record: float | None = None
        self._fixed_ms: float | None = None  # what an epoch costs with nothing to read
        self._admitted = FIRST_RECORDS

    @property
    def max_records(self) -> int | None:
        if self._target_ms is None:
            return self._most
        return self._admitted if self._most is None else min(self._admitted, self._most)

    def observe(self, *, records: int, duration_ms: float) -> None:
        """An epoch has ended: learn from it. Epochs without data tell what an epoch costs by itself."""
        if self._target_ms is None or duration_ms <= 0:
            return
        if records < _LEAST:
            self._fixed_ms = _blend(self._fixed_ms, duration_ms)
            return
        fixed = min(self._fixed_ms or 0.0, duration_ms * 0.9)
        self._ms_per_record = _blend(self._ms_per_record, (duration_ms - fixed) / records)
        wanted = max(self._target_ms - (self._fixed_ms or 0.0), self._target_ms * 0.1) / self._ms_per_record
        # A small epoch says little about how a large one would do, so growth is from what was really read.
        ceiling = max(self._admitted if records < self._admitted / 2 else 0, records * _GROWTH)
        self._admitted = max(_LEAST, int(min(wanted, ceiling)))


def _blend(before: float | None, now: float) -> float:
    return now if before is None else before * (1 - _MEMORY) + now * _MEMORY
