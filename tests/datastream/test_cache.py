"""A cached stream is computed once, by the first job that runs to its end, and read again by the ones after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.program import CollectionSource
from penstock.datastream import (
    CachedDataStream,
    DataStream,
    OutputTag,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.errors import JobDefinitionError, JobFailedError
from penstock.testing import ListSink

calls: list[Any] = []
failures: list[Any] = []


def square(value: int) -> int:
    calls.append(value)
    if failures and failures[0] == value:
        failures.pop(0)
        raise RuntimeError("not now")
    return value * value


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    calls.clear()
    failures.clear()
    yield
    ListSink.clear("cache")


@pytest.fixture
def env(tmp_path: Path) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.cache.dir", str(tmp_path / "cache"))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    return env.set_parallelism(2).set_runtime_mode(RuntimeExecutionMode.BATCH)


def numbers(env: StreamExecutionEnvironment, upto: int = 10) -> DataStream:
    source = CollectionSource(list(range(upto)), epochs=[3, 7])
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


SQUARES = [n * n for n in range(10)]


def test_later_jobs_read_what_the_first_one_computed(env: StreamExecutionEnvironment) -> None:
    cached = numbers(env).map(square).cache()
    assert collected(cached) == SQUARES
    assert len(calls) == 10
    assert collected(cached.filter(lambda n: n > 20)) == SQUARES[5:]
    assert collected(cached.map(lambda n: -n)) == sorted(-n for n in SQUARES)
    assert len(calls) == 10


def test_the_program_that_caches_may_use_the_stream_in_many_ways(env: StreamExecutionEnvironment) -> None:
    cached = numbers(env).map(square).cache()
    cached.filter(lambda n: n % 2 == 0).sink_to(ListSink("cache"))
    assert collected(cached.filter(lambda n: n % 2)) == SQUARES[1::2]
    assert sorted(ListSink.results("cache")) == SQUARES[::2]
    assert len(calls) == 10


def test_an_invalidated_stream_is_computed_and_kept_again(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    cached = numbers(env).map(square).cache()
    collected(cached)
    cached.invalidate()
    assert list((tmp_path / "cache").iterdir()) == []
    assert collected(cached) == SQUARES
    assert len(calls) == 20
    assert collected(cached) == SQUARES
    assert len(calls) == 20


def test_a_job_that_failed_has_cached_nothing(env: StreamExecutionEnvironment) -> None:
    env.set_restart_strategy(RestartStrategies.no_restart())
    failures.append(8)
    cached = numbers(env).map(square).cache()
    with pytest.raises(JobFailedError):
        collected(cached)
    assert collected(cached) == SQUARES


def test_a_job_that_started_again_has_cached_nothing_twice(env: StreamExecutionEnvironment) -> None:
    """It failed in its third epoch: two had been committed and are made again."""
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    failures.append(8)
    cached = numbers(env).map(square).cache()
    cached.filter(lambda n: n < 0).print()
    env.execute()
    assert len(calls) > 10
    assert collected(cached) == SQUARES


def test_types_timestamps_and_keys_of_what_is_read_again(env: StreamExecutionEnvironment) -> None:
    class Number(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value[0])

    class Stamp(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield ctx.timestamp(), value.square

    typed = Types.ROW_NAMED(["number", "square"], [Types.INT(), Types.INT()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Number())
    rows = numbers(env).map(lambda n: Row(number=n, square=n * n), typed)
    cached = rows.assign_timestamps_and_watermarks(strategy).cache()
    env.execute()
    assert cached.get_type() == typed
    assert collected(cached.process(Stamp())) == [(n, n * n) for n in range(10)]
    sums = cached.key_by(lambda row: row.number % 2).sum("square").map(lambda row: row.square)
    assert collected(sums) == sorted([sum(SQUARES[::2]), sum(SQUARES[1::2])])


def test_small_epochs_read_a_part_of_the_cache_each(env: StreamExecutionEnvironment) -> None:
    cached = numbers(env).map(square).cache()
    env.execute()
    settings = Configuration()
    settings.set_string("penstock.epoch.max-records", "2")
    env.configure(settings)
    cached.sink_to(ListSink("cache"))
    env.execute()
    assert sorted(ListSink.results("cache")) == SQUARES
    assert len(ListSink.by_epoch("cache")) > 2


def test_two_cached_streams_with_common_operators_are_rebuilt_side_by_side(env: StreamExecutionEnvironment) -> None:
    squares = numbers(env).map(square).uid("squares")
    even, odd = squares.filter(lambda n: n % 2 == 0).cache(), squares.filter(lambda n: n % 2).cache()
    env.execute()
    even.invalidate()
    odd.invalidate()
    assert collected(even.union(odd)) == SQUARES


def test_side_outputs_can_be_cached(env: StreamExecutionEnvironment) -> None:
    odd = OutputTag("odd", Types.INT())

    class Split(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            if value % 2:
                yield odd, value

    cached = numbers(env).process(Split()).get_side_output(odd).cache()
    env.execute()
    assert collected(cached) == [1, 3, 5, 7, 9]
    cached.invalidate()
    assert collected(cached) == [1, 3, 5, 7, 9]


def test_what_was_kept_goes_when_nobody_can_read_it_any_more(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    cached: CachedDataStream | None = numbers(env).map(square).cache()
    env.execute()
    assert list((tmp_path / "cache").iterdir()) != []
    del cached
    gc.collect()
    assert list((tmp_path / "cache").iterdir()) == []


def test_cache_is_for_batch_mode(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    numbers(env).cache().print()
    with pytest.raises(JobDefinitionError, match=r"cache\(\) works in BATCH mode only"):
        env.execute()


def test_a_keyed_or_partitioned_stream_is_cached_before(env: StreamExecutionEnvironment) -> None:
    for stream in (numbers(env).key_by(lambda n: n), numbers(env).rebalance()):
        with pytest.raises(JobDefinitionError, match="cache it before"):
            stream.cache()


def test_a_stream_without_records_is_cached_too(env: StreamExecutionEnvironment) -> None:
    cached = numbers(env).map(square).filter(lambda n: n < 0).cache()
    env.execute()
    assert collected(cached) == []
    assert len(calls) == 10
