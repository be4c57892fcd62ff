"""`python -m benchmarks.state_backend`: RocksDB with many keys: memory, cost of a checkpoint, time to recover.

The state of one keyed operator in two subtasks, each a process of its own (2 cores), without Spark: the same tables,
overlay, snapshot files and storage that slots use. For each size of the state:

* fill: every key is written once, in epochs of 100,000 keys, each folded into RocksDB;
* full: one full snapshot, streamed to storage in parts;
* delta: 10,000 changed keys over both subtasks; the epoch's fold, encode and store, the median of 5;
* recover: a new, empty database is restored from those files, and read.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from penstock.checkpoint.manifest import FileState, StateHandle, TaskState
from penstock.checkpoint.restore import contents_for, encode_contents
from penstock.checkpoint.storage import LocalStorage
from penstock.checkpoint.store import CheckpointStore
from penstock.protocol.input_facts import Lineage
from penstock.state.backend import OperatorState
from penstock.state.backends import MIB, RocksDBSettings
from penstock.state.rocksdb import RocksDBKeyspace
from penstock.state.snapshot import SnapshotContents, grouped

SUBTASKS = 2
CHANGED = 10_000
ROUNDS = 5
EPOCH = 100_000
PART = 100_000
RESULTS = Path(__file__).parent / "results" / "state_backend.json"
PLOT = Path(__file__).parent / "results" / "state_backend.svg"


class PeakMemory:
    """The largest resident size of this process while it is watched."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self.peak = self._process.memory_info().rss

    def __enter__(self) -> PeakMemory:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def mib(self) -> int:
        return self.peak // MIB


