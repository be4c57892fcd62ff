"""Runs one system with one workload in a process of its own, and judges its answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.environments import NotToBeHadError
from benchmarks.peers.systems import System
from benchmarks.peers.workloads import check
from benchmarks.reference import WrongAnswerError

REPOSITORY: Final = Path(__file__).parents[2]
_TIMEOUT_S: Final = 600
_LAST_WORDS: Final = 600


def measure(system: System, workload: str) -> dict[str, Any]:
    """A row of the table: either figures, or `skipped` with a reason, or `wrong` with what is wrong."""
    if workload in system.absent:
        return {"skipped": system.absent[workload]}
    try:
        python, settings = system.python(), system.settings()
    except NotToBeHadError as error:
        return {"skipped": str(error)}
    few, many = system.sizes[workload]
    folder = Path(tempfile.mkdtemp(prefix="penstock-peer-"))
    try:
        spec = {"workload": workload, "folder": str(folder), "inputs": [str(system.files(n)) for n in (few, many)]}
        failed = run_program(python, system.module, {**spec, **settings}, folder / "log")
        if failed:
            return {"wrong": failed}
        check(workload, few, folder / "output")
        return _figures(json.loads((folder / "run.json").read_text()), few, many)
    except WrongAnswerError as error:
        return {"wrong": str(error)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_program(python: Path, module: str, spec: dict[str, Any], log: Path) -> str | None:
    """What was wrong with it, if anything: its last words."""
    with log.open("wb") as output:
        try:
            ended = subprocess.run(
                [str(python), "-m", module, json.dumps(spec)],
                cwd=REPOSITORY,
                env={**os.environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(REPOSITORY)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return f"did not end within {_TIMEOUT_S} s"
    return f"ended with status {ended}: {log.read_text(errors='replace')[-_LAST_WORDS:]}" if ended else None


def _figures(found: dict[str, Any], few: int, many: int) -> dict[str, Any]:
    """Of the events that the long run has more, and of the time that they took."""
    less, more = found["seconds"]
    if more <= less:
        return {"wrong": f"{many} events took {more:.1f} s and {few} events {less:.1f} s: the runs are too short"}
    return {
        "rate": (many - few) / (more - less),
        "events": many - few,
        "seconds": more - less,
        "fixed_s": less - few * (more - less) / (many - few),
        "per_cpu_second": many / found["cpu_s"],
        "memory": found["memory"],
        "others": found["others"],
        "at": time.strftime("%Y-%m-%d %H:%M"),
        "python": sys.version.split()[0],
    }
