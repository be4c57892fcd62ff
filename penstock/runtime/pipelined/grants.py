"""How much sources are granted, and when: enough to keep them reading, little enough that a barrier need not wait for long.

A barrier comes behind everything that was granted before it. So a source has at most two grants that it has not read, and each
is of a size that takes a fraction of a barrier's patience: what is read faster is followed by one of twice the size, what takes
longer by one that should take as long as it ought to. Pure: times come in as arguments.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.messages import SourceRanges

FIRST_RECORDS: Final = 500  # what they cost is not known yet: a record may take milliseconds
_LEAST: Final = 10
_MOST: Final = 1_000_000
_AHEAD: Final = 2  # grants that a source may have and not have read
_TARGET_S: Final = 0.05  # what reading one should take
_REST_S: Final = 0.05  # a source that has nothing new is not asked more often than this


@dataclass(slots=True)
class _Source:
    subtasks: int
    most: int = FIRST_RECORDS
    full: deque[bool] = field(default_factory=deque)  # of grants that not all have read: as much as was allowed
    longest_s: float = 0.0  # a subtask needed to read its part of the oldest of them
    granted: int = 0
    read: dict[int, int] = field(default_factory=dict)  # grants by subtask
    empty: int = 0  # times in a row that it had nothing
    ask_at: float = 0.0


class Grants:
    """Belongs to the driver's thread, for one attempt."""

    def __init__(self, sources: Mapping[str, int], interval_s: float, most: int | None) -> None:
        """`sources`: how many subtasks each has. `most`: records at once, whatever is measured."""
        self._sources = {source: _Source(subtasks) for source, subtasks in sources.items()}
        self._interval_s, self._limit = interval_s, most or _MOST

    def askable(self, now: float) -> list[str]:
        """The sources that may be granted more now."""
        return [name for name, s in self._sources.items() if s.ask_at <= now and s.granted - self._done(s) < _AHEAD]

    def next_s(self, now: float) -> float:
        """How long until one of them may be asked, as far as time decides."""
        waits = [s.ask_at - now for s in self._sources.values() if s.granted - self._done(s) < _AHEAD]
        return max(0.0, min(waits, default=1.0))

    def most(self, names: Iterable[str]) -> dict[str, int]:
        """Records that each may be granted at once."""
        return {name: min(self._sources[name].most, self._limit) for name in names}

    def gave(self, asked: Iterable[str], granted: Mapping[str, SourceRanges], now: float) -> None:
        """These were asked, and granted that."""
        for name in asked:
            source = self._sources[name]
            if name in granted:
                full = _records(granted[name]) >= min(source.most, self._limit)
                source.granted += 1
                source.full.append(full)
                source.empty = 0
                source.ask_at = now if full else now + self._interval_s
            else:
                source.empty += 1
                source.ask_at = now + min(_REST_S, self._interval_s * source.empty)

    def ended(self, name: str) -> None:
        """It has been granted its last."""
        self._sources.pop(name, None)

    def read(self, name: str, subtask: int, seconds: float) -> None:
        """A subtask has read its oldest grant, and needed so long from its first block on."""
        source = self._sources.get(name)
        if source is None:
            return
        before = self._done(source)
        source.read[subtask] = source.read.get(subtask, 0) + 1
        source.longest_s = max(source.longest_s, seconds)
        for _ in range(self._done(source) - before):
            full, took, source.longest_s = source.full.popleft(), source.longest_s, 0.0
            if took < _TARGET_S / 2 and full:
                source.most = min(_MOST, source.most * 2)
            elif took > _TARGET_S * 2:
                source.most = max(_LEAST, int(source.most * _TARGET_S / took))

    @staticmethod
    def _done(source: _Source) -> int:
        return min((source.read.get(subtask, 0) for subtask in range(source.subtasks)), default=0)


def _records(part: SourceRanges) -> float:
    """How many records are granted, where positions are numbers; else any number."""
    sizes = [r.end - r.start if isinstance(r.start, int) and isinstance(r.end, int) else math.inf for r in part.ranges]
    return sum(sizes)
