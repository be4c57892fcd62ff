"""Competitors of a connector's benchmark, each as a process of its own: `python -m MODULE NAME JSON ANSWER`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
_TIMEOUT_S = 300


def run(module: str, name: str, specs: Sequence[Mapping[str, Any]], folder: Path, label: str) -> list[dict[str, Any]]:
    """One process for each spec, at the same time; what they answer. RuntimeError with the last words of one that fails."""
    running = []
    for index, spec in enumerate(specs):
        answer, log = folder / f"{label}-{index}.json", folder / f"{label}-{index}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", module, name, json.dumps(spec), str(answer)],
                cwd=REPOSITORY,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        running.append((process, answer, log))
    answers = []
    for process, answer, log in running:
        if process.wait(_TIMEOUT_S):
            raise RuntimeError(f"{name} failed:\n{log.read_text()[-2000:]}")
        answers.append(json.loads(answer.read_text()))
    return answers


def main(sides: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    result = sides[sys.argv[1]](json.loads(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(result))


def environment(spec: Mapping[str, Any]) -> Any:
    """Penstock's side: parallelism 2, a checkpoint with every epoch, and `batch` records in it."""
    from penstock.common import Configuration
    from penstock.datastream import StreamExecutionEnvironment

    config = Configuration()
    for key, value in {
        "penstock.execution.mode": spec.get("runtime", "epochs"),
        "penstock.job.dir": tempfile.mkdtemp(prefix="penstock-bench-"),
        "execution.checkpointing.interval": "0 ms",
        "penstock.epoch.interval": "1 ms",
        "penstock.epoch.max-records": str(spec["batch"]),
        "penstock.block.size": "20000",
        "spark.master": "local[2,4]",
        "penstock.spark.log-level": "OFF",
    }.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    return env


def steady(reports: Sequence[Any], parallelism: int) -> dict[str, Any]:
    """A job's rate and profile without its first epoch, which starts the slots: the plain loops' rates do not contain their
    start either. Commits that run beside the next epoch are inside the time that is measured, the last one too."""
    with_records = [report for report in reports if report.records_in]
    measured = with_records[1:]
    epochs = len(measured)
    return {
        "records": sum(report.records_in for report in measured),
        "seconds": (reports[-1].wall_ms - with_records[0].wall_ms) / 1000,
        "epochs": epochs,
        "profile": {
            "epoch_ms": sum(r.duration_ms for r in measured) / epochs,
            "commit_ms": sum(r.commit_ms for r in reports if r.wall_ms > with_records[0].wall_ms) / epochs,
            "manifest_ms": sum(r.manifest_ms for r in measured) / epochs,
            "busy_ms_per_subtask": sum(v["busy_ms"] for r in measured for v in r.vertices) / epochs / parallelism,
        },
    }
