"""Operator state of one function: what is stored, what is left out, and who gets what at another parallelism."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Time
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.datastream import KeyedProcessFunction, MapFunction
from penstock.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ProcessFunction,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from penstock.errors import JobDefinitionError, UserFunctionError
from penstock.operators.simple import SinkOperator
from penstock.records import Block, Rows
from penstock.state.snapshot_file import decode
from penstock.testing import OperatorHarness


class Keeper(ProcessFunction, CheckpointedFunction):
    """Commands: ("list" | "union", element) adds one, ("map", key, value) puts one, ("clear",) empties the list."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.list = store.get_list_state(ListStateDescriptor("kept"))
        self.union = store.get_union_list_state(ListStateDescriptor("shared"))
        self.map = store.get_broadcast_state(MapStateDescriptor("rules"))
        self.found = (context.is_restored(), context.get_restored_checkpoint_id())
        self.snapshots: list[int] = []

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.snapshots.append(context.get_checkpoint_id())

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        match value:
            case ("list", element):
                self.list.add(element)
            case ("union", element):
                self.union.add(element)
            case ("map", key, element):
                self.map.put(key, element)
            case ("clear",):
                self.list.clear()
            case ("look",):
                yield list(self.list), list(self.union), dict(self.map.items()), self.found


def keeper(**options: Any) -> OperatorHarness:
    return OperatorHarness.for_function(Keeper(), **options)


def look(harness: OperatorHarness) -> Any:
    return harness.push(("look",)).values()[-1]


def tables(data: bytes) -> dict[str, list[Any]]:
    return {table.name: list(table.values) for table in decode(data, source="test")[1]}


def test_a_function_starts_from_nothing_or_from_what_it_put_into_its_states() -> None:
    first = keeper()
    assert look(first) == ([], [], {}, (False, None))
    first.push(("list", 1)).push(("union", 2)).push(("map", "a", 3))
    data = first.snapshot()
    assert look(keeper().restore(data)) == ([1], [2], {"a": 3}, (True, 1))


def test_a_retry_starts_from_the_last_epoch_with_a_fresh_function() -> None:
    harness = keeper().push(("list", 1))
    harness.snapshot()
    harness.push(("list", 2)).push(("map", "a", 1)).rollback()
    assert look(harness) == ([1], [], {}, (True, 1))


def test_only_lists_that_changed_are_in_an_increment_and_the_newest_of_a_chain_counts() -> None:
    harness = keeper().push(("list", 1)).push(("union", 2)).push(("map", "a", 3))
    chain = [harness.snapshot()]
    assert set(tables(chain[0])) == {"kept", "shared", "rules"}
    chain.append(harness.snapshot(full=False))
    assert tables(chain[1]) == {}
    harness.push(("clear",)).push(("map", "a", 4))
    chain.append(harness.snapshot(full=False))
    assert tables(chain[2]) == {"kept": [], "rules": [("a", 4)]}
    chain.append(harness.snapshot(full=False))
    assert look(keeper().restore(chain))[:3] == ([], [2], {"a": 4})


def test_a_change_in_place_of_an_element_is_a_change() -> None:
    class Counter(MapFunction, CheckpointedFunction):
        def initialize_state(self, context: FunctionInitializationContext) -> None:
            state = context.get_operator_state_store().get_list_state(ListStateDescriptor("counts"))
            if not context.is_restored():
                state.add({})
            (self.counts,) = state.get()

        def snapshot_state(self, context: FunctionSnapshotContext) -> None:
            pass

        def map(self, value: str) -> int:
            self.counts[value] = self.counts.get(value, 0) + 1
            return int(self.counts[value])

    harness = OperatorHarness.for_function(Counter()).push("a")
    chain = [harness.snapshot()]
    harness.push("a")
    chain.append(harness.snapshot(full=False))
    harness.push("a").rollback().push("a")
    assert harness.values() == [1, 2, 3]
    assert OperatorHarness.for_function(Counter()).restore(chain).push("a").values() == [3]


def test_what_a_snapshot_holds_does_not_change_with_the_function() -> None:
    harness = keeper().push(("list", [1]))
    state = harness.state
    harness._open()
    (table,) = [table for table in state.snapshot(full=True) if table.name == "kept"]
    state.operator_list("kept")[0].append(2)
    assert table.values == [[1]]


