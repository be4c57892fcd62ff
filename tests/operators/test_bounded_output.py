"""What a function yields leaves in blocks while it still yields: memory is bounded by a block, not by a result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.datastream import KeyedProcessFunction, OutputTag
from penstock.datastream.functions import FlatMapFunction, ProcessWindowFunction
from penstock.functions.window import TumblingEventTimeWindows
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents
from penstock.records.sizes import BLOCK_BYTES
from penstock.testing.harness import OperatorHarness
from tests.operators.windows_by_hand import Statistics

SIDE = OutputTag("side")
LARGE = "x" * (BLOCK_BYTES // 8)


class Yielding:
    """Yields numbers, and knows how many of them had left when it yielded the last."""

    def __init__(self, count: int, *, value: Any = None, side: bool = False) -> None:
        self.count, self.value, self.side = count, value, side

    def give(self) -> Iterator[Any]:
        for number in range(self.count):
            result = number if self.value is None else self.value + str(number)
            yield (SIDE, result) if self.side else result


class Process(Yielding, KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(5)
        return self.give()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return self.give()


class FlatMap(Yielding, FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        return self.give()


class Window(Yielding, ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return self.give()


def harness_of(kind: str, **options: Any) -> OperatorHarness:
    if kind == "window":
        windows = WindowOperator(
            selector=lambda value: value,
            assigner=TumblingEventTimeWindows(10, 0),
            contents=ListContents(),
            function=Window(**options),
        )
        return OperatorHarness(windows, block_size=100)
    if kind == "flat map":
        return OperatorHarness.for_function(FlatMap(**options), block_size=100)
    return OperatorHarness.for_function(Process(**options), key_selector=lambda value: value, block_size=100)


def sizes(harness: OperatorHarness, *, side: bool) -> list[int]:
    blocks = harness.output.sides["side"] if side else harness.output.blocks
    return [len(block) for block in blocks]


@pytest.mark.parametrize(
    ("kind", "side"),
    [("process", False), ("process", True), ("window", False), ("window", True), ("flat map", False)],
)
def test_results_of_one_call_leave_in_blocks_of_the_block_size(kind: str, side: bool) -> None:
    harness = harness_of(kind, count=1030, side=side).push("a", 1)
    if kind == "window":
        harness.end_input()
    assert max(sizes(harness, side=side)) == 100
    assert [value for value, _ in (harness.side_records(SIDE) if side else harness.records())] == list(range(1030))
    stamp = 9 if kind == "window" else 1
    assert {t for _, t in (harness.side_records(SIDE) if side else harness.records())} == {stamp}


@pytest.mark.parametrize("kind", ["process", "window", "flat map"])
def test_large_results_leave_in_blocks_bounded_in_bytes(kind: str) -> None:
    harness = harness_of(kind, count=99, value=LARGE).push("a", 1)
    if kind == "window":
        harness.end_input()
    assert len(harness.values()) == 99
    assert max(sizes(harness, side=False)) <= 64  # the first look; it is at 8 times the limit then
    assert min(sizes(harness, side=False)[:-1]) >= 1


def test_results_of_many_timers_at_one_watermark_leave_in_blocks() -> None:
    harness = harness_of("process", count=30)
    harness.push_all([(key, 1) for key in range(20)]).clear_output()
    harness.advance_watermark(5)
    assert max(sizes(harness, side=False)) == 100
    assert len(harness.values()) == 600
    windows = WindowOperator(
        selector=lambda value: value[0],
        assigner=TumblingEventTimeWindows(10, 0),
        contents=AggregateContents(Statistics()),
    )
    fired = OperatorHarness(windows, block_size=100).push_all([((key, 1), 1) for key in range(450)]).end_input()
    assert sizes(fired, side=False) == [100, 100, 100, 100, 50]
    assert {stamp for _, stamp in fired.records()} == {9}
