"""`make cluster-demo`: a Spark master and two workers, a job on them, one worker killed, and nothing lost or counted twice.

This process starts the cluster, runs the job with `penstock run --master`, watches its facts, kills a worker, and checks the
output. All it writes is in `demo-output/cluster`; all it starts has ended when it ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil
import pyarrow.parquet as pq
from rich.console import Console
from rich.live import Live

from examples.cluster.job import reading
from examples.cluster.standalone import standalone_cluster
from examples.cluster.view import View, Worker
from penstock.driver.control.home import JobHome

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "demo-output" / "cluster"
READINGS, RATE = 60_000, 2_500.0
KILL_AT = 0.4  # of all readings
TIMEOUT_S = 300.0


class DemoFailed(Exception):
    """The message says why, and where to look."""


@contextlib.contextmanager
def _driver(master: str) -> Iterator[subprocess.Popen[bytes]]:
    options = {
        "execution.checkpointing.interval": "0 ms",  # every epoch: only subtasks that were lost are restored
        "penstock.job.dir": str(FOLDER / "job"),
        "spark.executor.memory": "768m",
        "spark.executor.cores": "1",
    }
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "run",
        "--dir",
        str(FOLDER / "home"),
        "--master",
        master,
        "-p",
        "2",
    ]
    command += [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    command += [str(PROJECT / "examples/cluster/job.py"), str(FOLDER / "output"), str(READINGS), str(RATE)]
    with (FOLDER / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for member in family:
                with contextlib.suppress(psutil.Error):
                    member.terminate()
            for member in psutil.wait_procs(family, timeout=10)[1]:
                with contextlib.suppress(psutil.Error):
                    member.kill()
            process.wait(10)


class Cluster(Protocol):
    """What is watched of a cluster."""

    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self, number: int) -> int: ...
    def worker_of(self, slot_pid: int) -> int | None: ...
    def executors_of(self, number: int) -> list[int]: ...


class Watch:
    """Follows the job's facts and the cluster's processes, and tells the view."""

    def __init__(self, cluster: Cluster, view: View) -> None:
        self._cluster, self._view = cluster, view
        self._homes: dict[int, int] = {}  # slot pid → worker number
        self._facts: dict[str, Any] | None = None
        self._state = ""
        self._lost: set[int] = set()  # slots that the killed worker had
        self._killed: tuple[int, float] | None = None  # the newest epoch then, and when
        self.recovery_s: float | None = None

    def look(self, facts: dict[str, Any] | None) -> None:
        self._facts = facts
        if facts is not None:
            self._look_at_job(facts)
        self._look_at_workers()

    def _look_at_job(self, facts: dict[str, Any]) -> None:
        self._view.read = self.readings
        for epoch in facts["epochs"]:
            if epoch["epoch"] not in self._view.epochs:
                self._view.epochs[epoch["epoch"]] = epoch
                if epoch["epoch"] == 1:
                    self._view.doing = "the job runs on both workers"
        for number, slot in enumerate(self.slots):
            if slot not in self._homes and (worker := self._cluster.worker_of(slot)) is not None:
                self._homes[slot] = worker
                self._view.note(f"slot {number} runs on worker {worker}, pid {slot}")
        self._notice_recovery()
        if facts["state"] != self._state:
            self._state = facts["state"]
            self._view.note(f"the job is {self._state}")

    def _look_at_workers(self) -> None:
        self._view.workers = [
            Worker(
                number=number,
                pid=worker.pid,
                alive=worker.poll() is None,
                executors=self._cluster.executors_of(number),
                slots=[(i, slot) for i, slot in enumerate(self.slots) if self._homes.get(slot) == number],
            )
            for number, worker in enumerate(self._cluster.workers)
        ]

    def _notice_recovery(self) -> None:
        """The first epoch that ran without the lost slots. One that was under way may still end with them: executors notice
        the death of their worker a moment later."""
        if self._killed is None or self.recovery_s is not None or self._lost & set(self.slots):
            return
        since = [epoch for number, epoch in self._view.epochs.items() if number > self._killed[0]]
        if not since:
            return
        self.recovery_s = time.monotonic() - self._killed[1]
        restored = sum(epoch["restored_tasks"] for epoch in since)
        self._view.doing = "the job runs on the worker that is left"
        self._view.note(
            f"epoch {since[-1]['epoch']} is complete without them, {self.recovery_s:.1f} s after the kill: {restored} subtasks "
            "were restored from the checkpoint before",
            "bold green",
        )

    def kill(self, worker: int) -> None:
        self._lost = {slot for slot in self.slots if self._cluster.worker_of(slot) == worker}
        self._killed = (max(self._view.epochs, default=0), time.monotonic())
        pid = self._cluster.kill_worker(worker)
        self._view.doing = "recovering: Spark repeats the lost tasks, a new slot restores their state"
        self._view.note(f"kill -9 {pid}: worker {worker} is gone, and its executor and slots with it", "bold red")

    @property
    def slots(self) -> list[int]:
        return [] if self._facts is None else [int(name.rpartition(":")[2]) for name in self._facts["slot_processes"]]

    @property
    def readings(self) -> int:
        return 0 if self._facts is None else int(self._facts["totals"]["records_in"])

    @property
    def restarts(self) -> int:
        return sum(step["state"] == "RESTARTING" for step in (self._facts or {"transitions": []})["transitions"])

    def a_worker_with_a_slot(self) -> int | None:
        return next((number for slot in self.slots if (number := self._cluster.worker_of(slot)) is not None), None)


def _run(view: View) -> Watch:
    with standalone_cluster(FOLDER / "cluster") as cluster, _driver(cluster.address) as driver:
        watch = Watch(cluster, view)
        view.note(f"a Spark master at {cluster.address} with {len(cluster.workers)} workers")
        view.note(f"penstock run --master {cluster.address} -p 2 examples/cluster/job.py")
        view.doing = "the driver starts its Spark session, Spark its executors, executors the slots"
        killed = False
        deadline = time.monotonic() + TIMEOUT_S
        while driver.poll() is None:
            if time.monotonic() > deadline:
                raise DemoFailed(f"the job did not end within {TIMEOUT_S:.0f} s; see {FOLDER}/driver.log")
            watch.look(_facts())
            if not killed and watch.readings >= KILL_AT * READINGS:
                worker = watch.a_worker_with_a_slot()
                if worker is not None:
                    watch.kill(worker)
                    killed = True
            time.sleep(0.1)
        watch.look(_facts())
        if driver.returncode != 0:
            raise DemoFailed(f"the driver ended with {driver.returncode}; see {FOLDER}/driver.log")
        if not killed:
            raise DemoFailed("the job ended before a worker was killed: nothing was shown")
        view.doing = "the job has ended; the cluster ends"
    view.doing, view.over = "everything has ended", True
    return watch


def _facts() -> dict[str, Any] | None:
    found = JobHome(FOLDER / "home").all()
    return found[0].facts() if found else None


def verify(output: Path, readings: int) -> None:
    """Every reading once; numbers and sums of each meter as if nothing had happened."""
    table = pq.read_table(output)
    found = sorted(
        zip(*(table.column(name).to_pylist() for name in ("meter", "number", "index", "total")), strict=True)
    )
    by_meter: dict[int, list[tuple[int, int, int]]] = {}
    for meter, *rest in found:
        by_meter.setdefault(meter, []).append((rest[0], rest[1], rest[2]))
    indexes = sorted(index for _, _, index, _ in found)
    if indexes != list(range(readings)):
        raise DemoFailed(f"wrong: {len(indexes)} readings in the output, {len(set(indexes))} of them different")
    for meter, rows in by_meter.items():
        total = 0
        for expected, (number, index, summed) in enumerate(rows, start=1):
            total += index
            if (number, summed, reading(index)[0]) != (expected, total, meter):
                raise DemoFailed(
                    f"wrong: meter {meter} has number {number}, total {summed} where {expected}, {total} is right"
                )


def main() -> int:
    console = Console()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    view = View(console=console, readings=READINGS)
    try:
        with Live(view, console=console, refresh_per_second=8) if console.is_terminal else contextlib.nullcontext():
            watch = _run(view)
        verify(FOLDER / "output", READINGS)
    except KeyboardInterrupt:
        console.print("stopped; the driver and the cluster have ended")
        return 130
    except DemoFailed as error:
        console.print(f"[bold red]{error}[/]")
        return 1
    lost = "never" if watch.recovery_s is None else f"after {watch.recovery_s:.1f} s"
    restarts = "without a restart of the job" if watch.restarts == 0 else f"with {watch.restarts} restarts of the job"
    console.print(f"[bold green]Right:[/] {READINGS:,} readings, each exactly once.", highlight=False)
    console.print(
        f"A worker was killed; the next epoch was complete {lost}, {restarts}. {time.monotonic() - view.began:.0f} s in all.",
        highlight=False,
    )
    home, output = (str((FOLDER / name).relative_to(PROJECT)) for name in ("home", "output"))
    console.print(f"  output: {output}\n  → penstock info --dir {home} meters", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
