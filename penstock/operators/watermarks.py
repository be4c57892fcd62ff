"""Timestamps and watermarks: the runtime side of a WatermarkStrategy.

Periodic generators emit once, at the end of the data of a split (or, inside a stream, of an epoch), so that block size
cannot change an answer. A strategy marked `per_record` and custom generators that emit in `on_event` emit right there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import (
    BoundedOutOfOrderness,
    ColumnTimestampAssigner,
    CustomGenerator,
    IngestionTime,
    IngestionTimeAssigner,
    Monotonous,
    NoWatermarks,
    WatermarkOutput,
    WatermarkStrategy,
)
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.selectors import as_selector
from penstock.pickling import load_stored
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.records import Block, Columns, Rows
from penstock.records.convert import column_of, event_times, to_rows
from penstock.state.operator_lists import ENGINE_UNION

NO_TIMESTAMP = MIN_WATERMARK


class _Sink(WatermarkOutput):
    """Catches what a custom generator emits."""

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.idle: bool | None = None

    def emit_watermark(self, watermark: Any) -> None:
        timestamp = watermark if isinstance(watermark, int) else watermark.timestamp
        self.watermark = timestamp if self.watermark is None else max(self.watermark, timestamp)
        self.idle = False

    def mark_idle(self) -> None:
        self.idle = True

    def mark_active(self) -> None:
        self.idle = False

    def take(self) -> int | None:
        watermark, self.watermark = self.watermark, None
        return watermark


class SplitWatermarks:
    """Timestamps and the watermark of one split (or of one stream): pure but for the user's own functions."""

    def __init__(self, strategy: WatermarkStrategy, input_type: TypeInformation | None) -> None:
        self.strategy = strategy
        self.input_type = input_type
        self.max_timestamp: int | None = None
        self.emitted = MIN_WATERMARK
        self.last_active_ms: int | None = None
        self.idle = False
        self.stamping: Any = None  # the record in hand, for the error that names it
        self._by_column = _by_column(strategy, input_type)
        self._output = _Sink()
        self._custom = strategy.generator.factory() if isinstance(strategy.generator, CustomGenerator) else None

    def stamp(self, block: Block, now_ms: int) -> Block:
        """Give the records their timestamps; `now_ms` is the epoch's processing time."""
        assigner = self.strategy.timestamp_assigner
        if assigner is None:
            return block
        if isinstance(assigner, IngestionTimeAssigner):
            if isinstance(block, Columns):
                return Columns(block.batch, np.full(len(block), now_ms, dtype=np.int64))
            return Rows(block.values, [now_ms] * len(block))
        column = getattr(assigner, "column", None)
        if column is not None and isinstance(block, Columns):
            where = f"the timestamp assigner of column {column!r}"
            return Columns(block.batch, event_times(column_of(block.batch, column, where), where))
        rows = to_rows(block, self.input_type)
        extract = assigner.extract_timestamp if self._by_column is None else self._by_column
        before = rows.timestamps or [NO_TIMESTAMP] * len(rows)
        stamps: list[int | None] = []
        for value, old in zip(rows.values, before, strict=True):
            self.stamping = value
            stamps.append(extract(value, NO_TIMESTAMP if old is None else old))
        if isinstance(block, Columns):
            return Columns(block.batch, np.asarray(stamps, dtype=np.int64))
        return Rows(rows.values, stamps)

    def observe(self, block: Block, emit: Callable[[Block], None], advance: Callable[[int], None]) -> None:
        """Pass a stamped block on, with watermarks in between where the strategy asks for them."""
        if self._custom is not None or self.strategy.per_record:
            rows = to_rows(block, self.input_type)
            stamps = rows.timestamps or [None] * len(rows)
            for value, timestamp in zip(rows.values, stamps, strict=True):
                self._on_event(value, timestamp)  # before others get the object, which they may change
                emit(Rows([value], None if rows.timestamps is None else [timestamp]))
                watermark = self._output.take() if self._custom is not None else self._bounded()
                self._advance(watermark, advance)
            return
        if block.timestamps is not None and len(block):
            if isinstance(block, Columns):
                highest: int | None = int(block.timestamps.max())
            else:  # all may be without one
                highest = max((t for t in block.timestamps if t is not None), default=None)
            if highest is not None and (self.max_timestamp is None or highest > self.max_timestamp):
                self.max_timestamp = highest
        emit(block)

    def _on_event(self, value: Any, timestamp: int | None) -> None:
        if timestamp is not None and (self.max_timestamp is None or timestamp > self.max_timestamp):
            self.max_timestamp = timestamp
        if self._custom is not None:
            self._custom.on_event(value, NO_TIMESTAMP if timestamp is None else timestamp, self._output)

    def periodic(self, advance: Callable[[int], None], now_ms: int) -> None:
        """The end of this split's part of the epoch; as in Flink also if it had no records, unless it is idle."""
        if self._custom is not None:
            self._custom.on_periodic_emit(self._output)
            self._advance(self._output.take(), advance)
        elif isinstance(self.strategy.generator, IngestionTime):
            self._advance(now_ms - 1, advance)
        else:
            self._advance(self._bounded(), advance)

    def punctuate(self, watermark: int, advance: Callable[[int], None]) -> None:
        """The split itself says how far event time has come."""
        self._advance(watermark, advance)

    def _bounded(self) -> int | None:
        if self.max_timestamp is None:
            return None
        match self.strategy.generator:
            case Monotonous():
                return self.max_timestamp - 1
            case BoundedOutOfOrderness(bound_ms=bound):
                return self.max_timestamp - bound - 1
            case NoWatermarks():
                return None
        return None

    def _advance(self, watermark: int | None, advance: Callable[[int], None]) -> None:
        if watermark is not None and watermark > self.emitted:
            self.emitted = watermark
            advance(watermark)

    def timed_out(self, now_ms: int, had_data: bool) -> bool:
        """Whether `with_idleness` milliseconds of processing time have passed without a record. Asked once an epoch."""
        if had_data or self.last_active_ms is None:
            self.last_active_ms = now_ms
        timeout = self.strategy.idle_timeout_ms
        return not had_data and timeout is not None and now_ms - self.last_active_ms >= timeout

    def check_idle(self, timed_out: bool) -> bool:
        """Idle by time-out, or because a custom generator said so."""
        self.idle = timed_out or self._output.idle is True
        return self.idle

    def snapshot(self) -> bytes:
        """All it knows, the user's generator included."""
        return pickle.dumps((self.max_timestamp, self.emitted, self.last_active_ms, self.idle, self._custom))

    def restore(self, data: bytes) -> None:
        """Goes on from what `snapshot` gave."""
        self.max_timestamp, self.emitted, self.last_active_ms, self.idle, custom = load_stored(data)
        if self._custom is not None:
            self._custom = custom


