"""Operators with keys, timers or both: process, keyed process, rolling reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple

from penstock.common.time import MIN_LONG_VALUE
from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common.types import Row
from penstock.common.values import ATOMS, own
from penstock.functions import KeyedProcessFunction, ProcessFunction, ReduceFunction
from penstock.functions.base import TimeDomain, TimerService
from penstock.functions.process import OutputTag
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.keyed_records import ASK, KeyedRecords, keyed_records
from penstock.operators.lean_rows import Reader, shown
from penstock.operators.runtime_context import OperatorTimerService
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.simple import FunctionOperator
from penstock.records import Block, Rows
from penstock.records.convert import has_single_floats
from penstock.records.sizes import FIRST_LOOK, next_look
from penstock.records.typed import Typed
from penstock.state.backend import NO_KEY
from penstock.state.keys import user_key
from penstock.state.overlay import MISSING
from penstock.state.specification import Specification, type_name
from penstock.state.timers import TimerQueue

ASIDE: Final = object()


class Collector:
    """Gathers what a function yields, main and side, so that it travels on as blocks.

    A side output is a yielded pair (OutputTag, value), as in PyFlink. What is yielded counts as it is at that moment.
    A full block leaves at once, also in the middle of a call: memory is bounded by a block, not by what a function yields.
    """

    __slots__ = ("_operator", "_records", "limit", "main", "sides", "stamps")

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._records = operator.ctx.block_size
        self.limit = min(FIRST_LOOK, self._records)  # of `main`, before it is looked at
        self.main: list[Any] = []
        self.stamps: list[int | None] = []
        self.sides: dict[str, tuple[list[Any], list[int | None]]] = {}

    def take(self, results: Iterable[Any] | None, timestamp: int | None) -> None:
        """Gathers what a function returned or yields, main and side; None is nothing."""
        if results is None:
            return
        for result in results:
            if type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                self.side(result[0].tag_id, result[1], timestamp)
            else:
                self.main.append(result if type(result) in ATOMS else own(result))
                self.stamps.append(timestamp)
                if len(self.main) >= self.limit:
                    self.look()

    def give(self, results: list[Any], timestamp: int | None) -> None:
        """Gathers values of the main output that are nobody else's."""
        self.main += results
        self.stamps += [timestamp] * len(results)
        if len(self.main) >= self.limit:
            self.look()

    def side(self, tag: str, value: Any, timestamp: int | None) -> None:
        """Gathers a value for a side output."""
        values, stamps = self.sides.setdefault(tag, ([], []))
        values.append(own(value))
        stamps.append(timestamp)
        if len(values) >= self._records or (len(values) % FIRST_LOOK == 0 and not next_look(values, self._records)):
            self.flush()

    def taken_aside(self, result: tuple[Any, ...], timestamp: int | None) -> Any:
        """ASIDE if this was for a side output, which has it now; else the value as nobody else holds it."""
        if len(result) == 2 and isinstance(result[0], OutputTag):
            self.side(result[0].tag_id, result[1], timestamp)
            return ASIDE
        return own(result)

    def look(self) -> None:
        """So much is gathered that it may be a block: send it on if it is, else say when to look again."""
        self.limit = next_look(self.main, self._records)
        if not self.limit:
            self.flush()

    def flush(self) -> None:
        """Sends what was gathered on, as blocks."""
        operator = self._operator
        self.limit = min(
            FIRST_LOOK, self._records
        )  # cuts follow from the records of this block alone: a replay cuts alike
        if self.main:
            values, stamps = self.main, self.stamps
            self.main, self.stamps = [], []
            operator.emit(values, stamps)
        if self.sides:
            sides, self.sides = self.sides, {}
            for tag, (values, stamps) in sides.items():
                operator.ctx.metrics.records_out += len(values)
                operator.ctx.output.side(tag, Rows(values, stamps))


def timestamp_of(stamp: int | None) -> int:
    """The result of `ctx.timestamp()`: the smallest long for a record without event time, as in PyFlink."""
    return MIN_LONG_VALUE if stamp is None else stamp


