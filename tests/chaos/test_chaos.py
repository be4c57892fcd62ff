"""Real processes killed with SIGKILL on real Spark; the output is compared with a sequential reference."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from examples.cluster.standalone import standalone_cluster
from tests.chaos.cluster import Driver, left_behind
from tests.chaos.run import run
from tests.chaos.verify import verify

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

POINTS = ["before-manifest", "after-manifest", "during-sink-commit", "before-spark-log"]
PIPELINED = ["rate=4000", "execution.checkpointing.interval=300 ms"]  # the job's epochs last, and it has task slots
CLUSTER = {"spark.executor.memory": "768m", "spark.executor.cores": "1"}


@pytest.mark.spark
def test_sixty_thousand_records_survive_a_kill_of_every_kind_on_a_cluster_of_two_workers(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster") as cluster:
        outcome = run(
            tmp_path / "run",
            master=cluster.address,
            kinds=["slot", "executor", "python-worker", "driver"],
            records=60_000,
            epoch_records=3_000,
            seed=int(time.time()),
            pause=(1, 3),
            options=CLUSTER,
        )
    print(outcome)
    assert [kill.kind for kill in outcome.kills] == ["slot", "executor", "python-worker", "driver"]
    assert len({kill.pid for kill in outcome.kills}) == 4
    assert outcome.driver_starts == 2
    slot_kills = [kill for kill in outcome.kills if kill.kind in ("slot", "executor", "python-worker")]
    assert all(kill.job_attempt == 0 for kill in slot_kills), "losing a slot, worker or executor restarts no job"
    assert outcome.job_restarts == 0
    assert outcome.restored_tasks >= 3, "only lost subtasks came back from the checkpoint"


@pytest.mark.spark
def test_pipelined_forty_thousand_records_survive_kills_of_a_worker_an_executor_and_the_driver(tmp_path: Path) -> None:
    kinds = ["python-worker", "executor", "driver"]
    outcome = run(
        tmp_path / "run",
        master="local-cluster[2,4,1024]",
        kinds=kinds,
        records=40_000,
        epoch_records=1_000_000,
        seed=int(time.time()),
        pause=(1, 3),
        options={"spark.executor.memory": "768m"},
        mode="pipelined",
        rate=6_000,
    )
    print(outcome)
    assert [kill.kind for kill in outcome.kills] == kinds
    assert len({kill.pid for kill in outcome.kills}) == 3
    assert outcome.driver_starts == 2
    assert outcome.job_restarts >= 2, "a lost worker or executor is another attempt"


@pytest.mark.spark
@pytest.mark.nightly
def test_pipelined_on_a_standalone_cluster_of_five_workers(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster", workers=5) as cluster:
        outcome = run(
            tmp_path / "run",
            master=cluster.address,
            kinds=["python-worker", "executor", "python-worker", "driver", "executor"],
            records=200_000,
            epoch_records=1_000_000,
            seed=int(time.time()),
            options=CLUSTER,
            mode="pipelined",
            rate=6_000,
        )
    print(outcome)
    assert len(outcome.kills) == 5
    assert outcome.job_restarts >= 3


@pytest.mark.parametrize(
    ("runtime", "points"),
    [
        pytest.param("embedded", POINTS, id="embedded", marks=pytest.mark.long),
        # By day drivers on Spark die among the transactions of Kafka and PostgreSQL (test_kafka_chaos.py), after the manifest of a
        # job that reads through Spark (test_kafka_from_spark.py), and above, at any moment, in both ways of running.
        pytest.param("epochs", POINTS, id="spark", marks=[pytest.mark.spark, pytest.mark.nightly]),
        pytest.param("pipelined", POINTS, id="pipelined", marks=[pytest.mark.spark, pytest.mark.nightly]),
    ],
)
def test_a_driver_killed_at_each_named_point_commits_every_epoch_exactly_once(
    runtime: str, points: list[str], tmp_path: Path
) -> None:
    """One job, one driver after the other: each completes an epoch or two and dies at another point of the next."""
    started = time.time()
    driver = Driver(
        tmp_path / "run",
        [
            "records=40000", "splits=2", "parallelism=2", "penstock.epoch.max-records=2500",
            f"penstock.runtime={runtime}",
            *(PIPELINED if runtime == "pipelined" else ["spark.master=local[2,4]"]),
        ],
    )  # fmt: skip
    checkpoints = tmp_path / "run" / "job" / "checkpoints"
    expected = {}
    for generation, point in enumerate(points, 1):
        proof = tmp_path / point
        done = max((report["epoch"] for report in driver.reports()), default=0)
        driver.environment = {"PENSTOCK_FAULT": f"{point}:{done + 3}", "PENSTOCK_FAULT_ONCE": str(proof)}
        driver.start()
        driver.wait_for(lambda: not driver.running, 180, f"the driver's death at {point}")
        assert driver.process is not None
        assert driver.process.returncode == -9, driver.log()
        fired_at, epoch, pid = proof.read_text().split()
        assert (fired_at, int(pid)) == (point, driver.process.pid)
        # An epoch whose predecessor is still being stored is no checkpoint: a slow disk has fewer of them.
        newest = max(int(path.parent.name.removeprefix("chk-")) for path in checkpoints.glob("chk-*/manifest.json"))
        if point == "before-manifest":
            assert newest < int(epoch)
        elif point != "before-spark-log":
            assert newest == int(epoch)
        expected[generation + 1] = newest + 1
    driver.start()
    driver.wait_for(lambda: not driver.running, 180, "the end of the job")
    assert driver.finished, driver.log()
    verify(tmp_path / "run", 40_000, 2)
    first: dict[int, int] = {}
    for report in driver.reports():
        first.setdefault(report["generation"], report["epoch"])
    if runtime != "pipelined":  # there several epochs may lie behind the newest checkpoint
        assert {generation: first[generation] for generation in expected} == expected, (
            "a checkpoint exists from its manifest on"
        )
    driver.wait_for(lambda: not left_behind(started), 90, "the end of all processes")
