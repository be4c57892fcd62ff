"""`python -m benchmarks.peers [--systems penstock-pipelined,flink-sql] [--workloads W1,W3]`: rates beside other systems.

Each pair is a run of a few minutes at most, and what it found is kept at once in benchmarks/results/peers.json, from which the
table and the plot are made: a run may be cut into pieces, and pieces may be measured again. `--missing` leaves out what
has been measured on a quiet machine, `--page` only writes the page.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from benchmarks.peers import results
from benchmarks.peers.harness import measure
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.workloads import WORKLOADS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="names, separated by commas")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument(
        "--missing", action="store_true", help="only what there is no figure of, or one of a busy machine"
    )
    parser.add_argument("--page", action="store_true", help="write the page from what the results have")
    arguments = parser.parse_args()
    systems, workloads = arguments.systems.split(","), arguments.workloads.split(",")
    for given, known in ((systems, SYSTEMS), (workloads, WORKLOADS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    console, found, wrong = Console(), results.load(), False
    for workload in () if arguments.page else workloads:
        for name in systems:
            if arguments.missing and results.is_quiet(found.get(workload, {}).get(name, {})):
                continue
            found.setdefault(workload, {})[name] = row = measure(SYSTEMS[name], workload)
            wrong = wrong or "wrong" in row
            console.print(workload, results.line(found, workload, name), highlight=False, soft_wrap=True)
            results.write(found)
    results.write(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
