"""One contract over every state backend: what a user sees, what a snapshot holds, what a retry undoes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.time import Time
from penstock.datastream.functions import AggregateFunction, ReduceFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.operators.runtime_context import keyed_state
from penstock.state import snapshot_file
from penstock.state.backend import OperatorState
from penstock.state.keys import canonical, key_group, key_group_range
from penstock.state.keyspace import Shape
from penstock.state.overlay import MISSING, TOMBSTONE
from penstock.state.panes import PANES, block_name, with_keys
from penstock.state.snapshot_file import TableDelta
from penstock.state.timers import TimerQueue
from tests.state.backends import BACKENDS, new_state, new_table

pytestmark = pytest.mark.parametrize("backend", sorted(BACKENDS))
NOW = [0]
KEYS = [0, 1.5, "a", "", b"a", None, (1, "x"), ("1", ("x",)), -(2**70), "ü"]


class Sum(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0, 0]  # changed in place: a backend must not hand out its own object

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


class Handles:
    """One state of every kind, of one operator."""

    def __init__(self, state: OperatorState, *, namespaced: bool = False, ttl: bool = False) -> None:
        self.state = state
        descriptors = [
            ValueStateDescriptor("value"),
            ListStateDescriptor("list"),
            MapStateDescriptor("map"),
            ReducingStateDescriptor("sum", Sum()),
            AggregatingStateDescriptor("mean", Mean()),
        ]
        handles: list[Any] = []
        for descriptor in descriptors:
            if ttl:
                descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(10)).build())
            handles.append(keyed_state(state, descriptor, lambda: NOW[0], namespaced=namespaced))
        self.all = handles
        self.value, self.list, self.map, self.sum, self.mean = handles

    def at(self, key: Any, namespace: Any = None) -> Handles:
        self.state.current_key = key
        for handle in self.all:
            handle.namespace = namespace
        return self

    def write(self, number: int) -> None:
        self.value.update(number)
        self.list.add(number)
        self.map.put(number % 3, [number])
        self.sum.add(number)
        self.mean.add(number)

    def read(self) -> tuple[Any, ...]:
        return self.value.value(), list(self.list.get()), dict(self.map.items()), self.sum.get(), self.mean.get()


def through_files(tables: Iterable[TableDelta]) -> list[TableDelta]:
    """Tables as a checkpoint gives them back."""
    return snapshot_file.decode(snapshot_file.encode(list(tables), meta={}), source="test")[1]


def restored(backend: str, snapshots: Iterable[list[TableDelta]], owned: range = range(128)) -> OperatorState:
    state = new_state(backend)
    for tables in snapshots:
        for table in through_files(tables):
            state.restore(table, owned)
    state.restored()
    return state


@pytest.mark.parametrize("namespaced", [False, True])
def test_every_kind_of_state_holds_what_was_written_for_each_key_and_window(backend: str, namespaced: bool) -> None:
    handles = Handles(new_state(backend), namespaced=namespaced)
    places = [(key, window) for key in KEYS for window in ([(0, 10), (10, 20)] if namespaced else [None])]
    expected: dict[Any, Any] = {}
    for number in range(4):
        for index, (key, window) in enumerate(places):
            handles.at(key, window).write(number + index)
        handles.state.fold(checkpointed=True)
    for index, (key, window) in enumerate(places):
        numbers = [number + index for number in range(4)]
        expected[key, window] = (
            numbers[-1], numbers, {n % 3: [n] for n in numbers}, sum(numbers), sum(numbers) / len(numbers)
        )  # fmt: skip
        assert handles.at(key, window).read() == expected[key, window]
    handles.at("never written", (0, 10) if namespaced else None)
    assert handles.read() == (None, [], {}, None, None)


def test_equal_keys_are_one_key(backend: str) -> None:
    handles = Handles(new_state(backend))
    handles.at(1).value.update("first")
    handles.state.fold(checkpointed=True)
    handles.at(1.0).value.update("second")
    handles.state.fold(checkpointed=True)
    assert handles.at(True).value.value() == "second"


def test_a_retry_finds_nothing_of_the_attempt_before(backend: str) -> None:
    handles = Handles(new_state(backend))
    handles.at("k").write(1)
    handles.state.operator_list("offsets").append(1)
    handles.state.event_timers.register(5, "k")
    handles.state.fold(checkpointed=True)
    confirmed = handles.at("k").read()
    handles.write(2)
    handles.at("new").write(3)
    handles.at("k").list.clear()
    handles.map.clear()
    handles.state.operator_list("offsets").append(2)
    handles.state.event_timers.delete(5, "k")
    handles.state.event_timers.register(7, "k")
    handles.state.rollback()
    assert handles.at("k").read() == confirmed
    assert handles.at("new").read() == (None, [], {}, None, None)
    assert handles.state.operator_list("offsets") == [1]
    assert handles.state.event_timers.next_timestamp() == 5


def test_a_value_changed_in_place_without_an_update_is_not_changed(backend: str) -> None:
    handles = Handles(new_state(backend))
    handles.at("k").value.update([1])
    handles.map.put("m", [1])
    handles.state.fold(checkpointed=True)
    handles.value.value().append(2)
    handles.map.get("m").append(2)
    assert (handles.value.value(), handles.map.get("m")) == ([1], [1])


def test_a_map_is_changed_and_snapshotted_entry_by_entry(backend: str) -> None:
    state = new_state(backend)
    handles = Handles(state).at("k")
    handles.map.put_all({i: str(i) for i in range(100)})
    handles.at("other").map.put(1, "another key's")
    state.fold(checkpointed=True)
    handles.at("k").map.put(5, "five")
    handles.map.remove(6)
    (delta,) = state.snapshot(full=False)
    assert dict(zip(delta.map_keys or (), delta.deleted or (), strict=True)) == {5: False, 6: True}
    assert len(list(handles.map.items())) == 99
    assert (handles.map.get(5), handles.map.contains(6)) == ("five", False)
    handles.map.clear()
    assert handles.map.is_empty()
    assert not handles.at("other").map.is_empty()


def test_maps_are_listed_in_one_order_whatever_was_written_when(backend: str) -> None:
    state = new_state(backend)
    handles = Handles(state).at("k")
    for number, key in enumerate(["c", "a", "e"]):
        handles.map.put(key, number)
    state.fold(checkpointed=True)
    for number, key in enumerate(["d", "b", "a"]):
        handles.map.put(key, number)
    assert list(handles.map) == ["a", "b", "c", "d", "e"]


def test_maps_of_older_snapshots_that_are_one_value_are_read(backend: str) -> None:
    def old(values: list[Any], deleted: list[bool] | None = None) -> list[TableDelta]:
        return [TableDelta(operator="op", name="map", kind="map", full=False, key_groups=[key_group("k", 128)], keys=["k"],
                           values=values, deleted=deleted)]  # fmt: skip

    state = restored(backend, [old([{1: "a", 2: "b"}]), old([{2: "c"}])])
    assert dict(Handles(state).at("k").map.items()) == {2: "c"}
    assert Handles(restored(backend, [old([{1: "a"}]), old([None], [True])])).at("k").map.is_empty()


@pytest.mark.parametrize("target", sorted(BACKENDS))
@pytest.mark.parametrize("full", [True, False])
def test_snapshots_of_one_backend_restore_into_any_other(backend: str, target: str, full: bool) -> None:
    state = new_state(backend)
    handles = Handles(state)
    snapshots = []
    for epoch in range(4):
        for index, key in enumerate(KEYS):
            if (index + epoch) % 3 == 0:
                handles.at(key).write(epoch)
            elif epoch and (index + epoch) % 3 == 1:
                for handle in handles.at(key).all:
                    handle.clear()
        state.event_timers.register(epoch * 10, "k", (0, epoch))
        state.event_timers.delete(epoch * 10 - 20, "k", (0, epoch - 2))
        state.operator_list("offsets")[:] = [epoch]
        if full:
            snapshots = [state.snapshot(full=True)]
        else:
            snapshots.append(state.snapshot(full=False))
        state.fold(checkpointed=True)
    if not full:  # operator state is whole in each, and a restore takes the last
        snapshots = [[t for t in s if t.kind != "operator-list"] for s in snapshots[:-1]] + snapshots[-1:]
    other = restored(target, snapshots)
    assert [Handles(other).at(key).read() for key in KEYS] == [handles.at(key).read() for key in KEYS]
    assert other.operator_list("offsets") == [3]
    fired: list[Any] = []
    other.event_timers.advance(1000, lambda *timer: fired.append(timer))
    assert fired == [(20, "k", (0, 2)), (30, "k", (0, 3))]


def test_a_delta_holds_what_changed_since_the_last_checkpoint_with_tombstones(backend: str) -> None:
    state = new_state(backend)
    handles = Handles(state)
    handles.at("stays").value.update(1)
    handles.at("goes").value.update(2)
    state.fold(checkpointed=True)
    assert state.snapshot(full=False) == []
    handles.at("goes").value.clear()
    state.fold(checkpointed=False)
    handles.at("comes").value.update(3)
    (delta,) = state.snapshot(full=False)
    assert dict(zip(delta.keys, delta.deleted or (), strict=True)) == {"goes": True, "comes": False}
    (everything,) = state.snapshot(full=True)
    assert dict(zip(everything.keys, everything.values, strict=True)) == {"stays": 1, "comes": 3}


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
def test_a_rescale_gives_every_key_and_timer_to_exactly_one_subtask(backend: str, before: int, after: int) -> None:
    keys = [f"key {i}" for i in range(60)]
    snapshots = []
    for subtask in range(before):
        owned = key_group_range(subtask, before, 128)
        state = new_state(backend)
        for number, key in enumerate(keys):
            if key_group(key, 128) in owned:
                Handles(state).at(key).write(number)
                state.event_timers.register(number, key)
        snapshots.append(state.snapshot(full=True))
    found: dict[str, Any] = {}
    fired: list[Any] = []
    for subtask in range(after):
        state = restored(backend, snapshots, key_group_range(subtask, after, 128))
        mine = {key: Handles(state).at(key).value.value() for key in keys}
        for key, value in mine.items():
            if value is not None:
                assert found.setdefault(key, value) == value
        held = sum(1 for value in mine.values() if value is not None)
        assert held == len(dict(state.tables["value"].items())) == len(state.event_timers)
        state.event_timers.advance(1000, lambda time, key, _: fired.append((time, key)))
    assert found == {key: number for number, key in enumerate(keys)}
    assert sorted(fired) == [(number, key) for number, key in enumerate(keys)]


def test_state_with_a_time_to_live_expires_and_is_swept_by_full_snapshots(backend: str) -> None:
    NOW[0] = 0
    state = new_state(backend)
    handles = Handles(state, ttl=True)
    handles.at("k").write(1)
    handles.at("unread").write(1)
    state.fold(checkpointed=True)
    NOW[0] = 9
    handles.at("k").write(2)
    state.fold(checkpointed=True)
    NOW[0] = 12
    assert handles.at("k").read() == (2, [2], {2: [2]}, 3, 1.5)
    tables = {table.name: table.keys for table in state.snapshot(full=True)}
    assert tables == {name: ["k"] for name in ("value", "list", "map", "sum", "mean")}
    NOW[0] = 100
    assert handles.read() == (None, [], {}, None, None)


def test_blocks_of_panes_come_back_as_they_were(backend: str) -> None:
    state = new_state(backend)
    table = state.table("panes", PANES)
    block = pa.record_batch({"k": pa.array([1, 2]), "n": pa.array([10, 20])})
    block = block.cast(with_keys(block.schema, ["k"]))
    table.put(block_name(0, 1, range(128)), block)
    state.fold(checkpointed=True)
    assert table.peek(block_name(0, 1, range(128))).equals(block)
    again = restored(backend, [state.snapshot(full=True)])
    ((name, found),) = again.table("panes", PANES).items()
    assert (name, found.to_pydict()) == ((0, 1, 0, 128), block.to_pydict())
    assert found.schema.metadata == block.schema.metadata


@given(
    timers=st.lists(st.tuples(st.integers(-5, 30), st.sampled_from("abc"), st.integers(0, 1)), max_size=40),
    steps=st.lists(st.sampled_from(["fold", "rollback", "advance", "delete", "register"]), max_size=25),
)
@settings(max_examples=60, deadline=None)
def test_timers_of_any_history_fire_as_those_of_a_sorted_list(
    backend: str, timers: list[tuple[int, str, int]], steps: list[str]
) -> None:
    """With a head of two timers in memory, all but the first few are always elsewhere."""
    queue = TimerQueue(new_table(backend, Shape.TIMERS))
    model: set[tuple[int, str, int]] = set()
    confirmed: set[tuple[int, str, int]] = set()
    now, waiting = -10, iter(timers)
    for step in [*steps, "advance"]:
        timer = next(waiting, None)
        match step:
            case "fold":
                queue.table.fold(checkpointed=True)
                queue.folded()
                confirmed = set(model)
            case "rollback":
                queue.table.rollback()
                queue.rebuild()
                model = set(confirmed)
            case "advance":
                now += 6
                fired: list[Any] = []
                queue.advance(now, lambda t, k, n, out=fired: out.append((t, k, n)))  # type: ignore[misc]
                due = sorted(t for t in model if t[0] <= now)
                assert fired == due
                model -= set(due)
            case _ if timer is not None:
                change = queue.register if step == "register" else queue.delete
                change(*timer)
                (model.add if step == "register" else model.discard)(timer)
        for more in [t for t in (next(waiting, None),) if t is not None]:
            queue.register(*more)
            model.add(more)
        assert len(queue) == len(model)
        assert queue.next_timestamp() == min((t[0] for t in model), default=None)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.integers()),
        st.tuples(st.just("delete"), st.integers(0, 5), st.just(0)),
        st.tuples(st.sampled_from(["fold", "checkpoint", "rollback"]), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(operations)
@settings(max_examples=60, deadline=None)
def test_any_history_equals_a_plain_dict_and_its_deltas_rebuild_it(
    backend: str, history: list[tuple[str, int, int]]
) -> None:
    table = new_table(backend)
    confirmed: dict[Any, Any] = {}
    current: dict[Any, Any] = {}
    stored: dict[Any, Any] = {}  # what a restore from the checkpoints' deltas gives
    at_checkpoint: dict[Any, Any] = {}
    for what, key, value in history:
        if what == "put":
            table.put(key, value)
            current[key] = value
        elif what == "delete":
            table.delete(key)
            current.pop(key, None)
        elif what == "rollback":
            table.rollback()
            current = dict(confirmed)
        else:
            if what == "checkpoint":
                for k, v in table.delta().items():
                    if v is TOMBSTONE:
                        stored.pop(k, None)
                    else:
                        stored[k] = v
                at_checkpoint = dict(current)
            table.fold(checkpointed=what == "checkpoint")
            confirmed = dict(current)
        assert dict(table.items()) == current
        assert [table.get(k) for k in range(6)] == [current.get(k, MISSING) for k in range(6)]
        assert len(table) == len(current)
        assert stored == at_checkpoint


def test_numbers_of_numpy_can_be_keys_and_values(backend: str) -> None:
    handles = Handles(new_state(backend))
    handles.at(np.int64(3)).value.update(np.float64(0.5))
    handles.state.fold(checkpointed=True)
    assert handles.at(3).value.value() == 0.5


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "remove", "fold", "rollback"]), st.integers(0, 600), st.integers(1, 120)),
        max_size=12,
    )
)
def test_keys_of_a_map_are_in_canonical_order_one_after_the_other(
    backend: str, steps: list[tuple[str, int, int]]
) -> None:
    handles = Handles(new_state(backend)).at("k")
    handles.map.put_all({number: [number] for number in range(0, 600, 2)})
    handles.state.fold(checkpointed=True)
    expected = confirmed = dict.fromkeys(range(0, 600, 2))
    for step, start, count in steps:
        expected = expected.copy()
        match step:
            case "put":
                handles.map.put_all({number: [number] for number in range(start, start + count)})
                expected |= dict.fromkeys(range(start, start + count))
            case "remove":
                for number in range(start, start + count):
                    handles.map.remove(number)
                    expected.pop(number, None)
            case "fold":
                handles.state.fold(checkpointed=True)
                confirmed = expected
            case "rollback":
                handles.state.rollback()
                handles.at("k")
                expected = confirmed
        keys = handles.map.keys()
        assert list(keys) == list(keys) == sorted(expected, key=canonical)
        assert next(iter(keys), None) == next(iter(sorted(expected, key=canonical)), None)


def test_a_map_may_be_changed_while_its_keys_are_walked_over(backend: str) -> None:
    handles = Handles(new_state(backend)).at("k")
    handles.map.put_all({number: number for number in range(1000)})
    handles.state.fold(checkpointed=True)
    seen = []
    for key in iter(handles.map.keys()):
        seen.append(key)
        handles.map.remove(key)
        handles.map.put(key + 5000, 1)
    assert seen == sorted(range(1000), key=canonical)
    assert list(handles.map.keys()) == sorted(range(5000, 6000), key=canonical)
