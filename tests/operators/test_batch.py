"""Batch mode: each key's records in the order of time, then its timers, then the next key; results once, at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Configuration, WatermarkStrategy
from penstock.common.time import MAX_LONG_VALUE, MIN_LONG_VALUE
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.program import CollectionSource
from penstock.datastream import (
    BroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import ConfigurationError, JobDefinitionError, UserFunctionError
from penstock.operators import rolling
from penstock.operators.batch import batch_operator
from penstock.operators.keyed import KeyedReduceOperator, ProcessOperator
from penstock.operators.two_inputs import CoProcessOperator
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import ReduceContents
from penstock.testing.harness import OperatorHarness

RULES = MapStateDescriptor("rules")


def first(value: Any) -> Any:
    return value[0]


class Trace(KeyedProcessFunction):
    """Numbers what happens to a key; a timer five after each record, of each domain."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.step = runtime_context.get_state(ValueStateDescriptor("step"))

    def _next(self) -> int:
        self.step.update((self.step.value() or 0) + 1)
        return self.step.value() or 0

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        timers, timestamp = ctx.timer_service(), ctx.timestamp()
        assert timestamp is not None
        timers.register_event_time_timer(timestamp + 5)
        timers.register_processing_time_timer(timestamp)
        yield value[0], self._next(), "element", value[1], timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(timestamp + 1)  # too late: time is at its end
        ctx.timer_service().register_processing_time_timer(timestamp + 1)
        domain = ctx.time_domain().name
        yield ctx.get_current_key(), self._next(), domain, timestamp, ctx.timer_service().current_watermark()


def _traced(events: list[tuple[str, int]]) -> list[Any]:
    out: list[Any] = []
    for key in sorted({key for key, _ in events}):
        records = sorted((time, number) for number, (k, time) in enumerate(events) if k == key)
        steps: list[Any] = [("element", number, MIN_LONG_VALUE) for _, number in records]
        steps += [("EVENT_TIME", time + 5, MAX_LONG_VALUE) for time in sorted({time for time, _ in records})]
        steps += [("PROCESSING_TIME", time, MAX_LONG_VALUE) for time in sorted({time for time, _ in records})]
        out += [(key, step, *what) for step, what in enumerate(steps, 1)]
    return out


@given(
    events=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=20),
    breaks=st.sets(st.integers(0, 19)),
    crash=st.booleans(),
)
def test_a_key_sees_its_records_in_time_order_and_then_its_timers_whatever_the_epochs(
    events: list[tuple[str, int]], breaks: set[int], crash: bool
) -> None:
    harness = OperatorHarness(batch_operator(ProcessOperator(Trace(), first)))
    epoch: list[tuple[Any, int]] = []
    for number, (key, time) in enumerate(events):
        epoch.append(((key, number), time))
        harness.push(*epoch[-1])
        if number in breaks:
            harness.advance_watermark(time).snapshot()
            epoch = []
    assert harness.values() == []
    if crash:
        harness.end_input().rollback()
        for value, time in epoch:
            harness.push(value, time)
    harness.end_input()
    assert harness.values() == _traced(events)
    assert harness.watermarks == [MAX_LONG_VALUE]
    harness.snapshot()
    assert harness.state.size() == 0


class FailsFirst(Trace):
    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.attempt = runtime_context.get_attempt_number()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        if self.attempt == 0 and ctx.get_current_key() == "b":
            raise ValueError("the first attempt fails")
        return super().on_timer(timestamp, ctx)


def test_an_attempt_that_fails_while_timers_fire_is_repeated_in_full() -> None:
    harness = OperatorHarness(batch_operator(ProcessOperator(FailsFirst(), first)))
    harness.push(("a", 0), 3).push(("b", 1), 2)
    harness.snapshot()
    with pytest.raises(UserFunctionError, match="the first attempt fails"):
        harness.end_input()
    assert harness.rollback().end_input().values() == _traced([("a", 3), ("b", 2)])


@given(events=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=20))
def test_a_keyed_reduce_gives_one_final_value_per_key(events: list[tuple[str, int]]) -> None:
    harness = OperatorHarness(batch_operator(KeyedReduceOperator(rolling.sum_of(1), first)))
    for time, event in enumerate(events):
        harness.push(event, time)
    totals = {key: sum(n for k, n in events if k == key) for key, _ in events}
    assert harness.end_input().records() == [((key, totals[key]), MAX_LONG_VALUE) for key in sorted(totals)]
    assert (harness.metrics.records_in, harness.metrics.records_out) == (len(events), len(totals))


