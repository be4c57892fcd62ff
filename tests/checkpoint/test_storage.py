"""One contract over every kind of checkpoint storage."""

from __future__ import annotations

import errno
import os
import pickle
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.checkpoint.storage import (
    FileMissingError,
    LocalStorage,
    ObjectStorage,
    Storage,
    open_storage,
)
from penstock.errors import ConfigurationError, StorageError
from tests.small_disk import small_disk


@pytest.fixture(params=["local", "object-memory", "object-file", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        return ObjectStorage(f"s3://{request.getfixturevalue('s3').bucket()}/job folder")
    if request.param == "local":
        return LocalStorage(tmp_path / "job folder")
    if request.param == "object-memory":
        return ObjectStorage(f"memory:///{uuid.uuid4().hex}")
    return ObjectStorage((tmp_path / "job folder").as_uri())


def test_what_was_put_is_got(storage: Storage) -> None:
    storage.put("a/b/c.bin", b"\x00one")
    assert storage.get("a/b/c.bin") == b"\x00one"


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    storage.put("empty", b"")
    assert storage.exists("empty")
    assert storage.get("empty") == b""


def test_put_replaces(storage: Storage) -> None:
    storage.put("a", b"a long first version")
    storage.put("a", b"short")
    assert storage.get("a") == b"short"


def test_put_new_creates_once_and_changes_nothing_the_second_time(storage: Storage) -> None:
    assert storage.put_new("x/m.json", b"first") is True
    assert storage.put_new("x/m.json", b"second") is False
    assert storage.get("x/m.json") == b"first"


def test_put_new_after_delete_creates_again(storage: Storage) -> None:
    assert storage.put_new("x/m.json", b"first")
    storage.delete("x/m.json")
    assert storage.put_new("x/m.json", b"second")
    assert storage.get("x/m.json") == b"second"


def test_of_many_concurrent_creators_exactly_one_wins_and_its_bytes_stay(storage: Storage) -> None:
    rivals = 8
    start = threading.Barrier(rivals)

    def create(rival: int) -> bool:
        start.wait(timeout=30)
        return storage.put_new("race/m.json", b"%d" % rival * 10_000)

    with ThreadPoolExecutor(rivals) as pool:
        won = list(pool.map(create, range(rivals)))
    assert won.count(True) == 1
    assert storage.get("race/m.json") == b"%d" % won.index(True) * 10_000


def test_a_missing_file_is_named(storage: Storage) -> None:
    storage.put("there", b"")
    with pytest.raises(FileMissingError, match=r"not/there\.state"):
        storage.get("not/there.state")
    assert not storage.exists("not/there.state")


def test_a_folder_is_not_a_file(storage: Storage) -> None:
    storage.put("folder/file", b"1")
    assert not storage.exists("folder")


def test_list_gives_the_files_of_a_folder_and_below_sorted(storage: Storage) -> None:
    for path in ("c/2/z", "c/10/a", "c/2/a", "cc/x", "top"):
        storage.put(path, b"1")
    assert storage.list("c") == ["c/10/a", "c/2/a", "c/2/z"]
    assert storage.list("c/2/") == ["c/2/a", "c/2/z"]
    assert storage.list("") == ["c/10/a", "c/2/a", "c/2/z", "cc/x", "top"]


def test_listing_a_folder_that_was_never_written_to_is_empty(storage: Storage) -> None:
    assert storage.list("nothing/here") == []


def test_delete_can_be_repeated(storage: Storage) -> None:
    storage.put("a/b", b"1")
    storage.delete("a/b")
    storage.delete("a/b")
    assert not storage.exists("a/b")
    assert storage.list("") == []


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a//b", "a/./b", "a\\b", "a/\0"])
def test_a_path_that_could_leave_the_root_is_refused(storage: Storage, path: str) -> None:
    operations: list[Callable[[], object]] = [
        lambda: storage.put(path, b""),
        lambda: storage.put_new(path, b""),
        lambda: storage.get(path),
        lambda: storage.exists(path),
        lambda: storage.delete(path),
    ]
    for operation in operations:
        with pytest.raises(StorageError, match="not a path inside"):
            operation()


def test_a_pickled_storage_reaches_the_same_files(storage: Storage) -> None:
    storage.put("a", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.url == storage.url
    assert copy.get("a") == b"1"


def test_large_data_arrives_whole(storage: Storage) -> None:
    data = os.urandom(1 << 20) * 12
    storage.put("big", data)
    assert storage.put_new("big-new", data)
    assert storage.get("big") == data
    assert storage.get("big-new") == data


class TestOpening:
    def test_plain_paths_and_file_urls_are_local(self, tmp_path: Path) -> None:
        by_path = open_storage(str(tmp_path / "a b"))
        by_path.put("x", b"1")
        by_url = open_storage(by_path.url)
        assert isinstance(by_path, LocalStorage)
        assert isinstance(by_url, LocalStorage)
        assert by_url.get("x") == b"1"

    def test_other_schemes_are_object_stores(self) -> None:
        assert isinstance(open_storage("s3://bucket/folder"), ObjectStorage)
        assert isinstance(open_storage("memory:///opening"), ObjectStorage)

    def test_a_file_url_with_a_host_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="three slashes"):
            open_storage("file://data/checkpoints")

    def test_an_unknown_scheme_is_refused_with_what_to_write(self) -> None:
        with pytest.raises(StorageError, match=r"nowhere://x.*s3://bucket/folder"):
            open_storage("nowhere://x")

    def test_a_root_that_cannot_be_made_names_folder_reason_and_remedy(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(StorageError, match=r"file/root.*Not a directory.*Give a folder"):
            LocalStorage(tmp_path / "file" / "root")


class TestLocalStorage:
    def test_a_copy_on_a_host_without_the_folder_is_refused_and_does_not_make_it(self, tmp_path: Path) -> None:
        root = tmp_path / "shared"
        pickled = pickle.dumps(LocalStorage(root))
        root.rmdir()
        with pytest.raises(StorageError, match=r"shared on host .*No such file or directory"):
            pickle.loads(pickled)
        assert not root.exists()

    def test_a_root_that_went_away_is_an_error_and_not_an_empty_job(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path / "root")
        (tmp_path / "root").rmdir()
        operations: list[Callable[[], object]] = [
            lambda: storage.list("checkpoints"),
            lambda: storage.get("a"),
            lambda: storage.exists("a"),
            lambda: storage.put("a/b", b""),
            lambda: storage.put_new("a/b", b""),
        ]
        for operation in operations:
            with pytest.raises(StorageError, match="cannot use the checkpoint folder") as raised:
                operation()
            assert not isinstance(raised.value, FileMissingError)
        assert not (tmp_path / "root").exists()

    @pytest.mark.parametrize("room", [0, 1 << 14], ids=["none", "for half"])
    @pytest.mark.parametrize("operation", ["put", "put_new"])
    def test_a_full_disk_leaves_nothing_visible_and_nothing_behind(
        self, tmp_path: Path, operation: str, room: int
    ) -> None:
        with small_disk(tmp_path / "disk", "256k") as disk:
            storage = LocalStorage(disk.root / "job")
            storage.put("a/old", b"old")
            disk.fill(leave=room)
            for name in ("a/new", "a/old", "b/new") if operation == "put" else ("a/new", "b/new"):
                with pytest.raises(StorageError, match=rf"{name}.*No space left.*free space") as caught:
                    getattr(storage, operation)(name, bytes(2 << 14))
                assert isinstance(caught.value.__cause__, OSError)
                assert caught.value.__cause__.errno == errno.ENOSPC
            assert storage.list("") == ["a/old"]
            assert storage.get("a/old") == b"old"
            assert os.listdir(disk.root / "job" / "a") == ["old"]
            disk.free()
            storage.put("a/new", bytes(2 << 14))
            assert storage.list("a") == ["a/new", "a/old"]

    def test_a_crash_between_writing_and_naming_shows_nothing_and_sweep_removes_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Crashed(BaseException):
            pass

        def crash(*args: object) -> None:
            raise Crashed

        storage = LocalStorage(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", crash)
            patch.setattr(os, "unlink", crash)  # a killed process does not tidy up
            with pytest.raises(Crashed):
                storage.put_new("a/m.json", b"data")
        assert len(os.listdir(tmp_path / "a")) == 1
        assert storage.list("") == []
        assert not storage.exists("a/m.json")
        assert storage.sweep(older_than_s=3600) == 0
        assert storage.sweep(older_than_s=-1) == 1
        assert os.listdir(tmp_path / "a") == []

    def test_a_file_system_without_hard_links_is_named_as_such(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*args: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
        with pytest.raises(StorageError, match="no hard links"):
            LocalStorage(tmp_path).put_new("m.json", b"")

    def test_an_emptied_folder_goes_with_its_last_file_but_the_root_stays(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path / "root")
        storage.put("a/b/one", b"")
        storage.put("a/b/two", b"")
        storage.delete("a/b/one")
        assert (tmp_path / "root/a/b").is_dir()
        storage.delete("a/b/two")
        assert os.listdir(tmp_path / "root") == []

    def test_writing_into_a_folder_that_is_being_emptied_succeeds(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path)
        rounds = 100

        def write(writer: int) -> None:
            for n in range(rounds):
                assert storage.put_new(f"f/g/{writer}-{n}", b"x")
                storage.delete(f"f/g/{writer}-{n}")

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, range(3)))
        assert storage.list("") == []
