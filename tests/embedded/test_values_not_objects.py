"""What a function emits or stores is a value: a change to the object afterwards changes nothing, wherever it goes.

Every job here changes an object after it gave it away. The expected results are Flink's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.time import Time
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, OutputTag, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import CountTrigger, SlidingEventTimeWindows, TumblingEventTimeWindows
from tests.embedded.jobs import configured

Build = Callable[[StreamExecutionEnvironment], DataStream]


@pytest.fixture(params=[("hashmap", 1), ("rocksdb", 7)], ids=lambda p: f"{p[0]}-{p[1]}")
def env(request: pytest.FixtureRequest, tmp_path: Path) -> StreamExecutionEnvironment:
    backend, parallelism = request.param
    more = {"state.backend.type": backend, "pipeline.object-reuse": "false"}
    env = StreamExecutionEnvironment.get_execution_environment(configured(tmp_path, more))
    return env.set_parallelism(parallelism)


def _collected(stream: DataStream) -> list[Any]:
    return list(stream.execute_and_collect())


def _numbers(env: StreamExecutionEnvironment, *numbers: int) -> DataStream:
    return env.from_collection([{"n": n} for n in numbers])


def _adding(into: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    into["n"] += other["n"]
    return into


# -------------------------------------------------------------------- emitted


def test_a_reduce_that_changes_and_returns_its_first_argument(env: StreamExecutionEnvironment) -> None:
    sums = _numbers(env, 5, 2, 9).key_by(lambda r: "k").reduce(_adding)
    assert _collected(sums.map(lambda r: r["n"])) == [5, 7, 16]


def test_a_reduce_that_returns_one_object_for_all_keys(env: StreamExecutionEnvironment) -> None:
    class Reused(ReduceFunction):
        def __init__(self) -> None:
            self.result: dict[str, int] = {}

        def reduce(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
            self.result["k"], self.result["n"] = one["k"], one["n"] + other["n"]
            return self.result

    records = env.from_collection([{"k": k, "n": n} for k, n in [(0, 1), (1, 10), (0, 1), (1, 10), (0, 1), (1, 10)]])
    sums = records.key_by(lambda r: r["k"]).reduce(Reused())
    found = sorted((r["k"], r["n"]) for r in _collected(sums))
    assert found == [(0, 1), (0, 2), (0, 3), (1, 10), (1, 20), (1, 30)]


class YieldsOneDict(ProcessFunction):
    def process_element(self, value: dict[str, int], ctx: Any) -> Iterable[Any]:
        record = {"step": 0}
        for step in range(3):
            record["step"] = step
            yield record


def test_a_dict_that_is_yielded_and_changed_later(env: StreamExecutionEnvironment) -> None:
    assert _collected(_numbers(env, 1).process(YieldsOneDict())) == [{"step": 0}, {"step": 1}, {"step": 2}]


def test_an_output_list_that_is_used_again(env: StreamExecutionEnvironment) -> None:
    class Reused(MapFunction):
        def __init__(self) -> None:
            self.out: list[int] = []

        def map(self, value: dict[str, int]) -> list[int]:
            self.out.append(value["n"])
            return self.out

    lists = env.from_collection([{"n": n} for n in range(3)]).map(Reused()).set_parallelism(1)
    assert _collected(lists) == [[0], [0, 1], [0, 1, 2]]


def test_a_record_that_a_flat_map_gives_twice_and_changes(env: StreamExecutionEnvironment) -> None:
    def twice(value: dict[str, int]) -> Iterable[Any]:
        yield value
        value["n"] = -value["n"]
        yield value

    found = sorted(r["n"] for r in _collected(_numbers(env, 1, 2).flat_map(twice)))
    assert found == [-2, -1, 1, 2]


def test_branches_of_one_stream_do_not_see_what_the_others_do(env: StreamExecutionEnvironment) -> None:
    def add(amount: int) -> Callable[[dict[str, int]], dict[str, int]]:
        def change(value: dict[str, int]) -> dict[str, int]:
            value["n"] += amount
            return value

        return change

    stream = _numbers(env, 1, 2).map(lambda r: r)
    one, other = stream.map(add(100)), stream.map(add(1000))
    far = stream.rebalance().map(lambda r: r)
    found = sorted(r["n"] for r in _collected(one.union(other, far, stream)))
    assert found == [1, 1, 2, 2, 101, 102, 1001, 1002]


def test_a_side_output_and_the_main_one_do_not_share(env: StreamExecutionEnvironment) -> None:
    tag = OutputTag("side")

    class Both(ProcessFunction):
        def process_element(self, value: dict[str, int], ctx: Any) -> Iterable[Any]:
            yield tag, value
            value["n"] += 10
            yield value
            value["n"] += 100
            yield tag, value

    main = _numbers(env, 1).process(Both())
    found = sorted(r["n"] for r in _collected(main.union(main.get_side_output(tag))))
    assert found == [1, 11, 111]


def test_each_receiver_of_a_broadcast_has_its_own(env: StreamExecutionEnvironment) -> None:
    def change(value: dict[str, int]) -> dict[str, int]:
        value["n"] += 1
        return value

    everywhere = _numbers(env, 1, 2).broadcast().map(change).set_parallelism(3)
    assert sorted(r["n"] for r in _collected(everywhere)) == [2, 2, 2, 3, 3, 3]


def test_one_object_several_times_in_a_collection(env: StreamExecutionEnvironment) -> None:
    record = {"n": 0}

    def change(value: dict[str, int]) -> int:
        value["n"] += 1
        return value["n"]

    assert _collected(env.from_collection([record, record, record]).map(change)) == [1, 1, 1]


def test_with_object_reuse_operators_of_a_chain_share_records(env: StreamExecutionEnvironment) -> None:
    env.get_config().enable_object_reuse()

    def change(value: dict[str, int]) -> dict[str, int]:
        value["n"] += 100
        return value

    stream = _numbers(env, 1).map(lambda r: r).set_parallelism(1)
    first = stream.map(change).set_parallelism(1)
    second = stream.map(lambda r: r).set_parallelism(1)
    assert sorted(r["n"] for r in _collected(first.union(second))) == [101, 101]


def test_with_object_reuse_what_is_emitted_is_a_value_all_the_same(env: StreamExecutionEnvironment) -> None:
    """As in Flink, where the next operator has a record before the function goes on; here records wait in blocks."""
    env.get_config().enable_object_reuse()
    assert _collected(_numbers(env, 1).process(YieldsOneDict())) == [{"step": 0}, {"step": 1}, {"step": 2}]


# -------------------------------------------------------------------- stored


class Sums(AggregateFunction):
    """All accumulators begin as one object, and results are the accumulator itself."""

    def __init__(self) -> None:
        self.zero: list[int] = []

    def create_accumulator(self) -> list[int]:
        return self.zero

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value["n"])
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a.extend(acc_b)
        return acc_a


TTL = StateTtlConfig.new_builder(Time.hours(1)).build()


class Stores(KeyedProcessFunction):
    """Puts one object into state of every kind, changes it, and changes what it reads."""

    def __init__(self, ttl: bool) -> None:
        self._ttl = ttl

    def open(self, runtime_context: RuntimeContext) -> None:
        kinds: list[Any] = [
            ValueStateDescriptor("value"),
            ListStateDescriptor("list"),
            MapStateDescriptor("map"),
            ReducingStateDescriptor("reducing", lambda one, other: {"n": one["n"] + other["n"]}),
            AggregatingStateDescriptor("aggregating", Sums(), None),
        ]
        for kind in kinds:
            if self._ttl:
                kind.enable_time_to_live(TTL)
        self.value: Any = runtime_context.get_state(kinds[0])
        self.list: Any = runtime_context.get_list_state(kinds[1])
        self.map: Any = runtime_context.get_map_state(kinds[2])
        self.reducing: Any = runtime_context.get_reducing_state(kinds[3])
        self.aggregating: Any = runtime_context.get_aggregating_state(kinds[4])

    def process_element(self, value: dict[str, int], ctx: Any) -> Iterable[Any]:
        record = {"n": value["n"]}
        if self.value.value() is None:
            self.value.update(record)
        self.list.add(record)
        self.list.add_all([record])
        self.map.put("a", record)
        self.map.put_all({"b": record})
        self.reducing.add(record)
        self.aggregating.add(record)
        record["n"] = -1000
        read = [
            self.value.value(), *self.list.get(), self.map.get("a"), self.map.get("b"), *self.map.values(),
            *(entry for _, entry in self.map.items()), self.reducing.get(),
        ]  # fmt: skip
        for entry in read:
            entry["n"] = -1
        self.list.get().append("not there")
        self.aggregating.get().append(-1)
        yield (
            self.value.value()["n"],
            [entry["n"] for entry in self.list.get()],
            {key: entry["n"] for key, entry in self.map.items()},
            self.reducing.get()["n"],
            self.aggregating.get(),
        )


@pytest.mark.parametrize("ttl", [False, True])
def test_state_of_every_kind_holds_values(env: StreamExecutionEnvironment, ttl: bool) -> None:
    stored = _collected(_numbers(env, 1, 2).key_by(lambda r: "k").process(Stores(ttl)))
    assert stored == [
        (1, [1, 1], {"a": 1, "b": 1}, 1, [1]),
        (1, [1, 1, 2, 2], {"a": 2, "b": 2}, 3, [1, 2]),
    ]


def test_a_state_value_that_is_yielded_and_then_changed(env: StreamExecutionEnvironment) -> None:
    class Grows(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

        def process_element(self, value: dict[str, int], ctx: Any) -> Iterable[Any]:
            seen = self.seen.value() or []
            seen.append(value["n"])
            self.seen.update(seen)
            yield seen
            seen.append("changed after update")

    assert _collected(_numbers(env, 1, 2, 3).key_by(lambda r: "k").process(Grows())) == [[1], [1, 2], [1, 2, 3]]


def test_accumulators_of_different_keys_are_different_objects(env: StreamExecutionEnvironment) -> None:
    timed = _timed(env, [("a", 1, 0), ("b", 10, 1), ("a", 2, 2), ("b", 20, 3)])
    sums = timed.key_by(lambda r: r["k"]).window(TumblingEventTimeWindows.of(Time.seconds(10))).aggregate(Sums())
    assert sorted(_collected(sums)) == [[1, 2], [10, 20]]


def test_broadcast_state_holds_values(env: StreamExecutionEnvironment) -> None:
    rules = MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY())

    class Rules(BroadcastProcessFunction[Any, Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            rule = ctx.get_broadcast_state(rules).get("r")
            if rule is not None:
                rule["n"] += 1000
                yield ctx.get_broadcast_state(rules).get("r")["n"]

        def process_broadcast_element(self, value: dict[str, int], ctx: Any) -> Iterable[Any]:
            ctx.get_broadcast_state(rules).put("r", value)
            value["n"] = -1
            return ()

    env.set_runtime_mode(RuntimeExecutionMode.BATCH)  # the broadcast side comes first
    found = _collected(_numbers(env, 0, 0).connect(_numbers(env, 7).broadcast(rules)).process(Rules()))
    assert found == [7, 7]


# -------------------------------------------------------------------- windows


class _Stamps(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value["at"])


def _timed(env: StreamExecutionEnvironment, records: list[tuple[str, int, int]]) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Stamps())
    stream = env.from_collection([{"k": k, "n": n, "at": at * 1000} for k, n, at in records])
    return stream.assign_timestamps_and_watermarks(strategy)


def test_an_in_place_reduce_in_sliding_windows_leaves_the_neighbour_alone(env: StreamExecutionEnvironment) -> None:
    timed = _timed(env, [("k", 1, 1), ("k", 2, 3), ("k", 4, 6), ("k", 8, 8)])
    windows = timed.key_by(lambda r: r["k"]).window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)))
    found = _collected(windows.reduce(_adding).map(lambda r: r["n"]))
    assert sorted(found) == sorted([1 + 2, 1 + 2 + 4 + 8, 4 + 8])


class Doubles(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        for element in elements:
            element["n"] *= 2
            yield element["n"]


def test_what_a_window_function_does_to_its_elements_stays_in_it(env: StreamExecutionEnvironment) -> None:
    timed = _timed(env, [("k", 1, 6), ("k", 2, 7), ("k", 4, 30)])
    windows = timed.key_by(lambda r: r["k"]).window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)))
    # 0-10 and 5-15 hold the first two records, 25-35 and 30-40 the last one.
    assert sorted(_collected(windows.process(Doubles()))) == [2, 2, 4, 4, 8, 8]


def test_a_window_that_fires_again_has_its_elements_as_they_came(env: StreamExecutionEnvironment) -> None:
    timed = _timed(env, [("k", 1, 1), ("k", 2, 2), ("k", 4, 3)])
    windows = timed.key_by(lambda r: r["k"]).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    assert _collected(windows.trigger(CountTrigger.of(1)).process(Doubles())) == [2, 2, 4, 2, 4, 8]
