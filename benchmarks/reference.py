"""What the answers must be, computed with numpy; a number counts only when the job's output equals it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.dataset import MARKER_KEY, WINDOW_MS, Longs


class WrongAnswerError(Exception):
    """A competitor's output differs from the reference: its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """One entry for every (key, window), sorted by window, then key."""

    key: Longs
    start: Longs
    count: Longs
    total: Longs


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """For every key, sorted: how many events it has and their sum."""

    key: Longs
    count: Longs
    total: Longs


def windows_of(key: Longs, time: Longs, amount: Longs) -> Windows:
    start = time - time % WINDOW_MS
    order = np.lexsort((key, start))
    key, start, amount = key[order], start[order], amount[order]
    first = np.flatnonzero(np.concatenate(([True], (key[1:] != key[:-1]) | (start[1:] != start[:-1]))))
    return Windows(
        key=key[first],
        start=start[first],
        count=np.diff(np.append(first, len(key))),
        total=np.add.reduceat(amount, first),
    )


def totals_of(key: Longs, amount: Longs) -> Totals:
    order = np.argsort(key, kind="stable")
    key, amount = key[order], amount[order]
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    return Totals(key=key[first], count=np.diff(np.append(first, len(key))), total=np.add.reduceat(amount, first))


def read_columns(folder: Path, names: list[str]) -> list[Longs]:
    """Columns of all Parquet files under `folder` that readers may see; rows of the marker's key are left out."""
    files = sorted(p for p in folder.rglob("*.parquet") if not any(q.startswith((".", "_")) for q in p.parts))
    if not files:
        raise WrongAnswerError(f"{folder} holds no output")
    table = pa.concat_tables([pq.read_table(path, columns=names, partitioning=None) for path in files])
    columns = [table.column(name).cast(pa.int64()).to_numpy() for name in names]
    keep = columns[0] != MARKER_KEY
    return [column[keep] for column in columns]


def check_windows(expected: Windows, key: Longs, start: Longs, count: Longs, total: Longs) -> None:
    order = np.lexsort((key, start))
    found = {"key": key[order], "start": start[order], "count": count[order], "total": total[order]}
    for name, values in found.items():
        _same(f"{name} of the windows", getattr(expected, name), values)


def check_running(expected: Totals, key: Longs, total: Longs) -> None:
    """`total` is a key's sum after each of its events. Events of one key may come in another order (several files are
    read at once), which changes the sums in between but neither their number nor the largest: amounts are positive."""
    order = np.lexsort((total, key))
    key, total = key[order], total[order]
    last = np.flatnonzero(np.append(key[1:] != key[:-1], True))
    _same("keys", expected.key, key[last])
    _same("results per key", expected.count, np.diff(np.concatenate(([-1], last))))
    _same("final sums", expected.total, total[last])


def check_rows(amount: Longs, price: Longs) -> None:
    """Every amount doubled, where that is a multiple of four; in any order."""
    doubled = amount * 2
    _same("prices", np.sort(doubled[doubled % 4 == 0]), np.sort(price))


def _same(what: str, expected: Longs, found: Longs) -> None:
    if len(expected) != len(found):
        raise WrongAnswerError(f"{what}: {len(found)} entries instead of {len(expected)}")
    wrong = np.flatnonzero(expected != found)
    if len(wrong):
        at = int(wrong[0])
        raise WrongAnswerError(
            f"{what}: {len(wrong)} of {len(expected)} entries are wrong, first entry {at}: {found[at]} instead of "
            f"{expected[at]}"
        )
