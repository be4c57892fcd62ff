"""The systems, what each is asked, over how many events, and what is to be known of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.environments import flink_jars, interpreter
from benchmarks.peers.workloads import as_text, one_after_the_other, side_by_side


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """`sizes`: of each workload how many events the short and the long run have; `absent`: why there is no other. `python` and
    `settings` raise NotToBeHadError where a system cannot be installed."""

    title: str
    module: str
    sizes: Mapping[str, tuple[int, int]]
    note: str
    absent: Mapping[str, str] = field(default_factory=dict)
    python: Callable[[], Path] = lambda: Path(sys.executable)
    files: Callable[[int], Path] = side_by_side
    settings: Callable[[], dict[str, Any]] = dict


def _flink(**more: Any) -> dict[str, Any]:
    return {"jars": [str(jar) for jar in flink_jars()], **more}


_M: Final = 1_000_000
_PENSTOCK: Final = {"W1": (4 * _M, 84 * _M), "W2": (4 * _M, 84 * _M), "W3": (4 * _M, 24 * _M)}
_PYFLINK: Final = {"W1": (100_000, 500_000), "W2": (100_000, 200_000), "W3": (100_000, 500_000)}

SYSTEMS: Final[Mapping[str, System]] = {
    "penstock-pipelined": System(
        title="Penstock, pipelined",
        module="benchmarks.peers.on_penstock",
        sizes=_PENSTOCK,
        settings=lambda: {"mode": "pipelined"},
        note="exactly-once checkpoint every second",
    ),
    "penstock-epochs": System(
        title="Penstock, epochs",
        module="benchmarks.peers.on_penstock",
        sizes=_PENSTOCK,
        settings=lambda: {"mode": "epochs"},
        note="exactly-once checkpoint every second",
    ),
    "flink-sql": System(
        title="Flink SQL",
        module="benchmarks.peers.on_flink_sql",
        sizes={"W1": (4 * _M, 84 * _M), "W2": (1_200_000, 8 * _M), "W3": (1_200_000, 8 * _M)},
        python=lambda: interpreter("pyflink"),
        settings=_flink,
        note="on the JVM, without Python: W1 is an expression; exactly-once checkpoint every second, state on the heap, "
        "mini-batches of aggregates, objects reused",
    ),
    "pyflink-process": System(
        title="PyFlink, processes",
        module="benchmarks.peers.on_pyflink",
        sizes=_PYFLINK,
        python=lambda: interpreter("pyflink"),
        settings=lambda: _flink(mode="process"),
        note="DataStream API, Python functions in processes beside the JVM; exactly-once checkpoint every second",
    ),
    "pyflink-thread": System(
        title="PyFlink, threads",
        module="benchmarks.peers.on_pyflink",
        sizes=_PYFLINK,
        python=lambda: interpreter("pyflink"),
        settings=lambda: _flink(mode="thread"),
        note="DataStream API, Python functions inside the JVM's process; exactly-once checkpoint every second",
    ),
    "spark": System(
        title="Spark Structured Streaming",
        module="benchmarks.peers.on_spark",
        sizes={"W1": (4 * _M, 24 * _M), "W2": (2 * _M, 4 * _M), "W3": (400_000, 2 * _M)},
        files=one_after_the_other,
        note="micro-batches of 0.4 or 1 million events, each a checkpoint, RocksDB; W1 is a loop in `mapInArrow`, W2 an "
        "aggregation on the JVM, W3 `applyInPandasWithState`",
    ),
    "bytewax": System(
        title="Bytewax",
        module="benchmarks.peers.on_bytewax",
        sizes={"W1": (2 * _M, 42 * _M), "W2": (100_000, 300_000), "W3": (400_000, 4 * _M)},
        python=lambda: interpreter("bytewax"),
        note="two processes, recovery with a snapshot every second (at least once); in W2 event time goes on with events, and "
        "why its windows of 100,000 keys are so slow was not looked into",
    ),
    "pathway": System(
        title="Pathway",
        module="benchmarks.peers.on_pathway",
        sizes={"W1": (1 * _M, 4 * _M), "W2": (1 * _M, 4 * _M)},
        absent={"W3": "a sum of a group has one value at each commit, not one at each event"},
        python=lambda: interpreter("pathway"),
        files=as_text,
        note="two threads; reads CSV files (Parquet needs a licence key) as one commit: a batch, without checkpoints",
    ),
}
