"""`make hosts`: see the package's own words."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path

from tests.hosts.cluster import cluster
from tests.hosts.scenarios import RATE, RECORDS, SCENARIOS, Result

_HEADINGS = (
    "scenario", "what happened", "known by", "recovery s", "longest pause s", "job restarts", "restored subtasks",
    "records", "windows", "lost", "duplicated", "seconds",
)  # fmt: skip


def _row(result: Result) -> list[str]:
    return [
        result.scenario, result.fault, result.proof, f"{result.recovery_s:.1f}", f"{result.longest_pause_s:.1f}",
        str(result.restarts), str(result.restored_tasks), f"{result.records:,}", f"{result.windows:,}", "0", "0",
        f"{result.seconds:.0f}",
    ]  # fmt: skip


def table(results: list[Result]) -> str:
    lines = [_HEADINGS, ["---"] * len(_HEADINGS), *map(_row, results)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.hosts")
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)}; all of them if none is named")
    parser.add_argument("--mode", choices=("epochs", "pipelined"), default="epochs", help="how the job is run")
    parser.add_argument("--write", type=Path, help="keep the table in this file")
    parser.add_argument(
        "--results", type=Path, help="results of earlier runs, to which this one's are added (JSON lines)"
    )
    parser.add_argument("--keep", type=Path, help="keep logs and output in this folder")
    args = parser.parse_args(argv)
    unknown = [name for name in args.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # hosts are removed whatever ends this process
    failed = []
    results = _earlier(args.results)
    with tempfile.TemporaryDirectory(prefix="penstock-hosts-") as temporary:
        folder = args.keep or Path(temporary)
        with cluster(folder / "cluster", args.mode) as made:
            for number, name in enumerate(args.scenarios or SCENARIOS):
                if number:
                    made.as_new()
                try:
                    result = SCENARIOS[name](made, folder / name)
                except AssertionError as error:
                    failed.append(name)
                    print(f"{name} FAILED: {traceback.format_exc()[-1500:]}\n{str(error)[-6000:]}", flush=True)
                    continue
                results = [*(r for r in results if r.scenario != name), result]
                print(
                    f"{name}: exact, recovery {result.recovery_s:.1f} s, {result.seconds:.0f} s: {result.proof}",
                    flush=True,
                )
                if args.results is not None:
                    args.results.write_text("".join(json.dumps(asdict(r)) + "\n" for r in results))
    order = list(SCENARIOS)
    shown = table(sorted(results, key=lambda r: order.index(r.scenario)))
    print(f"\n{RECORDS:,} records a job, {RATE:,}/s, parallelism 2, {args.mode}\n\n{shown}\n")
    if args.write is not None and not failed:
        args.write.write_text(f"{shown}\n")
    print(f"{len(args.scenarios or SCENARIOS) - len(failed)} passed, {len(failed)} failed: {' '.join(failed)}")
    return 1 if failed else 0


def _earlier(path: Path | None) -> list[Result]:
    if path is None or not path.exists():
        return []
    return [Result(**json.loads(line)) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
