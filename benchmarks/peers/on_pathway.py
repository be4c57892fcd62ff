"""Pathway: two threads. It reads what there is of CSV files as one commit: a batch, with no checkpoint on the way.

One result an event is not what its tables are: a sum of a group has one value at each commit. So it has no W3.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

os.environ["PATHWAY_THREADS"] = "2"  # read when it is imported

import pathway as pw  # type: ignore[import-not-found,unused-ignore]
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.peers.program import Job, main

_WINDOW_MS: Final = 10_000


class Event(pw.Schema):  # type: ignore[misc,unused-ignore]
    """An event."""

    key: int
    event_time: int
    amount: int


def stateless(events: Any) -> Any:
    doubled = events.select(pw.this.key, price=pw.apply_with_type(lambda amount: amount * 2, int, pw.this.amount))
    return doubled.filter(pw.apply_with_type(lambda price: price % 4 == 0, bool, pw.this.price))


def windows(events: Any) -> Any:
    in_windows = events.windowby(
        pw.this.event_time, window=pw.temporal.tumbling(duration=_WINDOW_MS, origin=0), instance=pw.this.key
    )
    return in_windows.reduce(
        key=pw.this._pw_instance,
        window_start=pw.this._pw_window_start,
        number=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.amount),
    )


_BUILT: Final = {"W1": stateless, "W2": windows}


def job(name: str) -> Job:
    """One workload."""

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        pw.internals.parse_graph.G.clear()
        results = _BUILT[name](pw.io.csv.read(source, schema=Event, mode="static"))
        if output:
            pw.io.csv.write(results, f"{output}.csv")
        else:
            pw.io.null.write(results)
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        if output:  # the file has two columns more: of changes and their times
            Path(output).mkdir()
            pq.write_table(pyarrow.csv.read_csv(f"{output}.csv"), f"{output}/part-0.parquet")

    return run


if __name__ == "__main__":
    main({name: job(name) for name in _BUILT})
