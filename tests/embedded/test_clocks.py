"""Clocks jump and jobs restart: processing-time timers fire once, and processing time never goes back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.operators.keyed import ProcessOperator
from penstock.testing import CrashPlan, EmbeddedJob, ListSink, ManualClock, ScriptedSource
from tests.embedded.jobs import Pipeline, key_of, master_of, memory_storage, numbered_script, settings, values_of

SCRIPT = numbered_script(splits=2, per_split=40, epochs=20)
DELAY_MS = 1000  # epochs are 200 ms apart


class Alarm(KeyedProcessFunction):
    """For every record a timer of its own; it fires with the record's number and the time it fired at."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_map_state(MapStateDescriptor("waiting"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        due = timers.current_processing_time() + DELAY_MS
        self.waiting.put(due, [*(self.waiting.get(due) or []), value])
        timers.register_processing_time_timer(due)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        now = ctx.timer_service().current_processing_time()
        for value in self.waiting.get(timestamp) or ():
            yield (*value, now - timestamp)
        self.waiting.remove(timestamp)


class JumpyClock(ManualClock):
    """Goes on as it should, and jumps by so much when asked for the n-th time."""

    def __init__(self, jumps: dict[int, int]) -> None:
        super().__init__()
        self._jumps = jumps
        self.asked = 0
        self.jumped = 0

    def __call__(self) -> int:
        self.asked += 1
        if self.asked in self._jumps:
            self.jumped += 1
            self.advance(self._jumps[self.asked])
        return super().__call__()


@pytest.mark.parametrize("jumps", [{}, {20: -60_000, 35: 61_000}, {20: 3_600_000}, {15: 900, 25: -5000, 40: 6000}])
@pytest.mark.parametrize("crashes", [[], [("before-manifest", 5)], [("after-manifest", 4), ("during-sink-commit", 9)]])
def test_every_timer_fires_once_whatever_the_clock_and_the_process_do(
    jumps: dict[int, int], crashes: list[Any], request: pytest.FixtureRequest
) -> None:
    sink = request.node.name
    ListSink.clear(sink)
    job = (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .operator(ProcessOperator(Alarm(), key_of), 2)
        .sink(ListSink(sink), 1)
        .build(settings())
    )
    clock = JumpyClock(jumps)
    plan = CrashPlan(crashes)
    master = master_of(job, memory_storage())
    master.clock = clock
    runtime = EmbeddedJob(job, master, crashes=plan)
    runtime.run()
    assert plan.fired == crashes
    assert clock.jumped == len(jumps)
    fired = [(key, split, number) for key, split, number, _ in ListSink.results(sink)]
    assert len(fired) == len(set(fired)), "a timer fired twice"
    assert set(fired) <= set(values_of(SCRIPT))
    assert len(fired) > 30, "timers did fire before the end of the input"
    assert all(late >= 0 for *_, late in ListSink.results(sink)), "a timer fired before its time"