@given(
    per_subtask=st.lists(st.lists(st.integers(0, 99), max_size=7), min_size=1, max_size=4),
    parallelism=st.integers(1, 5),
)
def test_at_another_parallelism_a_list_is_dealt_out_evenly_and_a_union_goes_to_everyone(
    per_subtask: list[list[int]], parallelism: int
) -> None:
    old = len(per_subtask)
    files = []
    for subtask, elements in enumerate(per_subtask):
        harness = keeper(parallelism=old, subtask=subtask)
        for element in elements:
            harness.push(("list", element)).push(("union", element))
        files.append(harness.push(("map", "subtask", subtask)).snapshot())
    new = [look(keeper(parallelism=parallelism, subtask=n).restore(*files)) for n in range(parallelism)]
    everything = [element for elements in per_subtask for element in elements]
    assert sorted(element for kept, *_ in new for element in kept) == sorted(everything)
    sizes = [len(kept) for kept, *_ in new]
    assert max(sizes) - min(sizes) <= 1
    assert all(shared == everything for _, shared, *_ in new)
    assert all(rules == {"subtask": 0} for _, _, rules, _ in new)


def test_a_name_has_one_kind_and_the_error_names_operator_and_state() -> None:
    class TwoKinds(MapFunction, CheckpointedFunction):
        def initialize_state(self, context: FunctionInitializationContext) -> None:
            store = context.get_operator_state_store()
            store.get_list_state(ListStateDescriptor("x"))
            store.get_union_list_state(ListStateDescriptor("x"))

        def snapshot_state(self, context: FunctionSnapshotContext) -> None:
            pass

        def map(self, value: Any) -> Any:
            return value

    with pytest.raises(JobDefinitionError, match=r"'operator-under-test'.*'x' as union-list.*operator-list already"):
        OperatorHarness.for_function(TwoKinds()).push(1)


def test_operator_state_has_no_time_to_live() -> None:
    descriptor = ListStateDescriptor("x")
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())

    class Expiring(Keeper):
        def initialize_state(self, context: FunctionInitializationContext) -> None:
            context.get_operator_state_store().get_list_state(descriptor)

    with pytest.raises(JobDefinitionError, match="cannot have a time to live"):
        OperatorHarness.for_function(Expiring()).push(1)


@pytest.mark.parametrize("method", ["initialize_state", "snapshot_state", "notify_checkpoint_complete"])
def test_an_error_names_operator_uid_and_method(method: str) -> None:
    class Failing(Keeper, CheckpointListener):
        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            pass

    def fail(*_: Any) -> None:
        raise ValueError("no")

    setattr(Failing, method, fail)

    def run() -> None:
        harness = OperatorHarness.for_function(Failing())
        harness.push(("look",)).snapshot()
        harness.notify_checkpoint_complete()

    with pytest.raises(UserFunctionError, match=rf"(?s)ValueError: no.*{method}\(.*uid 'operator-under-test'"):
        run()


def test_what_cannot_be_pickled_is_refused_with_the_name_of_the_state() -> None:
    with pytest.raises(Exception, match=r"'operator-under-test'.*'kept' cannot be pickled"):
        keeper().push(("list", threading.Lock())).snapshot()


def test_keyed_state_can_be_had_in_initialize_state_too() -> None:
    class Both(KeyedProcessFunction, CheckpointedFunction):
        def initialize_state(self, context: FunctionInitializationContext) -> None:
            self.seen = context.get_keyed_state_store().get_state(ValueStateDescriptor("seen"))

        def snapshot_state(self, context: FunctionSnapshotContext) -> None:
            pass

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.seen.update((self.seen.value() or 0) + 1)
            yield value, self.seen.value()

    harness = OperatorHarness.for_function(Both(), key_selector=lambda value: value)
    harness.push("a").push("b").push("a")
    assert harness.values() == [("a", 1), ("b", 1), ("a", 2)]


class CountingWriter(SinkWriter, CheckpointedFunction, CheckpointListener):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("written"))
        self.written = sum(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update([self.written])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.completed = checkpoint_id

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        pass

    def write(self, block: Block) -> None:
        assert isinstance(block, Rows)
        self.written += len(block)

    def prepare_commit(self) -> list[Any]:
        return [self.written]


class CountingSink(Sink):
    def create_writer(self, context: WriterContext) -> SinkWriter:
        return CountingWriter()

    def create_committer(self, sink_id: str) -> Any:
        raise AssertionError("not in this test")


def test_a_sink_writer_can_have_operator_state_and_listen() -> None:
    harness = OperatorHarness(SinkOperator(CountingSink())).push(1).push(2)
    data = harness.snapshot()
    harness.notify_checkpoint_complete()
    assert harness.operator._writer.completed == 1  # type: ignore[attr-defined]
    restored = OperatorHarness(SinkOperator(CountingSink())).restore(data).push(3)
    restored.snapshot()
    assert (harness.committables, restored.committables) == ([2], [3])
