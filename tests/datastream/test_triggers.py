from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock.common import Time
from penstock.common.metrics import MetricGroup
from penstock.common.time import MIN_LONG_VALUE
from penstock.datastream.state import ReducingState, ReducingStateDescriptor, StateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    GlobalWindow,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
)
from penstock.errors import JobDefinitionError

CONTINUE, FIRE, FIRE_AND_PURGE = TriggerResult.CONTINUE, TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE
WINDOW = TimeWindow(0, 10_000)


class _Reducing(ReducingState[Any]):
    def __init__(self, descriptor: ReducingStateDescriptor) -> None:
        self._reduce = descriptor.get_reduce_function().reduce
        self._value: Any = None

    def get(self) -> Any:
        return self._value

    def add(self, value: Any) -> None:
        self._value = value if self._value is None else self._reduce(self._value, value)

    def clear(self) -> None:
        self._value = None


class Pane(Trigger.OnMergeContext):
    """One pane in memory; `merged` are the panes of windows that were merged into it."""

    def __init__(self, *merged: Pane, watermark: int = MIN_LONG_VALUE, now: int = 0) -> None:
        self.watermark = watermark
        self.now = now
        self.event_timers: set[int] = set()
        self.processing_timers: set[int] = set()
        self._merged = merged
        self._states: dict[str, _Reducing] = {}

    def get_current_processing_time(self) -> int:
        return self.now

    def get_current_watermark(self) -> int:
        return self.watermark

    def get_metric_group(self) -> MetricGroup:
        raise AssertionError("no built-in trigger measures anything")

    def register_processing_time_timer(self, time: int) -> None:
        self.processing_timers.add(time)

    def register_event_time_timer(self, time: int) -> None:
        self.event_timers.add(time)

    def delete_processing_time_timer(self, time: int) -> None:
        self.processing_timers.discard(time)

    def delete_event_time_timer(self, time: int) -> None:
        self.event_timers.discard(time)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> _Reducing:
        assert isinstance(state_descriptor, ReducingStateDescriptor)
        return self._states.setdefault(state_descriptor.name, _Reducing(state_descriptor))

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        for pane in self._merged:
            value = pane.get_partitioned_state(state_descriptor).get()
            if value is not None:
                self.get_partitioned_state(state_descriptor).add(value)

    def holds_nothing(self) -> bool:
        values = [state.get() for state in self._states.values()]
        return not self.event_timers and not self.processing_timers and all(value is None for value in values)

    def advance_watermark(self, trigger: Trigger[Any, Any], watermark: int, window: TimeWindow = WINDOW) -> list[int]:
        """The times at which the trigger fired."""
        self.watermark = watermark
        fired = []
        while due := sorted(time for time in self.event_timers if time <= watermark):
            self.event_timers.discard(due[0])
            if trigger.on_event_time(due[0], window, self).is_fire():
                fired.append(due[0])
        return fired

    def advance_clock(self, trigger: Trigger[Any, Any], now: int, window: TimeWindow = WINDOW) -> list[int]:
        self.now = now
        fired = []
        while due := sorted(time for time in self.processing_timers if time <= now):
            self.processing_timers.discard(due[0])
            if trigger.on_processing_time(due[0], window, self).is_fire():
                fired.append(due[0])
            assert len(fired) < 100, "the trigger fires forever"
        return fired


def test_an_event_time_trigger_fires_at_the_end_of_the_window_and_for_every_allowed_late_record() -> None:
    trigger, pane = EventTimeTrigger.create(), Pane()
    assert trigger.on_element(1, 5, WINDOW, pane) is CONTINUE
    assert pane.advance_watermark(trigger, 9_998) == []
    assert pane.advance_watermark(trigger, 9_999) == [9_999]
    assert trigger.on_element(1, 5, WINDOW, pane) is FIRE
    assert pane.holds_nothing()


def test_an_event_time_trigger_ignores_the_clean_up_timer_of_its_window() -> None:
    assert EventTimeTrigger().on_event_time(12_999, WINDOW, Pane()) is CONTINUE
    assert EventTimeTrigger().on_processing_time(9_999, WINDOW, Pane()) is CONTINUE


