"""The events every measurement reads: seeded, written once as Parquet files into a cache folder outside the tree."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Longs: TypeAlias = npt.NDArray[np.int64]

FORMAT = 1  # part of the folder's name: raise it when the content changes
WINDOW_MS = 10_000
BOUND_MS = 1_000  # how far events are out of order at most
FILES_PER_EPOCH = 4
# Windows are fast on both sides: an epoch (a trigger) of a million events, so that its fixed cost does not decide.
WINDOW_FILES_PER_EPOCH = 10
MARKER_KEY = -1  # the last file holds one event far in the future, so that Spark, too, closes every window
_START_MS = 1_700_000_000_000

SCHEMA = pa.schema([("key", pa.int64()), ("event_time", pa.int64()), ("amount", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """`events` events over `keys` keys in `files` files of equal size, ten windows to every 40 files. The first half warms
    up, so that four million are measured."""

    events: int = 8_000_000
    keys: int = 100_000
    files: int = 80
    seed: int = 7
    disorder_ms: int = 500

    def __post_init__(self) -> None:
        if self.events % self.files:
            raise ValueError(f"{self.events} events cannot be dealt to {self.files} files of equal size")

    @property
    def file_rows(self) -> int:
        return self.events // self.files

    @property
    def name(self) -> str:
        return f"v{FORMAT}-{self.events}-{self.keys}-{self.files}-{self.seed}-{self.disorder_ms}"

    def columns(self, files: int | None = None) -> tuple[Longs, Longs, Longs]:
        """(key, event time, amount) of the first `files` files, without the marker. Amounts are whole numbers, so
        that sums do not depend on their order."""
        rng = np.random.default_rng(self.seed)
        keys = rng.integers(0, self.keys, self.events, dtype=np.int64)
        span = WINDOW_MS * self.files // 4
        times = _START_MS + np.arange(self.events, dtype=np.int64) * span // self.events
        times -= rng.integers(0, self.disorder_ms, self.events, dtype=np.int64)
        np.maximum(times, _START_MS, out=times)
        amounts = rng.integers(1, 10_000, self.events, dtype=np.int64)
        end = self.events if files is None else files * self.file_rows
        return keys[:end], times[:end], amounts[:end]

    def ensure(self) -> Path:
        """The folder with the files; written first if it is not there."""
        folder = cache_folder() / self.name
        if (folder / "_DATASET.json").exists():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
        self._write(made)
        (made / "_DATASET.json").write_text(json.dumps(asdict(self)))
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
        return folder

    def _write(self, folder: Path) -> None:
        keys, times, amounts = self.columns()
        rows = self.file_rows
        for number in range(self.files):
            part = slice(number * rows, (number + 1) * rows)
            _write_file(folder, number, [keys[part], times[part], amounts[part]])
        marker = [np.array([value]) for value in (MARKER_KEY, int(times[-1]) + 100 * WINDOW_MS, 0)]
        _write_file(folder, self.files, marker)


def _write_file(folder: Path, number: int, columns: list[Longs]) -> None:
    path = folder / f"events-{number:05d}.parquet"
    pq.write_table(pa.table(columns, schema=SCHEMA), path, compression="snappy", row_group_size=1 << 30)
    moment = 1_600_000_000 + number  # both file sources take files by modification time
    os.utime(path, (moment, moment))


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "penstock-bench"


def first_files(folder: Path, count: int, into: Path) -> Path:
    """A folder with links to the first `count` files: a shorter run over the same files."""
    into.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.parquet"))[:count]:
        os.link(path, into / path.name) if _same_device(folder, into) else shutil.copy2(path, into / path.name)
    return into


def _same_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev
