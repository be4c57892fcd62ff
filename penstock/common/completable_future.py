"""The future that asynchronous calls of a job client return."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """A `concurrent.futures.Future` under PyFlink's name. Thread-safe as that one is."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def cancel(self) -> bool:
        """Whether it could be cancelled: work that has begun cannot."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> T:
        """Wait for the result; raises what the work raised."""
        return self._future.result()

    def exception(self) -> BaseException | None:
        """What the work raised. None when it succeeded or, without waiting, when it has not ended yet."""
        return self._future.exception() if self._future.done() and not self._future.cancelled() else None

    def __str__(self) -> str:
        return str(self._future)
