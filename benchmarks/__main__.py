"""`python -m benchmarks [--quick] [--only 1,3] [--rounds 2]`: all measurements, one table."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.dataset import Dataset
from benchmarks.suite import Suite


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200,000 events and 30 empty epochs: does it run at all?")
    parser.add_argument("--only", default="1,2,3,4,5", help="which measurements, as in 1,3")
    parser.add_argument("--rounds", type=int, default=2, help="how often each competitor runs (the median counts)")
    parser.add_argument("--keep", action="store_true", help="keep the competitors' folders: logs, outputs, checkpoints")
    args = parser.parse_args(argv)
    console = Console()
    work = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    suite = Suite(
        work=work,
        dataset=Dataset(events=200_000) if args.quick else Dataset(),
        rounds=1 if args.quick else args.rounds,
        empty_warm_up=10 if args.quick else 40,
        empty_epochs=20 if args.quick else 100,
        say=lambda text: console.print(text, highlight=False),
    )
    try:
        results = suite.run(set(args.only.split(",")))
    finally:
        if args.keep:
            console.print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    report.show(results, console)
    if args.quick:
        console.print("A quick run shows that it works; its numbers mean nothing and are not written.")
    else:
        report.write(results, {"only": args.only, "rounds": args.rounds})
    return 0 if all(line.ok is not False for line in results.lines) else 1


if __name__ == "__main__":
    sys.exit(main())
