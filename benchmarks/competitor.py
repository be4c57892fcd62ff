"""Runs one competitor as a process of its own and watches what else the machine does meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from benchmarks.rates import Run

REPOSITORY = Path(__file__).parents[1]
_POLL_S = 0.5
_TIMEOUT_S = 900.0

Side = Literal["penstock_side", "spark_side"]


class CompetitorError(Exception):
    """A competitor's process failed; the message ends with its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run and the machine around it: `others` is the share of all cores that other programs used, which is what makes
    two runs comparable or not; `cpu_s` is what the competitor and all its processes used."""

    run: Run
    folder: Path
    cpu_s: float
    others: float


class Usage:
    """CPU time and memory of a process tree, from now on. Processes come and go: the largest CPU time seen of each counts.

    `look` is to be called now and then; `memory` is the most that was resident at one look, with pages that processes share
    counted for each."""

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._spent: dict[tuple[int, float], float] = {}
        self._known: dict[int, psutil.Process] = {root: self._root}
        self.memory = 0
        self.look()
        self._before = sum(self._spent.values())
        self._begin = _machine_busy()

    def look(self) -> None:
        try:
            for process in list(self._known.values()):
                for child in process.children(recursive=True):
                    self._known.setdefault(child.pid, child)
        except psutil.Error:
            pass
        resident = 0
        for pid, process in list(self._known.items()):
            try:
                times = process.cpu_times()
                self._spent[(pid, process.create_time())] = times.user + times.system
                resident += process.memory_info().rss
            except psutil.Error:  # it has ended; processes it started may live on and stay known
                del self._known[pid]
        self.memory = max(self.memory, resident)

    def result(self) -> tuple[float, float]:
        """(own CPU seconds, share of the machine used by others)"""
        own = sum(self._spent.values()) - self._before
        busy, total = (now - then for now, then in zip(_machine_busy(), self._begin, strict=True))
        return own, max(0.0, busy - own) / max(total, 1e-9)


def _machine_busy() -> tuple[float, float]:
    times = psutil.cpu_times()
    waiting = times.idle + getattr(times, "iowait", 0.0)
    return sum(times[:8]) - waiting, sum(times[:8])


def compete(side: Side, spec: dict[str, Any], folder: Path) -> Measured:
    """Run `spec` in a fresh `folder`. Raises CompetitorError when the process fails."""
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{side}", json.dumps({**spec, "folder": str(folder)})],
            cwd=REPOSITORY,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        usage = Usage(process.pid)
        waited = 0.0
        while True:
            usage.look()
            try:
                status = process.wait(_POLL_S)
                break
            except subprocess.TimeoutExpired:
                waited += _POLL_S
                if waited > _TIMEOUT_S:
                    process.kill()
                    raise CompetitorError(f"{side} {spec['job']} did not end within {_TIMEOUT_S:.0f} s") from None
    cpu_s, others = usage.result()
    result = folder / "run.json"
    if status or not result.exists():
        raise CompetitorError(f"{side} {spec['job']} ended with status {status}:\n{log.read_text()[-3000:]}")
    run = Run.from_json(json.loads(result.read_text()))
    return Measured(run=run, folder=folder, cpu_s=round(cpu_s, 1), others=round(others, 3))
