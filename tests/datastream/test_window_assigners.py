from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Duration, Time
from penstock.common.time import MIN_LONG_VALUE
from penstock.datastream.functions import RuntimeContext
from penstock.datastream.state import StateDescriptor, ValueState
from penstock.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from penstock.errors import JobDefinitionError, PenstockError

TIMESTAMPS = st.integers(-(10**13), 10**13)


class _Value(ValueState[Any]):
    def __init__(self) -> None:
        self._value: Any = None

    def value(self) -> Any:
        return self._value

    def update(self, value: Any) -> None:
        self._value = value

    def clear(self) -> None:
        self._value = None


class _Runtime:
    """Only what count windows ask for: value state by name."""

    def __init__(self) -> None:
        self._states: dict[str, _Value] = {}

    def get_state(self, descriptor: StateDescriptor) -> _Value:
        return self._states.setdefault(descriptor.name, _Value())


class Context(WindowAssigner.WindowAssignerContext):
    def __init__(self, now: int = 0) -> None:
        self._now = now
        self._runtime: Any = _Runtime()

    def get_current_processing_time(self) -> int:
        return self._now

    def get_runtime_context(self) -> RuntimeContext:
        runtime: RuntimeContext = self._runtime
        return runtime


class Merges(MergingWindowAssigner.MergeCallback[TimeWindow]):
    def __init__(self) -> None:
        self.seen: list[tuple[list[TimeWindow], TimeWindow]] = []

    def merge(self, to_be_merged: Iterable[TimeWindow], merge_result: TimeWindow) -> None:
        self.seen.append((list(to_be_merged), merge_result))


class GapInRecord(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element)


@st.composite
def _grids(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(st.integers(1, 10**9))
    return size, draw(st.integers(-size + 1, size - 1))


@given(TIMESTAMPS, _grids())
def test_a_tumbling_window_holds_its_timestamp_and_starts_on_the_grid(timestamp: int, grid: tuple[int, int]) -> None:
    size, offset = grid
    (window,) = TumblingEventTimeWindows.of(Time(size), Time(offset)).assign_windows(None, timestamp, Context())
    assert window.start <= timestamp <= window.max_timestamp()
    assert window.end - window.start == size
    assert (window.start - offset) % size == 0


@given(TIMESTAMPS, _grids(), st.integers(1, 5000))
def test_sliding_windows_are_all_windows_of_the_grid_that_hold_the_timestamp(
    timestamp: int, grid: tuple[int, int], factor_percent: int
) -> None:
    slide, offset = grid
    size = max(1, slide * factor_percent // 100)
    windows = list(SlidingEventTimeWindows[Any](size, slide, offset).assign_windows(None, timestamp, Context()))
    assert all(w.start <= timestamp < w.end and w.end - w.start == size for w in windows)
    assert all((w.start - offset) % slide == 0 for w in windows)
    assert [w.start for w in windows] == sorted({w.start for w in windows}, reverse=True)
    # None is missing: the neighbours on the grid on both sides do not hold the timestamp.
    latest = offset + (timestamp - offset) // slide * slide
    earliest = windows[-1].start if windows else latest + slide
    assert latest + slide > timestamp
    assert earliest - slide + size <= timestamp
    assert len(windows) == (latest - earliest) // slide + 1


@pytest.mark.parametrize(
    ("timestamp", "offset", "start"),
    [(-1, 0, -1000), (-1000, 0, -1000), (-1001, 0, -2000), (0, 0, 0), (999, 0, 0), (0, 250, -750), (-1, -250, -250)],
)
def test_window_starts_are_floored_before_the_epoch(timestamp: int, offset: int, start: int) -> None:
    assert TimeWindow.get_window_start_with_offset(timestamp, offset, 1000) == start


def test_a_timestamp_between_sliding_windows_with_gaps_is_in_none() -> None:
    assigner = SlidingEventTimeWindows.of(Time(10), Time(100))
    assert assigner.assign_windows(None, 50, Context()) == []
    assert assigner.assign_windows(None, 109, Context()) == [TimeWindow(100, 110)]


def test_processing_time_windows_look_at_the_clock_only() -> None:
    context = Context(now=1234)
    assert TumblingProcessingTimeWindows.of(Time(1000)).assign_windows(None, 5, context) == [TimeWindow(1000, 2000)]
    sliding = SlidingProcessingTimeWindows.of(Time(1000), Time(500))
    assert sliding.assign_windows(None, 5, context) == [TimeWindow(1000, 2000), TimeWindow(500, 1500)]
    assert ProcessingTimeSessionWindows.with_gap(Time(7)).assign_windows(None, 5, context) == [TimeWindow(1234, 1241)]
    dynamic = ProcessingTimeSessionWindows.with_dynamic_gap(GapInRecord())
    assert dynamic.assign_windows(3, 5, context) == [TimeWindow(1234, 1237)]


def test_sessions_start_at_the_record_and_last_one_gap() -> None:
    assert EventTimeSessionWindows.with_gap(Time.seconds(2)).assign_windows("x", -5, Context()) == [
        TimeWindow(-5, 1995)
    ]
    dynamic = EventTimeSessionWindows.with_dynamic_gap(GapInRecord())
    assert dynamic.assign_windows(9, 100, Context()) == [TimeWindow(100, 109)]
    with pytest.raises(PenstockError, match=r"GapInRecord.extract gave a session gap of 0 ms for the record 0"):
        dynamic.assign_windows(0, 100, Context())


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(Time(10)),
        SlidingEventTimeWindows.of(Time(10), Time(5)),
        EventTimeSessionWindows.with_gap(Time(10)),
        DynamicEventTimeSessionWindows(GapInRecord()),
    ],
)
@pytest.mark.parametrize("timestamp", [MIN_LONG_VALUE, None])
def test_event_time_windows_refuse_records_without_a_timestamp(assigner: Any, timestamp: Any) -> None:
    with pytest.raises(PenstockError, match="assign_timestamps_and_watermarks"):
        assigner.assign_windows(10, timestamp, Context())


