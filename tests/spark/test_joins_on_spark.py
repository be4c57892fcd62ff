"""Joins, connected and broadcast streams on Spark: one job with all of them gives what nested loops give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, Time, TimestampAssigner, Types, WatermarkStrategy
from penstock.connectors.program import CollectionSource
from penstock.datastream import (
    BroadcastProcessFunction,
    CoGroupFunction,
    DataStream,
    JoinFunction,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

pytestmark = pytest.mark.spark

Record = tuple[str, int, int]  # (key, number, time)
FIRST: list[Record] = [("abc"[n % 3], n, n * 3) for n in range(30)]
SECOND: list[Record] = [("abc"[n % 3], 100 + n, n * 4) for n in range(24)]
SIZE, BOUND = 10, 5
FACTOR = MapStateDescriptor("factor", Types.STRING(), Types.INT())


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


class Pair(JoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        return "join", first[1], second[1]


class Group(CoGroupFunction):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
        yield "group", tuple(sorted(v[1] for v in first)), tuple(sorted(v[1] for v in second))


class Close(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield "interval", left[1], right[1]


class Known(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        if not ctx.get_broadcast_state(FACTOR).contains("never"):
            yield "broadcast", value[1], 0

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(FACTOR).put(value, 1)
        return ()


def key_of(value: Any) -> Any:
    return value[0]


def source(env: StreamExecutionEnvironment, records: list[Record]) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime())
    return env.from_source(CollectionSource(records, epochs=[7, 15]), strategy, "records")


def test_all_ways_for_two_streams_to_meet_in_one_job(spark: SparkSession, configuration: Configuration) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    first, second = source(env, FIRST), source(env, SECOND)
    windows = TumblingEventTimeWindows.of(Time.milliseconds(SIZE))
    joined = first.join(second).where(key_of).equal_to(key_of).window(windows).apply(Pair())
    grouped = first.co_group(second).where(key_of).equal_to(key_of).window(windows).apply(Group())
    bound = Time.milliseconds(BOUND)
    close = first.key_by(key_of).interval_join(second.key_by(key_of)).between(Time.milliseconds(-BOUND), bound)
    rules = env.from_collection(["rule"]).broadcast(FACTOR)
    known = first.connect(rules).process(Known())
    with joined.union(grouped, close.process(Close()), known).execute_and_collect() as results:
        found = sorted(results, key=repr)

    expected: list[Any] = [("broadcast", number, 0) for _, number, _ in FIRST]
    groups: dict[Any, tuple[list[int], list[int]]] = {}
    for side, records in enumerate((FIRST, SECOND)):
        for key, number, time in records:
            groups.setdefault((key, time // SIZE), ([], []))[side].append(number)
    for ours, theirs in groups.values():
        expected.append(("group", tuple(sorted(ours)), tuple(sorted(theirs))))
        expected += [("join", a, b) for a in ours for b in theirs]
    expected += [
        ("interval", a, b)
        for key, a, at in FIRST
        for other, b, then in SECOND
        if key == other and -BOUND <= then - at <= BOUND
    ]
    assert found == sorted(expected, key=repr)
