"""Processes under test: the driver, and everything below it, found by parentage and command line."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from examples.kill import ChosenProcess, kill

REPOSITORY = Path(__file__).parents[2]
# Everything started from here inherits it, so that other runs on this machine are told apart from ours.
_MARK = "CHAOS_RUN"
_DAEMON = "pyspark.worker"  # the argument of every Python daemon of Spark's, whichever module it is
os.environ[_MARK] = uuid.uuid4().hex


@dataclass
class Driver:
    """One run of a job's module; started again with the same arguments after it was killed."""

    folder: Path
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    module: str = "tests.chaos.job"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"driver-{self.starts}.log"
        self.starts += 1
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(self.folder), *self.arguments],
                cwd=REPOSITORY,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, **self.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def finished(self) -> bool:
        return self.process is not None and self.process.poll() == 0

    def log(self) -> str:
        logs = sorted(self.folder.glob("driver-*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}" for log in logs[-2:])

    def reports(self) -> list[dict[str, Any]]:
        journal = self.folder / "job" / "epochs.jsonl"
        if not journal.exists():
            return []
        lines = []
        for line in journal.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:  # the last line of a killed driver
                continue
        return lines

    def wait_for(self, condition: Any, timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if condition():
                return
            time.sleep(0.05)
        raise AssertionError(f"{what} did not happen within {timeout:.0f} s\n{self.log()}")

    def descendants(self, command: str) -> list[psutil.Process]:
        assert self.process is not None
        return below(psutil.Process(self.process.pid), command)

    def slots(self) -> list[int]:
        """Slot pids of the newest epoch."""
        reports = self.reports()
        return [] if not reports else [int(name.rpartition(":")[2]) for name in reports[-1]["slots"]]

    # ------------------------------------------------------------ faults; each returns the pid it killed

    def kill_slot(self, rng: random.Random) -> int:
        return self._kill(rng.choice(self.slots()), "penstock.runtime.epochs.slot")

    def kill_python_worker(self, rng: random.Random) -> int:
        """A worker is a child of a Python daemon of Spark's and has the same command line. Pipelined, those that host tasks
        are named in the reports; others wait for work, or have done it."""
        hosts = {pid for pid in self.slots() if not self.slot_processes()}
        found = [*self.descendants(_DAEMON), *(d for e in executors() for d in below(e, _DAEMON))]
        daemons = {process.pid: process for process in found}.values()
        workers = [process for process in daemons if process.ppid() in {daemon.pid for daemon in daemons}]
        chosen = [process for process in workers if not hosts or process.pid in hosts]
        return self._kill(rng.choice(chosen).pid, "daemon")

    def slot_processes(self) -> list[psutil.Process]:
        """Slots are there in epochs only."""
        return below(psutil.Process(), "penstock.runtime.epochs.slot")

    def kill_executor(self, rng: random.Random) -> int:
        return self._kill(rng.choice(executors()).pid, "CoarseGrainedExecutorBackend")

    def kill_driver(self, rng: random.Random) -> int:
        assert self.process is not None
        pid = self._kill(self.process.pid, self.module)
        self.process.wait(60)
        return pid

    def _kill(self, pid: int, command: str) -> int:
        kill(ChosenProcess.of(pid, command_contains=command))
        return pid


def executors() -> list[psutil.Process]:
    """Executors of this test's own cluster: below the driver (local-cluster) or below its workers (standalone)."""
    return below(psutil.Process(), "CoarseGrainedExecutorBackend")


def below(root: psutil.Process, command: str) -> list[psutil.Process]:
    found = []
    for process in root.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(command in part for part in process.cmdline()):
                found.append(process)
    return found


def left_behind(since: float) -> list[str]:
    """Slot processes and executors of this test process, started after `since`, that are still there."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "create_time"]):
        command = " ".join(process.info["cmdline"] or [])
        kind = any(part in command for part in ("penstock.runtime.epochs.slot", "ExecutorBackend", _DAEMON))
        if not kind or process.info["create_time"] < since:
            continue
        with contextlib.suppress(psutil.Error):
            ours = process.environ().get(_MARK) == os.environ[_MARK]
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.info['pid']} {command[:100]}")
    return found
