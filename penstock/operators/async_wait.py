"""Asynchronous I/O inside a subtask: blocks go in, requests overlap, blocks come out in the order they went in.

    input      ──[a b c]──▼5──[d e]──▼8──────────■ barrier
    requests     a──────▶ d───▶ │                │ everything is awaited
                 b─▶ c────────▶ e──────▶         │
    output                  ──[A B C]──▼5──[D E]──▼8──■

A result leaves when all of its block is there, and a watermark when all before it has left. So what an epoch sends, and in
which order, follows from its input alone, whatever the service's timing: an epoch that is partly run again (Spark repeats
a stage whose shuffle files are gone) must not deal its records out differently the second time. Flink stores unanswered
records in the checkpoint instead; here which ones those are would depend on timing, and differ between two attempts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.common.typeinfo import TypeInformation
from penstock.functions.asynchronous import AsyncFunctionDescriptor
from penstock.operators.async_requests import AsyncRequests, Batch
from penstock.operators.base import Operator
from penstock.records import Block
from penstock.records.convert import to_rows


@dataclass(frozen=True, slots=True)
class _Asked:
    batch: Batch
    timestamps: list[int | None] | None


@dataclass(frozen=True, slots=True)
class _Mark:
    timestamp: int


@dataclass(frozen=True, slots=True)
class _Idle:
    idle: bool


_Entry: TypeAlias = _Asked | _Mark | _Idle


class AsyncWaitOperator(Operator):
    """Runs an AsyncFunction: up to `capacity` requests at a time. An epoch ends when its requests have, so none are
    part of a snapshot.
    """

    def __init__(
        self,
        descriptor: AsyncFunctionDescriptor,
        input_type: TypeInformation | None = None,
        new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.input_type = input_type
        self.new_event_loop = new_event_loop
        self._requests: AsyncRequests | None = None
        self._queue: deque[_Entry] = deque()

    waits = True

    def poll(self) -> None:
        self._forward()

    def user_functions(self) -> Iterable[Any]:
        return (self.descriptor.async_function,)

    def open(self) -> None:
        super().open()
        self._requests = AsyncRequests(
            self.descriptor,
            name=f"{self.ctx.operator_id}-{self.ctx.subtask}",
            new_event_loop=self.new_event_loop,
        )

    def close(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        super().close()

    # ---------------------------------------------------------------- in

    def process(self, input: int, block: Block) -> None:
        rows = to_rows(block, self.input_type)
        self.ctx.metrics.records_in += len(rows)
        assert self._requests is not None
        batch = self._requests.submit(rows.values)
        self._queue.append(_Asked(batch, rows.timestamps))
        self._requests.wait_started(batch)
        self._forward()

    def on_watermark(self, timestamp: int) -> None:
        self._queue.append(_Mark(timestamp))
        self._forward()

    def on_idle(self, idle: bool) -> None:
        self._queue.append(_Idle(idle))
        self._forward()

    def end_epoch(self) -> None:
        self._forward(wait=True)

    def end_input(self) -> None:
        self._forward(wait=True)

    # ---------------------------------------------------------------- out

    def _forward(self, *, wait: bool = False) -> None:
        """Send on what is complete, from the front; with `wait` everything."""
        while self._queue:
            entry = self._queue[0]
            if isinstance(entry, _Asked) and not self._complete(entry.batch, wait):
                return
            self._queue.popleft()
            match entry:
                case _Asked(batch, timestamps):
                    self._send(batch, timestamps)
                case _Mark(timestamp):
                    super().on_watermark(timestamp)
                case _Idle(idle):
                    super().on_idle(idle)

    def _complete(self, batch: Batch, wait: bool) -> bool:
        if wait:
            assert self._requests is not None
            self._requests.wait_done(batch)
        if not batch.done.is_set():
            return False
        if batch.error is not None:
            method, record = batch.failed
            self.fail(batch.error, method, record, has_record=True)
        return True

    def _send(self, batch: Batch, timestamps: list[int | None] | None) -> None:
        values = [value for result in batch.results for value in result]
        stamps = None
        if timestamps is not None:
            stamps = [
                stamp for stamp, result in zip(timestamps, batch.results, strict=True) for _ in range(len(result))
            ]
        self.emit(values, stamps)
