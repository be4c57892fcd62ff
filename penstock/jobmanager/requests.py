"""What clients ask of a running job; served by the JobMaster between two epochs.

Any thread may ask; only the thread that plans epochs serves. Every future ends: with the answer, with the reason why it
failed, or, when the job is over, with that.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from penstock.errors import PenstockError


class JobEndedError(PenstockError):
    """The job ended before it could do what was asked."""


@dataclass(slots=True, kw_only=True)
class SavepointRequest:
    directory: str | None  # None: the configured one, or the job folder's
    stop: bool = False
    drain: bool = False
    answer: Future[str] = field(default_factory=Future)  # the savepoint's folder


class Requests:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._savepoints: deque[SavepointRequest] = deque()
        self._closed: str | None = None

    def savepoint(self, request: SavepointRequest) -> Future[str]:
        with self._lock:
            if self._closed is None:
                self._savepoints.append(request)
                return request.answer
        request.answer.set_exception(JobEndedError(f"no savepoint can be taken: {self._closed}"))
        return request.answer

    def next_savepoint(self) -> SavepointRequest | None:
        """The oldest one that nobody has given up. From now on it cannot be cancelled."""
        while True:
            with self._lock:
                if not self._savepoints:
                    return None
                request = self._savepoints.popleft()
            if request.answer.set_running_or_notify_cancel():
                return request

    def close(self, reason: str) -> None:
        """The job is over: what nobody will serve any more fails, also what comes later."""
        with self._lock:
            self._closed = reason
            left = list(self._savepoints)
            self._savepoints.clear()
        for request in left:
            if request.answer.set_running_or_notify_cancel():
                request.answer.set_exception(JobEndedError(f"no savepoint was taken: {reason}"))
