"""Snapshots and restores by columns: whatever the entries are, RocksDB ends up with what a sequential model has."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StorageError
from penstock.state import rocksdb, snapshot_file
from penstock.state.backend import EVENT_TIMERS, OperatorState
from penstock.state.keys import NAN, NEGATIVE_ZERO, FrozenKey, key_group, normal_key
from penstock.state.overlay import MISSING, TOMBSTONE, OverlayTable
from penstock.state.rocksdb import RocksDBKeyspace
from penstock.state.snapshot_file import StoredColumn, TableDelta
from tests.state.backends import SMALL, new_state
from tests.state.test_snapshot_file import identical

_KEYS = {
    "ints": st.integers(-(2**63), 2**63 - 1),
    "texts": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
    "floats": st.floats().map(normal_key),
    "bools": st.booleans(),
    "nothing": st.none(),
    "tuples": st.tuples(st.integers(0, 5), st.text(max_size=2)),
    "any": st.integers() | st.text(max_size=3) | st.none() | st.just(NEGATIVE_ZERO) | st.just(NAN) | st.just(-1.5),
    "surrogates": st.text(st.characters(codec=None, categories=["Cs", "L"]), max_size=2),
}
_VALUES = {
    **_KEYS,
    "lists": st.lists(st.integers(), max_size=3),
    "pairs": st.tuples(st.integers(0, 9), st.floats(allow_nan=False)),
    "large": st.integers(0, 3).map(lambda n: b"x" * 5000 * n),
}
_WINDOWS = st.integers(0, 3).map(lambda n: (n * 10, n * 10 + 10))
_KINDS = {  # kind of a state, whether it has namespaces, what its entries have beside keys
    "value": ("value", False),
    "windows": ("value", True),
    "map": ("map", False),
    "maps of windows": ("map", True),
    "list": ("list", False),
    "lists of windows": ("list", True),
}


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few entries are many, so that every way of loading is taken."""
    monkeypatch.setattr(rocksdb, "_FILE", 4)
    monkeypatch.setattr(rocksdb, "_MANY", 4)
    monkeypatch.setattr(rocksdb, "_BATCH", 9)
    monkeypatch.setattr(rocksdb, "_SLICE", 7)
    monkeypatch.setattr(rocksdb, "_BLOCK", 2)
    monkeypatch.setattr(rocksdb, "_FILE_BYTES", 2000)


def in_columns(tables: list[TableDelta]) -> list[TableDelta]:
    """As a restore has them."""
    return snapshot_file.decode_columns(snapshot_file.encode(tables, meta={}), source="test")[1]


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, bool, list[dict[Any, Any]]]:
    """Changes of a few epochs; the first is a full snapshot."""
    kind, namespaced = _KINDS[draw(st.sampled_from(sorted(_KINDS)))]
    keys = _KEYS[draw(st.sampled_from(sorted(_KEYS)))]
    values = _VALUES[draw(st.sampled_from(sorted(_VALUES)))]
    entries: st.SearchStrategy[Any] = st.tuples(keys, _WINDOWS) if namespaced else keys
    if kind == "map":
        entries = st.tuples(entries, _KEYS[draw(st.sampled_from(sorted(_KEYS)))])
    elif kind == "list":  # the tail alone, or it and full pieces
        entries = st.tuples(entries, st.integers(0, 2))
        values = st.lists(values, max_size=3)
    known: list[Any] = []
    history = []
    for epoch in range(draw(st.integers(1, 4))):
        new = draw(st.lists(entries, max_size=15))
        known += new
        again = [entry for entry in known if epoch and draw(st.booleans())]
        changed = {entry: draw(values) for entry in [*new, *again]}
        for entry in again:
            if draw(st.booleans()):
                changed[entry] = TOMBSTONE
        history.append(changed)
    return kind, namespaced, history


def delta_of(state: OperatorState, changes: dict[Any, Any], full: bool) -> list[TableDelta]:
    table = state._encode("s", changes.items(), full)
    return [] if table is None else [table]


def key_of(entry: Any, kind: str, namespaced: bool) -> Any:
    found = entry if kind == "value" else entry[0]
    return found[0] if namespaced else found


def pairs(table: OverlayTable) -> dict[Any, Any]:
    return dict(table.rows())


def same(found: dict[Any, Any], expected: dict[Any, Any]) -> bool:
    return found.keys() == expected.keys() and all(identical(found[entry], expected[entry]) for entry in expected)


