"""`make soak`: a job that fails and restarts for minutes must not grow: memory, open files, threads, processes, files.

Bounds, of the median of the last quarter over the median of the quarter after warm-up (the first quarter is not judged):
15 % and 48 MiB of memory; 8 open files; 4 threads of Python; 1 process; 40 files in the job folder. A quarter more threads
of Spark's JVM: its pools keep what they once needed for a minute, and every task of the last two seconds has one that watches
its worker, so they follow the speed of the machine. Output is not counted: it is supposed to grow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import psutil
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).parents[2]
LEAST_SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_s: float
    rss_mib: float
    open_files: int
    threads: int  # of Python
    jvm_threads: int
    processes: int
    job_files: int
    epoch: int
    restarts: int


# measure → (part of the first value, absolute): growth beyond both together fails
BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "rss_mib": (0.15, 48),
    "open_files": (0, 8),
    "threads": (0, 4),
    "jvm_threads": (0.25, 0),
    "processes": (0, 1),
    "job_files": (0, 40),
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


def measure(process: psutil.Process, job: Path, began: float) -> Sample:
    """The driver and everything below it: with Spark the JVM, its Python workers, the slots."""
    rss = files = threads = jvm_threads = processes = 0
    for member in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error), member.oneshot():
            rss += member.memory_info().rss
            files += member.num_fds()
            if member.name() == "java":
                jvm_threads += member.num_threads()
            else:
                threads += member.num_threads()
            processes += 1
    last = _last_report(job / "epochs.jsonl")
    return Sample(
        at_s=time.monotonic() - began,
        rss_mib=rss / (1 << 20),
        open_files=files,
        threads=threads,
        jvm_threads=jvm_threads,
        processes=processes,
        job_files=sum(len(names) for _, _, names in os.walk(job)),  # folders may go while one looks: not an error here
        epoch=last.get("epoch", 0),
        restarts=last.get("job_attempt", 0),
    )


def _last_report(journal: Path) -> dict[str, int]:
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


def soak(folder: Path, *, minutes: float, every_s: float, options: Sequence[str], console: Console) -> list[Sample]:
    """Run the job in a process of its own and sample it. Raises if it ends by itself."""
    console.print("    time      MiB  open files  threads  of the JVM  processes  job files    epoch  restarts")
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.soak_job", str(folder), *options],
            cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    samples: list[Sample] = []
    process = psutil.Process(driver.pid)
    began = time.monotonic()
    try:
        while time.monotonic() - began < minutes * 60:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(every_s)
                tail = (folder / "driver.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"the job ended with {driver.returncode} after {len(samples)} samples:\n{tail}")
            samples.append(measure(process, folder / "job", began))
            s = samples[-1]
            console.print(
                f"{s.at_s:7.0f}s {s.rss_mib:8.0f} {s.open_files:11} {s.threads:8} {s.jvm_threads:11} {s.processes:10} "
                f"{s.job_files:10} {s.epoch:8} {s.restarts:9}",
                highlight=False,
            )
    finally:
        family = [process, *process.children(recursive=True)] if driver.poll() is None else []
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.terminate()
        for member in psutil.wait_procs(family, timeout=15)[1]:
            with contextlib.suppress(psutil.Error):
                member.kill()
        driver.wait(10)
    return samples


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--runtime", choices=("embedded", "epochs", "pipelined"), default="embedded")
    parser.add_argument("--every", type=float, default=10, metavar="SECONDS", help="between two samples")
    parser.add_argument("--fail-every", type=float, default=30, metavar="SECONDS", help="between two failures")
    arguments = parser.parse_args(argv)
    console = Console()
    options = [f"penstock.runtime={arguments.runtime}", f"fail_after_s={arguments.fail_every}"]
    if arguments.runtime != "embedded":
        options.append("spark.master=local[2,4]")
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        samples = soak(
            Path(folder), minutes=arguments.minutes, every_s=arguments.every, options=options, console=console
        )
    found = growth(samples)
    table = Table("measure", "early", "late", "may grow by", "")
    for one in found:
        verdict = "[green]within[/]" if one.within else "[bold red]GREW[/]"
        table.add_row(one.measure, f"{one.early:.0f}", f"{one.late:.0f}", f"{one.bound:.0f}", verdict)
    console.print(table)
    restarts = samples[-1].restarts
    console.print(f"{samples[-1].epoch} epochs, {restarts} restarts of the job in {samples[-1].at_s:.0f} s")
    if not restarts:
        console.print("[bold red]nothing was restarted: the soak shows nothing[/]")
    return 0 if restarts and all(one.within for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
