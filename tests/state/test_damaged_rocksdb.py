"""A file of the working state is damaged, or no more can be opened: every way of reading ends in an error that names the folder."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StorageError
from penstock.state.backend import OperatorState
from penstock.state.keys import canonical, key_group
from penstock.state.keyspace import Shape
from penstock.state.overlay import MapTable, OverlayTable
from penstock.state.rocksdb import RocksDBKeyspace
from penstock.state.snapshot_file import TableDelta, decode_columns, encode
from penstock.state.timers import TimerQueue
from tests.state.backends import SMALL

ENTRIES = 5000


def one_byte(data: bytes) -> bytes:
    position = len(data) * 2 // 3
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def cut_off(data: bytes) -> bytes:
    return data[: len(data) // 2]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {"one byte": one_byte, "cut off": cut_off}


class Damaged:
    """A keyspace whose entries are in files, of which each is then damaged."""

    def __init__(self, folder: Path, shape: Shape, entry: Callable[[int], Any]) -> None:
        self.keyspace = RocksDBKeyspace(128, SMALL, lambda: folder)
        base: Any = self.keyspace.base("my operator", "my state", shape)
        self.base = base
        self.table = MapTable(base) if shape.is_map else OverlayTable(base)
        for number in range(ENTRIES):
            self.table.put(entry(number), f"value {number}" if shape is not Shape.TIMERS else True)
        self.table.fold(checkpointed=True)
        assert self.keyspace.db is not None
        self.keyspace.db.flush()

    def damage(self, how: str) -> None:
        assert self.keyspace.folder is not None
        files = list(self.keyspace.folder.glob("*.sst"))
        assert files
        for file in files:
            file.write_bytes(DAMAGES[how](file.read_bytes()))


def whole_map(damaged: Damaged) -> Any:
    assert isinstance(damaged.table, MapTable)
    return damaged.table.entries_of("k")


def fired(damaged: Damaged) -> list[int]:
    queue = TimerQueue(damaged.table)
    queue.rebuild()
    found: list[int] = []
    queue.advance(10**9, lambda timestamp, key, namespace: found.append(timestamp))
    return found


READS: dict[str, tuple[Shape, Callable[[int], Any], Callable[[Damaged], Any]]] = {
    "snapshot": (Shape.KEY, lambda n: n, lambda d: list(d.table.items())),
    "frozen for a thread": (Shape.KEY, lambda n: n, lambda d: list(d.base.freeze())),
    "frozen in columns": (
        Shape.KEY,
        lambda n: n,
        lambda d: [k for c in d.base.freeze_columns(700) for k in c.parts[1]],
    ),
    "count": (Shape.KEY, lambda n: n, lambda d: range(len(d.base))),
    "single entries": (Shape.KEY, lambda n: n, lambda d: [d.table.get(n) for n in range(ENTRIES)]),
    "looked for": (Shape.KEY, lambda n: n, lambda d: [n for n in range(ENTRIES) if n in d.base]),
    "windows": (Shape.NAMESPACED, lambda n: (n % 7, (n, n + 1)), lambda d: list(d.table.items())),
    "one map": (Shape.MAP, lambda n: ("k", n), whole_map),
    "one map of a window": (Shape.NAMESPACED_MAP, lambda n: (("k", n % 3), n), lambda d: list(d.table.items())),
    "timers": (Shape.TIMERS, lambda n: (n % 11, None, n), fired),
    "panes": (Shape.BLOCKS, lambda n: f"block {n}", lambda d: list(d.table.items())),
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("reading", READS)
def test_reading_over_a_damaged_file_is_an_error_and_never_shorter(reading: str, how: str, tmp_path: Path) -> None:
    shape, entry, read = READS[reading]
    whole = Damaged(tmp_path, shape, entry)
    assert len(read(whole)) == ENTRIES
    damaged = Damaged(tmp_path, shape, entry)
    damaged.damage(how)
    with pytest.raises(StorageError, match=r"'my state' of operator 'my operator'.*state-.*checkpoint") as caught:
        read(damaged)
    assert str(damaged.keyspace.folder) in str(caught.value)
    assert ".sst" in str(caught.value), "the file is named"
    damaged.keyspace.close()  # although it cannot flush
    assert damaged.keyspace.folder is not None
    assert not damaged.keyspace.folder.exists()


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_that_a_restore_wrote_is_an_error_of_the_next_full_snapshot(how: str, tmp_path: Path) -> None:
    keyspace = RocksDBKeyspace(128, SMALL, lambda: tmp_path)
    state = OperatorState("my operator", 128, keyspace)
    keys = sorted(range(50_000), key=canonical)
    (table,) = [
        TableDelta(operator="my operator", name="my state", kind="value", full=True, keys=keys,
                   key_groups=[key_group(key, 128) for key in keys], values=[f"value {key}" for key in keys])
    ]  # fmt: skip
    state.restore(decode_columns(encode([table], meta={}), source="test")[1][0], range(128))
    state.restored()
    assert keyspace.folder is not None
    (file,) = keyspace.folder.glob("*.sst")
    file.write_bytes(DAMAGES[how](file.read_bytes()))
    with pytest.raises(StorageError, match=r"'my state' of operator 'my operator'.*\.sst"):
        list(state.freeze(700))
    keyspace.close()


def test_compaction_over_a_damaged_file_is_an_error_of_the_next_write(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path, Shape.KEY, lambda n: n)
    damaged.damage("one byte")

    def write_until_it_compacts() -> None:
        for _ in range(500):
            for number in range(200):
                damaged.table.put(number * 25, os.urandom(1000))
            damaged.table.fold(checkpointed=True)

    with pytest.raises(StorageError, match=r"cannot be written.*checksum mismatch.*\.sst"):
        write_until_it_compacts()
    damaged.keyspace.close()


@contextmanager
def no_more_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    try:
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            assert taken
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_open_files_are_an_error_of_the_write_that_needed_one(tmp_path: Path) -> None:
    keyspace = RocksDBKeyspace(128, SMALL, lambda: tmp_path)
    table = OverlayTable(keyspace.base("my operator", "my state", Shape.KEY))
    table.put("first", 1)
    table.fold(checkpointed=True)

    def write_more_than_buffers_hold() -> None:
        for number in range(200):
            table.put(number, os.urandom(1 << 18))
            table.fold(checkpointed=True)

    with no_more_files(), pytest.raises(StorageError, match=r"cannot be written.*Too many open files"):
        write_more_than_buffers_hold()
    keyspace.close()
