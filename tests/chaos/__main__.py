"""`make chaos`: many runs with many kills, and a table. RUNS, KILLS and RECORDS in the environment change the volume, and MODES
which of `epochs` and `pipelined` are run, in turn.
Half an hour as it is, so that a night holds it beside the other long runs. The last table: benchmarks/results/chaos.md."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.run import KINDS, PIPELINED_KINDS, run


def main() -> int:
    runs, kills = int(os.environ.get("RUNS", "10")), int(os.environ.get("KILLS", "5"))
    records = int(os.environ.get("RECORDS", "1000000"))
    modes = os.environ.get("MODES", "epochs pipelined").split()
    console = Console()
    table = Table(title=f"{runs} runs × {kills} kills × {records:,} records")
    for heading in (
        "run",
        "mode",
        "kills",
        "recovery s",
        "restored",
        "job restarts",
        "records",
        "windows",
        "late",
        "seconds",
        "exact",
    ):
        table.add_column(heading)
    failed = 0
    for number in range(runs):
        seed = int(time.time()) + number
        mode = modes[number % len(modes)]
        pipelined = mode == "pipelined"
        kinds = random.Random(seed).choices(PIPELINED_KINDS if pipelined else KINDS, k=kills)
        with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as folder:
            try:
                outcome = run(
                    Path(folder),
                    master="local-cluster[2,4,1024]" if pipelined else "local-cluster[2,1,1024]",
                    kinds=kinds,
                    records=records,
                    epoch_records=max(1000, records // (kills * 20)),
                    seed=seed,
                    options={"spark.executor.memory": "768m"},
                    timeout=900,
                    mode=mode,
                    rate=max(1000, records // (kills * 12)) if pipelined else None,  # it lasts as long as the kills
                )
            except AssertionError as error:
                failed += 1
                console.print(f"[red]run {number} (seed {seed}, {kinds}) failed:[/] {str(error)[:3000]}")
                table.add_row(str(number), mode, " ".join(kinds), "", "", "", "", "", "", "", "[red]no[/]")
                continue
        recovery = " ".join(f"{kill.recovery_s:.1f}" for kill in outcome.kills)
        counts = outcome.counts
        table.add_row(
            str(number), mode, " ".join(kinds), recovery, str(outcome.restored_tasks), str(outcome.job_restarts),
            f"{counts['records']:,}", f"{counts['windows']:,}", str(counts["late"]), f"{outcome.seconds:.0f}", "yes",
        )  # fmt: skip
        console.print(
            f"run {number} ({mode}): {' '.join(kinds)}: exact, recovery {recovery} s, {outcome.seconds:.0f} s"
        )
    console.print(table)
    console.print(f"{runs - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
