"""A job folder is resumed at another parallelism: every key's state, windows and timers move with their key groups."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from penstock.errors import JobDefinitionError
from tests.chaos.job import build
from tests.chaos.verify import verify

RECORDS, SPLITS = 30_000, 3


def start(folder: Path, parallelism: int, max_parallelism: int = 128, backend: str = "hashmap") -> JobClient:
    config = Configuration()
    config.set_string("state.backend.type", backend)
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "1 ms")
    config.set_string("penstock.epoch.max-records", "1000")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    env.set_max_parallelism(max_parallelism)
    build(env, folder, RECORDS, None, SPLITS)
    return env.execute_async("rescaled")


def stop_after(client: JobClient, epochs: int) -> None:
    deadline = time.monotonic() + 60
    while len(client.epoch_reports()) < epochs and time.monotonic() < deadline:
        time.sleep(0.005)
    client.cancel().result()
    assert len(client.epoch_reports()) >= epochs, "the job was stopped before it had something to move"


@pytest.mark.long
@pytest.mark.parametrize("chain", [[1, 2], [2, 1], [3, 7], [7, 3], [2, 5, 3]])
def test_a_job_resumed_at_another_parallelism_gives_the_exact_answer(chain: list[int], tmp_path: Path) -> None:
    for parallelism in chain[:-1]:
        stop_after(start(tmp_path, parallelism), 3)
    client = start(tmp_path, chain[-1])
    client.get_job_execution_result().result()
    assert client.epoch_reports()[0].restored_tasks > 0 or client.epoch_reports()[0].epoch > 1
    counts = verify(tmp_path, RECORDS, SPLITS)
    assert counts["records"] == RECORDS
    assert counts["late"] > 0


@pytest.mark.long
@pytest.mark.parametrize("backends", [("hashmap", "rocksdb"), ("rocksdb", "hashmap"), ("rocksdb", "rocksdb")])
def test_a_job_resumed_with_another_state_backend_gives_the_exact_answer(
    backends: tuple[str, str], tmp_path: Path
) -> None:
    stop_after(start(tmp_path, 2, backend=backends[0]), 3)
    client = start(tmp_path, 3, backend=backends[1])
    client.get_job_execution_result().result()
    assert client.epoch_reports()[0].restored_tasks > 0 or client.epoch_reports()[0].epoch > 1
    assert verify(tmp_path, RECORDS, SPLITS)["records"] == RECORDS


def test_another_max_parallelism_is_refused_because_keys_would_move_between_key_groups(tmp_path: Path) -> None:
    stop_after(start(tmp_path, 2), 2)
    client = start(tmp_path, 2, max_parallelism=64)
    with pytest.raises(JobDefinitionError, match=r"max parallelism 128.*set_max_parallelism\(128\)"):
        client.get_job_execution_result().result()


def test_state_that_no_operator_claims_is_refused_with_its_uids(tmp_path: Path) -> None:
    stop_after(start(tmp_path, 2), 2)
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(tmp_path / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.from_collection([1, 2, 3]).uid("other").print()
    with pytest.raises(JobDefinitionError, match=r"'running', 'windows'.*ignore-unclaimed-state"):
        env.execute("another job")
