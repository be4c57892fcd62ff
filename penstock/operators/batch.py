"""Batch mode: final results only. Event time stands still until all input has ended, then each key is done at once.

    read everything ─▶ for each key: its records sorted by timestamp ─▶ its timers ─▶ next key

Input waits in a table of the operator's state, so a retried epoch does not lose what earlier epochs brought. The operator
inside is the one that streams: it sees one key at a time, the smallest watermark while records come and the largest while
timers fire. A keyed reduce gives one result per key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any, TypeAlias

from penstock.common.time import MAX_LONG_VALUE
from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import NoWatermarks, WatermarkStrategy
from penstock.operators.base import Operator, OperatorContext, Output
from penstock.operators.keyed import KeyedReduceOperator, ProcessOperator, TimedOperator
from penstock.operators.keyed_elementwise import KeyedElementwise
from penstock.operators.source import SourceOperator
from penstock.operators.two_inputs import BroadcastOperator, TwoInputOperator
from penstock.operators.watermarks import WatermarkOperator
from penstock.operators.window import WindowOperator
from penstock.operators.window_context import ALL_KEY
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK, LatencyMarker
from penstock.records import Block, Rows
from penstock.records.convert import to_rows
from penstock.state.backend import NO_KEY
from penstock.state.keys import canonical
from penstock.state.specification import Specification

INPUT = "batch-input"

Selector: TypeAlias = Callable[[Any], Any]
Waiting: TypeAlias = tuple[int, int | None, Any]  # (input, timestamp, value)


def batch_operator(operator: Operator) -> Operator:
    """The operator that does in batch mode what this one does in a stream."""
    match operator:
        case SourceOperator():
            return BatchSourceOperator(operator.source, _silent(operator.strategy))
        case WatermarkOperator():
            return WatermarkOperator(_silent(operator.strategy), operator.input_type)
        case ProcessOperator() if operator.selector is not None:
            return BatchOperator(operator, (operator.selector,), (operator.input_type,))
        case KeyedElementwise():
            return BatchOperator(operator, (operator.selector,), (operator.input_type,))
        case KeyedReduceOperator():
            return BatchOperator(operator, (operator.selector,), (operator.input_type,), final_only=True)
        case WindowOperator():
            return BatchOperator(operator, (operator.selector or _one_key,), (operator.input_type,))
        case BroadcastOperator():
            # The data waits, keyed or not: Flink reads the broadcast side first.
            return BatchOperator(operator, (operator.selectors[0] or _one_key, None), operator.input_types)
        case TwoInputOperator() if operator.selectors[0] is not None:
            return BatchOperator(operator, operator.selectors, operator.input_types)
    return operator


def _one_key(value: Any) -> Any:
    return ALL_KEY


def _silent(strategy: WatermarkStrategy) -> WatermarkStrategy:
    """Timestamps as before, but no watermarks."""
    return replace(strategy, generator=NoWatermarks(), per_record=False, idle_timeout_ms=None)


class BatchSourceOperator(SourceOperator):
    """Only the end of the input is a watermark, also when a source knows its own."""

    def _forward(self, timestamp: int) -> None:
        if timestamp == MAX_WATERMARK:
            super()._forward(timestamp)


class _KeyOutput:
    """Output of the operator inside. With `final_only` the last record of a key is held back until the key is done."""

    def __init__(self, output: Output, final_only: bool) -> None:
        self._output, self._final_only = output, final_only
        self.last: list[Any] = []

    def block(self, block: Block) -> None:
        if self._final_only:
            self.last = to_rows(block).values[-1:]
        else:
            self._output.block(block)

    def side(self, tag: str, block: Block) -> None:
        self._output.side(tag, block)

    def watermark(self, timestamp: int) -> None:
        """Time inside a key is nobody else's."""

    def idle(self, idle: bool) -> None:
        """Nothing waits for a watermark before the end."""

    def marker(self, marker: LatencyMarker) -> None:
        """None comes here: the operator around this one sends it on."""


