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
_MOST: Final = 500_000  # for each subtask
_AHEAD: Final = 2  # grants that a source may have and not have read
_TARGET_S: Final = 0.05  # what reading one should take, at least
_GRANT_S: Final = 0.1e-3  # of the driver, to tell one subtask and hear that it has read; measured, docs/design/0012
_SHARE: Final = 0.2  # of one processor, for that
_REST_S: Final = 0.05  # a source that has nothing new is not asked more often than this


def target_s(subtasks: int) -> float:
    """What reading a grant should take: with hundreds of subtasks longer, because the driver tells each of them."""
    return max(_TARGET_S, subtasks * _GRANT_S / _SHARE)


@dataclass(slots=True)
class _Source:
    subtasks: int
    most: int = FIRST_RECORDS
    # Of grants that not all have read: about as much as was allowed. A source may end a grant at a border of its own, such as that
    # of a row group, but half of what it may give fits in front of one.
    full: deque[bool] = field(default_factory=deque)
    longest_s: float = 0.0  # a subtask needed to read its part of the oldest of them
    granted: int = 0
    done: int = 0  # grants that every subtask has read
    read: list[int] = field(default_factory=list)  # grants by subtask
    waited_for: int = 0  # subtasks that have read no more than `done`
    empty: int = 0  # times in a row that it had nothing
    ask_at: float = 0.0


class Grants:
    """Belongs to the driver's thread, for one attempt."""

    def __init__(self, sources: Mapping[str, int], interval_s: float, most: int | None) -> None:
        """`sources`: how many subtasks each has. `most`: records at once, whatever is measured."""
        self._sources = {
            source: _Source(subtasks, read=[0] * subtasks, waited_for=subtasks) for source, subtasks in sources.items()
        }
        self._interval_s, self._limit = interval_s, most or math.inf

    def askable(self, now: float) -> list[str]:
        """The sources that may be granted more now."""
        return [name for name, s in self._sources.items() if s.ask_at <= now and s.granted - s.done < _AHEAD]

    def next_s(self, now: float) -> float:
        """How long until one of them may be asked, as far as time decides."""
        waits = [s.ask_at - now for s in self._sources.values() if s.granted - s.done < _AHEAD]
        return max(0.0, min(waits, default=1.0))

    def most(self, names: Iterable[str]) -> dict[str, int]:
        """Records that each may be granted at once."""
        return {name: int(min(self._sources[name].most, self._limit)) for name in names}

    def gave(self, asked: Iterable[str], granted: Mapping[str, SourceRanges], now: float) -> None:
        """These were asked, and granted that."""
        for name in asked:
            source = self._sources[name]
            if name in granted:
                full = _records(granted[name]) * 2 >= min(source.most, self._limit)
                source.granted += 1
                source.full.append(full)
                source.empty = 0
                source.ask_at = now if full else now + max(self._interval_s, source.subtasks * _GRANT_S / _SHARE)
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
        source.longest_s = max(source.longest_s, seconds)
        if source.read[subtask] == source.done:
            source.waited_for -= 1
        source.read[subtask] += 1
        while not source.waited_for:
            source.done += 1
            source.waited_for = source.read.count(source.done)
            full, took, source.longest_s = source.full.popleft(), source.longest_s, 0.0
            target = target_s(source.subtasks)
            if took < target / 2 and full:
                source.most = min(_MOST * source.subtasks, source.most * 2)
            elif took > target * 2:
                source.most = max(_LEAST, int(source.most * target / took))


def _records(part: SourceRanges) -> float:
    """How many records are granted, as the source says, or where positions are numbers; else any number."""
    if part.records is not None:
        return part.records
    sizes = [r.end - r.start if isinstance(r.start, int) and isinstance(r.end, int) else math.inf for r in part.ranges]
    return sum(sizes)
