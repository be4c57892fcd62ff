"""Slots that keep their snapshots in a store that speaks S3."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.checkpoint.object_storage import ObjectStorage
from penstock.checkpoint.store import CheckpointStore
from tests.chaos.cluster import Driver
from tests.chaos.verify import verify
from tests.servers.s3 import S3Server

RECORDS, SPLITS = 6_000, 3


@pytest.mark.spark
@pytest.mark.chaos
def test_a_slot_that_is_killed_is_restored_from_the_store(s3: S3Server, tmp_path: Path) -> None:
    url = f"s3://{s3.bucket()}/jobs/clicks"
    options = {
        "penstock.job.dir": url,
        "penstock.checkpoint.inline-threshold": "0",  # every snapshot is an object that a slot writes
        "spark.master": "local[2,4]",
        "records": str(RECORDS),
        "penstock.epoch.max-records": "400",
        "lasting": "yes",
    }
    driver = Driver(tmp_path, [f"{key}={value}" for key, value in options.items()], s3.environment())
    driver.start()
    store = CheckpointStore(ObjectStorage(url), retained=1)
    driver.wait_for(lambda: bool(store.completed()) and store.completed()[-1] >= 3, 180, "checkpoint 3")
    slot = random.Random(1).choice(driver.descendants("penstock.runtime.epochs.slot"))
    driver._kill(slot.pid, "penstock.runtime.epochs.slot")
    killed_at = store.completed()[-1]
    (tmp_path / "may-end").touch()
    driver.wait_for(lambda: not driver.running, 180, "the end of the job")
    assert driver.finished, driver.log()
    verify(tmp_path, RECORDS, SPLITS)
    assert store.completed()[-1] > killed_at
    assert any(request.startswith("PUT") and request.endswith(".state") for request in s3.requests())
