"""From Kafka to Kafka on real Spark while processes and the broker are killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.chaos.kafka_run import run
from tests.servers.fixtures import unavailable
from tests.servers.jars import ServerUnavailable

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(600)]


def test_broker_slot_and_driver_are_killed_and_a_read_committed_reader_finds_every_result_once(tmp_path: Path) -> None:
    kinds = ["broker", "slot", "driver@after-manifest", "driver@before-spark-log"]
    try:
        outcome = run(
            tmp_path, kinds=kinds, records=80_000, epoch_records=2_000, seed=int(time.time()), master="local[2,4]"
        )
    except ServerUnavailable as error:
        unavailable(error)
        raise
    print(outcome)
    assert [kill.kind for kill in outcome.kills] == [
        "broker", "slot", "driver@after-manifest", "driver@after-manifest", "driver@before-spark-log", "driver@before-spark-log",
    ]  # fmt: skip
    assert len({kill.pid for kill in outcome.kills}) == 6
    assert outcome.broker_starts == 2
    assert outcome.driver_starts == 5
