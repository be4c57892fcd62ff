"""When is a loop at rest? Decides which sources may end, and whether an epoch is due although no source brings data.

Pure: what the driver knows in, decisions out. The bounded input of a loop ends in three steps:

    sources exhausted ─▶ nothing on the way back at a barrier ─▶ max wait time ─▶ the sources end: last watermark

Until then the sources are told that more may come, so that event time in the loop does not reach its end while records are
still going round. A barrier is a consistent cut: if nothing is on the way back there and the sources were exhausted before
it, the loop is empty, also while later epochs are under way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from penstock.engine.messages import TaskAck
from penstock.graph.iterations import Loop

_UNKNOWN: Final = -1


class LoopTracker:
    def __init__(self, loops: Iterable[Loop]) -> None:
        self._loops = tuple(loops)
        self._waiting: dict[str, int] = {loop.tail: 0 for loop in self._loops}  # records on the way back, by tail
        self._exhausted: dict[str, int] = {}  # source → the first epoch planned without more to come
        self._quiet_since: dict[int, int] = {}  # head → when something last came back, or its input was exhausted
        self._ended: set[int] = set()  # heads whose input may end
        self._news = False

    def restored(self) -> None:
        """The job goes on from a checkpoint: what its tails hold is known when an epoch has run."""
        self._waiting = dict.fromkeys(self._waiting, _UNKNOWN)

    def plan(self, epoch: int, *, completed: int, exhausted: Collection[str], now: int) -> frozenset[str]:
        """The sources among `exhausted` that must not end in `epoch`. `completed` is the last epoch that is complete."""
        self._news = False
        for source in exhausted:
            self._exhausted.setdefault(source, epoch)
        held: set[str] = set()
        for loop in self._loops:
            if loop.head in self._ended or not loop.sources <= self._exhausted.keys():
                continue
            quiet_since = self._quiet_since.setdefault(loop.head, now)
            at_rest = max(self._exhausted[s] for s in loop.sources) <= completed and all(
                self._waiting[tail] == 0 for tail in loop.tails
            )
            if at_rest and now - quiet_since >= loop.max_wait_ms:
                self._ended.add(loop.head)
                self._news = True
            else:
                held |= loop.sources
        return frozenset(held)

    def completed(self, acks: Iterable[TaskAck], now: int) -> None:
        """An epoch is complete: the acknowledgements say what was on the way back at its barrier. Records that an unaligned
        barrier overtook may be anywhere, also inside a loop."""
        self._waiting = dict.fromkeys(self._waiting, 0)
        for ack in acks:
            for tail in self._waiting:
                self._waiting[tail] += ack.feedback.get(tail, 0) + ack.overtaken
        for loop in self._loops:
            if any(self._waiting[tail] for tail in loop.tails):
                self._quiet_since[loop.head] = now

    def due(self) -> bool:
        """An epoch has work to do: records to bring round, or an end to tell."""
        return self._news or not self.empty

    @property
    def empty(self) -> bool:
        return not any(self._waiting.values())