class Calls(NamedTuple):
    """What is called with the records of a block, as errors name it; `clock` is told each record's timestamp."""

    what: str
    function: Callable[[Any, Any], Iterable[Any] | None]
    context: Any
    clock: Any


class TimedOperator(Operator):
    """Keyed timers fire as the watermark or the epoch's processing time advances; their results leave before it."""

    collector: Collector

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self.collector = Collector(self)
        self.timers = OperatorTimerService(self)

    def on_watermark(self, timestamp: int) -> None:
        self.current_watermark = timestamp
        self._fire_due(self.ctx.state.event_timers, timestamp, self._fire_event)
        self.ctx.output.watermark(timestamp)

    def on_processing_time(self, now: int) -> None:
        self._fire_due(self.ctx.state.processing_timers, now, self._fire_processing)

    def _fire_due(self, timers: TimerQueue, time: int, fire: Callable[[int, Any, Any], None]) -> None:
        due = timers.next_timestamp()
        if due is not None and due <= time:
            timers.advance(time, fire)
            self.ctx.state.current_key = NO_KEY
            self.collector.flush()

    def next_processing_timer(self) -> int | None:
        return self.ctx.state.processing_timers.next_timestamp()

    def _fire_event(self, timestamp: int, key: Any, namespace: Any) -> None:
        self.ctx.state.current_key = key
        self.on_timer(timestamp, namespace, TimeDomain.EVENT_TIME)

    def _fire_processing(self, timestamp: int, key: Any, namespace: Any) -> None:
        self.ctx.state.current_key = key
        self.on_timer(timestamp, namespace, TimeDomain.PROCESSING_TIME)

    def on_timer(self, timestamp: int, namespace: Any, domain: TimeDomain) -> None:
        """A timer of the current key is due."""

    def call_for_each(
        self,
        calls: Calls,
        records: KeyedRecords,
        selector: Callable[[Any], Any] | None,
        block: Block,
        type_info: TypeInformation | None,
    ) -> None:
        """Calls a function with each record of a block, and sends on what it gives."""
        rows, keys, lean = records
        self.ctx.metrics.records_in += len(rows)
        what, function, context, clock = calls
        show = partial(shown, lean, block, type_info)
        state, collector, atoms = self.ctx.state, self.collector, ATOMS
        if keys is None:
            keys = self._asked(selector, rows, show)
        if selector is not None:
            keys = state.read_ahead(keys)
        stamps: Iterable[int | None] = repeat(None) if rows.timestamps is None else rows.timestamps
        values, value_stamps, limit = collector.main, collector.stamps, collector.limit
        value: Any = None
        try:
            for value, timestamp, key in zip(rows.values, stamps, keys):  # noqa: B905 - two of them may be endless
                clock._timestamp = timestamp
                state.current_key = key
                results = function(value, context)
                if results is None:
                    continue
                for result in results:
                    kind = type(result)
                    if kind is tuple:  # most records are, and flat: they need no call
                        for item in result:
                            if type(item) not in atoms:
                                result = collector.taken_aside(result, timestamp)
                                break
                    elif kind not in atoms:
                        result = own(result)
                    if result is not ASIDE:
                        values.append(result)
                        value_stamps.append(timestamp)
                        if len(values) < limit:
                            continue
                        collector.look()
                    values, value_stamps, limit = collector.main, collector.stamps, collector.limit  # it may be sent
        except Exception as error:
            self.fail(error, what, show(value), has_record=True)
        state.current_key = NO_KEY
        collector.flush()

    def _asked(self, selector: Callable[[Any], Any] | None, rows: Rows, show: Callable[[Any], Any]) -> list[Any]:
        """The key of each record, by asking for it."""
        assert selector is not None
        value: Any = None
        keys = []
        try:
            for value in rows.values:
                keys.append(selector(value))
        except Exception as error:
            self.fail(error, "key selector", show(value), has_record=True)
        return keys


