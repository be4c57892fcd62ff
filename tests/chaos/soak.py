"""`make soak`: a job that fails and restarts for minutes must not grow: memory, open files, threads, processes, files.

Pipelined, its failures are SIGKILLs of a worker, any one; otherwise a function raises.
Bounds, of the median of the last quarter over the median of the quarter after warm-up (the first quarter is not judged):
15 % and 48 MiB of memory, in all and of the driver, the JVM and all other processes; 8 open files; 4 threads of Python; 1 process;
40 files in the job folder, 20 of Spark's and of state on the local disk, and 8 MiB of all of these. A quarter more threads
of Spark's JVM: its pools keep what they once needed for a minute, and every task of the last two seconds has one that watches
its worker, so they follow the speed of the machine. Output is not counted: it is supposed to grow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from examples.kill import ChosenProcess, NotOurs, kill

REPOSITORY = Path(__file__).parents[2]
LEAST_SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_s: float
    rss_mib: float
    driver_mib: float
    jvm_mib: float
    workers_mib: float  # and what else is below the driver
    open_files: int
    threads: int  # of Python
    jvm_threads: int
    processes: int
    job_files: int
    local_files: int  # of Spark's, and of state
    files_mib: float
    epoch: int
    restarts: int


# measure → (part of the first value, absolute): growth beyond both together fails
BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "rss_mib": (0.15, 48),
    "driver_mib": (0.15, 48),
    "jvm_mib": (0.15, 48),
    "workers_mib": (0.15, 48),
    "open_files": (0, 8),
    "threads": (0, 4),
    "jvm_threads": (0.25, 0),
    "processes": (0, 1),
    "job_files": (0, 40),
    "local_files": (0, 20),
    "files_mib": (0, 8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    measure: str
    early: float
    late: float
    bound: float

    @property
    def within(self) -> bool:
        return self.late <= self.early + self.bound


def growth(samples: Sequence[Sample]) -> list[Growth]:
    """Second quarter against last quarter: the first fills caches and bounded histories."""
    if len(samples) < LEAST_SAMPLES:
        raise ValueError(f"{len(samples)} samples say nothing about growth: {LEAST_SAMPLES} are the least")
    quarter = len(samples) // 4
    found = []
    for measure, (part, absolute) in BOUNDS.items():
        early = median(getattr(sample, measure) for sample in samples[quarter : 2 * quarter])
        late = median(getattr(sample, measure) for sample in samples[-quarter:])
        found.append(Growth(measure=measure, early=early, late=late, bound=early * part + absolute))
    return found


def measure(process: psutil.Process, folder: Path, began: float) -> Sample:
    """The driver and everything below it: with Spark the JVM, its Python workers, the slots."""
    files = threads = jvm_threads = processes = 0
    mib = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
    for member in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error), member.oneshot():
            java = member.name() == "java"
            kind = "driver" if member == process else "jvm" if java else "workers"
            mib[kind] += member.memory_info().rss / (1 << 20)
            files += member.num_fds()
            if java:
                jvm_threads += member.num_threads()
            else:
                threads += member.num_threads()
            processes += 1
    last = _last_report(folder / "job" / "epochs.jsonl")
    (job_files, job_bytes), (local_files, local_bytes) = _files_in(folder / "job"), _files_in(folder / "local")
    return Sample(
        at_s=time.monotonic() - began,
        rss_mib=sum(mib.values()),
        driver_mib=mib["driver"],
        jvm_mib=mib["jvm"],
        workers_mib=mib["workers"],
        open_files=files,
        threads=threads,
        jvm_threads=jvm_threads,
        processes=processes,
        job_files=job_files,
        local_files=local_files,
        files_mib=(job_bytes + local_bytes) / (1 << 20),
        epoch=last.get("epoch", 0),
        restarts=last.get("job_attempt", 0),
    )


def _files_in(folder: Path) -> tuple[int, int]:
    """How many files, without the journal of epochs, and their bytes. Some may go while one looks: not an error here."""
    count = size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            if name != "epochs.jsonl":
                with contextlib.suppress(OSError):
                    size += os.stat(os.path.join(where, name)).st_size
                    count += 1
    return count, size


def _kill_a_worker(folder: Path, rng: random.Random) -> int | None:
    """One of the task hosts of the newest epoch; None if it is gone already: the job is between two attempts."""
    names = _last_report(folder / "job" / "epochs.jsonl").get("slots", [])
    if not names:
        return None
    pid = int(rng.choice(names).rpartition(":")[2])
    try:
        kill(ChosenProcess.of(pid, command_contains="penstock.runtime.pipelined.daemon"))
    except (psutil.Error, NotOurs):
        return None
    return pid


def _last_report(journal: Path) -> dict[str, Any]:
    """From the end of a file that is being written; its last line may be half there."""
    if not journal.exists():
        return {}
    with journal.open("rb") as file:
        file.seek(max(0, journal.stat().st_size - 200_000))
        lines = file.read().splitlines()
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return {}


def soak(
    folder: Path,
    *,
    minutes: float,
    every_s: float,
    options: Sequence[str],
    console: Console,
    kill_every_s: float | None = None,
) -> tuple[list[Sample], int]:
    """Run the job in a process of its own, sample it, and kill a worker every so often. The samples, and how many were killed.
    Raises if the job ends by itself."""
    console.print(
        "    time  MiB: all driver    JVM workers  open files  threads  of JVM  processes  job files  local    MiB    epoch  "
        "restarts  kills"
    )
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.soak_job", str(folder), *options],
            cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    samples: list[Sample] = []
    process, rng = psutil.Process(driver.pid), random.Random()
    began = time.monotonic()
    next_kill, kills = began + (kill_every_s or 0), 0
    try:
        while time.monotonic() - began < minutes * 60:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(every_s)
                tail = (folder / "driver.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"the job ended with {driver.returncode} after {len(samples)} samples:\n{tail}")
            samples.append(measure(process, folder, began))
            s = samples[-1]
            console.print(
                f"{s.at_s:7.0f}s {s.rss_mib:8.0f} {s.driver_mib:6.0f} {s.jvm_mib:6.0f} {s.workers_mib:7.0f} {s.open_files:11} "
                f"{s.threads:8} {s.jvm_threads:7} {s.processes:10} {s.job_files:10} {s.local_files:6} {s.files_mib:6.1f} "
                f"{s.epoch:8} {s.restarts:9} {kills:6}",
                highlight=False,
            )
            if kill_every_s is not None and time.monotonic() >= next_kill:
                time.sleep(rng.random() * 0.5)  # anywhere between two barriers
                if _kill_a_worker(folder, rng) is not None:
                    kills += 1
                    next_kill = time.monotonic() + kill_every_s * (0.5 + rng.random())
    finally:
        family = [process, *process.children(recursive=True)] if driver.poll() is None else []
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.terminate()
        for member in psutil.wait_procs(family, timeout=15)[1]:
            with contextlib.suppress(psutil.Error):
                member.kill()
        driver.wait(10)
    return samples, kills


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--runtime", choices=("embedded", "epochs", "pipelined"), default="pipelined")
    parser.add_argument("--every", type=float, default=10, metavar="SECONDS", help="between two samples")
    parser.add_argument("--fail-every", type=float, default=30, metavar="SECONDS", help="between two failures")
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help="of the job, such as rate=300")
    arguments = parser.parse_args(argv)
    console = Console(width=160)
    pipelined = arguments.runtime == "pipelined"
    fails_after = 1e9 if pipelined else arguments.fail_every
    options = [f"penstock.execution.mode={arguments.runtime}", f"fail_after_s={fails_after}"]
    if arguments.runtime != "embedded":
        options.append(f"spark.master=local[{8 if pipelined else 2},4]")
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        options += [f"spark.local.dir={folder}/local/spark", f"state.backend.rocksdb.localdir={folder}/local/state"]
        samples, kills = soak(
            Path(folder),
            minutes=arguments.minutes,
            every_s=arguments.every,
            options=[*options, *arguments.options],
            console=console,
            kill_every_s=arguments.fail_every if pipelined else None,
        )
    found = growth(samples)
    table = Table("measure", "early", "late", "may grow by", "")
    for one in found:
        verdict = "[green]within[/]" if one.within else "[bold red]GREW[/]"
        table.add_row(one.measure, f"{one.early:.1f}", f"{one.late:.1f}", f"{one.bound:.1f}", verdict)
    console.print(table)
    restarts = samples[-1].restarts
    console.print(
        f"{samples[-1].epoch} epochs, {kills} workers killed, {restarts} restarts of the job in {samples[-1].at_s:.0f} s"
    )
    if not restarts:
        console.print("[bold red]nothing was restarted: the soak shows nothing[/]")
    return 0 if restarts and all(one.within for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