def test_windows_that_touch_intersect_whichever_comes_first() -> None:
    left, right, apart = TimeWindow(0, 10), TimeWindow(10, 20), TimeWindow(11, 20)
    assert left.intersects(right)
    assert right.intersects(left)
    assert not left.intersects(apart)
    assert not apart.intersects(left)


def test_windows_that_overlap_or_touch_merge_into_their_cover() -> None:
    a, b, c, d = TimeWindow(0, 10), TimeWindow(10, 20), TimeWindow(15, 17), TimeWindow(21, 30)
    merges = Merges()
    EventTimeSessionWindows.with_gap(Time(10)).merge_windows([d, c, a, b], merges)
    assert merges.seen == [([a, b, c], TimeWindow(0, 20))]


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 10)), max_size=12))
def test_merging_leaves_windows_that_neither_overlap_nor_touch(spans: list[tuple[int, int]]) -> None:
    windows = {TimeWindow(start, start + length) for start, length in spans}
    merges = Merges()
    TimeWindow.merge_windows(windows, merges)
    remaining = set(windows)
    for group, result in merges.seen:
        assert len(group) > 1
        assert remaining >= set(group)
        assert (min(w.start for w in group), max(w.end for w in group)) == (result.start, result.end)
        remaining -= set(group)
    remaining |= {result for _, result in merges.seen}
    ordered = sorted(remaining)
    assert all(left.end < right.start for left, right in itertools.pairwise(ordered))


def test_tumbling_count_windows_number_groups_of_records() -> None:
    assigner, context = CountTumblingWindowAssigner.of(3), Context()
    ids = [[w.id for w in assigner.assign_windows(None, 0, context)] for _ in range(7)]
    assert ids == [[0], [0], [0], [1], [1], [1], [2]]


