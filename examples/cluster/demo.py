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
from typing import Any

import psutil
import pyarrow.parquet as pq
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.cluster.job import reading
from penstock.jobmanager.home import JobHome
from penstock.spark.standalone import StandaloneCluster, standalone_cluster

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


class Watch:
    """What the job tells, and what was done to it, as a picture."""

    def __init__(self, cluster: StandaloneCluster, console: Console) -> None:
        self._cluster, self._console, self._began = cluster, console, time.monotonic()
        self._homes: dict[int, int | None] = {}  # slot pid → worker number
        self._notes: list[str] = []
        self._facts: dict[str, Any] | None = None
        self._epoch = 0

    def note(self, text: str) -> None:
        self._notes.append(f"{time.monotonic() - self._began:5.1f} s  {text}")
        if not self._console.is_terminal:
            self._console.print(self._notes[-1], highlight=False)

    def look(self) -> None:
        found = JobHome(FOLDER / "home").all()
        self._facts = found[0].facts() if found else None
        for epoch in self.epochs:
            if epoch["epoch"] > self._epoch:
                self._epoch = epoch["epoch"]
                if epoch["restored_tasks"] and self._epoch > 1:
                    self.note(f"epoch {self._epoch}: {epoch['restored_tasks']} subtasks restored from a checkpoint")
        for slot in self.slots:
            if slot not in self._homes and (worker := self._cluster.worker_of(slot)) is not None:
                self._homes[slot] = worker
                self.note(f"slot {slot} runs on worker {worker}")

    @property
    def epochs(self) -> list[dict[str, Any]]:
        return [] if self._facts is None else list(self._facts["epochs"])

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

    def __rich__(self) -> Group:
        table = Table(box=None, padding=(0, 3, 0, 0))
        for column in ("worker", "process", "slots"):
            table.add_column(column)
        for number, worker in enumerate(self._cluster.workers):
            alive = worker.poll() is None
            here = ", ".join(str(slot) for slot in self.slots if alive and self._homes.get(slot) == number)
            state = f"pid {worker.pid}" if alive else Text(f"pid {worker.pid} killed", style="bold red")
            table.add_row(str(number), state, here or "–")
        done = min(self.readings, READINGS)
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=READINGS, completed=done, width=40), f"{done:,} of {READINGS:,} readings")
        return Group(bar, table, Text("\n".join(self._notes)))


def _run(console: Console) -> None:
    console.print("Starting a Spark master and two workers on 127.0.0.1 …")
    with standalone_cluster(FOLDER / "cluster") as cluster, _driver(cluster.address) as driver:
        watch = Watch(cluster, console)
        watch.note(f"penstock run --master {cluster.address} -p 2 examples/cluster/job.py")
        killed: int | None = None
        deadline = time.monotonic() + TIMEOUT_S
        show = Live(watch, console=console, refresh_per_second=4) if console.is_terminal else contextlib.nullcontext()
        with show:
            while driver.poll() is None:
                if time.monotonic() > deadline:
                    raise DemoFailed(f"the job did not end within {TIMEOUT_S:.0f} s; see {FOLDER}/driver.log")
                watch.look()
                if killed is None and watch.readings >= KILL_AT * READINGS:
                    killed = watch.a_worker_with_a_slot()
                    if killed is not None:
                        watch.note(f"kill -9 {cluster.kill_worker(killed)}: worker {killed} is gone, its slots with it")
                time.sleep(0.1)
            watch.look()
        if driver.returncode != 0:
            raise DemoFailed(f"the driver ended with {driver.returncode}; see {FOLDER}/driver.log")
        if killed is None:
            raise DemoFailed("the job ended before a worker was killed: nothing was shown")
        verify(FOLDER / "output", READINGS)
        console.print(
            f"\n[bold green]Right:[/] {READINGS:,} readings, each exactly once, with a worker killed on "
            f"the way and {watch.restarts} restarts of the job."
        )


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
    began = time.monotonic()
    try:
        _run(console)
    except DemoFailed as error:
        console.print(f"[bold red]{error}[/]")
        return 1
    console.print(f"{time.monotonic() - began:.0f} s in all. Logs, job folder and output: {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
