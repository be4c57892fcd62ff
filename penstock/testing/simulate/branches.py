"""The branches of a simulated job. Each has an answer that does not depend on the order of arrival.

Functions change what they are given when they are done with it: records are values, and what one does to them nobody sees.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common import Row, Time
from penstock.common.typeinfo import row_type_of
from penstock.datastream import DataStream, OutputTag
from penstock.datastream.aggregates import Aggregate, count, max_, mean, min_, sum_
from penstock.datastream.functions import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.testing.simulate import outside
from penstock.testing.simulate.inputs import ODD, PLAIN, key_of
from penstock.testing.simulate.oracle import GAP_MS, HOPS, UNTIMED, WEIGHT, price_of, timer_of, took_ms, x_of
from penstock.testing.simulate.program import Program, Version

# ---------------------------------------------------------------- functions


_SPOILT: Final = "spoilt"


class _Ids(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        gathered = list(elements)
        yield gathered[0][0], context.window().start, tuple(sorted(element[1] for element in gathered))
        for element in gathered:
            element[1] = _SPOILT


class _Counts(KeyedProcessFunction):
    """Keeps a list and changes it when it is kept: state holds values, not objects."""

    def __init__(self, world: str) -> None:
        self._world = world

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.label = runtime_context.get_state(ValueStateDescriptor("label"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        held = self.count.value() or [0]
        held[0] += 1
        count = held[0]
        self.count.update(held)
        held[0] = -1
        self.label.update(value[0])
        ctx.timer_service().register_event_time_timer(timer_of(value[2]))
        yield "count", value[0], count, value[1]
        value[1] = _SPOILT

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", self.label.value(), timestamp

    def close(self) -> None:
        outside.world(self._world).is_closed()


class _Pair(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left[1], right[1]


_RULES: Final = MapStateDescriptor("rules")


class _Rules(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return ()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(_RULES)
        rules.put(value[1], True)
        yield value[1], len(list(rules.keys()))


class _Gathered(NamedTuple):
    label: str
    ids: list[str]


class _Listed(_Gathered):
    """Its constructor takes something else than its fields."""

    __slots__ = ()

    def __new__(cls, record: Any) -> _Listed:
        return tuple.__new__(cls, (record[0], [record[1]]))

    def __reduce__(self) -> Any:
        return tuple.__new__, (_Listed, tuple(self))


def _listed(record: Any) -> _Listed:
    made = _Listed(record)
    record[1] = _SPOILT
    return made


def _grown(left: Any, right: Any) -> Any:
    left[1].extend(right[1])
    return left


# ---------------------------------------------------------------- branches

_Sink = Callable[[DataStream, str], None]


def _windows(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    _fire(program, stream, "windows", TumblingEventTimeWindows.of(Time.milliseconds(version.window_ms)), sink)


def _sessions(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    _fire(
        replace(program, lateness_ms=0),
        stream,
        "sessions",
        EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)),
        sink,
    )


def _fire(program: Program, stream: DataStream, name: str, assigner: Any, sink: _Sink) -> None:
    late = OutputTag(f"late {name}")
    windows = stream.key_by(key_of).window(assigner).allowed_lateness(program.lateness_ms).side_output_late_data(late)
    fired = windows.process(_Ids()).uid(name)
    sink(fired, name)
    sink(fired.get_side_output(late), f"late {name}")


def _counts(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    keyed = {}
    for by_id in (False, True):  # as with functions, a key selector is what it was
        keyed[by_id] = stream.key_by(lambda record: record[1] if by_id else key_of(record))  # noqa: B023
    sink(keyed[False].process(_Counts(program.world)).uid("counts"), "counts")


def _prefixes(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    listed = stream.map(_listed).uid("listed")
    sink(listed.key_by(key_of).reduce(_grown).uid("prefixes"), "prefixes")


def _loops(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    begun = stream.map(lambda record: (0, record[1])).uid("begun").iterate()
    step = begun.map(lambda token: (token[0] + 1, token[1])).uid("step")
    ways = {}
    for through in (False, True):  # a function is what it was when it was given away
        name = "through" if through else "again"
        ways[through] = step.filter(lambda token: (token[0] >= HOPS) is through).uid(name)  # noqa: B023
    begun.close_with(ways[False])
    sink(ways[True], "loops")


def _pairs(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    a, b = (single.key_by(key_of) for single in inputs)
    reach = version.reach_ms
    joined = a.interval_join(b).between(Time.milliseconds(-reach), Time.milliseconds(reach))
    sink(joined.process(_Pair()).uid("pairs"), "pairs")


def _rules(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    a, b = inputs
    sink(a.key_by(key_of).connect(b.broadcast(_RULES)).process(_Rules()).uid("rules"), "rules")


class _Stamps(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


def _singles(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    """What a window without an end has at the time of what fired it: here every record by itself."""
    singles = stream.key_by(key_of).count_window(1).reduce(_grown).uid("singles")
    sink(singles.key_by(key_of).process(_Stamps()).uid("stamps"), "singles")


def _untimed(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    """A third source, whose records have no event time."""
    plain = stream._env.from_collection(list(UNTIMED)).uid("c")
    sink(plain.key_by(lambda name: name[-1]).process(_Stamps()).uid("untimed"), "untimed")


_TENTH: Final = row_type_of(
    pa.schema([("label", pa.string()), ("id", pa.string()), ("at", pa.int64()), ("tenth", pa.float32())])
)


def _tenth(record: Any) -> Row:
    return Row(label=record[0], id=record[1], at=record[2], tenth=(*PLAIN, *ODD).index(record[0]) / 10)


def _tenths(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    """As `counts`, by a number that is another one when it has travelled: of 32 bits."""
    rows = stream.map(_tenth, output_type=_TENTH).uid("tenth")
    sink(rows.key_by(lambda row: row["tenth"]).process(_Counts(program.world)).uid("tenths"), "tenths")


_MEASURED: Final = row_type_of(
    pa.schema(
        [
            ("key", pa.float64()),
            ("label", pa.string()),
            ("at", pa.int64()),
            ("weight", pa.int64()),
            ("took", pa.duration("ms")),
        ]
    )
)
# Zeros of either sign are two keys, and NaN is one, whatever its sign.
_NUMBERS: Final = {"a": 0.0, "b": math.nan, "c": -0.0}


def _measured(record: Any) -> Row:
    label, record_id, at = record
    number = _NUMBERS.get(label, float((*PLAIN, *ODD).index(label)))
    if math.isnan(number):
        number = math.copysign(number, at // 10 % 2 - 0.5)
    took = datetime.timedelta(milliseconds=took_ms(record_id))
    return Row(key=number, label=label, at=at, weight=WEIGHT, took=took)


def _totals(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    """Windows over columns."""
    rows = stream.map(_measured, output_type=_MEASURED).uid("measured")
    sink(
        _aggregated(
            program, version, rows, "totals", "key", label=max_("label"), weight=mean("weight"), took=sum_("took")
        ),
        "totals",
    )


def _sums(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    """Windows over rows: Python's numbers, and an expression over whatever types they have."""
    rows = stream.map(lambda r: {"label": r[0], "at": r[2], "x": x_of(r[1]), "price": Decimal(price_of(r[1]))}).uid(
        "priced"
    )
    halved = rows.with_column("half", pc.field("x") / 2).uid("halved")
    sink(_aggregated(program, version, halved, "sums", "label", half=sum_("half"), price=sum_("price")), "sums")


def _aggregated(
    program: Program, version: Version, rows: DataStream, name: str, key: str, **more: Aggregate
) -> DataStream:
    """Aggregates in one order or the other: they are known by what they are."""
    bounds = {"low": min_("at"), "high": max_("at")}
    aggregates = {"n": count(), **(dict(reversed(bounds.items())) if version.turned else bounds), **more}
    windows = rows.key_by(key).window(TumblingEventTimeWindows.of(Time.milliseconds(version.window_ms)))
    fired = windows.allowed_lateness(program.lateness_ms).agg(**aggregates).uid(name)
    told = ["label", "window_start", "n", "low", "high", *(other for other in more if other != "label")]
    return fired.map(lambda row: tuple(row[column] for column in told)).uid(f"{name} told")


BRANCHES: Final = {
    "windows": _windows,
    "sessions": _sessions,
    "counts": _counts,
    "prefixes": _prefixes,
    "loops": _loops,
    "pairs": _pairs,
    "rules": _rules,
    "untimed": _untimed,
    "singles": _singles,
    "tenths": _tenths,
    "totals": _totals,
    "sums": _sums,
}
