"""What is RocksDB's own: local files, what cannot be stored, many timers with few in memory."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigurationError, StorageError
from penstock.state.backend import OperatorState
from penstock.state.backends import StateSettings, keyspace_factory
from penstock.state.keyspace import Shape
from penstock.state.local_folder import LocalFolder
from penstock.state.overlay import OverlayTable
from penstock.state.rocksdb import RocksDBKeyspace
from penstock.state.timers import TimerQueue
from tests.state.backends import SMALL


def test_a_subtask_without_state_has_no_database_and_a_closed_one_leaves_no_files(tmp_path: Path) -> None:
    keyspace = RocksDBKeyspace(128, SMALL, lambda: tmp_path)
    state = OperatorState("op", 128, keyspace)
    state.fold(checkpointed=True)
    assert list(tmp_path.iterdir()) == []
    state.table("t", "value").put("k", 1)
    state.fold(checkpointed=True)
    assert len(list(tmp_path.iterdir())) == 1
    assert keyspace.entries() == 1
    keyspace.close()
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_cannot_be_pickled_is_named_with_its_state(tmp_path: Path) -> None:
    state = OperatorState("my operator", 128, RocksDBKeyspace(128, SMALL, lambda: tmp_path))
    state.table("locks", "value").put("k", threading.Lock())
    with pytest.raises(StorageError, match=r"'locks' of operator 'my operator'.*lock"):
        state.fold(checkpointed=True)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_rocksdict(name: str, *args: Any) -> Any:
        if name == "rocksdict":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", no_rocksdict)
    with pytest.raises(ConfigurationError, match=r"penstock\[rocksdb\]"):
        keyspace_factory(StateSettings(backend="rocksdb"), 128)


def test_only_the_head_of_many_timers_is_in_memory(tmp_path: Path) -> None:
    keyspace = RocksDBKeyspace(128, SMALL, lambda: tmp_path)
    queue = TimerQueue(OverlayTable(keyspace.base("op", "timers", Shape.TIMERS)))
    for number in range(1000):
        queue.register(number % 500, number)
    queue.table.fold(checkpointed=True)
    queue.folded()
    assert queue._count < 10
    queue.register(250, "another")
    fired: list[int] = []
    most = 0

    def fire(timestamp: int, key: Any, namespace: Any) -> None:
        nonlocal most
        most = max(most, queue._count)
        fired.append(timestamp)

    queue.advance(10**6, fire)
    assert fired == sorted([*range(500), *range(500), 250])
    assert most < 20


def test_entries_frozen_at_a_barrier_are_read_by_another_thread_while_new_ones_are_written(tmp_path: Path) -> None:
    keyspace = RocksDBKeyspace(128, SMALL, lambda: tmp_path)
    table = OverlayTable(keyspace.base("op", "t", Shape.KEY))
    neighbour = OverlayTable(keyspace.base("op", "next", Shape.KEY))
    for key in range(100):
        table.put(key, "before")
        neighbour.put(key, "another state's")
    table.fold(checkpointed=True)
    neighbour.fold(checkpointed=True)
    frozen = table.base.freeze()  # type: ignore[attr-defined]
    for key in range(200):
        table.put(key, "after")
    table.fold(checkpointed=True)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(frozen))
    reader.start()
    reader.join(10)
    assert sorted(found) == [(key, "before") for key in range(100)]


def test_a_folder_of_a_process_that_was_killed_is_removed_by_the_next_one(tmp_path: Path) -> None:
    code = "import sys; from penstock.state.local_folder import LocalFolder; print(LocalFolder((sys.argv[1],)).path())"
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    mine = LocalFolder((str(tmp_path),))
    other = LocalFolder((str(tmp_path),))
    assert str(os.getpid()) in mine.path().name
    assert not left.exists()
    assert other.path().exists()
    assert mine.path().exists(), "a living process keeps its folder"
    mine.remove()
    other.remove()
    assert list(tmp_path.iterdir()) == []
