"""Broadcast state: whole in every subtask, written by one side, read by both, kept through restarts and rescaling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common import Types
from penstock.datastream import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.errors import JobDefinitionError
from penstock.operators.two_inputs import BroadcastOperator
from penstock.state.backend import NoKeyError
from penstock.state.operator_state import BroadcastWriteError
from penstock.testing.harness import OperatorHarness

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
UNKNOWN = MapStateDescriptor("unknown")


class Price(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[Any]:
        rules = ctx.get_broadcast_state(RULES)
        yield value, rules[value], sorted(rules), ctx.timestamp(), ctx.current_watermark()

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Iterable[Any] | None:
        rules = ctx.get_broadcast_state(RULES)
        match value:
            case ("put", key, number):
                rules[key] = number
            case ("all", entries):
                rules.put_all(entries)
            case ("remove", key):
                del rules[key]
            case "clear":
                rules.clear()
            case "show":
                return [sorted(rules.items()), rules.is_empty(), "a" in rules]
        return None


class Writes(Price):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        state: Any = ctx.get_broadcast_state(RULES)
        match value:
            case "put":
                state.put("a", 1)
            case "item":
                state["a"] = 1
            case "remove":
                state.remove("a")
            case "clear":
                state.clear()
            case "unknown":
                ctx.get_broadcast_state(UNKNOWN)
        return ()


class Counted(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Keyed state and timers on the data side; a timer multiplies the count by the rule of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("rules", Types.INT()))  # a name of its own kind

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value[1])

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        if value == "keyed":
            self.count.update(0)
        ctx.get_broadcast_state(RULES).put(value[0], value[1])

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[Any]:
        rule = ctx.get_broadcast_state(RULES).get(ctx.get_current_key())
        yield ctx.get_current_key(), timestamp, (self.count.value() or 0) * (rule or 0)


def price(**options: Any) -> OperatorHarness:
    return OperatorHarness(BroadcastOperator(Price(), ["rules"]), **options)


def counted(**options: Any) -> OperatorHarness:
    return OperatorHarness(BroadcastOperator(Counted(), ["rules"], lambda value: value[0]), **options)


def test_the_data_side_reads_what_the_broadcast_side_wrote() -> None:
    harness = price().push(("put", "a", 1), input=1).push(("all", {"b": 2, "c": 3}), input=1)
    harness.push(("remove", "c"), input=1).advance_watermark(5).push("b", 9).push("c", 9)
    assert harness.values() == [("b", 2, ["a", "b"], 9, 5), ("c", None, ["a", "b"], 9, 5)]
    harness.clear_output().push("show", input=1).push("clear", input=1).push("show", input=1)
    assert harness.values() == [[("a", 1), ("b", 2)], False, True, [], True, False]


@pytest.mark.parametrize("write", ["put", "item", "remove", "clear"])
def test_the_data_side_cannot_write(write: str) -> None:
    with pytest.raises(BroadcastWriteError, match="'rules' was written outside of process_broadcast_element"):
        OperatorHarness(BroadcastOperator(Writes(), ["rules"])).push(write)


def test_a_state_that_was_not_broadcast_is_refused_by_name() -> None:
    with pytest.raises(JobDefinitionError, match="'unknown', but its stream was broadcast with 'rules'"):
        OperatorHarness(BroadcastOperator(Writes(), ["rules"])).push("unknown")


def test_a_failed_epoch_leaves_no_trace_in_broadcast_state() -> None:
    harness = price().push(("put", "a", 1), input=1)
    harness.snapshot()
    harness.push(("put", "a", 2), input=1).push(("put", "b", 2), input=1).rollback().push("a")
    assert harness.values()[0][:3] == ("a", 1, ["a"])


def test_every_subtask_starts_with_the_whole_state_when_the_parallelism_changes() -> None:
    harness = price().push(("all", {"a": 1, "b": 2}), input=1)
    full = harness.snapshot()
    harness.push(("remove", "b"), input=1).push(("put", "c", 3), input=1)
    delta = harness.snapshot(full=False)
    for subtask in range(3):
        restored = price(parallelism=3, subtask=subtask).restore([full, delta]).push("c")
        assert restored.values()[0][:3] == ("c", 3, ["a", "c"])


def test_timers_of_a_key_see_the_broadcast_state_of_the_time_they_fire() -> None:
    harness = counted().push(("a", 10)).push(("a", 20)).push(("b", 20)).push(("a", 5), input=1)
    harness.advance_watermark(10)
    snapshot = harness.push(("a", 7), input=1).snapshot()
    assert harness.values() == [("a", 10, 10)]
    assert counted().restore(snapshot).end_input().values() == [("a", 20, 14), ("b", 20, 0)]


def test_broadcast_elements_have_no_key() -> None:
    with pytest.raises(NoKeyError):
        counted().push("keyed", input=1)


def test_broadcast_and_data_must_fit_together() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    data, rules = env.from_collection([1]), env.from_collection([2])
    with pytest.raises(JobDefinitionError, match="takes a KeyedBroadcastProcessFunction, not a Price"):
        data.key_by(lambda n: n).connect(rules.broadcast(RULES)).process(Price())
    with pytest.raises(JobDefinitionError, match="takes a BroadcastProcessFunction, not a Counted"):
        data.connect(rules.broadcast(RULES)).process(Counted())
    with pytest.raises(JobDefinitionError, match="MapStateDescriptors, not a ValueStateDescriptor"):
        rules.broadcast(ValueStateDescriptor("v"))  # type: ignore[call-overload]
    with pytest.raises(JobDefinitionError, match="two states of one name"):
        rules.broadcast(RULES, RULES)