@given(history=histories(), first=st.integers(0, 128), last=st.integers(0, 128), whole=st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_restore_by_columns_has_what_the_last_writes_of_its_key_groups_were(
    history: tuple[str, bool, list[dict[Any, Any]]], first: int, last: int, whole: bool
) -> None:
    kind, namespaced, epochs = history
    owned = range(128) if whole else range(min(first, last), max(first, last))
    writer = new_state("hashmap")
    writer.table("s", kind, namespaced=namespaced)
    expected: dict[Any, Any] = {}
    state = new_state("rocksdb")
    for number, changes in enumerate(epochs):
        for table in in_columns(delta_of(writer, changes, full=number == 0)):
            assert isinstance(table.keys, StoredColumn)
            state.restore(table, owned)
        for entry, value in changes.items():
            if value is TOMBSTONE:
                expected.pop(entry, None)
            elif key_group(key_of(entry, kind, namespaced), 128) in owned:
                expected[entry] = value
    state.restored()
    restored = state.table("s", kind, namespaced=namespaced)
    assert same(pairs(restored), expected)
    for entry in expected:
        assert identical(restored.base[entry], expected[entry]), "found under its own key"

    frozen = list(state.freeze(5))
    assert all(len(part) <= 5 for part in frozen)
    for backend in ("rocksdb", "hashmap"):
        again = new_state(backend)
        for part in in_columns(frozen):
            again.restore(part, range(128))
        again.restored()
        assert same(pairs(again.table("s", kind, namespaced=namespaced)), expected)
    for part in in_columns(frozen):
        assert list(part.key_groups) == [key_group(key, 128) for key in part.keys]


@given(history=histories())
@settings(max_examples=150, deadline=None)
def test_folds_of_many_entries_leave_what_was_written_last(history: tuple[str, bool, list[dict[Any, Any]]]) -> None:
    kind, namespaced, epochs = history
    state = new_state("rocksdb")
    base: Any = state.table("s", kind, namespaced=namespaced).base
    expected: dict[Any, Any] = {}
    for changes in epochs:
        for entry in changes:
            base.get(entry)  # some are kept decoded
        base.apply(changes)
        expected = {entry: value for entry, value in {**expected, **changes}.items() if value is not TOMBSTONE}
        assert [entry for entry in changes if entry not in expected and base.get(entry, MISSING) is not MISSING] == []
        for entry, value in expected.items():
            assert identical(base.get(entry), value)
    assert same(dict(base.items()), expected)
    for part in in_columns(list(state.freeze(5))):
        assert list(part.key_groups) == [key_group(key, 128) for key in part.keys]


def test_a_value_that_cannot_be_pickled_is_named_among_many() -> None:
    state = new_state("rocksdb", "my operator")
    for key in range(10):
        state.table("locks", "value").put(key, threading.Lock() if key == 7 else key)
    with pytest.raises(StorageError, match=r"'locks' of operator 'my operator'.*lock"):
        state.fold(checkpointed=True)


@given(timers=st.sets(st.tuples(st.integers(-(2**40), 2**40), st.text(max_size=3) | st.integers(), _WINDOWS)))
@settings(max_examples=60, deadline=None)
def test_timers_frozen_by_columns_come_back(timers: set[tuple[int, Any, Any]]) -> None:
    state = new_state("rocksdb")
    for timestamp, key, window in timers:
        state.event_timers.register(timestamp, key, window)
    state.fold(checkpointed=True)
    again = new_state("rocksdb")
    for part in in_columns(list(state.freeze(5))):
        assert part.kind == EVENT_TIMERS
        again.restore(part, range(128))
    again.restored()
    fired: list[Any] = []
    again.event_timers.advance(2**41, lambda *timer: fired.append(timer))
    assert sorted(map(repr, fired)) == sorted(repr(timer) for timer in timers)
    assert [timer[0] for timer in fired] == sorted(timer[0] for timer in timers)


def table_of(keys: list[Any], values: list[Any], **more: Any) -> TableDelta:
    described: dict[str, Any] = {"operator": "op", "name": "s", "kind": "value", "full": True}
    groups = [key_group(key, 128) for key in keys]
    return TableDelta(**{**described, "key_groups": groups, "keys": keys, "values": values, **more})


def test_keys_that_older_releases_kept_otherwise_are_found_under_their_form_of_today() -> None:
    keys = [float("nan"), 0.0, 2.5, *[0.5 * n for n in range(10, 20)]]
    state = new_state("rocksdb")
    (table,) = in_columns([table_of(keys, list(range(len(keys))))])
    state.restore(table, range(128))
    (nested,) = in_columns([table_of([(float("nan"), n) for n in range(6)], list(range(6)), name="t")])
    state.restore(nested, range(128))
    state.restored()
    found = state.table("s", "value")
    assert [found.get(normal_key(key)) for key in keys] == list(range(len(keys)))
    assert [state.table("t", "value").get((NAN, n)) for n in range(6)] == list(range(6))
    frozen = FrozenKey("list", (1, 2))
    (table,) = in_columns([table_of([frozen, FrozenKey("list", (3,)), "a", 1, 2], [1, 2, 3, 4, 5], name="frozen")])
    state.restore(table, range(128))
    state.restored()
    assert state.table("frozen", "value").get(frozen) == 1


def test_entries_in_whatever_order_keep_their_values_and_deletions_count() -> None:
    keys = sorted(range(60), key=lambda n: n * 37 % 61)
    state = new_state("rocksdb")
    (full,) = in_columns([table_of(keys, [f"value {key}" for key in keys])])
    gone = table_of(keys[::3], [None] * 20, full=False, deleted=[key % 2 == 0 for key in keys[::3]])
    (delta,) = in_columns([replace(gone, values=[f"newer {key}" for key in keys[::3]])])
    for table in (full, delta):
        state.restore(table, range(128))
    state.restored()
    expected = {key: f"value {key}" for key in keys} | {key: f"newer {key}" for key in keys[::3]}
    assert pairs(state.table("s", "value")) == {k: v for k, v in expected.items() if k not in keys[::3] or k % 2}


def test_of_equal_keys_in_one_table_the_last_counts() -> None:
    state = new_state("rocksdb")
    (table,) = in_columns([table_of([3, 1, 2, 3, 1], ["a", "b", "c", "d", "e"])])
    state.restore(table, range(128))
    state.restored()
    assert pairs(state.table("s", "value")) == {1: "e", 2: "c", 3: "d"}


def test_an_entry_that_cannot_be_rebuilt_is_an_error_of_the_restore() -> None:
    state = new_state("rocksdb")
    (table,) = in_columns([table_of(list(range(9)), [object] * 9)])
    spoilt = pa.array([pickle.dumps(object).replace(b"object", b"objecx")] * 9)
    with pytest.raises(StorageError, match=r"state 's'.*cannot be rebuilt.*importable"):
        state.restore(replace(table, values=StoredColumn("pickle", spoilt, where="state 's'")), range(128))


def test_what_a_restore_writes_in_files_is_one_database_afterwards(tmp_path: Path) -> None:
    """Files are neither copied nor left beside it, and those of a full snapshot in RocksDB's order need no compaction."""
    source = OperatorState("op", 128, RocksDBKeyspace(128, SMALL, lambda: tmp_path))
    for key in range(500):
        source.table("s", "value").put(key, f"value {key}")
    source.fold(checkpointed=True)
    keyspace = RocksDBKeyspace(128, SMALL, lambda: tmp_path)
    state = OperatorState("op", 128, keyspace)
    for table in in_columns(list(source.freeze(50))):
        state.restore(table, range(128))
    state.restored()
    assert keyspace.folder is not None
    assert not list(keyspace.folder.glob("restored-*"))
    assert keyspace.db is not None
    assert {file["level"] for file in keyspace.db.live_files()} == {6}
    assert keyspace.entries() == 500
    state.table("s", "value").put(7, "new")
    state.table("s", "value").delete(8)
    state.fold(checkpointed=True)
    found = pairs(state.table("s", "value"))
    assert found == {key: "new" if key == 7 else f"value {key}" for key in range(500) if key != 8}


_KILLED = """
import sys
from penstock.state import rocksdb, snapshot_file
from penstock.state.backend import OperatorState
from penstock.state.local_folder import LocalFolder
from penstock.state.rocksdb import RocksDBKeyspace
rocksdb._FILE, rocksdb._FILE_BYTES = 4, 2000
data = open(sys.argv[1], "rb").read()
folder = LocalFolder((sys.argv[2],))
state = OperatorState("op", 128, RocksDBKeyspace(128, parent=folder.path))
for number, table in enumerate(snapshot_file.decode_columns(data, source="test")[1]):
    state.restore(table, range(128))
    if number == int(sys.argv[3]):
        print("here", flush=True)
        sys.stdin.read()
state.restored()
print(len(dict(state.table("s", "value").items())), flush=True)
folder.remove()
"""


@pytest.mark.parametrize("at", [0, 5])
def test_a_process_killed_while_it_restores_leaves_nothing_that_the_next_one_finds(tmp_path: Path, at: int) -> None:
    source = new_state("rocksdb")
    for key in range(1000):
        source.table("s", "value").put(key, "v")
    source.fold(checkpointed=True)
    file, work = tmp_path / "snapshot", tmp_path / "work"
    file.write_bytes(snapshot_file.encode(list(source.freeze(100)), meta={}))
    work.mkdir()
    command = [sys.executable, "-c", _KILLED, str(file), str(work)]
    killed = subprocess.Popen([*command, str(at)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdin is not None
    assert killed.stdout.readline() == "here\n"
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(30) == -signal.SIGKILL
    killed.stdout.close()
    killed.stdin.close()
    left = list(work.iterdir())
    assert left, "it had begun"
    again = subprocess.run([*command, "-1"], capture_output=True, text=True, check=True, timeout=60)
    assert again.stdout == "1000\n"
    assert list(work.iterdir()) == [], "nor is anything left of the one that was killed"
