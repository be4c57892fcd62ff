"""What clients ask of a running job; served by the JobMaster between two epochs.

Any thread may ask; only the thread that plans epochs serves. Every future ends: with the answer, with the reason why it
failed, or, when the job is over, with that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.errors import PenstockError


class JobEndedError(PenstockError):
    """The job ended before it could do what was asked."""


@dataclass(slots=True, kw_only=True)
class SavepointRequest:
    directory: str | None  # None: the configured one, or the job folder's
    stop: bool = False
    drain: bool = False
    answer: Future[str] = field(default_factory=Future)  # the savepoint's folder


@dataclass(slots=True, kw_only=True)
class CheckpointRequest:
    full: bool = False  # of everything, not only of what changed since the last one
    answer: Future[int] = field(default_factory=Future)  # its number


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleResult:
    """What `JobClient.rescale` gives. `pause_ms` is the time between the ends of the last epoch before and the first one
    after: restoring and, on Spark, a new query are in it, and that epoch's own work as well."""

    before: int
    after: int
    checkpoint: int
    pause_ms: float


@dataclass(slots=True, kw_only=True)
class RescaleRequest:
    parallelism: int
    answer: Future[RescaleResult] = field(default_factory=Future)


Request: TypeAlias = SavepointRequest | RescaleRequest | CheckpointRequest


def _name(request: Request) -> str:
    match request:
        case SavepointRequest():
            return "savepoint"
        case CheckpointRequest():
            return "checkpoint"
    return "rescaling"


class Requests:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request] = deque()
        self._closed: str | None = None
        # How many of so many slots the job may have; they are its own then. Whoever offers slots puts something else here.
        self.claim_slots: Callable[[int], int] = lambda slots: slots

    def savepoint(self, request: SavepointRequest) -> Future[str]:
        self._add(request)
        return request.answer

    def rescale(self, request: RescaleRequest) -> Future[RescaleResult]:
        self._add(request)
        return request.answer

    def checkpoint(self, request: CheckpointRequest) -> Future[int]:
        self._add(request)
        return request.answer

    def _add(self, request: Request) -> None:
        with self._lock:
            if self._closed is None:
                self._waiting.append(request)
                return
        request.answer.set_exception(self._too_late(request))

    def next(self) -> Request | None:
        """The oldest one that nobody has given up. From now on it cannot be cancelled."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                request = self._waiting.popleft()
            if request.answer.set_running_or_notify_cancel():
                return request

    def close(self, reason: str) -> None:
        """The job is over: what nobody will serve any more fails, also what comes later."""
        with self._lock:
            self._closed = reason
            left = list(self._waiting)
            self._waiting.clear()
        for request in left:
            if request.answer.set_running_or_notify_cancel():
                request.answer.set_exception(self._too_late(request))

    def _too_late(self, request: Request) -> JobEndedError:
        return JobEndedError(f"the {_name(request)} that was asked for did not come about: {self._closed}")
