"""What every system is asked, over which files, and what it must answer."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.dataset import MARKER_KEY, SCHEMA, Dataset, Longs, cache_folder
from benchmarks.reference import (
    WrongAnswerError,
    check_rows,
    check_running,
    check_windows,
    totals_of,
    windows_of,
)

KEYS: Final = 100_000
DISORDER_MS: Final = 5_000
FILE_EVENTS: Final = 100_000  # of a file where files are taken one after the other: a quarter of a window
_SIDES: Final = 2  # files that are read side by side, one by each of two readers
_PART: Final = 20_000  # rows that go to such a file in turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`check` raises WrongAnswerError when the columns of an output, named by `columns`, are not the answer."""

    title: str
    columns: tuple[str, ...]
    check: Callable[[Dataset, list[Longs]], None]


def _stateless(events: Dataset, found: list[Longs]) -> None:
    check_rows(events.columns()[2], found[1])


def _windows(events: Dataset, found: list[Longs]) -> None:
    check_windows(windows_of(*events.columns()), *found)


def _running(events: Dataset, found: list[Longs]) -> None:
    key, _, amount = events.columns()
    check_running(totals_of(key, amount), *found)


WORKLOADS: Final[Mapping[str, Workload]] = {
    "W1": Workload(
        title="Python functions without state: price × 2, multiples of 4 are kept",
        columns=("key", "price"),
        check=_stateless,
    ),
    "W2": Workload(
        title="count and sum per user in tumbling windows of 10 s, 5 s out of order",
        columns=("key", "window_start", "number", "total"),
        check=_windows,
    ),
    "W3": Workload(
        title="running total per key in value state, one result an event",
        columns=("key", "total"),
        check=_running,
    ),
}


def dataset(events: int) -> Dataset:
    """The first so many events, in whole files."""
    return Dataset(events=events, keys=KEYS, files=events // FILE_EVENTS, disorder_ms=DISORDER_MS)


def one_after_the_other(events: int) -> Path:
    """A folder with a file for every 100,000 events, in order, and one with the marker that closes the last windows."""
    return dataset(events).ensure()


def side_by_side(events: int) -> Path:
    """A folder with the same events, without the marker, in one file for each reader: parts go to them in turn."""
    return _made(cache_folder() / f"{dataset(events).name}-side-by-side", lambda folder: _write_sides(events, folder))


def as_text(events: int) -> Path:
    """The same files as CSV with a header, for a system that cannot read Parquet."""
    return _made(
        cache_folder() / f"{dataset(events).name}-text", lambda folder: _write_text(side_by_side(events), folder)
    )


def _made(folder: Path, write: Callable[[Path], None]) -> Path:
    """The folder, which is written first if it is not there."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
        write(making)
        try:
            os.rename(making, folder)
        except OSError:  # another run was faster
            shutil.rmtree(making)
    return folder


def _write_sides(events: int, folder: Path) -> None:
    table = pa.table(list(dataset(events).columns()), schema=SCHEMA)
    writers = [pq.ParquetWriter(folder / f"part-{side}.parquet", SCHEMA) for side in range(_SIDES)]
    for turn, start in enumerate(range(0, events, _PART)):
        writers[turn % _SIDES].write_table(table.slice(start, _PART))
    for writer in writers:
        writer.close()


def _write_text(parts: Path, folder: Path) -> None:
    for path in parts.glob("*.parquet"):
        pyarrow.csv.write_csv(pq.read_table(path), folder / f"{path.stem}.csv")


def check(name: str, events: int, output: Path) -> None:
    """Whether the files of an output, Parquet or CSV without a header, hold the answer. Raises WrongAnswerError."""
    workload = WORKLOADS[name]
    workload.check(dataset(events), _read(output, workload.columns))


def _read(folder: Path, names: tuple[str, ...]) -> list[Longs]:
    """Columns of all files that readers may see, without rows of the marker's key."""
    hidden = (".", "_")
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.stat().st_size
        and not any(part.startswith(hidden) for part in path.relative_to(folder).parts)
    )
    if not files:
        raise WrongAnswerError(f"{folder} holds no output")
    table = pa.concat_tables([_read_file(path, names) for path in files])
    columns = [table.column(name).cast(pa.int64()).to_numpy() for name in names]
    keep = columns[0] != MARKER_KEY
    return [np.asarray(column[keep]) for column in columns]


def _read_file(path: Path, names: tuple[str, ...]) -> pa.Table:
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            table = pq.read_table(path, columns=list(names), partitioning=None)
        else:
            options = pyarrow.csv.ReadOptions(column_names=list(names))
            table = pyarrow.csv.read_csv(path, read_options=options)
    return pa.table([table.column(name).cast(pa.int64()) for name in names], names=list(names))