class BatchOperator(Operator):
    """`selectors` gives, for each input, the key under which its records wait; None: they are processed at once."""

    def __init__(
        self,
        inner: Operator,
        selectors: tuple[Selector | None, ...],
        input_types: tuple[TypeInformation | None, ...],
        *,
        final_only: bool = False,
    ) -> None:
        super().__init__()
        self.inner = inner
        self._selectors = selectors
        self._input_types = input_types
        self._final_only = final_only

    # ---------------------------------------------------------------- life cycle: the operator inside has it all

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._key_output = _KeyOutput(ctx.output, self._final_only)
        self.inner.setup(replace(ctx, output=self._key_output))
        self._table = ctx.state.table(INPUT, "value", namespaced=True)
        self._sequence = 0

    def specification(self) -> Specification:
        """Records wait as they came: whatever the operator inside is now makes of them what it makes of all."""
        return Specification(holds="records that wait for the end of the input (batch mode)")

    def user_functions(self) -> Iterable[Any]:
        return self.inner.user_functions()

    def open(self) -> None:
        self.inner.open()

    def close(self) -> None:
        self.inner.close()

    def restore_state(self) -> None:
        self.inner.restore_state()
        entries: Any = (entry for entry, _ in self._table.items())
        self._sequence = 1 + max((sequence for _, sequence in entries), default=-1)

    def resume_at(self, watermark: int, idle: bool) -> None:
        """Neither goes through, except the end."""
        self.current_watermark = watermark if watermark == MAX_WATERMARK else MIN_WATERMARK

    def snapshot_state(self) -> None:
        self.inner.snapshot_state()

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self.inner.begin_epoch(epoch, attempt)

    def end_epoch(self) -> None:
        self.inner.end_epoch()

    def end_input(self) -> None:
        self.inner.end_input()

    # ---------------------------------------------------------------- data

    def process(self, input: int, block: Block) -> None:
        selector = self._selectors[input]
        if selector is None:
            self.inner.process(input, block)
            return
        rows = to_rows(block, self._input_types[input])
        value: Any = None
        try:
            for value, timestamp in zip(rows.values, rows.timestamps or [None] * len(rows), strict=True):
                self._table.put((selector(value), self._sequence), (input, timestamp, value))
                self._sequence += 1
        except Exception as error:
            self.fail(error, "key selector", value, has_record=True)

    def on_idle(self, idle: bool) -> None:
        """Nothing waits for a watermark before the end."""

    def on_watermark(self, timestamp: int) -> None:
        if timestamp != MAX_WATERMARK:
            return
        keys: dict[Any, list[int]] = {}
        entry: Any
        for entry, _ in self._table.items():
            keys.setdefault(entry[0], []).append(entry[1])
        for key in sorted(keys, key=canonical):
            self._run_key(key, keys[key])
        self.current_watermark = timestamp
        self.ctx.output.watermark(timestamp)

    def _run_key(self, key: Any, sequence: list[int]) -> None:
        # `get` makes private copies of what earlier epochs brought: if this epoch is run again, they are as they were.
        waiting: list[Waiting] = [self._table.get((key, number)) for number in sorted(sequence)]
        waiting.sort(key=_event_time)  # stable: records of one time keep their order
        records_out = self.ctx.metrics.records_out
        for input, run in groupby(waiting, key=lambda record: record[0]):
            records = list(run)
            self.inner.process(input, Rows([value for *_, value in records], [stamp for _, stamp, _ in records]))
        self._fire_timers()
        if self._final_only:
            self.ctx.metrics.records_out = records_out
            self.emit(self._key_output.last, [MAX_LONG_VALUE])  # the time Flink gives it
            self._key_output.last = []
        for number in sequence:
            self._table.delete((key, number))
        # What is left of the key's state is never read again.
        for table in self.ctx.state.tables.values():
            if table is not self._table:
                table.rollback()

    def _fire_timers(self) -> None:
        inner, state = self.inner, self.ctx.state
        if isinstance(inner, TimedOperator):
            inner.current_watermark = MAX_WATERMARK
            # As in Flink, a timer that a timer registers is ignored: it would be in the past of both clocks.
            state.event_timers.closed = state.processing_timers.closed = True
            try:
                state.event_timers.drain(inner._fire_event)
                state.processing_timers.drain(inner._fire_processing)
            finally:  # the state outlives a failed attempt
                state.event_timers.closed = state.processing_timers.closed = False
            state.current_key = NO_KEY
            inner.collector.flush()
            inner.current_watermark = MIN_WATERMARK


def _event_time(record: Waiting) -> int:
    return MIN_WATERMARK if record[1] is None else record[1]
