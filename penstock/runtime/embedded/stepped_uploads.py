"""Uploads that the schedule of the embedded runtime carries out: any number of epochs later, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.engine.uploads import Store, Uploads, carry_out
from penstock.protocol.checkpoint_messages import Uploaded
from penstock.protocol.ids import TaskId
from penstock.runtime.embedded.crash import CrashPoint


class SteppedUploads(Uploads):
    """Stores a snapshot only when told to, so that a schedule decides when."""

    def __init__(self, report: Callable[[Uploaded], None], reach: Callable[[CrashPoint], None]) -> None:
        self._report, self._reach = report, reach
        self._waiting: list[Callable[[], Uploaded]] = []

    @property
    def waiting(self) -> bool:
        """True if a snapshot waits to be stored."""
        return bool(self._waiting)

    def submit(self, task: TaskId, epoch: int, attempt: str, store: Store) -> None:
        self._waiting.append(lambda: carry_out(task, epoch, attempt, store))

    def step(self, rng: random.Random) -> None:
        """Stores one of those that wait, chosen by `rng`."""
        self._carry_out(rng.randrange(len(self._waiting)))

    def finish(self) -> None:
        """Stores everything that waits, in order."""
        while self._waiting:
            self._carry_out(0)

    def _carry_out(self, index: int) -> None:
        work = self._waiting.pop(index)
        self._reach("before-upload")
        self._report(work())
        self._reach("after-upload")
