"""The requests of one AsyncFunction: an event loop on a thread of its own, a bound, time-outs and retries.

    subtask's thread      submit(batch) ──────────────▶ wait_started ─────────────▶ wait_done
                               │                            ▲                          ▲
    loop's thread              └─▶ pump: start while there is room ──▶ attempt, retry, expire ──▶ answered

All bookkeeping happens on the loop's thread; the subtask's thread only reads a batch once it is told that it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.common.values import own_all
from penstock.errors import PenstockError
from penstock.functions.asynchronous import AsyncFunctionDescriptor

_POLL_S = 1.0  # how often a waiting subtask looks whether the loop is still there
_STOP_S = 10.0


class Batch:
    """Records asked for together. `results[i]` belongs to `values[i]` and is there when the batch is done."""

    __slots__ = ("answered", "done", "error", "failed", "next", "remaining", "results", "started", "values")

    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.results: list[list[Any]] = [[]] * len(values)
        self.answered: deque[int] = deque()  # indexes, as they come; the subtask's thread takes them out
        self.next = 0  # the first one not yet asked for
        self.remaining = len(values)
        self.started = threading.Event()
        self.done = threading.Event()
        self.error: Exception | None = None
        self.failed: tuple[str, Any] = ("", None)  # which method, on which record


class _Request:
    __slots__ = ("answered", "batch", "index", "number", "task", "timer")

    def __init__(self, batch: Batch, index: int, number: int) -> None:
        self.batch, self.index, self.number = batch, index, number
        self.answered = False
        self.task: asyncio.Task[list[Any]] | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def value(self) -> Any:
        return self.batch.values[self.index]


class _Pump:
    """What lives on the loop's thread. It does not know the operator, so that an operator nobody holds any more can be
    collected, and its loop with it."""

    def __init__(self, descriptor: AsyncFunctionDescriptor, loop: asyncio.AbstractEventLoop) -> None:
        self._function, self._loop, self._capacity = descriptor.async_function, loop, descriptor.capacity
        self._ordered = descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.ORDERED
        timeout_ms = descriptor.timeout.to_milliseconds()
        self._timeout_s = timeout_ms / 1000 if timeout_ms > 0 else None
        self._retry = descriptor.async_retry_strategy
        predicate = self._retry.get_retry_predicate()
        self._retry_result = predicate.result_predicate()
        self._retry_error = predicate.exception_predicate()
        self._waiting: deque[Batch] = deque()
        self._unfinished: set[Batch] = set()
        self._running = 0
        self._issued = 0  # requests so far
        self._oldest = 0  # the first one without an answer
        self._ahead: set[int] = set()  # answered, but an older one is not
        self._broken: tuple[Exception, tuple[str, Any]] | None = None

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            with contextlib.suppress(Exception):
                if tasks:  # a coroutine that does not let itself be cancelled must not keep the slot
                    self._loop.run_until_complete(asyncio.wait(tasks, timeout=_STOP_S / 2))
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self._loop.close()

    def take(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self._unfinished.add(batch)
        if self._broken is not None:
            self._fail(*self._broken)
        else:
            self._start_more()

    def _room(self) -> bool:
        if self._running >= self._capacity:
            return False
        return not self._ordered or self._issued - self._oldest < self._capacity

    def _start_more(self) -> None:
        while self._waiting and self._room():
            batch = self._waiting[0]
            self._start(_Request(batch, batch.next, self._issued))
            batch.next += 1
            if batch.next == len(batch.values):
                self._waiting.popleft()
                batch.started.set()

    def _start(self, request: _Request) -> None:
        self._issued += 1
        self._running += 1
        request.task = self._loop.create_task(self._attempts(request.value))
        request.task.add_done_callback(lambda task: self._ended(request, task))
        if self._timeout_s is not None:
            request.timer = self._loop.call_later(self._timeout_s, self._expired, request)

    async def _attempts(self, value: Any) -> list[Any]:
        attempts = 1
        while True:
            try:
                result = checked(await self._function.async_invoke(value), "async_invoke")
                if self._retry_result is None or not self._retry_result(result):
                    return result
                if not self._retry.can_retry(attempts):
                    return result
            except Exception as error:
                if self._retry_error is None or not self._retry_error(error) or not self._retry.can_retry(attempts):
                    raise
            await asyncio.sleep(self._retry.get_backoff_time_millis(attempts) / 1000)
            attempts += 1

    def _ended(self, request: _Request, task: asyncio.Task[list[Any]]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if request.answered:
            return  # its time was up: whatever it says now is too late
        if error is None:
            self._answer(request, task.result())
        elif self._broken is None:
            cause = error if isinstance(error, Exception) else RuntimeError("the request was cancelled")
            cause = cause.with_traceback(error.__traceback__)
            self._fail(cause, ("async_invoke", request.value))

    def _expired(self, request: _Request) -> None:
        if request.answered or self._broken is not None:
            return
        try:
            result = checked(self._function.timeout(request.value), "timeout")
        except Exception as error:
            self._fail(error, ("timeout", request.value))
            return
        self._answer(request, result)
        assert request.task is not None
        request.task.cancel()  # not awaited: one that clings to life holds nothing up

    def _answer(self, request: _Request, result: list[Any]) -> None:
        request.answered = True
        if request.timer is not None:
            request.timer.cancel()
        self._running -= 1
        if request.number == self._oldest:
            self._oldest += 1
            while self._oldest in self._ahead:
                self._ahead.discard(self._oldest)
                self._oldest += 1
        else:
            self._ahead.add(request.number)
        batch = request.batch
        batch.results[request.index] = result
        batch.answered.append(request.index)
        batch.remaining -= 1
        if batch.remaining == 0:
            self._unfinished.discard(batch)
            batch.done.set()
        self._start_more()

    def _fail(self, error: Exception, where: tuple[str, Any]) -> None:
        """The first error ends it all: the epoch fails, and another attempt has a loop of its own."""
        self._broken = (error, where)
        for batch in self._unfinished:
            batch.error, batch.failed = error, where
            batch.started.set()
            batch.done.set()
        self._unfinished.clear()
        self._waiting.clear()


class AsyncRequests:
    """The subtask's side. Not thread-safe: one thread submits and waits. Closed explicitly, or when it is collected."""

    def __init__(
        self,
        descriptor: AsyncFunctionDescriptor,
        *,
        name: str,
        new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._loop = new_event_loop()
        self._pump = _Pump(descriptor, self._loop)
        self._thread = threading.Thread(target=self._pump.run, name=f"penstock-async-{name}", daemon=True)
        self._thread.start()
        self._stop = weakref.finalize(self, _stop, self._loop)

    def submit(self, values: list[Any]) -> Batch:
        """Sends requests for these values, as many at a time as the capacity allows; returns at once."""
        batch = Batch(values)
        if values:
            self._loop.call_soon_threadsafe(self._pump.take, batch)
        else:
            batch.started.set()
            batch.done.set()
        return batch

    def wait_started(self, batch: Batch) -> None:
        """Until every record of the batch is asked for: how capacity holds a subtask back."""
        self._wait(batch.started)

    def started_within(self, batch: Batch, seconds: float) -> bool:
        """Whether every record of the batch is asked for by then, or never will be."""
        return batch.started.wait(seconds) or not self._thread.is_alive()

    def wait_done(self, batch: Batch) -> None:
        """Waits until every request of the batch is answered, has failed or timed out."""
        self._wait(batch.done)

    def _wait(self, event: threading.Event) -> None:
        while not event.wait(_POLL_S):
            if not self._thread.is_alive() and not event.is_set():
                raise PenstockError(f"the event loop {self._thread.name} has ended while requests were under way")

    def close(self) -> None:
        """Cancel what is under way and end the thread."""
        self._stop()
        self._thread.join(_STOP_S)


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # closed already
        loop.call_soon_threadsafe(loop.stop)


def checked(result: Any, method: str) -> list[Any]:
    """A list of results, as they are now. A string is iterable too, and nearly always one result that lacks its brackets."""
    wanted = f"{method} must return a list of results (an empty one for none), not {result!r}"
    if result is None:
        raise TypeError(f"The result of AsyncFunction cannot be none: {wanted}")
    if isinstance(result, (str, bytes)) or not isinstance(result, Iterable):
        raise TypeError(f"The result of AsyncFunction should be of list type: {wanted}")
    return own_all(list(result))
