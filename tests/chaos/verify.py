"""The answer, computed without Penstock, and the comparison: one result too many fails as surely as one too few."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files import committed_files
from tests.chaos.job import KEYS, WINDOW_MS, event, may_be_late


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """Committed rows in commit order."""
    files = committed_files(str(folder))
    if not files:
        return []
    table = pa.concat_tables([pq.read_table(file) for file in files])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def verify(folder: Path, records: int, splits: int) -> dict[str, int]:
    """Raises AssertionError with what differs; returns counts for the report."""
    running = rows(folder / "running")
    seen = Counter(index for _, _, index in running)
    lost = records - len(seen)
    duplicated = sum(count - 1 for count in seen.values())
    assert (lost, duplicated) == (0, 0), f"running: lost {lost}, duplicated {duplicated} of {records}"
    numbers: dict[int, list[int]] = defaultdict(list)
    order: dict[tuple[int, int], list[int]] = defaultdict(list)
    for user, number, index in running:
        assert user == event(index)[0]
        numbers[user].append(number)
        order[(user, index % splits)].append(index)
    for user, given in numbers.items():
        assert sorted(given) == list(range(1, len(given) + 1)), f"user {user} was numbered {sorted(given)[:20]}…"
    reordered = sum(indices != sorted(indices) for indices in order.values())
    assert reordered == 0, f"{reordered} (user, split) sequences are out of order"
    # Which records are late depends on where epochs were cut, so the windows are checked against what was not late.
    late = rows(folder / "late")
    assert len({index for _, _, index in late}) == len(late), "a late record was reported twice"
    wronged = [index for _, _, index in late if not may_be_late(index)]
    assert not wronged, f"{len(wronged)} records were called late that are in time, such as {wronged[:5]}"
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    late_indices = {index for _, _, index in late}
    for index in range(records):
        user, time, _ = event(index)
        if index not in late_indices:
            start = time - time % WINDOW_MS
            count, total = expected.get((user, start), (0, 0))
            expected[(user, start)] = count + 1, total + index
    windows = rows(folder / "windows")
    given_windows = {(user, start): (count, total) for user, start, count, total in windows}
    assert len(windows) == len(given_windows), "a window fired twice"
    assert given_windows == expected, f"{len(given_windows)} windows, {len(expected)} expected, or sums differ"
    assert len(numbers) == min(KEYS, records)
    return {"records": len(running), "windows": len(windows), "late": len(late)}
