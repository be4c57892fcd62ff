"""`python -m benchmarks.latency [--quick] [--only PyFlink]`: one table and one plot, written to benchmarks/results.

What was found is kept after each run and the table made of all that was: a run may be cut into pieces.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.environments import NotToBeHadError, interpreter

REPOSITORY: Final = Path(__file__).parents[2]
RESULTS: Final = REPOSITORY / "benchmarks" / "results"

# (label, module, spec)
_JOB: Final = "benchmarks.latency.penstock_job"
_PYFLINK: Final = "benchmarks.latency.pyflink_job"
RUNS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "pipelined, 20,000/s": (_JOB, {"mode": "pipelined", "rate": 20_000}),
    "pipelined, 2,000/s": (_JOB, {"mode": "pipelined", "rate": 2_000}),
    "pipelined, 100,000/s": (_JOB, {"mode": "pipelined", "rate": 100_000}),
    "pipelined, 200,000/s": (_JOB, {"mode": "pipelined", "rate": 200_000}),
    "pipelined, 6 levels, 20,000/s": (_JOB, {"mode": "pipelined", "rate": 20_000, "levels": 6}),
    "epochs, 20,000/s": (_JOB, {"mode": "epochs", "rate": 20_000}),
    "Spark micro-batches, 20,000/s": ("benchmarks.latency.spark_job", {"rate": 20_000}),
    "PyFlink, process mode, 20,000/s": (_PYFLINK, {"mode": "process", "rate": 20_000}),
    "PyFlink, thread mode, 20,000/s": (_PYFLINK, {"mode": "thread", "rate": 20_000}),
    "PyFlink, process mode, 5,000/s": (_PYFLINK, {"mode": "process", "rate": 5_000}),
    "PyFlink, thread mode, 5,000/s": (_PYFLINK, {"mode": "thread", "rate": 5_000}),
    "PyFlink, process mode, 2,000/s": (_PYFLINK, {"mode": "process", "rate": 2_000}),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few seconds each: does it run at all? Nothing is written"
    )
    parser.add_argument("--only", default="", help="labels that contain this")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=30.0)
    arguments = parser.parse_args()
    console = Console()
    timing: dict[str, float] = {"seconds": arguments.seconds, "warm_up": arguments.warm_up}
    if arguments.quick:
        timing = {"seconds": 5, "warm_up": 3}
    for label, (module, spec) in RUNS.items():
        if arguments.only not in label:
            continue
        python = sys.executable
        if module == _PYFLINK:
            try:
                python = str(interpreter("pyflink"))
            except NotToBeHadError as error:
                console.print(f"{label}: skipped: {error}", highlight=False)
                continue
        measured = f"{timing['seconds']:.0f} s behind {timing['warm_up']:.0f} s"
        result = {**_run(module, {**spec, **timing}, python), "measured": measured}
        console.print(_line(label, result), highlight=False)
        if not arguments.quick:
            results = {**_load(), label: result}
            _write({known: results[known] for known in RUNS if known in results})
    return 0


def _run(module: str, spec: dict[str, Any], python: str) -> dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="penstock-latency-")
    try:
        with (Path(folder) / "log").open("wb") as log:
            done = subprocess.run(
                [python, "-m", module, json.dumps({**spec, "folder": folder})],
                cwd=REPOSITORY,
                env={**os.environ, "PYSPARK_PYTHON": python, "PYTHONPATH": str(REPOSITORY)},
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=900,
                check=False,
            )
        if done.returncode:
            raise RuntimeError((Path(folder) / "log").read_text()[-3000:])
        found: dict[str, Any] = json.loads((Path(folder) / "run.json").read_text())
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(label: str, result: dict[str, Any]) -> str:
    cores = ", ".join(f"{kind} {used:.2f}" for kind, used in result["cores"].items())
    figures = " | ".join(f"{result[p]:.1f}" for p in ("p50", "p90", "p99", "max"))
    return f"| {label} | {figures} | {cores} | {result['measured']} |"


def _load() -> dict[str, dict[str, Any]]:
    path = RESULTS / "latency.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _write(results: dict[str, dict[str, Any]]) -> None:
    text = [
        "# Latency, event to emitted result",
        "",
        "`make bench-latency`: two keyed stages in Python (value state, then windows of ten events of a key), parallelism",
        "2, an exactly-once checkpoint every second; milliseconds from when an event was due to when the sink function had its",
        "window's result, and cores used meanwhile. `others` are programs that are not part of the run: above 0.1 it was busy.",
        "",
        "One run each; the last column says how many seconds were measured behind how many of warm-up. Windows of ten events:",
        "one event in ten has a result and is measured. Spark's job is another, lighter one: a keyed count without Python, of",
        "which the newest event of each key and batch is measured. PyFlink, if here, runs the same job on its own cluster, from a",
        "socket, with bundles and buffers of at most 5 ms (its default bundle waits for a second); events come at the rate when",
        "its Python workers have answered for the first time. Seconds of latency mean that a system cannot keep up. The defaults",
        "of flush gap and grant interval were chosen with this job on such a machine. A JVM needs its warm-up: in the first ten",
        "seconds latencies are several times these.",
        "",
        "| run | p50 | p90 | p99 | max | cores | measured |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_line(label, result) for label, result in results.items()),
        "",
        "![Share of events by latency](latency.svg)",
        "",
    ]
    (RESULTS / "latency.md").write_text("\n".join(text))
    (RESULTS / "latency.json").write_text(json.dumps(results, indent=1))
    _plot(results)


def _plot(results: dict[str, dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4))
    for label, result in results.items():
        axis.plot(result["histogram"], range(100), label=label)
    axis.set(xscale="log", xlabel="ms from event to result", ylabel="% of events")
    axis.axvline(10, color="0.8", linestyle="--")
    axis.axvline(50, color="0.8", linestyle="--")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / "latency.svg")


if __name__ == "__main__":
    sys.exit(main())
