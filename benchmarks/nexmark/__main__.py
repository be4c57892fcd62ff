"""`python -m benchmarks.nexmark [--only q5,q11] [--modes pipelined,flink-sql] [--events 4000000]`: a table in benchmarks/results.

Modes are ours and other systems. `--rate 20000` measures our latency at a fixed rate instead. Answers are compared with DuckDB's; a
wrong one fails. What was found is kept at once and the table made of all that was: a run may be cut into pieces.
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

from benchmarks.nexmark.peers import PEERS, Peer, measure
from benchmarks.nexmark.queries import NAMES

REPOSITORY: Final = Path(__file__).parents[2]
RESULTS: Final = REPOSITORY / "benchmarks" / "results"
OURS: Final = ("pipelined", "epochs")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description=__doc__)
    parser.add_argument("--only", default=",".join(NAMES), help="names of queries, separated by commas")
    parser.add_argument("--modes", default=",".join(OURS), help=f"of pipelined, epochs, embedded, {', '.join(PEERS)}")
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--cache", help="a folder for the events, for further runs over the same")
    parser.add_argument("--small", type=int, default=100_000, help="events of the run whose answer is checked")
    parser.add_argument("--rate", type=int, help="events a second, for latency")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=30.0)
    arguments = parser.parse_args()
    if arguments.rate:
        spec = {"rate": arguments.rate, "seconds": arguments.seconds, "warm_up": arguments.warm_up}
    else:
        spec = {"events": arguments.events, "small": arguments.small}
    name = "nexmark-latency" if arguments.rate else "nexmark"
    console, wrong = Console(), False
    with tempfile.TemporaryDirectory(prefix="penstock-nexmark-") as cache:
        for query in arguments.only.split(","):
            for mode in arguments.modes.split(","):
                result = _run({**spec, "query": query, "mode": mode, "cache": arguments.cache or cache})
                wrong = wrong or bool(result.get("wrong"))
                console.print(line(result), highlight=False, soft_wrap=True)
                write(name, [*(row for row in load(name) if (row["query"], row["mode"]) != (query, mode)), result])
    return 1 if wrong else 0


def _run(spec: dict[str, Any]) -> dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="penstock-nexmark-run-")
    try:
        if spec["mode"] in PEERS:
            return measure(spec["mode"], spec["query"], spec["events"], Path(spec["cache"]), Path(folder))
        with (Path(folder) / "log").open("wb") as log:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.nexmark.run", json.dumps({**spec, "folder": folder})],
                cwd=REPOSITORY,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=1800,
                check=False,
            )
        if done.returncode:
            raise RuntimeError((Path(folder) / "log").read_text()[-3000:])
        found: dict[str, Any] = json.loads((Path(folder) / "run.json").read_text())
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def load(name: str, folder: Path = RESULTS) -> list[dict[str, Any]]:
    """What earlier runs found."""
    path = folder / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(name: str, results: list[dict[str, Any]], folder: Path = RESULTS) -> None:
    """Both files: for the next run, and for people."""
    modes = [*OURS, *PEERS, "embedded"]
    results = sorted(results, key=lambda row: (NAMES.index(row["query"]), modes.index(row["mode"])))
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    text = latency_page(results) if name == "nexmark-latency" else page(results)
    (folder / f"{name}.md").write_text(text)


def latency_page(results: list[dict[str, Any]]) -> str:
    """How long after its event each result came."""
    header = ["| query | mode | p50 | p90 | p99 | max | cores |", "| --- | --- | --- | --- | --- | --- | --- |"]
    about = f"`make bench-nexmark` with `--rate`, milliseconds. {_ABOUT}"
    return "\n".join(["# Nexmark: latency", "", about, "", *header, *map(line, results), ""])


_ABOUT: Final = """\
Two cores, two subtasks of each thing, an exactly-once checkpoint every second (Spark: with each micro-batch). `others` are
programs that are not part of the run, in cores: above 0.2 the machine was busy."""

_METHOD: Final = f"""\
`make bench-nexmark`. {_ABOUT}

Events per second, of the streams that a query reads, from Parquet files to a sink that drops everything. A short and a long run of
one process are compared: the rate is of the events that the long one has more, over the time that it took longer. The answer over a
small site was compared with DuckDB's: a wrong one has no rate. `×` is Penstock, pipelined, by the system before it: below 1 we are
slower. Flink SQL runs on the JVM, without Python, with mini-batches of aggregates and objects reused; PyFlink's DataStream API in
Python processes, with functions over events, over 200,000 of them; Spark in micro-batches of 0.4 million
events, on the JVM, with RocksDB. Ours is the DataStream API in Python: columns where a question is one of columns, else functions
for each event."""


def page(results: list[dict[str, Any]]) -> str:
    """A line for each query, with the systems beside each other; then each run."""
    found = {(row["query"], row["mode"]): row for row in results}
    peers = [cell for peer in PEERS.values() for cell in (peer.title, "×")]
    table = [("query", *OURS, *peers), ("---",) * (1 + len(OURS) + len(peers))]
    for query in NAMES:
        if any((query, mode) in found for mode in (*OURS, *PEERS)):
            ours = found.get((query, "pipelined"), {}).get("rate")
            cells = [query, *(_rate(found.get((query, mode), {})) for mode in OURS)]
            for peer in PEERS:
                theirs = found.get((query, peer), {})
                right = ours and "rate" in theirs and not theirs.get("wrong")
                cells += [_rate(theirs), f"{ours / theirs['rate']:.2f}" if right else ""]
            table.append(tuple(cells))
    lines = ["| " + " | ".join(cells) + " |" for cells in table]
    reasons = [
        f"* {peer.title}, {', '.join(of)}: {why}." for peer in PEERS.values() for why, of in _reasons(peer).items()
    ]
    header = ["| query | mode | events/s | start-up s | cores |", "| --- | --- | --- | --- | --- |"]
    text = ["# Nexmark", "", _METHOD, "", *lines, "", "Not asked:", "", *reasons, "", "## Each run", ""]
    return "\n".join([*text, *header, *map(line, results), ""])


def _reasons(peer: Peer) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for query, why in peer.absent.items():
        reasons.setdefault(why, []).append(query)
    return reasons


def _rate(row: dict[str, Any]) -> str:
    if row.get("wrong"):
        return "wrong"
    return f"{row['rate']:,.0f}" if "rate" in row else "–"


def line(result: dict[str, Any]) -> str:
    """A row of the table of runs."""
    begin = f"| {result['query']} | {result['mode']} |"
    for why in ("skipped", "wrong"):
        if result.get(why):
            return f"{begin} {why}: {' '.join(str(result[why]).split())[-300:]} | | |"
    cores = ", ".join(f"{kind} {used:.2f}" for kind, used in result["cores"].items())
    if "p50" in result:
        figures = " | ".join(f"{result[p]:.1f}" for p in ("p50", "p90", "p99", "max"))
    else:
        figures = f"{result['rate']:,.0f} | {result['start_up_s']:.1f}"
    return f"{begin} {figures} | {cores} |"


if __name__ == "__main__":
    sys.exit(main())
