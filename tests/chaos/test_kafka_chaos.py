"""From Kafka to Kafka and PostgreSQL on real Spark while processes and both servers are killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.chaos.kafka_run import run
from tests.servers.fixtures import unavailable
from tests.servers.jars import ServerUnavailable

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(600)]


def test_servers_slot_and_driver_are_killed_and_a_committed_reader_and_a_query_find_every_result_once(
    tmp_path: Path,
) -> None:
    kinds = ["broker", "slot", "database", "driver@after-manifest", "driver@before-spark-log"]
    try:
        outcome = run(
            tmp_path, kinds=kinds, records=80_000, epoch_records=2_000, seed=int(time.time()), master="local[2,4]"
        )
    except ServerUnavailable as error:
        unavailable(error)
        raise
    print(outcome)
    assert [kill.kind for kill in outcome.kills] == [
        "broker", "slot", "database", "driver@after-manifest", "driver@after-manifest", "driver@before-spark-log",
        "driver@before-spark-log",
    ]  # fmt: skip
    assert len({kill.pid for kill in outcome.kills}) == 7
    assert outcome.database_starts >= 2
    assert outcome.broker_starts == 2
    assert outcome.driver_starts == 5
