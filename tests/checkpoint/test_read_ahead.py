"""Files of a restore are fetched several at a time, and loaded in their order."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from penstock.checkpoint import restore
from penstock.checkpoint.manifest import FileState, StateHandle, TaskState
from penstock.checkpoint.restore import chain_contents, encode_contents
from penstock.errors import CorruptSnapshotError
from penstock.state.snapshot import SnapshotContents
from penstock.state.snapshot_file import TableDelta

FILES = 12


class Store:
    """Answers slowly, the later files sooner, and knows how many were asked for at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = self.asked = 0
        self.damaged = -1

    def handles(self) -> tuple[StateHandle, ...]:
        return tuple(FileState(path=f"checkpoints/chk-1/{n}", size=1000, crc32=0) for n in range(FILES))

    def read(self, handle: StateHandle) -> bytes:
        assert isinstance(handle, FileState)
        number = int(handle.path.split("/")[-1])
        with self._lock:
            self.now += 1
            self.asked += 1
            self.most = max(self.most, self.now)
        time.sleep(0.002 * (FILES - number))
        with self._lock:
            self.now -= 1
        if number == self.damaged:
            raise CorruptSnapshotError(handle.path)
        table = TableDelta(
            operator="op", name="s", kind="value", full=number == 0, key_groups=[0], keys=[number], values=[b""]
        )
        return encode_contents(SnapshotContents(tables=[table], gate=None))


def loaded(store: Store, readers: int) -> list[int]:
    task = TaskState(vertex="v", subtask=0, parallelism=1, handles=store.handles())
    return [contents.tables[0].keys[0] for contents in chain_contents(task, store.read, readers)]


@pytest.mark.parametrize(("readers", "most"), [(1, 1), (4, 4)])
def test_a_chain_is_loaded_in_order_whichever_file_is_there_first(readers: int, most: int) -> None:
    store = Store()
    assert loaded(store, readers) == list(range(FILES))
    assert (store.most, store.asked) == (most, FILES)


def test_what_is_fetched_ahead_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_AHEAD_BYTES", 2500)
    store = Store()
    assert loaded(store, 4) == list(range(FILES))
    assert store.most == 2


def test_a_damaged_file_is_an_error_at_its_place_and_nothing_is_fetched_any_more() -> None:
    store = Store()
    store.damaged = 3
    task = TaskState(vertex="v", subtask=0, parallelism=1, handles=store.handles())
    found: list[Any] = []
    with pytest.raises(CorruptSnapshotError, match="chk-1/3"):
        found.extend(contents.tables[0].keys[0] for contents in chain_contents(task, store.read, 2))
    assert found == [0, 1, 2]
    asked = store.asked
    assert asked < FILES
    time.sleep(0.05)
    assert (store.asked, store.now) == (asked, 0)
