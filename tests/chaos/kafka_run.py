"""One chaos run between Kafka topics: processes, the broker, and the driver at named points are killed.

`python -m tests.chaos.kafka_run` is `make chaos-kafka`. RECORDS and KINDS in the environment change the volume.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.cluster import Driver, left_behind
from tests.chaos.kafka_job import KEYS, WINDOW_MS, event
from tests.chaos.run import KINDS, Kill, _insist, _wait_for_epochs
from tests.servers.kafka import KafkaServer
from tests.servers.topics import Topics

PARTITIONS = 8
Act = Callable[[random.Random], int]
# between pre-commit and commit of the sinks; after their commit; before Spark's log
AIMED = ("driver@after-manifest", "driver@during-sink-commit", "driver@after-sink-commit", "driver@before-spark-log")
DEFAULT_KINDS = [
    "slot", "broker", "driver@after-manifest", "executor", "driver@before-spark-log", "python-worker", "broker",
    "driver@during-sink-commit", "slot", "driver@after-sink-commit",
]  # fmt: skip


@dataclass
class KafkaOutcome:
    kills: list[Kill] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    broker_starts: int = 0
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
    module: str = "tests.chaos.kafka_job",
    master: str = "local-cluster[2,1,1024]",
    options: dict[str, str] | None = None,
    more_kills: Mapping[str, Act] | None = None,
    timeout: float = 180.0,
) -> KafkaOutcome:
    """`module` may be another job's that adds sinks to `tests.chaos.kafka_job`, `options` reach it as arguments, and
    `more_kills` names further victims: each kills one process, brings it back if need be, and returns its pid."""
    rng, started, wall = random.Random(seed), time.monotonic(), time.time()
    broker = KafkaServer(folder / "broker")
    broker.start()
    outcome = KafkaOutcome()
    try:
        topics = Topics(broker.bootstrap_servers)
        source, running, windows = fill(topics, records), topics.create(4), topics.create(2)
        arguments = [f"servers={topics.servers}", f"input={source}", f"running={running}", f"windows={windows}"]
        arguments += [
            f"penstock.epoch.max-records={epoch_records}",
            f"spark.master={master}",
            "spark.task.maxFailures=8",
        ]
        arguments += ["restart-strategy.type=fixed-delay", "restart-strategy.fixed-delay.attempts=100"]
        arguments += ["restart-strategy.fixed-delay.delay=500 ms", "spark.executor.memory=768m"]
        arguments += [f"{key}={value}" for key, value in (options or {}).items()]
        driver = Driver(folder, arguments, module=module)
        driver.start()
        try:
            for kind in kinds:
                _wait_for_epochs(driver, len(driver.reports()) + rng.randint(2, 4), timeout)
                assert driver.running, f"the job ended before the kill of a {kind}: raise records\n{driver.log()}"
                time.sleep(rng.random() * 0.4)  # anywhere inside an epoch
                outcome.kills += _kill(driver, broker, kind, more_kills or {}, rng, timeout)
            driver.wait_for(lambda: not driver.running, timeout + records / 5000, "the end of the job")
            assert driver.finished, f"the job failed\n{driver.log()}"
        finally:
            if driver.running:
                driver.kill_driver(rng)
        outcome.counts = verify(topics, running, windows, records)
        outcome.broker_starts, outcome.driver_starts = broker.starts, driver.starts
    finally:
        broker.stop()
    outcome.seconds = time.monotonic() - started
    driver.wait_for(lambda: not left_behind(wall), 15, f"the end of all its processes: {left_behind(wall)}")
    return outcome


def _kill(
    driver: Driver, broker: KafkaServer, kind: str, more: Mapping[str, Act], rng: random.Random, timeout: float
) -> list[Kill]:
    last, moment = driver.reports()[-1], time.monotonic()
    acts: dict[str, Act] = {
        "slot": driver.kill_slot,
        "python-worker": driver.kill_python_worker,
        "executor": driver.kill_executor,
        **more,
    }
    victims: list[int] = []
    if kind in acts:
        victims.append(_insist(acts[kind], rng))
    elif kind == "broker":
        victims.append(broker.kill())
        broker.start()
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


def _die_at(driver: Driver, point: str, timeout: float) -> int:
    """Start the driver so that it kills itself at a named point of its first epoch, and wait for that."""
    proof = driver.folder / f"fired-{driver.starts}"
    driver.environment = {"PENSTOCK_FAULT": f"{point}:0", "PENSTOCK_FAULT_ONCE": str(proof)}
    driver.start()
    driver.environment = {}
    driver.wait_for(lambda: not driver.running, timeout, f"the driver's death at {point}")
    assert driver.process is not None
    assert driver.process.returncode == -9, driver.log()
    fired_at, _, pid = proof.read_text().split()
    assert (fired_at, int(pid)) == (point, driver.process.pid)
    return int(pid)


def verify(topics: Topics, running: str, windows: str, records: int) -> dict[str, int]:
    """What an independent read_committed reader finds against a sequential reference."""
    seen: set[int] = set()
    duplicated = 0
    numbers: dict[int, list[int]] = defaultdict(list)
    order: dict[tuple[int, int], list[int]] = defaultdict(list)
    for value in topics.values(running):
        user, number, index = (int(part) for part in value.split(b"|"))
        assert user == event(index)[0]
        duplicated += index in seen
        seen.add(index)
        numbers[user].append(number)
        order[(user, index % PARTITIONS)].append(index)
    assert (records - len(seen), duplicated) == (0, 0), f"lost {records - len(seen)}, duplicated {duplicated}"
    for user, given in numbers.items():
        assert given == list(range(1, len(given) + 1)), f"user {user} was numbered {given[:20]}…"
    reordered = sum(indices != sorted(indices) for indices in order.values())
    assert reordered == 0, f"{reordered} (user, partition) sequences are out of order"
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    for index in range(records):
        user, at = event(index)
        start = at - at % WINDOW_MS
        count, total = expected.get((user, start), (0, 0))
        expected[(user, start)] = count + 1, total + index
    found = [tuple(int(part) for part in value.split(b"|")) for value in topics.values(windows)]
    given_windows = {(user, start): (count, total) for user, start, count, total in found}
    assert len(found) == len(given_windows), "a window is there twice"
    differing = sorted(set(given_windows.items()) ^ set(expected.items()))
    assert not differing, f"{len(given_windows)} windows, {len(expected)} expected; some that differ: {differing[:6]}"
    assert len(numbers) == min(KEYS, records)
    return {"records": len(seen), "windows": len(found)}


def main() -> int:
    records = int(os.environ.get("RECORDS", "1000000"))
    kinds = os.environ.get("KINDS", " ".join(DEFAULT_KINDS)).split()
    unknown = set(kinds) - {*KINDS, *AIMED, "broker"}
    if unknown:
        print(f"no such kinds: {sorted(unknown)}; there are {[*KINDS, *AIMED, 'broker']}")
        return 2
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-kafka-") as folder:
        outcome = run(
            Path(folder), kinds=kinds, records=records, epoch_records=max(1000, records // 60), seed=int(time.time())
        )
    for kill in outcome.kills:
        print(f"{kill.kind}: pid {kill.pid} killed after epoch {kill.epoch}, next epoch {kill.recovery_s:.1f} s later")
    print(
        f"{len(outcome.kills)} kills, {outcome.broker_starts} broker starts, {outcome.driver_starts} driver starts, "
        f"{outcome.seconds:.0f} s: {outcome.counts}, exact"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
