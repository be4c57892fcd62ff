"""Timestamps that PyFlink 2.3 gives where there is none of the record's own, or no end of the window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.common.time import Time
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import CoProcessFunction, KeyedProcessFunction, ProcessFunction
from penstock.datastream.window import CountTrigger, GlobalWindows, TumblingEventTimeWindows
from penstock.errors import JobDefinitionError

NONE = -(2**63)  # StreamRecord.getTimestamp() of a record without a timestamp


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    return StreamExecutionEnvironment.get_execution_environment(config)


class Stamp(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


class KeyedStamp(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


class CoStamp(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


class Ten(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value * 10


TIMED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Ten())


def test_a_record_without_a_timestamp_has_the_smallest_long(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1])
    stamped = stream.process(Stamp()).union(
        stream.key_by(lambda v: v).process(KeyedStamp()), stream.connect(stream).process(CoStamp())
    )
    assert list(stamped.execute_and_collect()) == [(1, NONE)] * 4


@pytest.mark.parametrize(("timed", "expected"), [(True, [(3, 20), (7, 40)]), (False, [(3, NONE), (7, NONE)])])
@pytest.mark.parametrize("windows", ["count", "count-all", "global"])
def test_results_of_windows_without_an_end_have_the_time_of_the_record_that_fired_them(
    env: StreamExecutionEnvironment, windows: str, timed: bool, expected: list[Any]
) -> None:
    numbers = env.from_collection([1, 2, 3, 4])
    stream = numbers.assign_timestamps_and_watermarks(TIMED) if timed else numbers
    keyed = stream.key_by(lambda v: 0)
    match windows:
        case "count":
            windowed: Any = keyed.count_window(2)
        case "count-all":
            windowed = stream.count_window_all(2)
        case _:
            windowed = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    results = list(windowed.reduce(lambda a, b: a + b).process(Stamp()).execute_and_collect())
    if windows == "global":  # it does not purge
        expected = [expected[0], (10, expected[1][1])]
    assert results == expected


def test_a_window_of_event_time_behind_a_count_window_has_its_records_in_their_time(
    env: StreamExecutionEnvironment,
) -> None:
    counted = env.from_collection([1, 2, 3, 4]).assign_timestamps_and_watermarks(TIMED).key_by(lambda v: 0)
    pairs = counted.count_window(2).reduce(lambda a, b: a + b)
    windows = pairs.key_by(lambda v: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(30)))
    assert list(windows.reduce(lambda a, b: a * 1000 + b).process(Stamp()).execute_and_collect()) == [(3, 29), (7, 59)]


def test_a_count_window_gives_no_timestamps_where_there_are_none(env: StreamExecutionEnvironment) -> None:
    counted = env.from_collection([1, 2]).key_by(lambda v: 0).count_window(2).reduce(lambda a, b: a + b)
    counted.key_by(lambda v: 0).window(TumblingEventTimeWindows.of(Time.seconds(1))).reduce(lambda a, b: a).print()
    with pytest.raises(JobDefinitionError, match=r"works in event time.*without a timestamp"):
        env.get_execution_plan()
