"""Whole jobs whose folder is in a store that speaks S3: killed, stopped with a savepoint, and while the store is away."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.checkpoint import layout, object_storage
from penstock.checkpoint.object_storage import ObjectStorage
from penstock.checkpoint.store import CheckpointStore
from penstock.common import Configuration
from penstock.common.restart_strategy import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.job_client import JobClient
from tests.chaos.cluster import Driver
from tests.chaos.job import build
from tests.chaos.verify import verify
from tests.servers.s3 import S3Server

RECORDS, SPLITS = 12_000, 3
SETTINGS = {
    "penstock.runtime": "embedded",
    "execution.checkpointing.interval": "0 ms",
    "penstock.epoch.interval": "1 ms",
    "penstock.epoch.max-records": "1000",
    "penstock.checkpoint.inline-threshold": "0",  # every snapshot is an object of its own
}


def start(folder: Path, url: str, **more: str) -> JobClient:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
    config = Configuration.from_dict({**SETTINGS, "penstock.job.dir": url, **named})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 20))
    build(env, folder, RECORDS, None, SPLITS)
    return env.execute_async("on s3")


def assert_only_what_the_newest_checkpoint_needs_is_left(storage: ObjectStorage) -> None:
    store = CheckpointStore(storage, retained=1)
    newest = store.latest()
    assert newest is not None
    needed = {layout.checkpoint_manifest(newest.checkpoint_id), *(state.path for state in newest.file_states())}
    assert set(storage.list(layout.CHECKPOINTS)) == needed
    assert len({Path(state.path).parent for state in newest.file_states()}) > 1, "increments of several checkpoints"


def test_a_job_killed_with_sigkill_goes_on_from_its_checkpoint(s3: S3Server, tmp_path: Path) -> None:
    url = f"s3://{s3.bucket()}/jobs/clicks"
    storage = ObjectStorage(url)
    store = CheckpointStore(storage, retained=1)
    options = {**SETTINGS, "penstock.job.dir": url, "records": str(RECORDS)}
    driver = Driver(tmp_path, [f"{key}={value}" for key, value in options.items()])
    driver.environment = s3.environment() | {"PENSTOCK_FAULT": "after-manifest:3"}
    driver.start()
    driver.wait_for(lambda: not driver.running, 180, "the driver's death")
    assert driver.process is not None
    assert driver.process.returncode == -9, driver.log()
    killed_at = store.completed()[-1]
    driver.environment = s3.environment()
    driver.start()
    driver.wait_for(lambda: not driver.running, 180, "the end of the job")
    assert driver.finished, driver.log()
    verify(tmp_path, RECORDS, SPLITS)
    assert 3 <= killed_at < store.completed()[-1]
    assert layout.generations(storage.list(layout.GENERATIONS)) == [1, 2]
    assert_only_what_the_newest_checkpoint_needs_is_left(storage)


def test_a_job_stopped_with_a_savepoint_in_the_store_goes_on_from_it(s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.bucket()
    first = start(tmp_path, f"s3://{bucket}/first")
    path = first.stop_with_savepoint(False, f"s3://{bucket}/savepoints").result()
    first.get_job_execution_result().result()
    assert path.startswith(f"s3://{bucket}/savepoints/savepoint-")
    second = start(tmp_path, f"s3://{bucket}/second", execution__state_recovery__path=path)
    second.get_job_execution_result().result()
    verify(tmp_path, RECORDS, SPLITS)


def test_a_store_that_is_away_for_longer_than_requests_are_repeated_costs_restarts_and_no_record(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(object_storage.RETRY, "max_retries", 2)
    monkeypatch.setitem(object_storage.RETRY, "backoff", {"init_backoff": timedelta(milliseconds=5)})
    url = f"s3://{s3.bucket()}/job"

    client = start(tmp_path, url, penstock__epoch__interval="20 ms")
    monitor = ObjectStorage(url)
    while len(CheckpointStore(monitor, retained=1).completed()) == 0:
        assert not client.get_job_execution_result().done()
    s3.fail(30, status=503)
    client.get_job_execution_result().result()
    assert s3.heal() == 0
    assert client.checkpoint_statistics().restored >= 1
    verify(tmp_path, RECORDS, SPLITS)
