"""What waits in front of a host's thread, and behind it for Spark's: both are bounded."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

_WORK_S: Final = 0.1  # what waits in an inbox is worked off in this time: a barrier comes behind it
_LEAST: Final = 256 << 10  # bytes: some frames are there while the next ones come
_REMEMBERED_S: Final = 1.0


class Pace:
    """How many bytes went by in a second, lately."""

    def __init__(self) -> None:
        self._bytes, self._seconds = 0.0, 0.0

    def went(self, size: int, seconds: float) -> None:
        """So many bytes took so long."""
        self._bytes += size
        self._seconds += seconds
        if self._seconds > _REMEMBERED_S:
            self._bytes *= _REMEMBERED_S / self._seconds
            self._seconds = _REMEMBERED_S

    def bytes_in(self, seconds: float, least: int, most: int) -> int:
        """As many as go by in so long, within these bounds; the least as long as nothing is known."""
        return int(max(least, min(most, self._bytes / self._seconds * seconds))) if self._seconds > 0 else least


class FrameReceived:
    """A row of Spark has come; `payload` is the frame in it."""

    __slots__ = ("payload",)

    def __init__(self, payload: memoryview) -> None:
        self.payload = payload


class RowsEnded:
    """Nothing more comes from Spark."""


class DriverGone:
    """The connection to the driver has ended: so does the attempt."""


class HostInbox:
    """Rows and messages in the order in which they come. Rows wait outside while too many bytes are in here: more than the host
    works off in a tenth of a second, as fast as it has been lately, and never more than `most`.

    Bytes alone would be no bound: 8 MiB of two whole numbers a record are a tenth of a second of work for columns and one or more
    for a Python function, and every barrier waits for all of it.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._most, self._clock = most, clock
        self._limit, self._bytes = min(most, _LEAST), 0
        self._taken = 0  # bytes that were taken and are not done with
        self._since = 0.0  # when the first of them were
        self._pace = Pace()
        self._open = False
        self._room = threading.Condition()

    def put(self, item: Any, size: int = 0) -> None:
        """Adds a message, or a row of so many bytes, which waits for room."""
        if size:
            with self._room:
                while self._bytes > self._limit and not self._open:
                    self._room.wait(1.0)
                self._bytes += size
        self._items.put(item)

    def take(self, timeout_s: float) -> list[Any]:
        """All that has come; if nothing has, waits so long for the first."""
        items: list[Any] = []
        try:
            items.append(self._items.get(timeout=timeout_s) if timeout_s > 0 else self._items.get_nowait())
            while len(items) < 64:
                items.append(self._items.get_nowait())
        except queue.Empty:
            pass
        if not self._taken:
            self._since = self._clock()
        self._taken += sum(len(item.payload) for item in items if isinstance(item, FrameReceived))
        return items

    def done(self) -> None:
        """What was taken has been worked off, as far as it can be now."""
        if self._taken:
            self._pace.went(self._taken, self._clock() - self._since)
            limit = self._pace.bytes_in(_WORK_S, min(self._most, _LEAST), self._most)
            with self._room:
                self._bytes -= self._taken
                self._limit = limit
                self._room.notify_all()
            self._taken = 0

    def let_all_in(self, all_in: bool) -> None:
        """Whether rows come in however many bytes are in here: a barrier is to be found that overtakes them."""
        if all_in != self._open:
            with self._room:
                self._open = all_in
                self._room.notify_all()

    @property
    def empty(self) -> bool:
        """Whether nothing has come that was not taken."""
        return self._items.empty()


class HostOutbox:
    """What waits for Spark's thread, at most so many: `put` waits for room. `queue.Queue` does the same in Python, and slower."""

    def __init__(self, most: int) -> None:
        self._items: queue.SimpleQueue[pa.RecordBatch | BaseException | None] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(most):
            self._room.put(None)

    def put(self, item: pa.RecordBatch | BaseException | None) -> None:
        """Adds a batch, an error or the end, when there is room."""
        self._room.get()
        self._items.put(item)

    def get(self) -> pa.RecordBatch | BaseException | None:
        """What was put first of what is here; waits for it."""
        item = self._items.get()
        self._room.put(None)
        return item
