"""Admission control: how many records an epoch may read, so that it takes about as long as was asked for.

One place for all sources: every enumerator gets the number as `max_records`. What it decides is logged with the epoch's
plan, so a repeated epoch reads the same whatever the clock says then.

What an epoch costs by itself, and what each record adds: learnt from epochs as they end. Pure.

Both come from a straight line through the latest epochs (records, time): the median of the slopes between each two, which one
epoch that something else held up does not lead astray. Epochs of one size give no line; then the fixed part stays what it
was. An epoch that took much longer or shorter than expected may be an accident, or the job has changed, and what was before
means nothing any more: the epoch after it tells, by what explains it best.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import combinations
from statistics import median
from typing import Final, NamedTuple

_MEMORY: Final = 0.5  # weight of the newest epoch in what a record costs
_LINE: Final = 8  # epochs
_DIFFERENT: Final = 0.1  # of the larger size: from there on two epochs differ
_STRANGE: Final = 1.7  # times as long as expected, or shorter
_SURE: Final = 3  # epochs, after which there is something to expect
_MOST_FIXED: Final = 0.95  # of an epoch's time: records are never free


class _Epoch(NamedTuple):
    records: int
    ms: float


class _Model(NamedTuple):
    fixed_ms: float
    ms_per_record: float

    def distance(self, epoch: _Epoch) -> float:
        """How many times longer or shorter than expected, as a logarithm."""
        return abs(math.log(epoch.ms / max(1e-9, self.fixed_ms + self.ms_per_record * epoch.records)))


class EpochCost:
    """How long an epoch takes by the number of its records: a line through the recent ones."""

    def __init__(self) -> None:
        self._model: _Model | None = None
        self._quiet_ms: float | None = None
        self._recent: deque[_Epoch] = deque(maxlen=_LINE)
        self._before: _Model | None = None  # what held until the last epoch, which was strange

    @property
    def fixed_ms(self) -> float:
        """The milliseconds that an epoch costs without any record."""
        return self._model.fixed_ms if self._model is not None else self._quiet_ms or 0.0

    @property
    def ms_per_record(self) -> float:
        """Only when an epoch was observed."""
        assert self._model is not None
        return self._model.ms_per_record

    def observe_quiet(self, duration_ms: float) -> None:
        """An epoch that brought next to nothing."""
        self._quiet_ms = _blend(self.fixed_ms or None, duration_ms)
        if self._model is not None:
            self._model = self._model._replace(fixed_ms=self._quiet_ms)

    def observe(self, records: int, duration_ms: float) -> None:
        """Learns from an epoch that is over. A strange one is judged again when the next has told."""
        epoch, model = _Epoch(records, duration_ms), self._model
        if self._before is not None and model is not None:
            model = self._judge(self._before, model, epoch)
        elif model is not None and len(self._recent) >= _SURE and model.distance(epoch) > math.log(_STRANGE):
            # Until the next epoch has told: as if it were the records, which is the careful way to see it.
            self._before = model
            self._recent.append(epoch)
            self._model = _of_records(model.fixed_ms, epoch)
            return
        self._recent.append(epoch)
        self._model = self._line() or _of_records(self.fixed_ms if model is None else model.fixed_ms, epoch, model)

    def _judge(self, before: _Model, records_slower: _Model, epoch: _Epoch) -> _Model:
        """The last epoch was strange. Was it an accident, are records slower now, or is every epoch?"""
        strange = self._recent[-1]
        every_epoch = before._replace(fixed_ms=max(0.0, strange.ms - before.ms_per_record * strange.records))
        best = min((before, records_slower, every_epoch), key=lambda model: model.distance(epoch))
        self._before = None
        if best is before:
            self._recent.pop()
        else:
            self._recent.clear()
            self._recent.append(strange)
        return best

    def _line(self) -> _Model | None:
        """Through the latest epochs; None while their sizes are too much alike for one."""
        slopes = [
            (one.ms - other.ms) / (one.records - other.records)
            for one, other in combinations(self._recent, 2)
            if abs(one.records - other.records) >= max(one.records, other.records) * _DIFFERENT
        ]
        if not slopes:
            return None
        slope = max(0.0, median(slopes))
        fixed_ms = max(0.0, median(epoch.ms - slope * epoch.records for epoch in self._recent))
        ms, records = median(epoch.ms for epoch in self._recent), median(epoch.records for epoch in self._recent)
        fixed_ms = min(fixed_ms, ms * _MOST_FIXED)
        return _Model(fixed_ms, (ms - fixed_ms) / records)


def _of_records(fixed_ms: float, epoch: _Epoch, before: _Model | None = None) -> _Model:
    """What is not fixed is the records'."""
    now = (epoch.ms - min(fixed_ms, epoch.ms * _MOST_FIXED)) / epoch.records
    return _Model(min(fixed_ms, epoch.ms), _blend(None if before is None else before.ms_per_record, now))


def _blend(before: float | None, now: float) -> float:
    return now if before is None else before * (1 - _MEMORY) + now * _MEMORY


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
        """How many records each source may plan for the next epoch; None: any number."""
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
