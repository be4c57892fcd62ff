"""`python -m benchmarks.postgres [--records N]`: rows into a table, by hand and by Penstock, in turns against one server."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import sides
from benchmarks.postgres.sides import APPENDED, UPSERTED
from tests.servers.postgres import PostgresServer

RESULTS = sides.REPOSITORY / "benchmarks" / "results" / "postgres.md"
_MEASURED = "<!-- below: by hand -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Competitor:
    title: str
    side: str
    upsert: bool
    base: bool = False  # what the others of its kind are compared with


COMPETITORS = (
    Competitor(title="append: plain COPY loop", side="copy", upsert=False, base=True),
    Competitor(title="append: Penstock, exactly once, parallelism 2", side="penstock", upsert=False),
    Competitor(title="upsert: plain loop, COPY and INSERT … ON CONFLICT", side="merge", upsert=True, base=True),
    Competitor(title="upsert: plain loop, executemany", side="executemany", upsert=True),
    Competitor(title="upsert: Penstock, exactly once, parallelism 2", side="penstock", upsert=True),
)


class Bench:
    def __init__(self, folder: Path, records: int, epochs: int) -> None:
        self.folder, self.records, self.epochs = folder, records, epochs
        self.server = PostgresServer()
        self.server.start()

    def run(self, competitor: Competitor, number: int) -> dict[str, Any]:
        """All rows through one competitor into a table of its own, counted afterwards."""
        table = f"t_{competitor.side}_{'up' if competitor.upsert else 'app'}_{number}"
        self.server.sql((UPSERTED if competitor.upsert else APPENDED).format(table))
        # Upserts cost the server several times as much, and half of them find their row there.
        records = self.records // 2 if competitor.upsert else self.records
        keys = records // 2 if competitor.upsert else records
        spec = {
            "conninfo": self.server.conninfo,
            "table": table,
            "records": records,
            "batch": records // self.epochs,
            "keys": keys,
            "upsert": competitor.upsert,
        }
        (answer,) = sides.run("benchmarks.postgres.sides", competitor.side, [spec], self.folder, table)
        ((rows, distinct, newest),) = self.server.sql(f"select count(*), count(distinct id), max(amount) from {table}")
        exact = (rows, distinct, newest) == (keys, keys, records - 1)
        self.server.sql(f"drop table {table}")
        return {**answer, "rate": answer["records"] / answer["seconds"], "exact": exact}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    parser.add_argument("--records", type=int, default=1_600_000, help="to append; half as many are upserted")
    parser.add_argument("--epochs", type=int, default=8, help="epochs or transactions of a run")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    results: dict[Competitor, list[dict[str, Any]]] = {competitor: [] for competitor in COMPETITORS}
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-bench-") as folder:
        bench = Bench(Path(folder), args.records, args.epochs)
        try:
            for number in range(args.rounds):
                for competitor in COMPETITORS:
                    result = bench.run(competitor, number)
                    results[competitor].append(result)
                    print(f"round {number + 1}: {competitor.title}: {result['rate']:,.0f} rows/s", flush=True)
        finally:
            bench.server.remove()
    lines = []
    bases = {c.upsert: results[c] for c in COMPETITORS if c.base}
    for competitor, runs in results.items():
        ratios = [run["rate"] / base["rate"] for run, base in zip(runs, bases[competitor.upsert], strict=True)]
        profile = ", ".join(f"{key} {value:.0f}" for key, value in runs[-1].get("profile", {}).items())
        lines.append(
            f"| {competitor.title} | {statistics.median(run['rate'] for run in runs):,.0f} | {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f}–{max(ratios):.2f}) | {'yes' if all(run['exact'] for run in runs) else 'NO'} | {profile} |"
        )
    table = (
        f"# Rows into PostgreSQL\n\n{args.records:,} rows of about 90 bytes appended, half as many upserted, in {args.epochs} "
        f"epochs or transactions; {args.rounds} rounds in turns, {os.cpu_count()} cores shared with the server. Medians; rates "
        "without the first epoch or transaction. Half of the upserts replace a row.\n\n"
        "| | rows/s | against the plain loop (least–most) | all there, once | ms an epoch |\n"
        "| --- | --- | --- | --- | --- |\n"
    )
    table += "\n".join(lines) + "\n"
    print(table)
    # What was written about the measurement by hand stays below it, to be brought up to date.
    old = RESULTS.read_text().partition(_MEASURED)[2] if RESULTS.exists() else "\n"
    RESULTS.write_text(f"{table}\n{_MEASURED}{old}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
