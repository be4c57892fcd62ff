"""Streams with a buffer time-out of their own."""

from __future__ import annotations

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import JobDefinitionError
from penstock.protocol.events import Barrier, Data
from penstock.testing import ListSink, ScriptedSource
from tests.engine.test_stream_run import Level, rows


def level_with(timeout: int | None) -> Level:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_source(ScriptedSource([1]), WatermarkStrategy.no_watermarks(), "numbers").rebalance()
    mapped = numbers.map(lambda value: value)
    if timeout is not None:
        mapped.set_buffer_timeout(timeout)
    mapped.rebalance().sink_to(ListSink("buffer timeout"))
    return Level(env._describe("buffer timeout"), 1)


def test_records_of_a_stream_leave_when_its_own_timeout_is_over() -> None:
    level = level_with(5)
    task = level.held.task
    level.offer(rows(1))
    level.run_on()
    assert task.timed
    assert not task.gathered, "whoever flushes all others need not come for these"
    task.flush()
    assert not task.flush_timed(100.0)
    assert task.next_flush() == pytest.approx(100.005)
    level.offer(rows(2))
    level.run_on()
    assert not task.flush_timed(100.004)
    assert level.outside.values() == []
    assert task.flush_timed(100.005)
    assert level.outside.values() == [1, 2]
    assert task.next_flush() is None
    assert not task.flush_timed(200.0)


def test_with_zero_records_leave_at_once() -> None:
    level = level_with(0)
    level.offer(rows(1))
    level.run_on()
    assert level.held.task.flush_timed(100.0)
    assert level.outside.values() == [1]


def test_with_minus_one_records_leave_with_the_next_barrier() -> None:
    level = level_with(-1)
    level.offer(rows(1))
    level.run_on()
    level.held.task.flush()
    assert not level.held.task.flush_timed(100.0)
    assert not level.held.task.flush_timed(10_000.0)
    assert level.held.task.next_flush() is None
    level.trigger(1)
    level.offer(Barrier(1, False))
    level.run_on()
    assert [type(event) for event in level.outside.sent] == [Data, Barrier]


def test_without_one_of_its_own_a_stream_waits_as_all_do() -> None:
    level = level_with(None)
    level.offer(rows(1))
    level.run_on()
    assert not level.held.task.timed
    assert not level.held.task.flush_timed(10_000.0)
    assert level.held.task.gathered
    level.held.task.flush()
    assert level.outside.values() == [1]


def test_a_timeout_below_minus_one_is_refused() -> None:
    with pytest.raises(JobDefinitionError, match="-1 or more milliseconds, not -2"):
        level_with(-2)
