"""Checkpoints in the driver's memory: reached by slots over the wire, gone with the driver, refused when too large."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoint.object_storage import DriverStorage
from penstock.checkpoint.storage import FileMissingError, Storage
from penstock.common import Configuration, RestartStrategies
from penstock.datastream import JobManagerCheckpointStorage, StreamExecutionEnvironment
from penstock.errors import JobFailedError, StorageError
from penstock.runtime.epochs.registry import SlotRegistry
from penstock.runtime.epochs.remote_storage import open_in_slot

FAILURES: list[int] = []


@pytest.fixture
def registry() -> Iterator[SlotRegistry]:
    registry = SlotRegistry("127.0.0.1", b"", DriverStorage(100))
    yield registry
    registry.close()


@pytest.fixture
def remote(registry: SlotRegistry) -> Storage:
    return open_in_slot("driver:///x", str(registry.host), registry.port, registry.token)


def test_a_slot_reads_and_writes_what_the_driver_holds(remote: Storage) -> None:
    assert remote.put_new("a/b", b"one")
    assert not remote.put_new("a/b", b"two")
    assert remote.get("a/b") == b"one"
    assert remote.list("a") == ["a/b"]
    remote.delete("a/b")
    assert not remote.exists("a/b")
    with pytest.raises(FileMissingError):
        remote.get("a/b")


def test_state_that_is_too_large_for_the_driver_is_refused_with_what_to_do(remote: Storage) -> None:
    with pytest.raises(StorageError, match=r"101 bytes.*limit is 100.*execution\.checkpointing\.dir"):
        remote.put("a", bytes(101))


def test_another_token_reaches_nothing(registry: SlotRegistry) -> None:
    stranger = open_in_slot("driver:///x", str(registry.host), registry.port, "no")
    with pytest.raises(StorageError, match="does not know the token"):
        stranger.get("a")


def fail_twice(n: int) -> int:
    if n == 70 and len(FAILURES) < 2:
        FAILURES.append(n)
        raise ValueError("not yet")
    return n


def run(max_state_size: int | None = None) -> list[int]:
    FAILURES.clear()
    config = Configuration.from_dict(
        {"penstock.runtime": "embedded", "execution.checkpointing.interval": "0 ms", "penstock.epoch.max-records": "25"}
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage(max_state_size=max_state_size))
    counted = env.from_sequence(0, 99).map(fail_twice).key_by(lambda n: n % 3).reduce(lambda a, b: a + b)
    with counted.execute_and_collect() as results:
        return list(results)


def test_a_job_restarts_from_the_drivers_memory_without_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = run()
    assert len(FAILURES) == 2
    assert len(results) == 100
    assert max(results) == sum(range(0, 100, 3))
    assert list(tmp_path.iterdir()) == []


def test_a_job_whose_state_is_too_large_for_the_driver_fails_with_what_to_do() -> None:
    with pytest.raises(JobFailedError, match=r"max-state-size"):
        run(max_state_size=300)
