"""`python -m benchmarks.scale [--driver 2,64,333] [--runs 1,2,4]`: what the driver costs with so many subtasks a level, what
whole jobs cost at small parallelisms beside what the model says of them, and the model's table for larger ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.scale.model import Costs, Size, epochs, pipelined

REPOSITORY: Final = Path(__file__).parents[2]
_SIZES: Final = (
    Size(cores=2, levels=3, parallelism=2, events=20_000),
    Size(cores=24, levels=3, parallelism=8, events=1e6),
    Size(cores=192, levels=3, parallelism=64, events=5e6),
    Size(cores=1000, levels=3, parallelism=333, events=10e6),
    Size(cores=1000, levels=3, parallelism=333, events=10e6, columns=True),
    Size(cores=1000, levels=3, parallelism=64, events=10e6),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--driver", default="2,64,333", help="subtasks a level of jobs whose driver is measured")
    parser.add_argument("--runs", default="1,2,4", help="parallelisms at which a job is run on Spark")
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    for slots in filter(None, arguments.driver.split(",")):
        print(_module("benchmarks.scale.driver", {"slots": int(slots), "seconds": arguments.seconds}), flush=True)
    for parallelism in filter(None, arguments.runs.split(",")):
        print(_run(int(parallelism), arguments.seconds), flush=True)
    print("\n".join(table()))
    return 0


def table() -> list[str]:
    """The model's word on each size, in both ways of running."""
    lines = [
        "| cores, subtasks a level, events/s | gap ms | rows/s | cores for rows, when busy | cores for records | driver, cores "
        "| latency ms, at least | an epoch s, at least |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for size in _SIZES:
        p, e = pipelined(size, Costs()), epochs(size, Costs())
        kind = ", columns" if size.columns else ""
        lines.append(
            f"| {size.cores:,}, {size.parallelism}, {size.events:,.0f}{kind} | {p.gap_ms:.0f} | {p.rows:,.0f} "
            f"| {p.row_cores:.1f}, {p.row_cores_busy:.1f} | {p.record_cores:.1f} | {p.driver_cores:.2f} "
            f"| {p.latency_ms:.0f} | {e.seconds:.2f} |"
        )
    return lines


def _run(parallelism: int, seconds: float) -> str:
    with tempfile.TemporaryDirectory() as folder:
        spec = {
            "mode": "pipelined",
            "rate": 2000,
            "seconds": seconds,
            "warm_up": 15,
            "parallelism": parallelism,
            "folder": folder,
        }
        _module("benchmarks.latency.penstock_job", spec)
        found: dict[str, Any] = json.loads((Path(folder) / "run.json").read_text())
    said = pipelined(Size(cores=os.cpu_count() or 1, levels=3, parallelism=parallelism, events=2000), Costs())
    return (
        f"parallelism {parallelism}: cores {found['cores']}, p50 {found['p50']:.1f} ms; the model: rows {said.row_cores:.2f}, "
        f"records {said.record_cores:.2f}, driver {said.driver_cores:.2f} cores, p50 at least {said.latency_ms:.1f} ms"
    )


def _module(name: str, spec: dict[str, Any]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", name, json.dumps(spec)],
        cwd=REPOSITORY,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