def _by_column(strategy: WatermarkStrategy, input_type: TypeInformation | None) -> Callable[[Any, int], int] | None:
    """Event time from the column of a single record, which may be a tuple whose names are in its declared type."""
    assigner = strategy.timestamp_assigner
    if type(assigner) is not ColumnTimestampAssigner:
        return None
    select, millis = as_selector(assigner.column, input_type), assigner.millis
    return lambda value, before: millis(select(value))


def is_columnar(strategy: WatermarkStrategy) -> bool:
    """Whether it looks at columns only: event time is a column or is there already, and watermarks follow from it."""
    assigner = strategy.timestamp_assigner
    by_column = assigner is None or getattr(assigner, "column", None) is not None
    return by_column and not strategy.per_record and not isinstance(strategy.generator, CustomGenerator)


_GENERATORS: Final = "generators"
_DEALT: Final = "watermarks"  # as older checkpoints have them: one element to one subtask


class WatermarkOperator(Operator):
    """assign_timestamps_and_watermarks inside a stream. Watermarks from upstream are replaced, except the final one."""

    gives = "what it gets"

    def __init__(self, strategy: WatermarkStrategy, input_type: TypeInformation | None) -> None:
        super().__init__()
        self.strategy = strategy
        self.columnar = is_columnar(strategy)
        self.input_type = input_type
        self.gives_timestamps = strategy.timestamp_assigner is not None

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._watermarks = SplitWatermarks(self.strategy, self.input_type)
        self._had_data = False

    def user_functions(self) -> Iterable[Any]:
        return () if self.strategy.timestamp_assigner is None else (self.strategy.timestamp_assigner,)

    def restore_state(self) -> None:
        self._watermarks = SplitWatermarks(self.strategy, self.input_type)
        saved = list(self.ctx.state.operator_list(_GENERATORS, ENGINE_UNION))
        if self.ctx.state.lists.has(_DEALT):
            dealt = self.ctx.state.operator_list(_DEALT)
            saved, dealt[:] = saved or list(dealt), []
        if saved:
            # With other senders any of the old generators' records may come here: the slowest one is the safe one.
            candidates = []
            for data in saved:
                watermarks = SplitWatermarks(self.strategy, self.input_type)
                watermarks.restore(data)
                candidates.append(watermarks)
            self._watermarks = min(candidates, key=lambda w: w.emitted)
            self._watermarks.idle = all(w.idle for w in candidates)
            self.current_watermark = self._watermarks.emitted
        self.idle = self._watermarks.idle

    def resume_at(self, watermark: int, idle: bool) -> None:
        """Event time upstream says nothing about watermarks made here, except that it has ended."""
        if watermark == MAX_WATERMARK:
            self.current_watermark = watermark

    def snapshot_state(self) -> None:
        self.ctx.state.operator_list(_GENERATORS, ENGINE_UNION)[:] = [self._watermarks.snapshot()]

    def process(self, input: int, block: Block) -> None:
        self.ctx.metrics.records_in += len(block)
        self._had_data = True
        if self._watermarks.idle:  # before its records: they must find the watermark waiting for them again
            self._watermarks.idle = self.idle = False
            self.ctx.output.idle(False)
        try:
            stamped = self._watermarks.stamp(block, self.ctx.processing_time())
        except Exception as error:
            self.fail(error, "timestamp assigner", self._watermarks.stamping, has_record=True)
        self._watermarks.observe(stamped, self._emit_block, self._advance)

    def _emit_block(self, block: Block) -> None:
        self.ctx.metrics.records_out += len(block)
        self.ctx.output.block(block)

    def _advance(self, timestamp: int) -> None:
        self.current_watermark = timestamp
        self.ctx.output.watermark(timestamp)

    def end_epoch(self) -> None:
        if not self.ctx.by_clock:
            self.on_interval()

    def on_interval(self) -> None:
        now, before = self.ctx.processing_time(), self._watermarks.idle
        timed_out = self._watermarks.timed_out(now, self._had_data)
        if not timed_out:
            self._watermarks.periodic(self._advance, now)
        if self._watermarks.check_idle(timed_out) != before:
            self.idle = self._watermarks.idle
            self.ctx.output.idle(self.idle)
        self._had_data = False

    def on_watermark(self, timestamp: int) -> None:
        if timestamp == MAX_WATERMARK:
            self._advance(timestamp)

    def on_idle(self, idle: bool) -> None:
        """Idleness upstream says nothing about watermarks made here."""
