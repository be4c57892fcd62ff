"""Two drivers on one job folder: the second is refused or the first is fenced."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from penstock.checkpoint import layout
from penstock.checkpoint.ownership import OwnerInfo, acquire, process_is_alive, renew
from penstock.checkpoint.storage import LocalStorage, ObjectStorage, Storage
from penstock.errors import FencedError, StorageError


@pytest.fixture(params=["local", "object", pytest.param("s3", marks=pytest.mark.s3)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        return ObjectStorage(f"s3://{request.getfixturevalue('s3').bucket()}/job")
    return LocalStorage(tmp_path) if request.param == "local" else ObjectStorage(f"memory:///{uuid.uuid4().hex}")


def owner(pid: int, host: str = "here") -> OwnerInfo:
    return OwnerInfo(host=host, pid=pid, process_start_time=1000.0 + pid, acquired_ms=1_700_000_000_000)


def alive(_: OwnerInfo) -> bool:
    return True


def dead(_: OwnerInfo) -> bool:
    return False


def test_the_first_generation_is_one(storage: Storage) -> None:
    first = acquire(storage, owner(1))
    assert first.generation == 1
    first.check()


def test_a_live_owner_on_this_host_keeps_the_folder(storage: Storage) -> None:
    first = acquire(storage, owner(1234))
    with pytest.raises(FencedError, match=r"process 1234 on host here, generation 1, since 2023-11-14T.*Stop that"):
        acquire(storage, owner(2), is_alive=alive)
    first.check()


def test_a_dead_owner_is_succeeded_and_its_generation_fenced(storage: Storage) -> None:
    first = acquire(storage, owner(1))
    second = acquire(storage, owner(2), is_alive=dead)
    assert second.generation == 2
    second.check()
    with pytest.raises(FencedError, match=r"generation 1 .* replaced by 2 \(process 2 on host here"):
        first.check()


def test_an_owner_on_another_host_is_taken_over_and_fenced(storage: Storage) -> None:
    first = acquire(storage, owner(1, host="there"))
    assert acquire(storage, owner(2), is_alive=alive).generation == 2
    with pytest.raises(FencedError):
        first.check()


def test_the_same_process_may_take_its_own_folder_again(storage: Storage) -> None:
    acquire(storage, owner(1), is_alive=alive)
    assert acquire(storage, owner(1), is_alive=alive).generation == 2


def test_a_released_folder_is_free_although_the_process_lives_on(storage: Storage) -> None:
    first = acquire(storage, owner(1))
    first.release(now_ms=5)
    first.release(now_ms=6)
    assert b'"ended_ms": 5' in storage.get(layout.generation(first.generation))
    assert acquire(storage, owner(2), is_alive=alive).generation == 2


def test_a_damaged_generation_is_taken_over(storage: Storage) -> None:
    acquire(storage, owner(1))
    storage.put(layout.generation(1), b"{")
    assert acquire(storage, owner(2), is_alive=alive).generation == 2


def test_storage_that_cannot_be_read_is_not_taken_for_a_free_folder(tmp_path: Path) -> None:
    class Unreadable(LocalStorage):
        def get(self, path: str) -> bytes:
            raise StorageError("time-out")

    acquire(LocalStorage(tmp_path), owner(1))
    with pytest.raises(StorageError, match="time-out"):
        acquire(Unreadable(tmp_path), owner(2), is_alive=alive)


def test_a_generation_whose_file_is_gone_is_fenced(storage: Storage) -> None:
    first = acquire(storage, owner(1))
    storage.delete(layout.generation(first.generation))
    with pytest.raises(FencedError, match="is gone"):
        first.check()


def test_a_creation_whose_answer_was_lost_is_recognised_as_ours(tmp_path: Path) -> None:
    class Forgetful(LocalStorage):
        def put_new(self, path: str, data: bytes) -> bool:
            super().put_new(path, data)
            return super().put_new(path, data)

    assert acquire(Forgetful(tmp_path), owner(1), is_alive=alive).generation == 1


def test_a_renewal_whose_answer_was_lost_fences_nobody_and_is_found(storage: Storage) -> None:
    first = acquire(storage, owner(1), is_alive=dead)
    second = renew(first)  # and the driver does not hear of it
    first.check()
    assert renew(first) == second
    third = acquire(storage, owner(2), is_alive=dead)
    for fenced in (first, second):
        with pytest.raises(FencedError, match="replaced by 3"):
            fenced.check()
    third.check()


def test_of_rivals_on_one_host_one_gets_the_folder(storage: Storage) -> None:
    rivals = 8
    start = threading.Barrier(rivals)

    def rival(pid: int) -> int | None:
        start.wait(timeout=30)
        try:
            return acquire(storage, owner(pid), is_alive=alive).generation
        except FencedError:
            return None

    with ThreadPoolExecutor(rivals) as pool:
        got = list(pool.map(rival, range(1, rivals + 1)))
    assert sorted(g for g in got if g is not None) == [1]


def test_of_rivals_on_many_hosts_each_number_goes_to_one_and_only_the_last_is_current(
    storage: Storage,
) -> None:
    rivals = 8
    start = threading.Barrier(rivals)

    def rival(pid: int) -> int:
        start.wait(timeout=30)
        return acquire(storage, owner(pid, host=f"host-{pid}"), is_alive=alive).generation

    with ThreadPoolExecutor(rivals) as pool:
        got = list(pool.map(rival, range(1, rivals + 1)))
    assert sorted(got) == list(range(1, rivals + 1))


def test_this_process_is_alive_and_its_pid_at_another_time_is_not() -> None:
    me = OwnerInfo.current()
    assert process_is_alive(me)
    assert not process_is_alive(dataclasses.replace(me, process_start_time=me.process_start_time - 3600))


def test_a_process_that_ended_is_dead_before_and_after_its_parent_collects_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = psutil.Process(child.pid).create_time()
    info = dataclasses.replace(OwnerInfo.current(), pid=child.pid, process_start_time=started)
    assert process_is_alive(info)
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    assert not process_is_alive(info)


def test_a_second_driver_process_is_refused_and_takes_over_after_kill(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from penstock.checkpoint.local_storage import LocalStorage\n"
        "from penstock.checkpoint.ownership import OwnerInfo, acquire\n"
        "print(acquire(LocalStorage(sys.argv[1]), OwnerInfo.current()).generation, flush=True); input()"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "1\n"
        with pytest.raises(FencedError, match=f"process {driver.pid} "):
            acquire(LocalStorage(tmp_path), OwnerInfo.current())
    finally:
        driver.kill()
        driver.communicate()
    assert acquire(LocalStorage(tmp_path), OwnerInfo.current()).generation == 2
