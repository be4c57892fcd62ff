"""State with a time to live against a model that remembers when everything was last touched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.time import Time
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.errors import JobDefinitionError
from penstock.operators.runtime_context import keyed_state
from penstock.state.backend import OperatorState

TTL = 10


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class World:
    """An operator's state and a clock that is moved by hand."""

    def __init__(self, *, on_read: bool = False, return_expired: bool = False, background: bool = True) -> None:
        self.now = 0
        self.state = OperatorState("op", 128)
        self.state.current_key = "k"
        builder = StateTtlConfig.new_builder(Time.milliseconds(TTL))
        if on_read:
            builder.update_ttl_on_read_and_write()
        if return_expired:
            builder.return_expired_if_not_cleaned_up()
        if not background:
            builder.disable_cleanup_in_background()
        self.config = builder.build()

    def get(self, descriptor: StateDescriptor) -> Any:
        descriptor.enable_time_to_live(self.config)
        return keyed_state(self.state, descriptor, lambda: self.now)

    def entries(self) -> int:
        return sum(len(table) for table in self.state.tables.values())

    def epoch(self) -> None:
        self.state.fold(checkpointed=True)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 6)),
        st.tuples(st.just("write"), st.integers(0, 2)),
        st.tuples(st.just("read"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["all", "remove", "clear"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["epoch", "full", "rollback"]), st.just(0)),
    ),
    max_size=40,
)


@given(script=operations, on_read=st.booleans())
def test_map_entries_live_on_their_own(script: list[tuple[str, int]], on_read: bool) -> None:
    world = World(on_read=on_read)
    state = world.get(MapStateDescriptor("m"))
    model: dict[int, tuple[int, int]] = {}
    confirmed = dict(model)

    def touch(alive: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        return {key: (world.now, value) if on_read else (stamp, value) for key, (stamp, value) in alive.items()}

    for serial, (what, key) in enumerate(script):
        model = {k: e for k, e in model.items() if e[0] + TTL > world.now}
        match what:
            case "wait":
                world.now += key
            case "write":
                state.put(key, serial)
                model[key] = (world.now, serial)
            case "read":
                assert state.contains(key) == (key in model)
                assert state.get(key) == (model[key][1] if key in model else None)
                model.update(touch({k: e for k, e in model.items() if k == key}))
            case "all":
                assert state.is_empty() == (not model)
                assert sorted(state.items()) == sorted((k, e[1]) for k, e in model.items())
                model = touch(model)
            case "remove":
                state.remove(key)
                model.pop(key, None)
            case "clear":
                state.clear()
                model = {}
            case "rollback":
                world.state.rollback()
                world.state.current_key = "k"
                model = dict(confirmed)
            case _:
                if what == "full":
                    world.state.snapshot(full=True)
                world.epoch()
                confirmed = dict(model)


@given(script=operations, on_read=st.booleans())
def test_list_elements_live_on_their_own(script: list[tuple[str, int]], on_read: bool) -> None:
    world = World(on_read=on_read)
    state = world.get(ListStateDescriptor("l"))
    model: list[tuple[int, int]] = []
    for serial, (what, number) in enumerate(script):
        model = [e for e in model if e[0] + TTL > world.now]
        match what:
            case "wait":
                world.now += number
            case "write":
                state.add(serial)
                model.append((world.now, serial))
            case "all":
                state.add_all([serial, -serial])
                model += [(world.now, serial), (world.now, -serial)]
            case "read":
                assert list(state.get()) == [value for _, value in model]
                model = [(world.now, value) for _, value in model] if on_read else model
            case "remove":
                state.update([serial] * number)
                model = [(world.now, serial)] * number
            case "clear":
                state.clear()
                model = []
            case "full":
                world.state.snapshot(full=True)
                world.epoch()
            case "epoch":
                world.epoch()


@pytest.mark.parametrize("on_read", [False, True])
def test_a_value_lives_so_long_after_its_last_write_or_read(on_read: bool) -> None:
    world = World(on_read=on_read)
    state = world.get(ValueStateDescriptor("v"))
    state.update(1)
    world.now = TTL - 1
    assert state.value() == 1
    world.now = TTL
    assert state.value() == (1 if on_read else None)
    world.now = 3 * TTL
    assert state.value() is None
    state.update(2)
    state.update(None)
    assert state.value() is None


def test_reducing_and_aggregating_state_start_again_when_they_have_expired() -> None:
    world = World()
    total = world.get(ReducingStateDescriptor("r", lambda a, b: a + b))
    mean = world.get(AggregatingStateDescriptor("a", Mean()))
    for state in (total, mean):
        state.add(4)
        state.add(2)
    assert (total.get(), mean.get()) == (6, 3)
    world.now = TTL - 1
    total.add(1)
    mean.add(0)
    world.now = 2 * TTL - 2
    assert (total.get(), mean.get()) == (7, 2)
    world.now = 2 * TTL - 1
    assert (total.get(), mean.get()) == (None, None)
    total.add(5)
    mean.add(5)
    assert (total.get(), mean.get()) == (5, 5)


def test_what_has_expired_can_be_seen_once_more_if_it_may_and_is_still_there() -> None:
    world = World(return_expired=True)
    value, listed = world.get(ValueStateDescriptor("v")), world.get(ListStateDescriptor("l"))
    mapped = world.get(MapStateDescriptor("m"))
    value.update(1)
    listed.add(1)
    mapped.put("a", 1)
    world.now = TTL
    listed.add(2)
    assert (value.value(), list(listed.get()), mapped.get("a")) == (1, [1, 2], 1)
    assert (value.value(), list(listed.get()), mapped.get("a")) == (None, [2], None)


@pytest.mark.parametrize("background", [True, False])
def test_a_full_snapshot_sweeps_what_nobody_reads_unless_that_is_off(background: bool) -> None:
    world = World(background=background)
    states = [
        world.get(ValueStateDescriptor("v")),
        world.get(ListStateDescriptor("l")),
        world.get(MapStateDescriptor("m")),
    ]
    states[0].update(1)
    states[1].add_all([1, 2])
    states[2].put("old", 1)
    world.epoch()
    world.now = TTL - 1
    states[1].add(3)
    states[2].put("new", 2)
    world.epoch()
    world.now = TTL
    tables = {table.name: table.values for table in world.state.snapshot(full=True)}
    world.epoch()
    if background:
        assert tables == {"l": [[(TTL - 1, 3)]], "m": [(TTL - 1, 2)]}
        assert world.entries() == 2
    else:
        assert set(tables) == {"v", "l", "m"}
        assert world.entries() == 4


def test_an_incremental_snapshot_sweeps_nothing() -> None:
    world = World()
    world.get(ValueStateDescriptor("v")).update(1)
    world.epoch()
    world.now = TTL
    assert world.state.snapshot(full=False) == []


def test_state_with_and_without_a_time_to_live_are_not_taken_for_one_another() -> None:
    world = World()
    keyed_state(world.state, ValueStateDescriptor("v"), lambda: 0)
    with pytest.raises(JobDefinitionError, match="give the new state another name"):
        world.get(ValueStateDescriptor("v"))
