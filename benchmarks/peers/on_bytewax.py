"""Bytewax: two processes of one worker each. Recovery stores a snapshot with every epoch of a second."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import bytewax.operators as op  # type: ignore[import-not-found,unused-ignore]
import bytewax.operators.windowing as win  # type: ignore[import-not-found,unused-ignore]
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found,unused-ignore]
from bytewax.inputs import (  # type: ignore[import-not-found,unused-ignore]
    FixedPartitionedSource,
    StatefulSourcePartition,
)
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found,unused-ignore]
from bytewax.recovery import RecoveryConfig, init_db_dir  # type: ignore[import-not-found,unused-ignore]
from bytewax.testing import cluster_main  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.program import Job, main

_PROCESSES: Final = 2
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOW: Final = timedelta(seconds=10)
_DISORDER: Final = timedelta(seconds=5)


class Reading(StatefulSourcePartition):  # type: ignore[misc,unused-ignore]
    """The row groups of a file, one after the other, as tuples."""

    def __init__(self, path: Path, at: int) -> None:
        self._file, self._at = pq.ParquetFile(path), at

    def next_batch(self) -> Iterable[Any]:
        if self._at == self._file.num_row_groups:
            raise StopIteration
        table = self._file.read_row_group(self._at)
        self._at += 1
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def snapshot(self) -> int:
        return self._at


class Files(FixedPartitionedSource):  # type: ignore[misc,unused-ignore]
    """The Parquet files of a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def list_parts(self) -> list[str]:
        return sorted(path.name for path in self._folder.glob("*.parquet"))

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Reading:
        return Reading(self._folder / for_part, resume_state or 0)


class Writing(StatelessSinkPartition):  # type: ignore[misc,unused-ignore]
    """Lines of a worker, or nothing at all."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("w") if path else None

    def write_batch(self, items: list[Any]) -> None:
        if self._file:
            self._file.writelines(",".join(map(str, item)) + "\n" for item in items)

    def close(self) -> None:
        if self._file:
            self._file.close()


class Results(DynamicSink):  # type: ignore[misc,unused-ignore]
    """CSV files in a folder; results are dropped if there is none."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Writing:
        if self._folder is None:
            return Writing(None)
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        return Writing(Path(self._folder) / f"part-{worker_index}.csv")


def stateless(events: Any) -> Any:
    doubled = op.map("double", events, lambda event: (event[0], event[2] * 2))
    return op.filter("keep", doubled, lambda event: event[1] % 4 == 0)


def windows(events: Any) -> Any:
    keyed = op.key_on("key", events, lambda event: str(event[0]))
    # The clock of the machine stands still: else event time goes on with it, and what is read too slowly is late.
    clock = win.EventClock(
        lambda event: _BEGINNING + timedelta(milliseconds=event[1]), _DISORDER, now_getter=lambda: _BEGINNING
    )
    in_windows = win.fold_window(
        "windows",
        keyed,
        clock,
        win.TumblingWindower(length=_WINDOW, align_to=_BEGINNING),
        lambda: (0, 0),
        lambda so_far, event: (so_far[0] + 1, so_far[1] + event[2]),
        lambda one, other: (one[0] + other[0], one[1] + other[1]),
        ordered=False,
    )
    return op.map("flat", in_windows.down, lambda item: (item[0], item[1][0] * 10_000, *item[1][1]))


def running(events: Any) -> Any:
    def add(so_far: int | None, event: Any) -> tuple[int, int]:
        total = (so_far or 0) + event[2]
        return total, total

    keyed = op.key_on("key", events, lambda event: str(event[0]))
    return op.stateful_map("total", keyed, add)


_BUILT: Final = {"W1": stateless, "W2": windows, "W3": running}


def work(name: str, source: str, output: str | None, recovery: str, addresses: list[str], index: int) -> None:
    """One of the processes."""
    flow = Dataflow(name)
    results = _BUILT[name](op.input("events", flow, Files(source)))
    op.output("results", results, Results(output))
    kept = RecoveryConfig(recovery)
    cluster_main(flow, addresses, index, epoch_interval=timedelta(seconds=1), recovery_config=kept)


def job(name: str) -> Job:
    """One workload."""

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        recovery = Path(spec["folder"]) / f"recovery-{spec['run']}"
        recovery.mkdir()
        init_db_dir(recovery, _PROCESSES)
        addresses = [f"127.0.0.1:{port}" for port in _free_ports(_PROCESSES)]
        start = multiprocessing.get_context("spawn").Process
        others = [
            start(target=work, args=(name, source, output, str(recovery), addresses, index))
            for index in range(_PROCESSES)
        ]
        for process in others:
            process.start()
        for process in others:
            process.join()
            if process.exitcode:
                raise RuntimeError(f"a worker ended with status {process.exitcode}")

    return run


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


if __name__ == "__main__":
    main({name: job(name) for name in _BUILT})
