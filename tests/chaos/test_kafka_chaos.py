"""From Kafka to Kafka and PostgreSQL on real Spark while processes and both servers are killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.chaos.kafka_run import run
from tests.servers.fixtures import unavailable
from tests.servers.jars import ServerUnavailable

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(600)]


@pytest.mark.nightly
def test_pipelined_servers_a_worker_and_the_driver_are_killed_and_every_result_is_there_once(tmp_path: Path) -> None:
    try:
        outcome = run(
            tmp_path,
            points=["after-manifest"],
            kinds=["broker", "python-worker", "database"],
            records=60_000,
            epoch_records=30,
            seed=int(time.time()),
            master="local[6,4]",
            mode="pipelined",
        )
    except ServerUnavailable as error:
        unavailable(error)
        raise
    print(outcome)
    assert [kill.kind for kill in outcome.kills] == ["driver@after-manifest", "broker", "python-worker", "database"]
    assert len({kill.pid for kill in outcome.kills}) == 4
    assert outcome.database_starts >= 2
    assert outcome.broker_starts == 2
    assert outcome.driver_starts == 2


def test_servers_slot_and_driver_are_killed_and_a_committed_reader_and_a_query_find_every_result_once(
    tmp_path: Path,
) -> None:
    try:
        outcome = run(
            tmp_path,
            points=["after-manifest", "before-spark-log"],
            kinds=["broker", "slot", "database"],
            records=45_000,
            epoch_records=1_200,
            seed=int(time.time()),
            master="local[2,4]",
        )
    except ServerUnavailable as error:
        unavailable(error)
        raise
    print(outcome)
    kinds = ["driver@after-manifest", "driver@before-spark-log", "broker", "slot", "database"]
    assert [kill.kind for kill in outcome.kills] == kinds
    assert len({kill.pid for kill in outcome.kills}) == 5
    assert outcome.database_starts >= 2
    assert outcome.broker_starts == 2
    assert outcome.driver_starts == 3
