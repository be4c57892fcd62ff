"""Admission control: how many records an epoch may read, so that it takes about as long as was asked for.

One place for all sources: every enumerator gets the number as `max_records`. What it decides is logged with the epoch's
plan, so a repeated epoch reads the same whatever the clock says then.
"""

from __future__ import annotations

from penstock.driver.epoch_cost import EpochCost

FIRST_RECORDS = 10_000  # before anything is known about the job's speed
_LEAST = 100
# An epoch is at most this much larger than the one before: one lucky epoch must not flood the next. Less for one whose
# records already take much of their time: what looks like room there is a guess.
_GROWTH, _CAREFUL_GROWTH = 2.0, 1.25
# Of what an epoch costs by itself, at least this much on top is for records. Where that cost alone is near the target or
# beyond it (a commit that takes its time whatever is in it), reading less would make epochs hardly shorter, only emptier.
_WORK = 1 / 3
# While epochs take clearly longer than they should, every second one is so much smaller: without epochs of different size
# nobody could tell whether the records are the reason.
_PROBE, _LATE = 0.75, 1.15


class Admission:
    """`most` bounds an epoch whatever its time; `target_ms` adapts the bound below that. Both None: unbounded."""

    def __init__(self, *, most: int | None, target_ms: int | None) -> None:
        self._most, self._target_ms = most, target_ms
        self._cost = EpochCost()
        self._admitted = FIRST_RECORDS
        self._probing = False

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
            self._cost.observe_quiet(duration_ms)
            return
        self._cost.observe(records, duration_ms)
        fixed = self._cost.fixed_ms
        for_records_ms = max(self._target_ms - fixed, fixed * _WORK)
        wanted = for_records_ms / self._cost.ms_per_record
        # A small epoch says little about how a large one would do, so growth is from what was really read.
        growth = _GROWTH if duration_ms - fixed < for_records_ms / 2 else _CAREFUL_GROWTH
        ceiling = max(self._admitted if records < self._admitted / 2 else 0, records * growth)
        self._probing = duration_ms > self._target_ms * _LATE and not self._probing
        self._admitted = max(_LEAST, int(min(wanted, ceiling) * (_PROBE if self._probing else 1)))