def test_a_merged_event_time_window_gets_a_timer_only_if_it_has_not_ended() -> None:
    open_pane, ended_pane = Pane(watermark=9_998), Pane(watermark=9_999)
    EventTimeTrigger().on_merge(WINDOW, open_pane)
    EventTimeTrigger().on_merge(WINDOW, ended_pane)
    assert open_pane.event_timers == {9_999}
    assert ended_pane.event_timers == set()


def test_a_processing_time_trigger_fires_at_the_end_of_the_window() -> None:
    trigger, pane = ProcessingTimeTrigger.create(), Pane(now=3)
    assert trigger.on_element(1, 5, WINDOW, pane) is CONTINUE
    assert pane.advance_clock(trigger, 9_998) == []
    assert pane.advance_clock(trigger, 20_000) == [9_999]
    assert trigger.on_event_time(9_999, WINDOW, pane) is CONTINUE


def test_a_merged_processing_time_window_gets_a_timer_only_if_it_has_not_ended() -> None:
    open_pane, ended_pane = Pane(now=9_998), Pane(now=9_999)
    ProcessingTimeTrigger().on_merge(WINDOW, open_pane)
    ProcessingTimeTrigger().on_merge(WINDOW, ended_pane)
    assert open_pane.processing_timers == {9_999}
    assert ended_pane.processing_timers == set()


def test_a_continuous_event_time_trigger_fires_on_the_grid_from_the_first_record_on_and_at_the_end() -> None:
    trigger, pane = ContinuousEventTimeTrigger.of(Time.seconds(2)), Pane()
    assert trigger.on_element(1, 2_500, WINDOW, pane) is CONTINUE
    assert trigger.on_element(1, 700, WINDOW, pane) is CONTINUE
    assert pane.advance_watermark(trigger, 3_999) == []
    assert pane.advance_watermark(trigger, 7_000) == [4_000, 6_000]
    assert pane.advance_watermark(trigger, 50_000) == [8_000, 9_999]
    assert trigger.on_element(1, 2_500, WINDOW, pane) is FIRE


def test_the_grid_of_a_continuous_event_time_trigger_is_floored_before_the_epoch() -> None:
    trigger, pane, window = ContinuousEventTimeTrigger[Any](2_000), Pane(), TimeWindow(-10_000, 0)
    trigger.on_element(1, -4_500, window, pane)
    assert pane.event_timers == {-4_000, -1}


def test_merged_continuous_panes_fire_at_the_earliest_of_their_times() -> None:
    trigger = ContinuousEventTimeTrigger[Any](2_000)
    early, late = Pane(), Pane()
    trigger.on_element(1, 2_500, TimeWindow(2_500, 5_000), early)
    trigger.on_element(1, 4_500, TimeWindow(4_500, 7_000), late)
    merged = Pane(early, late)
    trigger.on_merge(TimeWindow(2_500, 7_000), merged)
    assert merged.event_timers == {4_000}


def test_a_continuous_processing_time_trigger_fires_on_the_grid_and_at_the_end() -> None:
    trigger, pane = ContinuousProcessingTimeTrigger.of(Time.seconds(4)), Pane(now=500)
    assert trigger.on_element(1, 0, WINDOW, pane) is CONTINUE
    assert pane.advance_clock(trigger, 5_000) == [4_000]
    assert pane.advance_clock(trigger, 20_000) == [8_000, 9_999]
    assert pane.holds_nothing()


def test_a_continuous_processing_time_trigger_on_a_window_of_the_past_fires_once_a_record() -> None:
    trigger, pane = ContinuousProcessingTimeTrigger[Any](1_000), Pane(now=1_000_000)
    for _ in range(2):
        trigger.on_element(1, 5, WINDOW, pane)
        assert pane.advance_clock(trigger, pane.now) == [9_999]


def test_merged_continuous_processing_time_panes_keep_the_earliest_timer() -> None:
    trigger = ContinuousProcessingTimeTrigger[Any](1_000)
    first, second = Pane(now=100), Pane(now=1_100)
    trigger.on_element(1, 0, WINDOW, first)
    trigger.on_element(1, 0, WINDOW, second)
    merged = Pane(second, first)
    trigger.on_merge(WINDOW, merged)
    assert merged.processing_timers == {1_000}


def test_a_count_trigger_fires_on_every_nth_record_and_ignores_time() -> None:
    trigger, pane = CountTrigger.of(3), Pane()
    results = [trigger.on_element(1, 0, WINDOW, pane) for _ in range(7)]
    assert results == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]
    assert trigger.on_event_time(9_999, WINDOW, pane) is CONTINUE
    assert trigger.on_processing_time(9_999, WINDOW, pane) is CONTINUE


