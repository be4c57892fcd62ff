"""Records at the largest timestamps: their windows end where time ends, fire with the last watermark, and lose nothing.

A batch job stamps the results of a keyed reduce with the largest long, as Flink does, so a window behind one is always here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Configuration, Row, Types
from penstock.common.time import MAX_LONG_VALUE as MAX
from penstock.common.time import MIN_LONG_VALUE as MIN
from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import ColumnTimestampAssigner, TimestampAssigner, WatermarkStrategy
from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.aggregates import count, sum_
from penstock.datastream.window import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from penstock.errors import PenstockError
from penstock.operators.aggregation import AggregatedRow, RowAggregation
from penstock.operators.columnar_sessions import ColumnarSessionOperator
from penstock.operators.columnar_window import ColumnarWindowOperator
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents
from penstock.records import Columns, Rows
from penstock.testing.harness import OperatorHarness

EVENT = Types.ROW_NAMED(["key", "part", "value"], [Types.STRING(), Types.LONG(), Types.LONG()])
EVENTS = [("a", 1, 5), ("a", 1, 2), ("a", 2, 30), ("b", 1, 7), ("a", 1, 1), ("b", 2, 100)]
TOTALS = {"a": (2, 38), "b": (2, 107)}  # of every key: how many parts, and their sum

WINDOWS: list[Any] = [
    TumblingEventTimeWindows(10_000, 0),
    SlidingEventTimeWindows(10_000, 5_000, 0),
    CumulativeEventTimeWindows(20_000, 5_000),
    EventTimeSessionWindows(10_000),
]


def _windows_of_the_last_record(assigner: Any) -> list[tuple[int, int]]:
    """By the definition of each assigner, in Python's unbounded integers, and cut off at the end of time."""
    match assigner:
        case TumblingEventTimeWindows():
            start = MAX // 10_000 * 10_000
            found = [(start, start + 10_000)]
        case SlidingEventTimeWindows():
            last = MAX // 5_000 * 5_000
            found = [(start, start + 10_000) for start in (last - 5_000, last)]
        case CumulativeEventTimeWindows():
            start = MAX // 20_000 * 20_000
            found = [(start, start + n * 5_000) for n in (1, 2, 3, 4) if start + n * 5_000 > MAX]
        case _:
            found = [(MAX, MAX + 10_000)]
    return sorted({(start, min(end, MAX)) for start, end in found})


def _events(declared: TypeInformation | None) -> DataStream:
    config = Configuration.from_dict({"penstock.runtime": "embedded"})
    env = StreamExecutionEnvironment.get_execution_environment(config).set_runtime_mode(RuntimeExecutionMode.BATCH)
    by_value = WatermarkStrategy.no_watermarks().with_timestamp_assigner(ColumnTimestampAssigner("value"))
    events = env.from_collection([Row(key=k, part=p, value=v) for k, p, v in EVENTS], declared)
    return events.assign_timestamps_and_watermarks(by_value)


@pytest.mark.parametrize("path", ["columns", "rows"])
@pytest.mark.parametrize("assigner", WINDOWS, ids=repr)
def test_a_batch_window_behind_a_keyed_sum_loses_nothing(assigner: Any, path: str) -> None:
    events = _events(EVENT if path == "columns" else None)
    summed = events.key_by(lambda v: (v.key, v.part)).sum("value")
    result = summed.key_by("key").window(assigner).agg(n=count(), total=sum_("value"))
    assert result._node.columnar is (path == "columns")
    with result.execute_and_collect() as results:
        found = sorted(tuple(row) for row in results)
    windows = _windows_of_the_last_record(assigner)
    assert windows
    assert found == sorted((key, *window, *TOTALS[key]) for key in TOTALS for window in windows)


def test_two_reduces_and_two_windows_in_a_row_lose_nothing_in_batch() -> None:
    summed = (
        _events(EVENT)
        .key_by(lambda v: (v.key, v.part))
        .reduce(lambda a, b: Row(key=a.key, part=a.part, value=a.value + b.value))
    )
    once = summed.key_by("key").window(TumblingEventTimeWindows(10, 0)).agg(total=sum_("value"))
    twice = once.key_by("key").window(SlidingEventTimeWindows(10, 10, 0)).agg(total=sum_("total"))
    with twice.execute_and_collect() as results:
        assert sorted((row.key, row.total) for row in results) == [("a", 38), ("b", 107)]


# -------------------------------------------------------------------- in a stream, record by record


def _rows(assigner: Any, lateness: int = 0) -> OperatorHarness:
    aggregates = {"n": count(), "total": sum_("value")}
    operator = WindowOperator(
        selector=ColumnKeySelector(("key",)),
        assigner=assigner,
        contents=AggregateContents(RowAggregation(aggregates)),
        function=AggregatedRow(("key",), aggregates),
        allowed_lateness=lateness,
    )
    return OperatorHarness(operator)


def _columns(assigner: Any, lateness: int = 0) -> OperatorHarness:
    return OperatorHarness(
        ColumnarWindowOperator(("key",), assigner, {"n": count(), "total": sum_("value")}, allowed_lateness=lateness)
    )


def _columnar_sessions(assigner: Any) -> OperatorHarness:
    return OperatorHarness(ColumnarSessionOperator(("key",), assigner, {"n": count(), "total": sum_("value")}))


