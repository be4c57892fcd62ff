"""One chaos run from Kafka to Kafka and PostgreSQL: processes, the broker, the database, and the driver at named points are killed.

`python -m tests.chaos.kafka_run` is `make chaos-kafka`. RECORDS, KINDS and SEED in the environment change the volume, the
victims and the moments, MODE (`epochs` or `pipelined`) how the job is run.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.cluster import Driver, left_behind
from tests.chaos.kafka_job import TABLES, event
from tests.chaos.kafka_verify import PARTITIONS, verify_tables, verify_topics
from tests.chaos.run import KINDS, Kill, _insist, _wait_for_epochs
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.topics import Topics

# between pre-commit and commit of the sinks; after their commit; before Spark's log
AIMED = ("driver@after-manifest", "driver@during-sink-commit", "driver@after-sink-commit", "driver@before-spark-log")
DEFAULT_KINDS = [
    "slot", "database", "broker", "driver@after-manifest", "executor", "driver@before-spark-log", "database", "python-worker",
    "broker", "driver@during-sink-commit", "database", "slot",
]  # fmt: skip
PIPELINED_KINDS = [
    "python-worker", "database", "broker", "driver@after-manifest", "executor", "driver@before-spark-log", "database",
    "python-worker", "broker", "driver@during-sink-commit", "database", "executor",
]  # fmt: skip


@dataclass
class KafkaOutcome:
    kills: list[Kill] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    broker_starts: int = 0
    database_starts: int = 0
    driver_starts: int = 0


def fill(topics: Topics, records: int) -> str:
    topic = topics.create(PARTITIONS, prefix="chaos-in")
    for partition in range(PARTITIONS):
        indices = range(partition, records, PARTITIONS)
        topics.write(
            topic,
            (f"{event(index)[0]}|{index}".encode() for index in indices),
            partition=partition,
            timestamps=[event(index)[1] for index in indices],
        )
    for partition, messages in topics.committed(topic).items():
        written = [int((message.value() or b"").partition(b"|")[2]) for message in messages]
        assert written == list(range(partition, records, PARTITIONS)), f"partition {partition} was not filled in order"
        times = [message.timestamp()[1] for message in messages]
        assert times == [event(index)[1] for index in written], (
            f"partition {partition} has other times than it was given"
        )
    return topic


def run(
    folder: Path,
    *,
    kinds: list[str],
    records: int,
    epoch_records: int,
    seed: int,
    points: Sequence[str] = (),
    master: str = "local-cluster[2,1,1024]",
    timeout: float = 180.0,
    mode: str = "epochs",
) -> KafkaOutcome:
    """The first drivers die at `points`, one at each, and the next one goes on; then `kinds` are killed. Pipelined,
    `epoch_records` are what a source is granted at once, some hundred times a second."""
    rng, started, wall = random.Random(seed), time.monotonic(), time.time()
    broker, database = KafkaServer(folder / "broker"), PostgresServer()
    outcome = KafkaOutcome()
    try:
        broker.start()
        database.start()
        for statement in TABLES:
            database.sql(statement)
        topics = Topics(broker.bootstrap_servers)
        source, running, windows = fill(topics, records), topics.create(4), topics.create(2)
        arguments = [
            f"servers={topics.servers}",
            f"input={source}",
            f"running={running}",
            f"windows={windows}",
            f"database={database.conninfo}",
            f"penstock.epoch.max-records={epoch_records}",
            f"penstock.execution.mode={mode}",
            *(["execution.checkpointing.interval=300 ms"] if mode == "pipelined" else []),
            f"spark.master={master}",
            "spark.task.maxFailures=8",
            "spark.executor.memory=768m",
            "restart-strategy.type=fixed-delay",
            "restart-strategy.fixed-delay.attempts=100",
            "restart-strategy.fixed-delay.delay=500 ms",
        ]
        driver = Driver(folder, arguments, module="tests.chaos.kafka_job")
        for point in points:
            done = len(driver.reports())
            pid = _die_at(driver, point, timeout, epoch=done + 2)
            outcome.kills.append(Kill(f"driver@{point}", pid, done))
        driver.start()
        try:
            for kind in kinds:
                _wait_for_epochs(driver, len(driver.reports()) + rng.randint(2, 4), timeout)
                assert driver.running, f"the job ended before the kill of a {kind}: raise records\n{driver.log()}"
                time.sleep(rng.random() * 0.4)  # anywhere inside an epoch
                outcome.kills += _kill(driver, broker, database, kind, rng, timeout)
            driver.wait_for(lambda: not driver.running, timeout + records / 2000, "the end of the job")
            assert driver.finished, f"the job failed\n{driver.log()}"
        finally:
            if driver.running:
                driver.kill_driver(rng)
        outcome.counts = verify_topics(topics, running, windows, records) | verify_tables(database, records)
        outcome.broker_starts, outcome.database_starts = broker.starts, database.starts
        outcome.driver_starts = driver.starts
    finally:
        broker.stop()
        database.remove()
    outcome.seconds = time.monotonic() - started
    driver.wait_for(lambda: not left_behind(wall), 90, f"the end of all its processes: {left_behind(wall)}")
    return outcome


def _kill(
    driver: Driver, broker: KafkaServer, database: PostgresServer, kind: str, rng: random.Random, timeout: float
) -> list[Kill]:
    last, moment = driver.reports()[-1], time.monotonic()
    acts = {"slot": driver.kill_slot, "python-worker": driver.kill_python_worker, "executor": driver.kill_executor}
    victims: list[int] = []
    if kind in acts:
        victims.append(_insist(acts[kind], rng))
    elif kind == "broker":
        victims.append(broker.kill())
        broker.start()
    elif kind == "database":
        victims.append(database.kill())
        time.sleep(rng.random() * 2)  # away for a while, at times for longer than an epoch
        database.start()
    else:
        victims.append(_insist(driver.kill_driver, rng))
        _, aimed, point = kind.partition("@")
        if aimed:
            victims.append(_die_at(driver, point, timeout))
        driver.start()
    after = driver.reports()[-1]["epoch"]
    driver.wait_for(
        lambda: driver.reports()[-1]["epoch"] > after or not driver.running, timeout, f"an epoch after killing a {kind}"
    )
    now = driver.reports()[-1]
    taken = time.monotonic() - moment
    return [Kill(kind, pid, last["epoch"], taken, now["generation"], now["job_attempt"]) for pid in victims]


def _die_at(driver: Driver, point: str, timeout: float, epoch: int = 0) -> int:
    """Start the driver so that it kills itself at a named point of that epoch or its first one, and wait for that."""
    proof = driver.folder / f"fired-{driver.starts}"
    driver.environment = {"PENSTOCK_FAULT": f"{point}:{epoch}", "PENSTOCK_FAULT_ONCE": str(proof)}
    driver.start()
    driver.environment = {}
    driver.wait_for(lambda: not driver.running, timeout, f"the driver's death at {point}")
    assert driver.process is not None
    assert driver.process.returncode == -9, driver.log()
    fired_at, _, pid = proof.read_text().split()
    assert (fired_at, int(pid)) == (point, driver.process.pid)
    return int(pid)


def main() -> int:
    mode = os.environ.get("MODE", "epochs")
    pipelined = mode == "pipelined"
    records = int(os.environ.get("RECORDS", "500000" if pipelined else "1000000"))
    kinds = os.environ.get("KINDS", " ".join(PIPELINED_KINDS if pipelined else DEFAULT_KINDS)).split()
    known = {*KINDS, *AIMED, "broker", "database"}
    if unknown := set(kinds) - known:
        print(f"no such kinds: {sorted(unknown)}; there are {sorted(known)}")
        return 2
    seed = int(os.environ.get("SEED", int(time.time())))
    print(f"{mode}: {records:,} records, seed {seed}, kills: {' '.join(kinds)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-kafka-") as folder:
        outcome = run(
            Path(folder),
            kinds=kinds,
            records=records,
            epoch_records=100 if pipelined else max(1000, records // 120),
            seed=seed,
            master="local-cluster[2,4,1024]" if pipelined else "local-cluster[2,1,1024]",
            mode=mode,
        )
    for kill in outcome.kills:
        print(f"{kill.kind}: pid {kill.pid} killed after epoch {kill.epoch}, next epoch {kill.recovery_s:.1f} s later")
    print(
        f"{len(outcome.kills)} kills, {outcome.broker_starts} broker starts, {outcome.database_starts} database starts, "
        f"{outcome.driver_starts} driver starts, {outcome.seconds:.0f} s: {outcome.counts}, exact"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
