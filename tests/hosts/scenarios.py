"""What is done to the hosts of a running job, how it is known to have happened, and how long the job stood still."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from examples.kill import ChosenProcess, kill
from tests.chaos.verify import verify
from tests.hosts.cluster import DRIVERS, WORKERS, Cluster, HostDriver, wait_until

RECORDS, RATE, SPLITS = 60_000, 1_500, 3
_TIMEOUT_S = 240.0
_CUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    scenario: str
    fault: str
    proof: str
    recovery_s: float
    longest_pause_s: float
    restarts: int
    restored_tasks: int
    records: int
    windows: int
    seconds: float


class Job:
    """A job on the cluster, from its start to the comparison of its output."""

    def __init__(self, cluster: Cluster, folder: Path, driver: str = "d1") -> None:
        self.cluster, self.folder = cluster, folder
        self.driver = cluster.driver(driver, folder, RECORDS, RATE)
        self.began = time.monotonic()
        self.driver.start()

    def runs_everywhere(self) -> HostDriver:
        """Wait for a few epochs with slots on both workers."""
        wait_until(
            lambda: len(self.driver.reports()) >= 4 and len(self.driver.slots_by_host()) == 2,
            _TIMEOUT_S, "an epoch with slots on both workers", self.driver,
        )  # fmt: skip
        time.sleep(random.random())  # anywhere inside an epoch
        return self.driver

    def recovered(self, since_ms: int, lost: list[str]) -> float:
        """From the fault to the end of the first epoch that began after it, or ran without what was lost."""

        def after() -> float | None:
            for report in self.driver.reports():
                began = report["wall_ms"] - report["duration_ms"]
                if report["wall_ms"] <= since_ms or set(lost) & set(report["slots"]):
                    continue
                if lost or began > since_ms:
                    return float(report["wall_ms"] - since_ms) / 1000
            return None

        return float(wait_until(after, _TIMEOUT_S, "an epoch after the fault", self.driver))

    def ends(self) -> None:
        self.driver.wait_for(lambda: not self.driver.running, _TIMEOUT_S, "the end of the job")
        assert self.driver.finished, f"the job failed\n{self.driver.log()}"

    def result(self, scenario: str, fault: str, proof: str, recovery_s: float) -> Result:
        counts = verify(self.folder, RECORDS, SPLITS)  # raises if one record is lost or there twice
        reports = self.driver.reports()
        ends = [report["wall_ms"] / 1000 for report in reports]
        return Result(
            scenario=scenario,
            fault=fault,
            proof=proof,
            recovery_s=recovery_s,
            longest_pause_s=max((b - a for a, b in pairwise(ends)), default=0.0),
            restarts=sum(
                a["generation"] == b["generation"] and a["job_attempt"] < b["job_attempt"] for a, b in pairwise(reports)
            ),
            restored_tasks=sum(report["restored_tasks"] for report in reports),
            records=counts["records"],
            windows=counts["windows"],
            seconds=time.monotonic() - self.began,
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _after(job: Job, since_ms: int, lost: list[str]) -> None:
    """Nothing that was lost takes part in an epoch that began after it was."""
    late = [
        report["epoch"]
        for report in job.driver.reports()
        if report["wall_ms"] - report["duration_ms"] > since_ms + 1000 and set(lost) & set(report["slots"])
    ]
    assert not late, f"epochs {late} ran with {lost}, which were lost before"


def slot_killed(cluster: Cluster, folder: Path) -> Result:
    job = Job(cluster, folder)
    driver = job.runs_everywhere()
    ((name, *_), *_) = driver.slots_by_host().values()
    since = _now_ms()
    pipelined = cluster.mode == "pipelined"  # there a Spark worker hosts the tasks
    process = "penstock.runtime.pipelined.daemon" if pipelined else "penstock.runtime.epochs.slot"
    kill(ChosenProcess.of(int(name.rpartition(":")[2]), command_contains=process))
    recovery = job.recovered(since, [name])
    job.ends()
    _after(job, since, [name])
    return job.result("slot-killed", "kill -9 of a slot", f"{name} is gone", recovery)


def executor_killed(cluster: Cluster, folder: Path) -> Result:
    job = Job(cluster, folder)
    driver = job.runs_everywhere()
    host, names = next(iter(driver.slots_by_host().items()))
    (executor,) = cluster.net[host].processes("CoarseGrainedExecutorBackend")
    since = _now_ms()
    kill(ChosenProcess.of(executor.pid, command_contains="CoarseGrainedExecutorBackend"))
    recovery = job.recovered(since, names)
    job.ends()
    _after(job, since, names)
    return job.result(
        "executor-killed", "kill -9 of an executor", f"pid {executor.pid} and its slots are gone", recovery
    )


def host_killed(cluster: Cluster, folder: Path) -> Result:
    job = Job(cluster, folder)
    driver = job.runs_everywhere()
    host, names = next(iter(driver.slots_by_host().items()))
    since = _now_ms()
    killed = cluster.net[host].kill_all()
    recovery = job.recovered(since, names)
    job.ends()
    _after(job, since, names)
    assert not cluster.net[host].processes()
    return job.result("host-killed", "every process of a host killed", f"{len(killed)} processes of {host}", recovery)


def vanishes(cluster: Cluster, folder: Path) -> Result:
    job = Job(cluster, folder)
    driver = job.runs_everywhere()
    host, names = next(iter(driver.slots_by_host().items()))
    since = _now_ms()
    cluster.net[host].cut()
    recovery = job.recovered(since, names)
    job.ends()
    _after(job, since, names)
    assert not cluster.net[host].linked
    return job.result("vanishes", "a worker's link is down for good", f"{host} has no carrier to the end", recovery)


def cut_20s(cluster: Cluster, folder: Path) -> Result:
    job = Job(cluster, folder)
    driver = job.runs_everywhere()
    host, names = next(iter(driver.slots_by_host().items()))
    since = _now_ms()
    cluster.net[host].cut()
    time.sleep(_CUT_S)
    mended = _now_ms()
    cluster.net[host].mend()
    recovery = job.recovered(since, [])
    job.ends()
    over_it = [
        r["epoch"]
        for r in driver.reports()
        if since + 1000 < r["wall_ms"] - r["duration_ms"] and r["wall_ms"] < mended and set(names) & set(r["slots"])
    ]
    assert not over_it, f"epochs {over_it} ran on {host} while its link was down"
    return job.result("cut-20s", "a worker's link is down for 20 s", f"no epoch ran on {host} meanwhile", recovery)


def master_cut(cluster: Cluster, folder: Path) -> Result:
    """The master is only asked for executors: without it the job goes on."""
    job = Job(cluster, folder)
    job.runs_everywhere()
    since = _now_ms()
    cluster.net["master"].cut()
    recovery = job.recovered(since, [])
    assert not cluster.net["master"].linked
    time.sleep(_CUT_S)
    cluster.net["master"].mend()
    job.ends()
    return job.result("master-cut", "the master's link is down for 20 s", "master had no carrier", recovery)


def driver_cut_20s(cluster: Cluster, folder: Path) -> Result:
    job = Job(cluster, folder)
    driver = job.runs_everywhere()
    names = [name for slots in driver.slots_by_host().values() for name in slots]
    since = _now_ms()
    cluster.net["d1"].cut()
    time.sleep(_CUT_S)
    cluster.net["d1"].mend()
    recovery = job.recovered(since, names)  # slots that hear nothing of their driver end
    job.ends()
    return job.result(
        "driver-cut-20s", "the driver's link is down for 20 s", "all slots are others afterwards", recovery
    )


def second_driver(cluster: Cluster, folder: Path) -> Result:
    """The first driver is only cut off, and can still reach the job folder. A second one takes over; then the first is back."""
    first = Job(cluster, folder, DRIVERS[0])
    first.runs_everywhere()
    before = first.driver.reports()[-1]["generation"]
    since = _now_ms()
    cluster.net[DRIVERS[0]].cut()
    second = Job(cluster, folder, DRIVERS[1])
    second.began = first.began

    def goes_on() -> bool:
        return len([r for r in second.driver.reports() if r["generation"] > before]) >= 5

    wait_until(goes_on, _TIMEOUT_S, "epochs of the second driver", second.driver)
    ends = [r["wall_ms"] for r in second.driver.reports() if r["generation"] > before]
    alive = first.driver.running
    cluster.net[DRIVERS[0]].mend()
    second.ends()
    first.driver.wait_for(lambda: not first.driver.running, _TIMEOUT_S, "the end of the first driver")
    assert not first.driver.finished, "both drivers say that they have finished the job"
    assert "FencedError" in first.driver.own_log(), first.driver.own_log()[-3000:]
    zombie = [r["epoch"] for r in second.driver.reports() if r["generation"] == before and r["wall_ms"] > min(ends)]
    assert not zombie, f"the first driver completed epochs {zombie} after the second had gone on"
    said = "no executor has been registered" in first.driver.own_log()
    proof = f"generation {before} ended with FencedError" + (", alive when the other went on" if alive else "")
    proof += ", and said that it had no executor" if said else ""
    return second.result(
        "second-driver", "a second driver while the first is cut off", proof, (min(ends) - since) / 1000
    )


def two_jobs(cluster: Cluster, folder: Path) -> Result:
    """Two jobs share the workers, and one of these vanishes."""
    jobs = [Job(cluster, folder / name, name) for name in DRIVERS]
    for job in jobs:
        job.runs_everywhere()
    host = WORKERS[1]
    lost = [job.driver.slots_by_host().get(host, []) for job in jobs]
    assert all(lost), "both jobs have a slot on that host"
    since = _now_ms()
    cluster.net[host].cut()
    recoveries = [job.recovered(since, names) for job, names in zip(jobs, lost, strict=True)]
    results = []
    for job, names in zip(jobs, lost, strict=True):
        job.ends()
        _after(job, since, names)
        results.append(job.result("two-jobs", "", "", 0.0))
    both = f"{host} has no carrier; recovered after {' and '.join(f'{s:.1f}' for s in recoveries)} s"
    return Result(
        scenario="two-jobs",
        fault="two jobs, and a worker's link is down for good",
        proof=both,
        recovery_s=max(recoveries),
        longest_pause_s=max(r.longest_pause_s for r in results),
        restarts=sum(r.restarts for r in results),
        restored_tasks=sum(r.restored_tasks for r in results),
        records=sum(r.records for r in results),
        windows=sum(r.windows for r in results),
        seconds=max(r.seconds for r in results),
    )


SCENARIOS: dict[str, Callable[[Cluster, Path], Result]] = {
    "slot-killed": slot_killed,
    "executor-killed": executor_killed,
    "host-killed": host_killed,
    "vanishes": vanishes,
    "cut-20s": cut_20s,
    "master-cut": master_cut,
    "driver-cut-20s": driver_cut_20s,
    "second-driver": second_driver,
    "two-jobs": two_jobs,
}
