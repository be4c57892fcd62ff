"""Timers: one per key, namespace and time; in time order; part of snapshots and of retries."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.overlay import OverlayTable
from penstock.state.timers import TimerQueue


def fire_all(queue: TimerQueue, until: int) -> list[tuple[int, Any]]:
    fired: list[tuple[int, Any]] = []
    queue.advance(until, lambda time, key, namespace: fired.append((time, key)))
    return fired


def test_registering_twice_is_one_timer_and_deleting_once_removes_it() -> None:
    queue = TimerQueue(OverlayTable())
    queue.register(10, "a")
    queue.register(10, "a")
    assert len(queue) == 1
    queue.delete(10, "a")
    assert fire_all(queue, 100) == []


def test_a_timer_registered_while_firing_takes_its_place_in_time() -> None:
    queue = TimerQueue(OverlayTable())
    fired = []

    def fire(time: int, key: Any, namespace: Any) -> None:
        fired.append(time)
        if time == 15:
            queue.register(20, "x")
        if time == 26:
            queue.register(21, "x")

    for time in (15, 24, 26):
        queue.register(time, "a")
    queue.advance(30, fire)
    assert fired == [15, 20, 24, 26, 21]


def test_a_rollback_brings_fired_timers_back_and_drops_new_ones() -> None:
    queue = TimerQueue(OverlayTable())
    queue.register(10, "a")
    queue.table.fold(checkpointed=True)
    assert fire_all(queue, 10) == [(10, "a")]
    queue.register(20, "b")
    queue.table.rollback()
    queue.rebuild()
    assert fire_all(queue, 100) == [(10, "a")]


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), max_size=40))
def test_timers_fire_in_order_of_time_then_key_whatever_the_order_of_registration(
    timers: list[tuple[int, str]],
) -> None:
    queue = TimerQueue(OverlayTable())
    for time, key in timers:
        queue.register(time, key)
    assert fire_all(queue, 20) == sorted(set(timers))
