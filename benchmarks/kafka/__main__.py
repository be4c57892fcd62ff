"""`python -m benchmarks.kafka [--records N]`: Kafka → map → Kafka, all competitors in one run against one broker."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import sides
from tests.servers.kafka import KafkaServer
from tests.servers.topics import Topics

PARTITIONS = 4
RESULTS = sides.REPOSITORY / "benchmarks" / "results" / "kafka.md"


class Bench:
    def __init__(self, folder: Path, records: int, batch: int) -> None:
        self.folder, self.records, self.batch = folder, records, batch
        self.server = KafkaServer(folder / "broker")
        self.server.start()
        self.topics = Topics(self.server.bootstrap_servers)
        self.input = self.topics.create(PARTITIONS, prefix="in")
        payload = "x" * 80
        for partition in range(PARTITIONS):
            self.topics.write(
                self.input,
                (f"user-{n % 1000}|{n}|{payload}".encode() for n in range(partition, records, PARTITIONS)),
                partition=partition,
                key=lambda value: value.partition(b"|")[0],
            )

    def run(self, name: str, *, processes: int = 1, **more: Any) -> dict[str, Any]:
        """All records through one competitor, checked by an independent reader."""
        output = self.topics.create(PARTITIONS, prefix=f"out-{name}")
        started, specs = time.monotonic(), []
        for index in range(processes):
            mine = list(range(index, PARTITIONS, processes))
            spec = {
                "servers": self.server.bootstrap_servers,
                "input": self.input,
                "output": output,
                "partitions": mine,
                "records": sum(len(range(n, self.records, PARTITIONS)) for n in mine),
                "batch": self.batch,
                **more,
            }
            specs.append(spec)
        answers = sides.run("benchmarks.kafka.sides", name, specs, self.folder, output)
        found = len(self.topics.values(output))
        rate = sum(answer["records"] for answer in answers) / max(answer["seconds"] for answer in answers)
        return {**answers[0], "rate": rate, "found": found, "whole_s": time.monotonic() - started}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=200_000, help="records of an epoch, a transaction, a trigger")
    parser.add_argument("--only", default="", help="a regular expression for the competitors' names")
    args = parser.parse_args()
    competitors: list[tuple[str, dict[str, Any]]] = [
        ("plain loop, transactional", {"name": "plain", "transactional": True}),
        ("plain loop, at least once", {"name": "plain", "transactional": False}),
        ("two plain loops, transactional", {"name": "plain", "transactional": True, "processes": 2}),
        ("Penstock, exactly once, parallelism 2", {"name": "penstock", "guarantee": "exactly-once"}),
        ("Penstock, at least once, parallelism 2", {"name": "penstock", "guarantee": "at-least-once"}),
        ("Spark's connector, at least once, local[2]", {"name": "spark"}),
    ]
    lines = []
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-bench-") as folder:
        bench = Bench(Path(folder), args.records, args.batch)
        base: float | None = None
        try:
            for title, options in competitors:
                if not re.search(args.only, title):
                    continue
                try:
                    result = bench.run(**options)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{title}: could not be run: {str(error)[-1500:]}", flush=True)
                    lines.append(f"| {title} | could not be run here | | |")
                    continue
                base = base or result["rate"]
                exact = "yes" if result["found"] == args.records else f"no: {result['found']:,}"
                profile = ", ".join(f"{key} {value:.0f}" for key, value in result.get("profile", {}).items())
                lines.append(f"| {title} | {result['rate']:,.0f} | {result['rate'] / base:.2f} | {exact} | {profile} |")
                print(lines[-1], flush=True)
        finally:
            bench.server.stop()
    if not args.only:
        head = f"# Kafka → map → Kafka\n\n{args.records:,} records of about 100 bytes, {PARTITIONS} partitions, "
        head += f"{args.batch:,} records an "
        head += (
            f"epoch or transaction, {os.cpu_count()} cores shared with the broker, one run. Rates without start-up.\n\n"
        )
        head += "| | records/s | against the first line | all there, once | ms an epoch |\n| --- | --- | --- | --- | --- |\n"
        RESULTS.write_text(head + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
