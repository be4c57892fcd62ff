"""Lists in pieces: what they hold, what a change of them costs, and what is restored from snapshots with and without pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.state_data import merge
from penstock.datastream.state import ListStateDescriptor
from penstock.operators.runtime_context import keyed_state
from penstock.state import snapshot_file
from penstock.state.backend import OperatorState
from penstock.state.list_table import PIECE, ListTable
from penstock.state.overlay import MISSING
from penstock.state.snapshot_file import TableDelta
from tests.state.backends import BACKENDS, new_state

backends = pytest.mark.parametrize("backend", sorted(BACKENDS))

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("extend"), st.sampled_from("ab"), st.integers(0, 2 * PIECE)),
        st.tuples(st.just("put"), st.sampled_from("ab"), st.integers(1, 2 * PIECE)),
        st.tuples(st.sampled_from(["delete"]), st.sampled_from("ab"), st.just(0)),
        st.tuples(st.sampled_from(["fold", "rollback", "restore"]), st.just(""), st.just(0)),
    ),
    max_size=25,
)


def lists(state: OperatorState) -> ListTable:
    table = state.table("list", "list")
    assert isinstance(table, ListTable)
    return table


def through_a_file(tables: list[TableDelta]) -> list[TableDelta]:
    return snapshot_file.decode(snapshot_file.encode(tables, meta={}), source="test")[1]


@backends
@given(steps=STEPS)
def test_a_list_in_pieces_is_the_list(backend: str, steps: list[tuple[str, str, int]]) -> None:
    state, chain = new_state(backend), list[list[TableDelta]]()
    expected: dict[str, list[int]] = {}
    confirmed: dict[str, list[int]] = {}
    number = 0
    for step, key, count in steps:
        table = lists(state)
        values = list(range(number, number + count))
        number += count
        match step:
            case "extend":
                table.extend(key, values.copy())
                expected[key] = expected.get(key, []) + values
            case "put":
                table.put(key, values.copy())
                expected[key] = values
            case "delete":
                table.delete(key)
                expected.pop(key, None)
            case "fold":
                chain.append(through_a_file(state.snapshot(full=not chain)))
                state.fold(checkpointed=True)
                confirmed = {key: held.copy() for key, held in expected.items()}
            case "rollback":
                state.rollback()
                expected = {key: held.copy() for key, held in confirmed.items()}
            case "restore":
                state = new_state(backend)
                for tables in chain:
                    for delta in tables:
                        state.restore(delta, range(128))
                state.restored()
                expected = {key: held.copy() for key, held in confirmed.items()}
        for one in "ab":
            held: Any = expected.get(one, MISSING)
            table = lists(state)
            assert (table.peek(one), table.get(one), table.read(one)) == (held, held, held)
            assert table.has(one) is (held is not MISSING)
        assert dict(lists(state).items()) == expected
        assert len(lists(state)) == len(expected)
    seen = merge([table for tables in chain for table in tables if table.name == "list"])
    assert {key: value for (key, _), (_, value) in seen.items()} == confirmed


@backends
def test_an_element_added_to_a_long_list_is_a_small_change(backend: str) -> None:
    state = new_state(backend)
    handle: Any = keyed_state(state, ListStateDescriptor("list"), lambda: 0)
    state.current_key = "k"
    handle.update(range(100_000))
    state.snapshot(full=True)
    state.fold(checkpointed=True)
    for number in range(3 * PIECE):
        handle.add(number)
        (table,) = (table for table in state.snapshot(full=False) if table.name == "list")
        held = [value if type(value) is list else value[1] for value in table.values]
        assert sum(map(len, held)) <= PIECE
        state.fold(checkpointed=True)
    assert list(handle.get()) == [*range(100_000), *range(3 * PIECE)]


@backends
def test_a_list_that_was_stored_whole_is_restored_and_grows(backend: str) -> None:
    state, whole = new_state(backend), list(range(5 * PIECE))
    old = TableDelta(operator="op", name="list", kind="list", full=True, key_groups=[3], keys=["k"], values=[whole])
    state.restore(old, range(128))
    state.restored()
    table = lists(state)
    assert table.get("k") == whole
    table.extend("k", [-1])
    chain = [[old], through_a_file(state.snapshot(full=False))]
    assert merge([t for tables in chain for t in tables])[("k", None)][1] == [*whole, -1]
    state.rollback()
    assert lists(state).get("k") == whole


def test_what_a_user_does_to_elements_of_a_list_changes_neither_pieces_nor_tail() -> None:
    state = new_state("hashmap")
    handle: Any = keyed_state(state, ListStateDescriptor("list"), lambda: 0)
    state.current_key = "k"
    for number in range(PIECE + 3):
        handle.add([number])
    for confirmed in (False, True):
        for element in handle.get():
            element.append("mine")
        assert list(handle.get()) == [[number] for number in range(PIECE + 3)], confirmed
        state.fold(checkpointed=True)
