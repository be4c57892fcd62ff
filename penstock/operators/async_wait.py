"""Asynchronous I/O inside a subtask: blocks go in, requests overlap, and results come out.

In epochs, blocks come out in the order they went in:

    input      ──[a b c]──▼5──[d e]──▼8──────────■ barrier
    requests     a──────▶ d───▶ │                │ everything is awaited
                 b─▶ c────────▶ e──────▶         │
    output                  ──[A B C]──▼5──[D E]──▼8──■

A result leaves when all of its block is there, and a watermark when all before it has left. So what an epoch sends, and in
which order, follows from its input alone, whatever the service's timing: an epoch that is partly run again (Spark repeats
a stage whose shuffle files are gone) must not deal its records out differently the second time.

By the clock (pipelined) nothing is repeated but from a checkpoint, so it is as in Flink: a barrier does not wait, records whose
result has not left are in the snapshot and are asked for again after a recovery; unordered results leave as they come,
but none overtakes a watermark, in either direction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from penstock.common.typeinfo import TypeInformation
from penstock.functions.asynchronous import AsyncFunctionDescriptor
from penstock.operators.async_requests import AsyncRequests, Batch
from penstock.operators.base import Operator
from penstock.protocol.events import MIN_WATERMARK, LatencyMarker
from penstock.records import Block
from penstock.records.convert import to_rows


@dataclass(frozen=True, slots=True)
class _Asked:
    batch: Batch
    timestamps: list[int | None] | None
    sent: set[int] = field(default_factory=set)  # whose results have left before the rest of the block


@dataclass(frozen=True, slots=True)
class _Mark:
    timestamp: int


@dataclass(frozen=True, slots=True)
class _Idle:
    idle: bool


@dataclass(frozen=True, slots=True)
class _Passing:
    marker: LatencyMarker


_Entry: TypeAlias = _Asked | _Mark | _Idle | _Passing

_UNANSWERED: Final = "unanswered"  # (value, timestamp)
_WATERMARK: Final = "watermark"  # that those behind have heard of, while records wait
_LOOK_S: Final = 0.002


class AsyncWaitOperator(Operator):
    """Runs an AsyncFunction: up to `capacity` requests at a time. In epochs, one ends when its requests have, so none are part of
    a snapshot.
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
        self._unordered = descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.UNORDERED
        self._restored: list[tuple[Any, int | None]] = []
        self._watermark_before = MIN_WATERMARK

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

        if self._restored:
            values, stamps = map(list, zip(*self._restored, strict=True))
            self._queue.append(_Asked(self._requests.submit(values), stamps))
            if self._watermark_before > self.current_watermark:
                self._queue.append(_Mark(self._watermark_before))
            self._restored = []

    def restore_state(self) -> None:
        self._restored = list(self.ctx.state.operator_list(_UNANSWERED))

    def resume_at(self, watermark: int, idle: bool) -> None:
        """Records that are asked for again go before the watermark that had come behind them."""
        super().resume_at(watermark, idle)
        self._watermark_before = watermark
        if self._restored:
            self.current_watermark = min([watermark, *self.ctx.state.operator_list(_WATERMARK)])

    def snapshot_state(self) -> None:
        if not self.ctx.by_clock:
            return
        unanswered = self.ctx.state.operator_list(_UNANSWERED)
        unanswered[:] = [record for entry in self._queue if isinstance(entry, _Asked) for record in _waiting(entry)]
        self.ctx.state.operator_list(_WATERMARK)[:] = [self.current_watermark] if unanswered else []

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
        while self.ctx.by_clock and not self._requests.started_within(batch, _LOOK_S):
            self._forward()
        self._requests.wait_started(batch)
        self._forward()

    def on_watermark(self, timestamp: int) -> None:
        self._queue.append(_Mark(timestamp))
        self._forward()

    def on_idle(self, idle: bool) -> None:
        self._queue.append(_Idle(idle))
        self._forward()

    def on_marker(self, marker: LatencyMarker) -> None:
        self._queue.append(_Passing(marker))
        self._forward()

    def end_epoch(self) -> None:
        self._forward(wait=not self.ctx.by_clock)

    def end_input(self) -> None:
        self._forward(wait=True)

    # ---------------------------------------------------------------- out

    def _forward(self, *, wait: bool = False) -> None:
        """Send on what is complete, from the front; with `wait` everything."""
        while self._queue:
            entry = self._queue[0]
            if isinstance(entry, _Asked) and not self._complete(entry.batch, wait):
                if self._unordered and self.ctx.by_clock:
                    self._send_answered()
                return
            self._queue.popleft()
            match entry:
                case _Asked():
                    self._send(entry, range(len(entry.batch.values)))
                case _Mark(timestamp):
                    super().on_watermark(timestamp)
                case _Idle(idle):
                    super().on_idle(idle)
                case _Passing(marker):
                    super().on_marker(marker)

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

    def _send_answered(self) -> None:
        """What has been answered up to the next watermark."""
        for entry in self._queue:
            if isinstance(entry, _Passing):
                continue
            if not isinstance(entry, _Asked):
                return
            answered = []
            while entry.batch.answered:
                answered.append(entry.batch.answered.popleft())
            self._send(entry, answered)
            entry.sent.update(answered)

    def _send(self, entry: _Asked, indexes: Iterable[int]) -> None:
        """The results of these records of a batch, unless they have left."""
        results, timestamps = entry.batch.results, entry.timestamps
        left = [index for index in indexes if index not in entry.sent] if entry.sent else indexes
        stamps = None
        if timestamps is not None:
            stamps = [timestamps[index] for index in left for _ in range(len(results[index]))]
        self.emit([value for index in left for value in results[index]], stamps)


def _waiting(entry: _Asked) -> Iterable[tuple[Any, int | None]]:
    for index, value in enumerate(entry.batch.values):
        if index not in entry.sent:
            yield value, None if entry.timestamps is None else entry.timestamps[index]
