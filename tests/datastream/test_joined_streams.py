"""Window joins and co-groups: what fires when, what is late, and what is refused while the program is built."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common import Types
from penstock.common.configuration import Configuration
from penstock.datastream import (
    DataStream,
    JoinFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
    TumblingEventTimeWindows,
)
from penstock.errors import JobDefinitionError
from penstock.operators.window import WindowOperator
from penstock.testing.harness import OperatorHarness

TUMBLING_10: Any = TumblingEventTimeWindows(10, 0)


def first(value: Any) -> Any:
    return value[0]


def last(value: Any) -> Any:
    return value[-1]


def streams() -> tuple[DataStream, DataStream]:
    configuration = Configuration()
    configuration.set_string("penstock.runtime", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.from_collection([("a", 1), ("b", 2)]), env.from_collection([(10, "a"), (20, "a"), (30, "c")])


def harness_of(stream: DataStream) -> OperatorHarness:
    operator = stream._node.operator
    assert isinstance(operator, WindowOperator)
    return OperatorHarness(operator)


def pair(a: Any, b: Any) -> Any:
    return a[0], a[1], b[0]


def joined(**settings: Any) -> OperatorHarness:
    a, b = streams()
    return harness_of(
        a.join(b)
        .where(first)
        .equal_to(last)
        .window(TUMBLING_10)
        .allowed_lateness(settings.get("lateness", 0))
        .apply(pair)
    )


def test_results_carry_the_last_timestamp_of_their_window() -> None:
    harness = joined().push((0, ("a", 1)), 3).push((1, (10, "a")), 7).advance_watermark(9)
    assert harness.records() == [(("a", 1, 10), 9)]


def test_a_record_without_partner_gives_no_pair_but_a_group() -> None:
    assert joined().push((0, ("a", 1)), 3).push((1, (10, "b")), 7).end_input().values() == []
    a, b = streams()
    groups = a.co_group(b).where(first).equal_to(last).window(TUMBLING_10).apply(lambda x, y: [(x, y)])
    harness = harness_of(groups).push((0, ("a", 1)), 3).push((1, (10, "b")), 7).end_input()
    assert harness.values() == [([("a", 1)], []), ([], [(10, "b")])]


def test_a_late_record_fires_the_window_again_while_lateness_allows_it() -> None:
    harness = joined(lateness=5).push((0, ("a", 1)), 3).push((1, (10, "a")), 7).advance_watermark(9).clear_output()
    assert harness.push((1, (20, "a")), 4).values() == [("a", 1, 10), ("a", 1, 20)]
    harness.advance_watermark(14).clear_output()
    assert harness.push((1, (30, "a")), 4).values() == []
    assert harness.metrics.late_dropped == 1


def test_a_trigger_sees_the_records_of_both_streams() -> None:
    a, b = streams()
    windows = a.join(b).where(first).equal_to(last).window(GlobalWindows.create())
    harness = harness_of(windows.trigger(PurgingTrigger.of(CountTrigger.of(2))).apply(pair))
    harness.push((0, ("a", 1))).push((1, (10, "a"))).push((1, (20, "a"))).push((0, ("a", 2)))
    assert harness.values() == [("a", 1, 10), ("a", 2, 20)]


class Opened(JoinFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = True

    def join(self, first: Any, second: Any) -> Any:
        return self.opened


def test_a_join_function_is_opened_before_its_first_pair() -> None:
    a, b = streams()
    harness = harness_of(a.join(b).where(first).equal_to(last).window(TUMBLING_10).apply(Opened()))
    assert harness.push((0, ("a", 1)), 3).push((1, (10, "a")), 7).end_input().values() == [True]


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_a_join_runs_as_a_stream_and_as_a_batch(mode: RuntimeExecutionMode) -> None:
    a, b = streams()
    a.get_execution_environment().set_runtime_mode(mode)
    windows = a.join(b).where(first).equal_to(last).window(GlobalWindows.create())
    with windows.trigger(CountTrigger.of(3)).apply(pair).execute_and_collect() as results:
        assert sorted(results) == [("a", 1, 10), ("a", 1, 20)]


def test_what_cannot_be_joined_is_refused_while_the_program_is_built() -> None:
    a, b = streams()
    with pytest.raises(JobDefinitionError, match="two environments"):
        a.join(streams()[1])
    with pytest.raises(JobDefinitionError, match="co_group takes a DataStream, not a list"):
        a.co_group([])  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="never be equal"):
        a.join(b).where(first, Types.STRING()).equal_to(last, Types.INT())
    with pytest.raises(JobDefinitionError, match="WindowAssigner"):
        a.join(b).where(first).equal_to(last).window(10)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="JoinFunction"):
        a.join(b).where(first).equal_to(last).window(TUMBLING_10).apply(Opened)  # type: ignore[arg-type]
    windows = a.join(b).where(first).equal_to(last).window(EventTimeSessionWindows(5))
    with pytest.raises(JobDefinitionError, match="NeverTrigger"):
        windows.trigger(NeverTrigger()).apply(pair)