def _push(harness: OperatorHarness, stamps: list[int]) -> OperatorHarness:
    if harness.operator.columnar:
        batch = pa.record_batch({"key": ["a"] * len(stamps), "value": list(range(len(stamps)))})
        return harness.push_block(Columns(batch, np.array(stamps, dtype=np.int64)))
    return harness.push_block(Rows([Row(key="a", value=n) for n in range(len(stamps))], list(stamps)))


@pytest.mark.parametrize("make", [_rows, _columns])
@pytest.mark.parametrize("assigner", WINDOWS[:3], ids=repr)
@pytest.mark.parametrize("lateness", [0, 3, MAX])
def test_a_window_at_the_end_of_time_waits_for_the_last_watermark(make: Any, assigner: Any, lateness: int) -> None:
    """A record at the largest timestamp may follow the watermark before it: the window must still be there."""
    harness = _push(make(assigner, lateness), [MAX - 1]).advance_watermark(MAX - 1)
    before = {tuple(value) for value in harness.values()}
    _push(harness.clear_output(), [MAX]).end_input()
    assert {tuple(value)[:3] for value in harness.values() if value.window_end == MAX} == {
        ("a", *window) for window in _windows_of_the_last_record(assigner)
    }
    assert not [value for value in before if value[2] == MAX]
    assert {value.n for value in harness.values() if value.window_end == MAX} == {2}
    assert {stamp for value, stamp in harness.records() if value.window_end == MAX} == {MAX}
    assert harness.metrics.late_dropped == 0


@pytest.mark.parametrize("make", [_rows, _columnar_sessions])
def test_a_session_at_the_end_of_time_takes_all_its_records(make: Any) -> None:
    harness = _push(make(EventTimeSessionWindows(10)), [MAX, MAX - 4, MAX, MAX - 30]).end_input()
    assert [tuple(value) for value in harness.values()] == [("a", MAX - 30, MAX - 20, 1, 3), ("a", MAX - 4, MAX, 3, 3)]
    assert [stamp for _, stamp in harness.records()] == [MAX - 21, MAX]


@pytest.mark.parametrize("make", [_rows, _columnar_sessions])
@pytest.mark.parametrize("gap", [1, 10, MAX])
def test_a_session_at_the_end_of_time_waits_for_the_last_watermark(make: Any, gap: int) -> None:
    """And joins what began before it, also if its records are at both ends of time."""
    harness = _push(make(EventTimeSessionWindows(gap)), [MAX - 1, MIN + 1]).advance_watermark(MAX - 1)
    before = [tuple(value)[1:] for value in harness.values()]
    assert before == {1: [(MIN + 1, MIN + 2, 1, 1)], 10: [(MIN + 1, MIN + 11, 1, 1)], MAX: [(MIN + 1, 0, 1, 1)]}[gap]
    _push(harness, [MAX]).end_input()
    assert [tuple(value)[1:] for value in harness.values()[1:]] == [(MAX - 1, MAX, 2, 0)]
    assert harness.metrics.late_dropped == 0
    _push(harness, [MAX, 5]).snapshot()
    assert harness.metrics.late_dropped == 2


@pytest.mark.parametrize("make", [_rows, _columns])
@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows(10_000, 0),
        TumblingEventTimeWindows(10_000, -9_999),
        SlidingEventTimeWindows(10_000, 100, 0),
        CumulativeEventTimeWindows(20_000, 5_000),
    ],
    ids=repr,
)
def test_a_window_that_would_begin_before_time_does_is_refused(make: Any, assigner: Any) -> None:
    with pytest.raises(PenstockError, match="begin before"):
        _push(make(assigner), [5, MIN + 1])


@pytest.mark.parametrize("offset", [-9_999, -1, 0, 1, 9_999])
@pytest.mark.parametrize("make", [_rows, _columns])
def test_offsets_do_not_overflow_at_either_end(make: Any, offset: int) -> None:
    stamps = [MAX, MAX - 9_999, MIN + 20_000, MIN + 10_000, 0]
    harness = _push(make(TumblingEventTimeWindows(10_000, offset)), stamps).end_input()
    starts = {stamp: stamp - (stamp - offset) % 10_000 for stamp in stamps}
    expected = {(start, min(start + 10_000, MAX)) for start in starts.values()}
    assert {(row.window_start, row.window_end) for row in harness.values()} == expected
    assert sum(row.n for row in harness.values()) == len(stamps)


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Later(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + 1000)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING])
def test_a_timer_behind_the_end_of_time_fires_at_it(mode: RuntimeExecutionMode, backend: str, tmp_path: Path) -> None:
    config = {"penstock.runtime": "embedded", "state.backend.type": backend, "penstock.job.dir": str(tmp_path)}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(config)).set_runtime_mode(mode)
    by_value = WatermarkStrategy.no_watermarks().with_timestamp_assigner(Itself())
    late = env.from_collection([MAX, 5]).assign_timestamps_and_watermarks(by_value).key_by(lambda v: v)
    with late.process(Later()).execute_and_collect() as results:
        assert sorted(results) == [(5, 1005), (MAX, MAX)]


def test_a_window_ends_no_later_than_time() -> None:
    assert TimeWindow(MAX - 5, MAX).max_timestamp() == MAX
    assert TimeWindow(0, 10).max_timestamp() == 9
