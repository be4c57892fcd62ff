"""`python -m benchmarks.asynchronous_snapshots`: throughput with a store that takes 2 s for a file, against a fast one.

A keyed count over generated records on the embedded runtime, in real time, with a checkpoint every second of which each
snapshot is far above the inline threshold. Slow and fast runs alternate; the median of each counts. A third line shows what
the slow store costs when epochs wait for it (`penstock.checkpoint.asynchronous: false`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from penstock.checkpoint.storage import LocalStorage, Storage
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.job_master import JobMaster
from penstock.testing import EmbeddedJob, ListSink

RESULTS = Path(__file__).parent / "results" / "asynchronous_snapshots.json"
KEYS = 20_000


class SlowStorage:
    """Every state file takes `delay_s` more; all else is as fast as it was."""

    def __init__(self, inner: Storage, delay_s: float) -> None:
        self._inner, self._delay_s = inner, delay_s
        self.uploads = 0

    def put_new(self, path: str, data: bytes) -> bool:
        if path.endswith(".state"):
            self.uploads += 1
            time.sleep(self._delay_s)
        return self._inner.put_new(path, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Discard(ListSink):
    """Output is not what is measured."""


def run(records: int, delay_s: float, *, asynchronous: bool, folder: str) -> dict[str, float]:
    config = {
        "penstock.runtime": "embedded",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": folder,
        "penstock.epoch.max-records": "20000",
        "penstock.checkpoint.asynchronous": str(asynchronous).lower(),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(config))
    env.set_parallelism(1)
    source = DataGeneratorSource(lambda i: (i * 7919) % KEYS, records)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    totals = numbers.map(lambda key: (key, 1)).key_by(lambda r: r[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    totals.filter(lambda r: False).sink_to(Discard("bench"))
    job = env._describe("asynchronous snapshots")
    storage = SlowStorage(LocalStorage(tempfile.mkdtemp(dir=folder)), delay_s)
    master = JobMaster(job, cast(Storage, storage))
    done: list[tuple[float, int]] = []
    master.on_report = lambda report: done.append((time.perf_counter(), report.records_in))
    started = time.perf_counter()
    EmbeddedJob(job, master).run()
    # The last epoch waits for its checkpoint, which an epoch of a streaming job never does: counted up to the one before.
    seconds, counted = done[-2][0] - started, sum(records_in for _, records_in in done[:-1])
    return {"records_per_s": counted / seconds, "uploads": storage.uploads}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.asynchronous_snapshots", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay", type=float, default=2.0, help="seconds a state file takes in the slow store")
    parser.add_argument("--no-write", action="store_true", help="only print")
    args = parser.parse_args(argv)
    fast, slow = [], []
    with tempfile.TemporaryDirectory(prefix="penstock-async-bench-") as folder:
        for _ in range(args.rounds):
            fast.append(run(args.records, 0.0, asynchronous=True, folder=folder))
            slow.append(run(args.records, args.delay, asynchronous=True, folder=folder))
        waiting = run(args.records // 8, args.delay, asynchronous=False, folder=folder)
    rates = [statistics.median(part["records_per_s"] for part in parts) for parts in (fast, slow)]
    report = {
        "records": args.records,
        "delay_s": args.delay,
        "fast_store_records_per_s": round(rates[0]),
        "slow_store_records_per_s": round(rates[1]),
        "slow_uploads": slow[0]["uploads"],
        "ratio": round(rates[1] / rates[0], 3),
        "slow_store_waited_for_records_per_s": round(waiting["records_per_s"]),
    }
    print(json.dumps(report, indent=1))
    if not args.no_write:
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if report["ratio"] >= 0.85 else 1


if __name__ == "__main__":
    sys.exit(main())
