"""Local copies of state files: read before the store, checked, bounded, and never needed."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from penstock.checkpoint.local_copies import LocalCopies
from penstock.checkpoint.manifest import FileState
from penstock.checkpoint.storage import ObjectStorage
from penstock.checkpoint.store import CheckpointStore


class Counting(ObjectStorage):
    """Says what was fetched."""

    def __init__(self) -> None:
        super().__init__(f"memory:///{uuid.uuid4().hex}")
        self.fetched: list[str] = []

    def get(self, path: str) -> bytes:
        self.fetched.append(path)
        return super().get(path)


@pytest.fixture
def storage() -> Counting:
    return Counting()


def store_of(storage: Counting, folder: Path, most: int = 1000) -> CheckpointStore:
    return CheckpointStore(storage, 1, LocalCopies("job", parent=str(folder), most_bytes=most))


def copy_of(folder: Path, handle: FileState) -> Path:
    return folder / "penstock-local-job" / Path(handle.path).relative_to("checkpoints")


def test_state_is_read_from_its_copy_and_the_store_is_not_asked(storage: Counting, tmp_path: Path) -> None:
    handle = store_of(storage, tmp_path).write_state(7, "count-0-1", b"state")
    assert store_of(storage, tmp_path).read_state(handle) == b"state", "by a process that starts later"
    assert storage.fetched == []
    assert storage.exists(handle.path)


@pytest.mark.parametrize("damage", ["missing", "torn", "changed"])
def test_a_copy_that_is_missing_or_damaged_does_no_harm(storage: Counting, tmp_path: Path, damage: str) -> None:
    handle = store_of(storage, tmp_path).write_state(7, "count-0-1", b"state")
    copy = copy_of(tmp_path, handle)
    if damage == "missing":
        copy.unlink()
    else:
        copy.write_bytes(b"sta" if damage == "torn" else b"statE")
    store = store_of(storage, tmp_path)
    assert store.read_state(handle) == store.read_state(handle) == b"state"
    assert storage.fetched == [handle.path] * 2
    assert not copy.exists()


def test_no_more_is_kept_than_there_is_room_for(storage: Counting, tmp_path: Path) -> None:
    store = store_of(storage, tmp_path, most=10)
    small, large = store.write_state(1, "a-0-1", b"123456"), store.write_state(1, "b-0-1", b"12345")
    assert store.local is not None
    assert store.local.size() == 6
    assert store.read_state(small) == b"123456"
    assert store.read_state(large) == b"12345"
    assert storage.fetched == [large.path]


def test_what_no_checkpoint_needs_is_forgotten(storage: Counting, tmp_path: Path) -> None:
    store = store_of(storage, tmp_path)
    for checkpoint in (3, 4, 5, 6):
        store.write_state(checkpoint, "a-0-1", b"state")
    assert store.local is not None
    store.local.keep(4)
    assert sorted(path.name for path in (tmp_path / "penstock-local-job").iterdir()) == ["chk-4", "chk-5", "chk-6"]
    store.local.keep(0, newest=5)
    assert sorted(path.name for path in (tmp_path / "penstock-local-job").iterdir()) == ["chk-4", "chk-5"]
    store.local.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_can_write_to_is_not_used(storage: Counting, tmp_path: Path) -> None:
    folder = tmp_path / "penstock-local-job"
    folder.mkdir()
    folder.chmod(0o777)
    store = store_of(storage, tmp_path)
    handle = store.write_state(7, "count-0-1", b"state")
    assert list(folder.iterdir()) == []
    assert store.read_state(handle) == b"state"
    assert storage.fetched == [handle.path]


def test_nothing_goes_wrong_where_nothing_can_be_written(storage: Counting, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = store_of(storage, tmp_path / "file")
    handle = store.write_state(7, "count-0-1", b"state")
    assert store.read_state(handle) == b"state"


def test_copies_of_jobs_that_are_long_gone_are_removed(storage: Counting, tmp_path: Path) -> None:
    gone, recent = (tmp_path / f"penstock-local-{name}" for name in ("gone", "recent"))
    for folder in (gone, recent):
        folder.mkdir(mode=0o700)
    os.utime(gone, (time.time() - 90_000,) * 2)
    store_of(storage, tmp_path)
    assert not gone.exists()
    assert recent.exists()