def subtask(number: int, keys: int, memory: int, work: Path) -> dict[str, Any]:
    """One subtask with `keys` keys of its own; keys are its numbers, values are what a count and a sum would be."""
    settings = RocksDBSettings(memory_bytes=memory, local_dirs=(str(work),))
    store = CheckpointStore(LocalStorage(work / f"job-{number}"), 1)
    keyspace = RocksDBKeyspace(128, settings, lambda: work)
    state = OperatorState("op", 128, keyspace)
    table = state.table("counts", "value")
    rng = random.Random(number)
    out: dict[str, Any] = {"keys": keys}
    with PeakMemory() as memory_used:
        started = time.perf_counter()
        for first in range(0, keys, EPOCH):
            for key in range(first, min(first + EPOCH, keys)):
                table.put(key * SUBTASKS + number, (key, 0.5))
            state.fold(checkpointed=True)
        out["fill_s"] = time.perf_counter() - started

        handles: list[StateHandle] = []
        started = time.perf_counter()
        for index, tables in enumerate(grouped(state.freeze(PART), PART)):
            data = encode_contents(SnapshotContents(tables=tables, gate=None))
            handles.append(store.write_state(1, f"op-{number}-full{index}.state", data))
        out["full_s"] = time.perf_counter() - started
        out["full_bytes"] = sum(handle.size for handle in handles if isinstance(handle, FileState))

        deltas, sizes = [], []
        for round_ in range(ROUNDS):
            for key in rng.sample(range(keys), CHANGED // SUBTASKS):
                entry = key * SUBTASKS + number
                count, total = table.get(entry)
                table.put(entry, (count + 1, total + 0.5))
            started = time.perf_counter()
            data = encode_contents(SnapshotContents(tables=state.snapshot(full=False), gate=None))
            handles.append(store.write_state(2 + round_, f"op-{number}-delta{round_}.state", data))
            state.fold(checkpointed=True)
            deltas.append(time.perf_counter() - started)
            sizes.append(len(data))
        out["delta_s"], out["delta_bytes"] = statistics.median(deltas), statistics.median(sizes)
    out["peak_mib"] = memory_used.mib
    keyspace.close()

    with PeakMemory() as memory_used:
        started = time.perf_counter()
        keyspace = RocksDBKeyspace(128, settings, lambda: work)
        state = OperatorState("op", 128, keyspace)
        task = TaskState(vertex="op", subtask=0, parallelism=1, handles=tuple(handles))
        for contents in contents_for(
            _manifest(task),
            state_id="op",
            operators=["op"],
            subtask=0,
            parallelism=1,
            lineage=Lineage(fingerprint="", sources=frozenset()),
            read=store.read_state,
        ):
            for delta in contents.tables:
                state.restore(delta, range(128))
        state.restored()
        out["recover_s"] = time.perf_counter() - started
    out["recover_peak_mib"] = memory_used.mib
    table = state.table("counts", "value")
    for key in rng.sample(range(keys), 1000):
        count, total = table.get(key * SUBTASKS + number)
        assert count >= key
        assert total >= 0.5
    keyspace.close()
    return out


def _manifest(task: TaskState) -> Any:
    class OneTask:
        checkpoint_id = 1
        tasks = (task,)

    return OneTask()


def measure(keys: int, memory: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-state-bench-") as folder:
        command = [sys.executable, "-m", "benchmarks.state_backend", "--memory", str(memory), "--work", folder]
        running = [
            subprocess.Popen([*command, "--subtask", str(n), "--keys", str(keys // SUBTASKS)], stdout=subprocess.PIPE)
            for n in range(SUBTASKS)
        ]
        parts = []
        for process in running:
            output, _ = process.communicate(timeout=840)
            if process.returncode:
                raise SystemExit(f"subtask ended with status {process.returncode}")
            parts.append(json.loads(output))
    longest = {name: max(part[name] for part in parts) for name in ("fill_s", "full_s", "delta_s", "recover_s")}
    total = {name: sum(part[name] for part in parts) for name in ("full_bytes", "delta_bytes")}
    peaks = {name: max(part[name] for part in parts) for name in ("peak_mib", "recover_peak_mib")}
    return {"keys": keys, **longest, **total, **peaks}


def plot(lines: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    keys = [line["keys"] for line in lines]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for axis, delta, full, title in (
        (
            axes[0],
            [line["delta_bytes"] / 1e6 for line in lines],
            [line["full_bytes"] / 1e6 for line in lines],
            "size, MB",
        ),
        (axes[1], [line["delta_s"] for line in lines], [line["full_s"] for line in lines], "duration, s"),
    ):
        axis.plot(keys, full, "o--", color="0.6", label="full snapshot")
        axis.plot(keys, delta, "o-", color="tab:blue", label=f"checkpoint of {CHANGED:,} changed keys")
        axis.set(xscale="log", yscale="log", xlabel="keys of state", title=title)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(PLOT)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state_backend", description=__doc__.split("\n")[0])
    parser.add_argument("--millions", default="0.1,1,10", help="keys of state, as in 0.1,1,10")
    parser.add_argument("--memory", type=int, default=128 * MIB, help="RocksDB's cache and buffers, bytes per subtask")
    parser.add_argument("--no-write", action="store_true", help="only print")
    parser.add_argument("--subtask", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.subtask is not None:
        print(json.dumps(subtask(args.subtask, args.keys, args.memory, args.work)))
        return 0
    known = {} if args.no_write or not RESULTS.exists() else json.loads(RESULTS.read_text())["sizes"]
    for millions in args.millions.split(","):
        line = measure(int(float(millions) * 1e6), args.memory)
        known[millions] = line
        print(
            f"{line['keys']:>12,} keys: fill {line['fill_s']:.1f} s, full {line['full_s']:.1f} s "
            f"{line['full_bytes'] / 1e6:.1f} MB, delta {line['delta_s'] * 1000:.0f} ms {line['delta_bytes'] / 1e3:.0f} kB, "
            f"recover {line['recover_s']:.1f} s, resident {line['peak_mib']} MiB a subtask "
            f"({line['recover_peak_mib']} MiB in recovery)",
            flush=True,
        )
        if not args.no_write:
            report = {"subtasks": SUBTASKS, "changed": CHANGED, "rocksdb_memory_bytes": args.memory, "sizes": known}
            RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    if not args.no_write:
        plot(sorted(known.values(), key=lambda line: int(line["keys"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
