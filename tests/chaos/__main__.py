"""`make chaos`: many runs with many kills, and a table. RUNS, KILLS and RECORDS in the environment change the volume, MODES
which of `epochs` and `pipelined` are run, in turn, KINDS what is killed, and STANDALONE=1 has them on a cluster of processes.
Half an hour as it is, so that a night holds it beside the other long runs. The last table: benchmarks/results/chaos.md."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.cluster.standalone import standalone_cluster
from tests.chaos.run import KINDS, PIPELINED_KINDS, run


def main() -> int:
    runs, kills = int(os.environ.get("RUNS", "10")), int(os.environ.get("KILLS", "5"))
    records = int(os.environ.get("RECORDS", "1000000"))
    modes = os.environ.get("MODES", "epochs pipelined").split()
    standalone = bool(os.environ.get("STANDALONE"))
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
        chosen = os.environ.get("KINDS", " ".join(PIPELINED_KINDS if pipelined else KINDS)).split()
        kinds = random.Random(seed).choices(chosen, k=kills)
        local = "local-cluster[2,4,1024]" if pipelined else "local-cluster[2,1,1024]"
        with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as folder, contextlib.ExitStack() as made:
            if standalone:
                cluster = made.enter_context(
                    standalone_cluster(Path(folder) / "cluster", workers=5 if pipelined else 2)
                )
            try:
                outcome = run(
                    Path(folder) / "run",
                    master=cluster.address if standalone else local,
                    kinds=kinds,
                    records=records,
                    epoch_records=max(1000, records // (kills * 20)),
                    seed=seed,
                    options={"spark.executor.memory": "768m"} | ({"spark.executor.cores": "1"} if standalone else {}),
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
