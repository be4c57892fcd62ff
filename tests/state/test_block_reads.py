"""What RocksDB has for the keys of a block is read in one go: never another value, never more memory than a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import StorageError
from penstock.operators.keyed import ProcessOperator
from penstock.operators.runtime_context import keyed_state
from penstock.records import Rows
from penstock.state import rocksdb
from penstock.state.backend import OperatorState
from penstock.state.rocksdb import RocksDBKeyspace
from penstock.testing import harness as harness_module
from penstock.testing.harness import OperatorHarness
from tests.state.backends import SMALL, new_state
from tests.state.test_damaged_rocksdb import one_byte

KEYS = 12


class Counting:
    """A database that says what it was asked for."""

    def __init__(self, state: OperatorState) -> None:
        self.single = self.batches = 0
        keyspace: Any = state._keyspace
        self._db = keyspace.opened()
        keyspace._db = self

    def get(self, key: Any) -> Any:
        self.single += not isinstance(key, list)
        self.batches += isinstance(key, list)
        return self._db.get(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def filled(*names: str, size: int = 1) -> tuple[OperatorState, Counting]:
    """Values that can be changed in place are never kept decoded."""
    state = new_state("rocksdb")
    for name in names:
        for key in range(0, KEYS, 2):
            state.table(name, "value").put(key, [name, key, b"x" * size])
    state.fold(checkpointed=True)
    return state, Counting(state)


@given(
    blocks=st.lists(
        st.lists(st.tuples(st.integers(0, KEYS), st.sampled_from(["read", "write", "clear", "skip"])), max_size=20),
        max_size=6,
    ),
    folds=st.sets(st.integers(0, 6)),
)
@settings(max_examples=100, deadline=None)
def test_whatever_is_read_ahead_a_record_sees_what_the_records_before_it_wrote(
    blocks: list[list[tuple[int, str]]], folds: set[int]
) -> None:
    state, _ = filled("s")
    handle: Any = keyed_state(state, ValueStateDescriptor("s"), lambda: 0)
    model: dict[int, Any] = {key: ["s", key, b"x"] for key in range(0, KEYS, 2)}
    for number, block in enumerate(blocks):
        assert list(state.read_ahead([key for key, _ in block])) == [key for key, _ in block]
        for key, what in block:
            state.current_key = key
            if what == "read":
                found = handle.value()
                assert found == model.get(key)
                if found:
                    found.append("changed in place, without an update")
            elif what == "write":
                model[key] = [number]
                handle.update([number])
            elif what == "clear":
                model.pop(key, None)
                handle.clear()
        if number in folds:
            state.fold(checkpointed=True)
            for key in range(KEYS):  # as timers would, before the next block
                state.current_key = key
                assert handle.value() == model.get(key)
    assert dict(state.tables["s"].items()) == model


def test_the_keys_of_a_block_are_read_in_one_go_once_a_block_has_asked_for_as_many() -> None:
    state, database = filled("s", "never read")
    table = state.tables["s"]
    for expected in ((KEYS, 0), (KEYS, 1), (KEYS, 2)):
        state.read_ahead(range(KEYS))
        for key in range(KEYS):
            table.get(key)
        assert (database.single, database.batches) == expected
    state.read_ahead(range(KEYS))  # and none is asked for
    state.read_ahead(range(KEYS))
    assert database.batches == 3


def test_rows_read_ahead_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "_BLOCK", 2)
    monkeypatch.setattr(rocksdb, "_AHEAD_BYTES", 5000)
    state, database = filled("s", size=2000)
    for _ in range(2):
        state.read_ahead(range(KEYS))
        found = [state.tables["s"].get(key) for key in range(0, KEYS, 2)]
        assert [value[1] for value in found] == list(range(0, KEYS, 2))
    base: Any = state.tables["s"].base
    assert sum(row is not None for row in base._ahead.values()) == 3
    assert database.batches == 3


def test_a_damaged_file_is_an_error_of_reading_ahead(tmp_path: Path) -> None:
    keyspace = RocksDBKeyspace(128, SMALL, lambda: tmp_path)
    state = OperatorState("my operator", 128, keyspace)
    table = state.table("my state", "value")
    for key in range(3000):
        table.put(key, [f"value {key}"])
    state.fold(checkpointed=True)
    assert keyspace.db is not None
    assert keyspace.folder is not None
    keyspace.db.flush()
    base: Any = table.base
    base._asked = 3000
    for file in keyspace.folder.glob("*.sst"):
        file.write_bytes(one_byte(file.read_bytes()))
    with pytest.raises(StorageError, match=r"'my state' of operator 'my operator'.*\.sst"):
        state.read_ahead(range(3000))
    keyspace.close()


class _Sum(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.sums = runtime_context.get_state(ValueStateDescriptor("sums"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        found = self.sums.value() or [0]
        self.sums.update([found[0] + value[1]])
        yield value[0], found[0] + value[1]


def test_a_keyed_process_function_reads_the_keys_of_its_blocks_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    state = new_state("rocksdb")
    monkeypatch.setattr(harness_module, "OperatorState", lambda *_: state)
    harness = OperatorHarness(ProcessOperator(_Sum(), lambda value: value[0]))
    sums: dict[int, int] = {}
    database = None
    for number in range(6):
        block = [((number * key) % KEYS, key) for key in range(40)]
        harness.clear_output()
        harness.push_block(Rows(block, None))
        expected = []
        for key, value in block:
            sums[key] = sums.get(key, 0) + value
            expected.append((key, sums[key]))
        assert harness.values() == expected
        state.fold(checkpointed=True)
        database = database or Counting(state)
    assert database is not None
    assert database.batches > 0
