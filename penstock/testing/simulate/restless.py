"""Spark as it may be: tasks run twice or break off, hosts and shuffle files are lost, rows of the channels come in any order."""

from __future__ import annotations

import random
from collections import defaultdict, deque

from penstock.runtime.embedded.levels import Mischief, Row
from penstock.testing.simulate.story import Story


class RestlessSpark(Mischief):
    """Each of it at a `rate` of the runs of a level on a host; the channels are always mixed."""

    def __init__(self, rng: random.Random, rate: float, story: Story) -> None:
        self._rng, self._rate, self._story = rng, rate, story

    def _happens(self, what: str, where: str) -> bool:
        if self._rng.random() >= self._rate:
            return False
        self._story.happened(what, f"  {where}: {what}")
        return True

    def mixed(self, rows: list[Row]) -> list[Row]:
        channels: defaultdict[tuple[int, int], deque[Row]] = defaultdict(deque)
        for row in rows:
            channels[row[2], row[3]].append(row)
        left = list(channels.values())
        order = []
        while left:
            channel = self._rng.choice(left)
            order.append(channel.popleft())
            if not channel:
                left = [other for other in left if other]
        return order

    def breaks_off(self, level: int, host: int, rows: int) -> int | None:
        if self._happens("a task's connection breaks off", f"level {level} of host {host}"):
            return self._rng.randint(0, rows)
        return None

    def repeats(self, level: int, host: int) -> bool:
        return self._happens("a task runs twice", f"level {level} of host {host}")

    def loses_host(self, level: int, host: int) -> bool:
        return self._happens("a host is lost", f"before level {level} of host {host}")

    def loses_output(self, runs: int) -> int | None:
        if self._happens("shuffle files are lost", f"after {runs} runs"):
            return self._rng.randrange(runs)
        return None
