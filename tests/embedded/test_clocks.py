"""Clocks jump and jobs restart: processing-time timers fire once, and processing time never goes back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.operators.keyed import ProcessOperator
from penstock.testing import CrashPlan, EmbeddedJob, Epoch, ListSink, ManualClock, ScriptedSource
from tests.embedded.jobs import Pipeline, key_of, master_of, memory_storage, numbered_script, settings, values_of

EPOCHS = 20
SCRIPT = numbered_script(splits=2, per_split=40, epochs=EPOCHS)
DELAY_MS = 1000  # epochs are 200 ms apart


class Alarm(KeyedProcessFunction):
    """For every record a timer of its own. Says when it set it, and when it fired."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_map_state(MapStateDescriptor("waiting"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        now = timers.current_processing_time()
        due = now + DELAY_MS
        self.waiting.put(due, [*(self.waiting.get(due) or []), value])
        timers.register_processing_time_timer(due)
        yield (*value, "set", now)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        now = ctx.timer_service().current_processing_time()
        for value in self.waiting.get(timestamp) or ():
            yield (*value, "fired", now)
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
    results = ListSink.results(sink)
    # Every epoch has records, so they tell what its time was: of each epoch one, and it never goes back.
    epoch_of = {(split, number): epoch for epoch, split, number in numbered_epochs()}
    times: dict[int, set[int]] = {}
    for _, split, number, what, now in results:
        if what == "set":
            times.setdefault(epoch_of[(split, number)], set()).add(now)
    assert sorted(times) == list(range(EPOCHS))
    clock_of = [now for epoch in range(EPOCHS) for now in times[epoch]]
    assert len(clock_of) == EPOCHS, "an epoch had two times"
    assert clock_of == sorted(clock_of), "processing time went back"
    if not jumps and not crashes:
        assert {later - earlier for earlier, later in pairwise(clock_of)} == {200}
    # A timer fires in the first epoch whose time has reached it, and not at all if the input ends before.
    expected = [(*value, "set", clock_of[epoch_of[value[1:]]]) for value in values_of(SCRIPT)]
    for value in values_of(SCRIPT):
        due = clock_of[epoch_of[value[1:]]] + DELAY_MS
        expected += [(*value, "fired", now) for now in clock_of if now >= due][:1]
    assert sorted(results) == sorted(expected)
    assert len(expected) > len(values_of(SCRIPT)), "timers did fire before the end of the input"


def numbered_epochs() -> Iterator[tuple[int, int, int]]:
    """(epoch, split, number) of every record of the script."""
    epoch = 0
    for item in SCRIPT:
        if isinstance(item, Epoch):
            epoch += 1
        elif isinstance(item, tuple):
            yield epoch, item[1], item[2]
