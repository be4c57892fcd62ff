"""Joins of two streams in whole jobs against nested loops: cuts, parallelism, interleaving and crashes do not matter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Time
from penstock.datastream import CoGroupFunction, DataStream, JoinFunction, ProcessJoinFunction
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.testing import Epoch, Stamped
from tests.embedded.jobs import key_of
from tests.embedded.runs import Run
from tests.embedded.two_streams import Record, records_of, run_job, runs, scripts


class Pair(JoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        return first[1], second[1]


class Group(CoGroupFunction):
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
        yield tuple(sorted(value[1] for value in first)), tuple(sorted(value[1] for value in second))


def windows_of(size: int, slide: int, time: int) -> list[int]:
    """The starts of all windows that hold `time`, found by trying."""
    return [start for start in range(-size - slide, time + 1) if start % slide == 0 and start <= time < start + size]


def _groups(first: list[Record], second: list[Record], size: int, slide: int) -> list[Any]:
    groups: dict[Any, tuple[list[int], list[int]]] = {}
    for side, records in enumerate((first, second)):
        for key, number, time in records:
            for start in windows_of(size, slide, time):
                groups.setdefault((key, start), ([], []))[side].append(number)
    return sorted((tuple(sorted(a)), tuple(sorted(b))) for a, b in groups.values())


@settings(max_examples=40)
@given(scripts(), scripts(), runs, st.sampled_from([(5, 5), (10, 5), (12, 4)]))
def test_a_window_join_gives_every_pair_of_a_key_and_window_once(
    first: list[Any], second: list[Any], run: Run, shape: tuple[int, int]
) -> None:
    size, slide = shape
    assigner: Any = TumblingEventTimeWindows(size, 0) if size == slide else SlidingEventTimeWindows(size, slide, 0)
    results, _ = run_job(
        first, second, run, lambda a, b: a.join(b).where(key_of).equal_to(key_of).window(assigner).apply(Pair())
    )
    groups = _groups(records_of(first), records_of(second), size, slide)
    assert results == sorted((x, y) for a, b in groups for x in a for y in b)


@settings(max_examples=40)
@given(scripts(), scripts(), runs, st.sampled_from([(5, 5), (10, 5)]))
def test_a_co_group_sees_all_that_both_streams_have_of_a_key_and_window_once(
    first: list[Any], second: list[Any], run: Run, shape: tuple[int, int]
) -> None:
    size, slide = shape
    assigner: Any = TumblingEventTimeWindows(size, 0) if size == slide else SlidingEventTimeWindows(size, slide, 0)
    results, _ = run_job(
        first, second, run, lambda a, b: a.co_group(b).where(key_of).equal_to(key_of).window(assigner).apply(Group())
    )
    assert results == _groups(records_of(first), records_of(second), size, slide)


# Whether records exactly one gap apart are one session depends on the watermark between them: here none are.
@settings(max_examples=40)
@given(scripts(step=2), scripts(step=2), runs, st.sampled_from([1, 3, 5, 7]))
def test_sessions_of_both_streams_are_sessions_together(
    first: list[Any], second: list[Any], run: Run, gap: int
) -> None:
    results, _ = run_job(
        first,
        second,
        run,
        lambda a, b: a.co_group(b).where(key_of).equal_to(key_of).window(EventTimeSessionWindows(gap)).apply(Group()),
    )
    expected: list[tuple[list[int], list[int]]] = []
    both = [(record, 0) for record in records_of(first)] + [(record, 1) for record in records_of(second)]
    for key in "abc":
        last: int | None = None
        for (_, number, time), side in sorted((item for item in both if item[0][0] == key), key=lambda i: i[0][2]):
            if last is None or time > last + gap:
                expected.append(([], []))
            expected[-1][side].append(number)
            last = time
    assert results == sorted((tuple(sorted(a)), tuple(sorted(b))) for a, b in expected)


def test_the_crashes_of_these_tests_do_happen() -> None:
    script = [Stamped(("a", 1, 1), 1), Epoch(), Stamped(("a", 2, 2), 2)]
    run = Run(sources=2, parallelism=2, seed=7, capacity=1, crashes=[("process", 2), ("after-snapshot", 2)])
    results, crashes = run_job(
        script,
        script,
        run,
        lambda a, b: (
            a.join(b)
            .where(key_of)
            .equal_to(key_of)
            .window(TumblingEventTimeWindows(5, 0))
            .apply(lambda x, y: x[1] * y[1])
        ),
    )
    assert results == [1, 2, 2, 4]
    assert crashes == 2


class Close(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any]:
        yield left[1], right[1], ctx.get_timestamp()


@settings(max_examples=40)
@given(scripts(), scripts(), runs, st.integers(-8, 8), st.integers(0, 10))
def test_an_interval_join_gives_every_pair_of_a_key_that_is_close_enough_once(
    first: list[Any], second: list[Any], run: Run, lower: int, width: int
) -> None:
    def build(a: DataStream, b: DataStream) -> DataStream:
        joined = a.key_by(key_of).interval_join(b.key_by(key_of))
        return joined.between(Time.milliseconds(lower), Time.milliseconds(lower + width)).process(Close())

    results, _ = run_job(first, second, run, build)
    assert results == sorted(
        (x, y, max(left, right))
        for a, x, left in records_of(first)
        for b, y, right in records_of(second)
        if a == b and left + lower <= right <= left + lower + width
    )
