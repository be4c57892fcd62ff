"""One chaos run: start the job, kill things, bring the driver back when it was the victim, compare the output."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

from tests.chaos.cluster import Driver, left_behind
from tests.chaos.verify import verify

KINDS = ("slot", "python-worker", "executor", "driver")
SLOW_S = 45.0  # such a recovery shows the driver's log
PIPELINED_KINDS = ("python-worker", "executor", "driver")  # slots are part of epochs


@dataclass
class Kill:
    kind: str
    pid: int
    epoch: int
    recovery_s: float = 0.0
    generation: int = 0
    job_attempt: int = 0


@dataclass
class Outcome:
    kills: list[Kill] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    restored_tasks: int = 0
    replayed_tasks: int = 0
    job_restarts: int = 0
    driver_starts: int = 0


def run(
    folder: Path,
    *,
    master: str,
    kinds: list[str],
    records: int,
    epoch_records: int,
    seed: int,
    pause: tuple[int, int] = (2, 5),
    parallelism: int = 2,
    splits: int = 3,
    options: dict[str, str] | None = None,
    timeout: float = 300.0,
    mode: str = "epochs",
    rate: int | None = None,
) -> Outcome:
    """The job has records until the last kill, however slow or fast the machine is. `pause` is the least and the greatest number of
    epochs before a kill. Pipelined, an epoch is what lies between two barriers, and `rate` makes most of the records last."""
    rng = random.Random(seed)
    started, wall = time.monotonic(), time.time()
    arguments = [f"records={records}", f"parallelism={parallelism}", f"splits={splits}", "lasting=yes"]
    arguments += [f"penstock.epoch.max-records={epoch_records}", f"penstock.execution.mode={mode}"]
    arguments += [f"rate={rate}"] if rate is not None else []
    arguments += ["execution.checkpointing.interval=300 ms"] if mode == "pipelined" else []
    arguments += [f"spark.master={master}", "spark.task.maxFailures=8", "restart-strategy.type=fixed-delay"]
    arguments += ["restart-strategy.fixed-delay.attempts=20", "restart-strategy.fixed-delay.delay=200 ms"]
    arguments += [f"{key}={value}" for key, value in (options or {}).items()]
    driver = Driver(folder, arguments)
    outcome = Outcome()
    driver.start()
    try:
        for kind in kinds:
            _wait_for_epochs(driver, len(driver.reports()) + rng.randint(*pause), timeout)
            assert driver.running, f"the job ended before the kill of a {kind}\n{driver.log()}"
            time.sleep(rng.random() * 0.4)  # anywhere inside an epoch
            outcome.kills.append(_kill(driver, kind, rng, timeout))
        (folder / "may-end").touch()
        driver.wait_for(lambda: not driver.running, timeout, "the end of the job")
        assert driver.finished, f"the job failed\n{driver.log()}"
    finally:
        if driver.running:
            driver.kill_driver(rng)
    outcome.counts = verify(folder, records, splits)
    reports = driver.reports()
    outcome.seconds = time.monotonic() - started
    outcome.restored_tasks = sum(report["restored_tasks"] for report in reports)
    outcome.replayed_tasks = sum(report["replayed_tasks"] for report in reports)
    outcome.job_restarts = sum(
        a["generation"] == b["generation"] and a["job_attempt"] < b["job_attempt"] for a, b in pairwise(reports)
    )
    outcome.driver_starts = driver.starts
    driver.wait_for(lambda: not left_behind(wall), 90, f"the end of all its processes: {left_behind(wall)}")
    return outcome


def _wait_for_epochs(driver: Driver, count: int, timeout: float) -> None:
    driver.wait_for(lambda: len(driver.reports()) >= count or not driver.running, timeout, f"{count} epochs in all")


def _kill(driver: Driver, kind: str, rng: random.Random, timeout: float) -> Kill:
    last = driver.reports()[-1]
    act = {
        "slot": driver.kill_slot,
        "python-worker": driver.kill_python_worker,
        "executor": driver.kill_executor,
        "driver": driver.kill_driver,
    }[kind]
    pid = _insist(act, rng)
    moment = time.monotonic()
    assert not _alive(pid), f"{kind} {pid} survived SIGKILL"
    if kind == "driver":
        driver.start()
    after = driver.reports()[-1]["epoch"]
    driver.wait_for(
        lambda: driver.reports()[-1]["epoch"] > after or not driver.running, timeout, f"an epoch after killing a {kind}"
    )
    now = driver.reports()[-1]
    if time.monotonic() - moment > SLOW_S:
        print(f"{kind}: {time.monotonic() - moment:.0f} s until the next epoch\n{driver.log()}", flush=True)
    return Kill(kind, pid, last["epoch"], time.monotonic() - moment, now["generation"], now["job_attempt"])


def _insist(act: object, rng: random.Random) -> int:
    """The victim may end by itself between choosing and killing: choose again."""
    for _ in range(300):
        try:
            return int(act(rng))  # type: ignore[operator]
        except (psutil.Error, IndexError):
            time.sleep(0.1)
    raise AssertionError("no victim could be found in 30 s")


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