def test_nothing_is_late_in_a_window() -> None:
    operator = WindowOperator(
        selector=first,
        assigner=TumblingEventTimeWindows(10, 0),
        contents=ReduceContents(lambda a, b: (a[0], a[1] + b[1])),
        late_tag="late",
    )
    harness = OperatorHarness(batch_operator(operator)).push(("a", 1), 25).advance_watermark(100)
    harness.push(("a", 2), 3).push(("b", 4), 1).push(("a", 8), 9).end_input()
    assert harness.records() == [(("a", 10), 9), (("a", 1), 29), (("b", 4), 9)]
    assert harness.side_values("late") == []


class Both(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield 1, value, ctx.timestamp()

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield 2, value, ctx.timestamp()


def test_two_inputs_are_merged_in_time_order() -> None:
    harness = OperatorHarness(batch_operator(CoProcessOperator(Both(), (first, first))))
    harness.push("a", 5).push("b", 1).push("a", 2, input=1).push("a", 7, input=1).push("a", 6).end_input()
    assert harness.values() == [(2, "a", 2), (1, "a", 5), (1, "a", 6), (2, "a", 7), (1, "b", 1)]


class Look(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


class Known(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any]:
        yield value, sorted(ctx.get_broadcast_state(RULES))

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put(value, True)


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


def _environment(mode: RuntimeExecutionMode | None, **settings: str) -> StreamExecutionEnvironment:
    keys = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.runtime": "embedded", **keys})
    )
    return env if mode is None else env.set_runtime_mode(mode)


def _numbers(env: StreamExecutionEnvironment) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    return env.from_source(CollectionSource([3, 1, 2, 5], epochs=[1, 3]), strategy, "numbers")


def test_event_time_stands_still_until_the_end_of_the_job() -> None:
    looked = _numbers(_environment(RuntimeExecutionMode.BATCH)).process(Look())
    assert list(looked.execute_and_collect()) == [(n, n, MIN_LONG_VALUE) for n in (3, 1, 2, 5)]
    looked = _numbers(_environment(RuntimeExecutionMode.STREAMING)).process(Look())
    assert list(looked.execute_and_collect())[-1] == (5, 5, 2)


def test_data_waits_for_all_of_the_broadcast_side() -> None:
    env = _environment(RuntimeExecutionMode.BATCH)
    rules = env.from_source(CollectionSource([7, 8], epochs=[0, 0, 1]), WatermarkStrategy.no_watermarks(), "rules")
    known = _numbers(env).connect(rules.broadcast(RULES)).process(Known())
    assert sorted(known.execute_and_collect()) == [(n, [7, 8]) for n in (1, 2, 3, 5)]


@pytest.mark.parametrize(
    ("mode", "configured", "results"),
    [
        (RuntimeExecutionMode.BATCH, "STREAMING", [11]),
        (RuntimeExecutionMode.AUTOMATIC, "STREAMING", [11]),
        (RuntimeExecutionMode.STREAMING, "BATCH", [3, 4, 6, 11]),
        (None, "batch", [11]),
        (None, "AUTOMATIC", [11]),
    ],
)
def test_the_mode_set_in_code_goes_over_the_configured_one(
    mode: RuntimeExecutionMode | None, configured: str, results: list[int]
) -> None:
    env = _environment(mode, execution__runtime_mode=configured)
    summed = _numbers(env).key_by(lambda n: 0).sum()
    assert list(summed.execute_and_collect()) == results


def test_sources_that_never_end_are_refused_in_batch_and_streamed_in_automatic() -> None:
    env = _environment(RuntimeExecutionMode.BATCH)
    endless = DataGeneratorSource(lambda index: index, None)
    env.from_source(endless, WatermarkStrategy.no_watermarks(), "endless").print()
    with pytest.raises(JobDefinitionError, match="'endless' never ends"):
        env.execute()
    assert not env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)._is_batch()
    with pytest.raises(ConfigurationError, match=r"'execution.runtime-mode' should be .*, but is 'quickly'"):
        _environment(None, execution__runtime_mode="quickly")._is_batch()


def test_a_batch_job_takes_no_checkpoints() -> None:
    env = _environment(RuntimeExecutionMode.BATCH).enable_checkpointing(100)
    _numbers(env).print()
    assert env._describe(None).settings.checkpoint_interval_ms is None
