"""The queries asked of other systems: answers compared with DuckDB's, rates as in `benchmarks.peers.program`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.environments import NotToBeHadError, flink_jars, interpreter
from benchmarks.nexmark.answers import difference
from benchmarks.nexmark.events import BEGINNING, KINDS, SCHEMAS, Site, write
from benchmarks.peers.harness import run_program
from benchmarks.peers.systems import SYSTEMS

CHECKED: Final = Site(events=4_000, rate=100, disorder=100)  # forty seconds, of which the answer is compared
FEW: Final = 400_000
BATCH: Final = 400_000  # events in a micro-batch
_CORES: Final = 2
_MARKER_AFTER_MS: Final = 10_000_000
_READ: Final[Mapping[str, tuple[str, ...]]] = {
    "q3": ("person", "auction"),
    "q8": ("person", "auction"),
    **dict.fromkeys(("q4", "q9", "q20"), ("auction", "bid")),
}
_CLOCK: Final = "windows of the clock have no rate of their own"
_RANKS: Final = "streams have no ranks"
_DISTINCT: Final = "streams have no distinct counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """`absent`: why a query is not asked. `files` gives the files of a site, for a query. `sizes`: events of both runs."""

    title: str
    module: str
    sizes: tuple[int, int] | None = None
    absent: Mapping[str, str]
    files: Callable[[Path, Site, str], Path]
    python: Callable[[], Path]
    settings: Callable[[], dict[str, Any]]


def side_by_side(cache: Path, site: Site, query: str) -> Path:
    """A file for each of two readers, as for our own runs. What is checked is in one file: Flink may give both to one reader,
    and behind the end of one the other's events are late."""
    return _made(cache, site, "sides", lambda folder: write(site, folder, files=1 if site is CHECKED else _CORES))


def in_order(cache: Path, site: Site, query: str) -> Path:
    """Files to be read one after the other, one of each kind in a micro-batch; with an event far in the future where a
    watermark has to close the last windows."""
    marked = query in ("q5", "q7", "q8", "q11")
    batch = min(BATCH, site.events // 4)

    def fill(folder: Path) -> None:
        count = site.events // batch
        write(site, folder, files=count, rows=site.events)
        for kind in KINDS:
            if marked:
                pq.write_table(_marker(site, kind), folder / kind / f"part-{count}.parquet")
            for number in range(count + marked):  # files are taken by the time at which they were written
                os.utime(folder / kind / f"part-{number}.parquet", (1_600_000_000 + number,) * 2)

    return _made(cache, site, "marked" if marked else "in-order", fill)


def _marker(site: Site, kind: str) -> pa.Table:
    late = BEGINNING + site.events * 1000 // site.rate + _MARKER_AFTER_MS
    values = {field.name: [late if field.name == "date_time" else -1] for field in SCHEMAS[kind]}
    return pa.table({n: pa.array(v).cast(SCHEMAS[kind].field(n).type) for n, v in values.items()}, schema=SCHEMAS[kind])


def _made(cache: Path, site: Site, layout: str, fill: Callable[[Path], None]) -> Path:
    there = cache / f"{layout}-{site.events}-{site.rate}-{site.disorder}-{site.seed}"
    if not there.exists():
        fill(making := there.with_suffix(f".{os.getpid()}"))
        making.rename(there)
    return there


PEERS: Final[Mapping[str, Peer]] = {
    "flink-sql": Peer(
        title="Flink SQL",
        module="benchmarks.nexmark.on_flink_sql",
        absent={"q12": _CLOCK, "q13": "has no side input that is there from the beginning"},
        files=side_by_side,
        python=lambda: interpreter("pyflink"),
        settings=lambda: {"jars": [str(jar) for jar in flink_jars()]},
    ),
    "pyflink": Peer(
        title="PyFlink",
        module="benchmarks.nexmark.on_pyflink",
        sizes=(40_000, 200_000),
        absent={"q8": "has no co-group", "q12": _CLOCK, "q13": "has no side input that is there from the beginning"},
        files=side_by_side,
        python=lambda: interpreter("pyflink"),
        settings=lambda: {"jars": [str(jar) for jar in flink_jars()], "mode": "process"},
    ),
    "spark": Peer(
        title="Spark",
        module="benchmarks.nexmark.on_spark",
        absent={
            "q4": "streams have no aggregation of an aggregation",
            "q9": _RANKS,
            "q12": _CLOCK,
            "q15": _DISTINCT,
            "q16": _DISTINCT,
            "q19": _RANKS,
        },
        files=in_order,
        python=SYSTEMS["spark"].python,
        settings=dict,
    ),
}


def measure(name: str, query: str, events: int, cache: Path, folder: Path) -> dict[str, Any]:
    """A row as that of our own runs: with a rate, or `skipped` with a reason, or `wrong` with what is wrong."""
    peer, row = PEERS[name], {"query": query, "mode": name}
    if query in peer.absent:
        return {**row, "skipped": peer.absent[query]}
    try:
        python, settings = peer.python(), peer.settings()
    except NotToBeHadError as error:
        return {**row, "skipped": str(error)}
    few, many = (Site(events=number) for number in peer.sizes or (FEW, events))
    spec = {
        "workload": query,
        "folder": str(folder),
        "checked": str(peer.files(cache, CHECKED, query)),
        "inputs": [str(peer.files(cache, site, query)) for site in (few, many)],
        "bound_ms": CHECKED.bound_ms,
        **settings,
    }
    failed = run_program(python, peer.module, spec, folder / "log")
    if failed:
        return {**row, "wrong": failed}
    rows = [tuple(json.loads(line)) for line in (folder / "output").read_text().splitlines()]
    found = json.loads((folder / "run.json").read_text())
    read = [sum(site.count(kind) for kind in _READ.get(query, ("bid",))) for site in (few, many)]
    (less, more), further = found["seconds"], read[1] - read[0]
    return {
        **row,
        "wrong": difference(query, rows, side_by_side(cache, CHECKED, query)),
        "events": read[1],
        "seconds": more,
        "start_up_s": less - read[0] * (more - less) / further,
        "rate": further / max(more - less, 1e-3),
        "cores": {"all": round(found["cpu_s"] / more, 2), "others": round(found["others"] * _CORES, 2)},
    }