@given(st.integers(1, 8), st.integers(1, 8))
def test_a_sliding_count_window_holds_size_records_from_every_slide(size: int, slide: int) -> None:
    assigner, context = CountSlidingWindowAssigner.of(size, slide), Context()
    for position in range(30):
        expected = {n for n in range(position + 1) if n * slide <= position < n * slide + size}
        windows = [w.id for w in assigner.assign_windows(None, 0, context)]
        assert windows == sorted(expected, reverse=True)


def test_each_assigner_has_its_default_trigger_and_clock() -> None:
    event: list[WindowAssigner[Any, Any]] = [
        TumblingEventTimeWindows.of(Time(1)),
        SlidingEventTimeWindows.of(Time(1), Time(1)),
        EventTimeSessionWindows.with_gap(Time(1)),
        DynamicEventTimeSessionWindows.with_dynamic_gap(GapInRecord()),
    ]
    processing: list[WindowAssigner[Any, Any]] = [
        TumblingProcessingTimeWindows.of(Time(1)),
        SlidingProcessingTimeWindows.of(Time(1), Time(1)),
        ProcessingTimeSessionWindows.with_gap(Time(1)),
        DynamicProcessingTimeSessionWindows.with_dynamic_gap(GapInRecord()),
    ]
    assert all(isinstance(a.get_default_trigger(None), EventTimeTrigger) and a.is_event_time() for a in event)
    assert all(isinstance(a.get_default_trigger(None), ProcessingTimeTrigger) for a in processing)
    assert not any(a.is_event_time() for a in processing)
    assert isinstance(GlobalWindows.create().get_default_trigger(None), NeverTrigger)
    count = CountTumblingWindowAssigner.of(2).get_default_trigger(None)
    assert isinstance(count, PurgingTrigger)
    assert isinstance(count.nested_trigger, CountTrigger)


def test_intervals_may_be_durations() -> None:
    by_time, by_duration = TumblingEventTimeWindows.of(Time(5)), TumblingEventTimeWindows.of(Duration.of_millis(5))
    assert repr(by_time) == repr(by_duration) == "TumblingEventTimeWindows(5, 0)"


def test_impossible_sizes_and_offsets_are_refused() -> None:
    for build in (
        lambda: TumblingEventTimeWindows.of(Time(10), Time(10)),
        lambda: TumblingEventTimeWindows.of(Time(10), Time(-10)),
        lambda: TumblingProcessingTimeWindows.of(Time(0)),
        lambda: SlidingEventTimeWindows.of(Time(10), Time(5), Time(5)),
        lambda: SlidingProcessingTimeWindows.of(Time(0), Time(5)),
        lambda: SlidingEventTimeWindows.of(Time(5), Time(0)),
        lambda: EventTimeSessionWindows.with_gap(Time(0)),
        lambda: CountTumblingWindowAssigner.of(0),
        lambda: CountSlidingWindowAssigner.of(2, 0),
    ):
        with pytest.raises(JobDefinitionError):
            build()


@pytest.mark.parametrize(
    ("assigner", "window"),
    [
        (TumblingEventTimeWindows.of(Time(10)), TimeWindow(-10, 0)),
        (CountTumblingWindowAssigner.of(1), CountWindow(7)),
        (GlobalWindows.create(), GlobalWindow.get()),
    ],
)
def test_windows_survive_their_serializer_and_pickle(assigner: WindowAssigner[Any, Any], window: Any) -> None:
    serializer, stream = assigner.get_window_serializer(), io.BytesIO()
    serializer.serialize(window, stream)
    serializer.serialize(window, stream)
    stream.seek(0)
    assert [serializer.deserialize(stream), serializer.deserialize(stream)] == [window, window]
    assert stream.read() == b""
    assert serializer == assigner.get_window_serializer()
    assert pickle.loads(pickle.dumps(window)) == window
    assert hash(pickle.loads(pickle.dumps(window))) == hash(window)
    assert repr(pickle.loads(pickle.dumps(assigner))) == repr(assigner)