def test_merged_panes_count_together() -> None:
    trigger, left, right = CountTrigger.of(5), Pane(), Pane()
    for pane in (left, left, right, right):
        trigger.on_element(1, 0, WINDOW, pane)
    merged = Pane(left, right)
    trigger.on_merge(WINDOW, merged)
    assert trigger.on_element(1, 0, WINDOW, merged) is FIRE


def test_a_purging_trigger_purges_when_the_trigger_inside_fires() -> None:
    counting: Trigger[Any, Any] = PurgingTrigger.of(CountTrigger.of(2))
    pane = Pane()
    assert [counting.on_element(1, 0, WINDOW, pane) for _ in range(2)] == [CONTINUE, FIRE_AND_PURGE]
    assert PurgingTrigger.of(EventTimeTrigger()).on_event_time(9_999, WINDOW, pane) is FIRE_AND_PURGE
    assert PurgingTrigger.of(EventTimeTrigger()).on_event_time(9_998, WINDOW, pane) is CONTINUE
    assert PurgingTrigger.of(ProcessingTimeTrigger()).on_processing_time(9_999, WINDOW, pane) is FIRE_AND_PURGE


def test_a_purging_trigger_merges_if_and_as_the_trigger_inside_does() -> None:
    assert PurgingTrigger.of(EventTimeTrigger()).can_merge()
    assert not PurgingTrigger.of(NeverTrigger()).can_merge()
    pane = Pane()
    PurgingTrigger.of(EventTimeTrigger()).on_merge(WINDOW, pane)
    assert pane.event_timers == {9_999}


def test_a_never_trigger_never_fires() -> None:
    trigger, pane, window = NeverTrigger[Any](), Pane(), GlobalWindow.get()
    assert trigger.on_element(1, 0, window, pane) is CONTINUE
    assert trigger.on_event_time(0, window, pane) is CONTINUE
    assert trigger.on_processing_time(0, window, pane) is CONTINUE
    assert not trigger.can_merge()


@pytest.mark.parametrize(
    "trigger",
    [
        EventTimeTrigger(),
        ProcessingTimeTrigger(),
        ContinuousProcessingTimeTrigger[Any](1_000),
        CountTrigger(5),
        PurgingTrigger(CountTrigger(5)),
    ],
)
def test_clear_removes_all_timers_and_state_of_the_pane(trigger: Trigger[Any, Any]) -> None:
    pane = Pane()
    trigger.on_element(1, 500, WINDOW, pane)
    assert not pane.holds_nothing()
    trigger.clear(WINDOW, pane)
    assert pane.holds_nothing()


def test_clear_of_a_continuous_event_time_trigger_leaves_only_the_timer_of_the_windows_end() -> None:
    # As in Flink: that timer finds no contents, or the window operator has deleted it as its clean-up timer.
    trigger, pane = ContinuousEventTimeTrigger[Any](1_000), Pane()
    trigger.on_element(1, 500, WINDOW, pane)
    trigger.clear(WINDOW, pane)
    assert pane.event_timers == {9_999}


@pytest.mark.parametrize(
    "trigger",
    [
        EventTimeTrigger(),
        ProcessingTimeTrigger(),
        ContinuousEventTimeTrigger[Any](1),
        ContinuousProcessingTimeTrigger[Any](1),
        PurgingTrigger(CountTrigger(1)),
        NeverTrigger(),
    ],
)
def test_triggers_survive_plain_pickle(trigger: Trigger[Any, Any]) -> None:
    assert type(pickle.loads(pickle.dumps(trigger))) is type(trigger)


def test_results_say_whether_they_fire_and_purge() -> None:
    assert [(r.is_fire(), r.is_purge()) for r in (CONTINUE, FIRE_AND_PURGE, FIRE, TriggerResult.PURGE)] == [
        (False, False),
        (True, True),
        (True, False),
        (False, True),
    ]


def test_impossible_counts_and_intervals_are_refused() -> None:
    for build in (
        lambda: CountTrigger.of(0),
        lambda: ContinuousEventTimeTrigger.of(Time(0)),
        lambda: ContinuousProcessingTimeTrigger.of(Time(-1)),
    ):
        with pytest.raises(JobDefinitionError):
            build()
