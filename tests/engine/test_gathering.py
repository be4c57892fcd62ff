"""Records that an operator gathers go on with what routers have gathered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.aggregates import count
from penstock.operators import gathering
from penstock.protocol.events import Data
from penstock.records.convert import to_rows
from penstock.testing import ListSink, ScriptedSource
from tests.engine.test_stream_run import Level, rows

KEY = Types.ROW_NAMED(["key"], [Types.LONG()])


def level() -> Level:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    keys = env.from_source(ScriptedSource([1]), WatermarkStrategy.no_watermarks(), "keys", KEY)
    keys.key_by("key").agg(n=count()).rebalance().map(lambda row: row).sink_to(ListSink("gathering"))
    return Level(env._describe("gathering"), 1)


def values(of: Level) -> list[Any]:
    return [
        tuple(value) for event in of.outside.sent if isinstance(event, Data) for value in to_rows(event.block).values
    ]


def waits(of: Level) -> bool:
    return of.held.task.gathered


def test_a_flush_lets_go_what_an_operator_has_gathered_and_there_is_something_to_flush_until_then() -> None:
    run = level()
    task = run.held.task
    assert not waits(run)
    run.offer(rows((7,), (8,), (7,)))
    run.run_on()
    assert waits(run)
    assert values(run) == []
    task.flush()
    assert values(run) == [(7, 2), (8, 1)]
    assert not waits(run)


def test_a_task_that_is_closed_flushes_nothing() -> None:
    run = level()
    run.offer(rows((7,)))
    run.run_on()
    run.held.task.close()
    run.held.task.flush()
    assert values(run) == []


def test_between_two_steps_for_which_only_the_host_asks_there_is_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def look() -> float:  # it takes 4 ms to look, and so to make a step
        now[0] += 0.004
        return now[0]

    monkeypatch.setattr(gathering, "time", SimpleNamespace(perf_counter=look))
    run = level()
    task = run.held.task
    run.offer(rows((7,)))
    run.run_on()
    task.flush()
    assert values(run) == [(7, 1)]
    ended = now[0]
    run.offer(rows((7,)))
    run.run_on()
    now[0] = ended + 0.007  # looked at 11 ms behind the step; it rests for 12
    task.flush()
    assert waits(run)
    now[0] = ended + 0.009
    task.flush()
    assert values(run) == [(7, 1), (7, 2)]