class ProcessContext(KeyedProcessFunction.OnTimerContext, ProcessFunction.Context):
    """One object for every call: element and timer context of keyed and non-keyed process functions."""

    def __init__(self, operator: TimedOperator) -> None:
        self._operator = operator
        self._timers = operator.timers
        self._timestamp: int | None = None
        self._domain = TimeDomain.EVENT_TIME

    def timer_service(self) -> TimerService:
        return self._timers

    def timestamp(self) -> int:
        return timestamp_of(self._timestamp)

    def get_current_key(self) -> Any:
        return user_key(self._operator.ctx.state.key())

    def time_domain(self) -> TimeDomain:
        return self._domain


class ProcessOperator(TimedOperator):
    """`process` of a stream; with a selector, of a keyed stream."""

    def __init__(
        self, function: Any, selector: Callable[[Any], Any] | None, input_type: TypeInformation | None = None
    ) -> None:
        super().__init__()
        self.function = function
        self.selector = selector
        self.input_type = input_type

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self.context = ProcessContext(self)

    def user_functions(self) -> Iterable[Any]:
        return (self.function,)

    def process(self, input: int, block: Block) -> None:
        function, context = self.function.process_element, self.context
        records = keyed_records(block, self.input_type, self.selector, [Reader(function, 2)])
        context._domain = TimeDomain.EVENT_TIME
        self.call_for_each(
            Calls("process_element", function, context, context), records, self.selector, block, self.input_type
        )

    def on_timer(self, timestamp: int, namespace: Any, domain: TimeDomain) -> None:
        context = self.context
        context._timestamp, context._domain = timestamp, domain
        try:
            self.collector.take(self.function.on_timer(timestamp, context), timestamp)
        except Exception as error:
            key = self.ctx.state.current_key
            self.fail(error, f"on_timer({timestamp}) for key {key!r}", None)


class KeyedReduceOperator(FunctionOperator):
    """Rolling reduce: emits the new value after every element."""

    def __init__(
        self, function: Any, selector: Callable[[Any], Any], input_type: TypeInformation | None = None
    ) -> None:
        super().__init__(function, input_type)
        self.selector = selector

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._as_declared = _as_declared(self.input_type, ctx.name)

    def specification(self) -> Specification:
        return Specification(
            holds="a rolling aggregate",
            function=getattr(self.function, "described", "reduce"),
            keys=self.selector.names if isinstance(self.selector, ColumnKeySelector) else None,
            values=type_name(self.input_type),
        )

    def process(self, input: int, block: Block) -> None:
        rows, keys, _ = keyed_records(block, self.input_type, self.selector, None)
        self.ctx.metrics.records_in += len(rows)
        table = self.ctx.state.table("reduce", "reducing")
        reduce = self.function.reduce if isinstance(self.function, ReduceFunction) else self.function
        selector, state, as_declared = self.selector, self.ctx.state, self._as_declared
        out: list[Any] = []
        given: Iterable[Any] = repeat(ASK) if keys is None else keys
        value: Any = None
        try:
            for value, key in zip(rows.values, given):  # noqa: B905 - the second may be endless
                entry = state.current_key = selector(value) if key is ASK else key
                current = table.get(entry)
                result = value if current is MISSING else as_declared(reduce(current, value))
                if type(result) in ATOMS:
                    table.overlay[entry] = result
                    out.append(result)
                    continue
                emitted = own(result)
                ours = emitted is result or result is current or result is value
                table.overlay[entry] = result if ours else own(result)
                out.append(emitted)
        except Exception as error:
            self.fail(error, "reduce", value, has_record=True)
        state.current_key = NO_KEY
        self.emit(out, rows.timestamps)


def _as_declared(type_info: TypeInformation | None, name: str) -> Callable[[Any], Any]:
    """What a function gave as the next call will get it. What is of the right class is looked at when it is emitted; only
    32-bit floats would be others there."""
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return _itself
    typed, names = Typed(type_info, f"operator {name!r}"), type_info.get_field_names()
    if isinstance(type_info, RowTypeInfo):
        right: Callable[[Any], bool] = lambda value: type(value) is Row and value._fields == names  # noqa: E731
    else:
        right = lambda value: type(value) is tuple  # noqa: E731
    always = type_info.to_arrow() is not None and has_single_floats(type_info)
    return typed.one if always else lambda value: value if right(value) else typed.one(value)


def _itself(value: Any) -> Any:
    return value
