"""The answer computed again, without Penstock, and compared with what the job committed.

Every click is recomputed over arrays, the files are read as any Parquet reader would, and everything is compared:

* totals: every click exactly once; each user's numbers 1, 2, 3, …; what they spent adds up at every step;
* late: only clicks that were made late on purpose, none twice, each with its own data;
* windows: all clicks minus those reported late, per page and second; no window twice.

Which stragglers count as late depends on how the stream was cut into epochs, and a kill moves the cuts. So the windows
are compared with what was not reported late: a click in both places or in neither shows as a wrong window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from examples.clickstream.clicks import SCHEMA
from examples.clickstream.job import TOTALS, WINDOW_MS, WINDOWS
from examples.clickstream.shop import Shop
from penstock.connectors.files import committed_files

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(slots=True)
class Verdict:
    """`problems` is empty if and only if the output is exactly right."""

    clicks: int
    accounted: int = 0
    lost: int = 0
    duplicated: int = 0
    windows: int = 0
    late: int = 0
    users: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        head = "exactly once" if self.exact else "NOT exactly once"
        counts = (
            f"{head}: {self.clicks:,} events in, {self.accounted:,} accounted for, {self.lost:,} lost, "
            f"{self.duplicated:,} duplicated"
        )
        return "\n".join([counts, *(f"  - {problem}" for problem in self.problems)])

    def check(self, wrong: int, problem: str) -> None:
        if wrong:
            self.problems.append(f"{wrong:,} {problem}")


def committed(folder: Path, schema: pa.Schema) -> pa.Table:
    """What a sink has committed, as one table."""
    tables = [pq.read_table(file, schema=schema, partitioning=None) for file in committed_files(folder)]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def verify(folder: Path, shop: Shop) -> Verdict:
    return compare(
        shop,
        totals=committed(folder / "totals", TOTALS),
        windows=committed(folder / "windows", WINDOWS),
        late=committed(folder / "late", SCHEMA),
    )


def compare(shop: Shop, *, totals: pa.Table, windows: pa.Table, late: pa.Table) -> Verdict:
    clicks = shop.table()
    verdict = Verdict(clicks=shop.clicks)
    _totals(verdict, clicks, totals)
    late_ids = _late(verdict, shop, clicks, late)
    _windows(verdict, clicks, late_ids, windows)
    return verdict


def _totals(verdict: Verdict, clicks: pa.Table, totals: pa.Table) -> None:
    given = totals["event_id"].to_numpy()
    known = (given >= 0) & (given < verdict.clicks)
    verdict.check(int((~known).sum()), "running totals of clicks that never happened")
    seen = np.bincount(given[known], minlength=verdict.clicks)
    verdict.accounted = int((seen > 0).sum())
    verdict.lost = int((seen == 0).sum())
    verdict.duplicated = int((seen - 1).clip(min=0).sum())
    verdict.check(verdict.lost, "clicks have no running total")
    verdict.check(verdict.duplicated, "running totals are of a click that was counted before")
    totals = totals.filter(pa.array(known))
    ids = totals["event_id"].to_numpy()
    users, numbers, spent = (totals[name].to_numpy() for name in ("user", "clicks", "spent"))
    verdict.check(int((users != clicks["user"].to_numpy()[ids]).sum()), "running totals went to another user")
    # In the order of a user's own numbering: 1, 2, 3, …, and each step adds the amount of its click.
    order = np.lexsort((numbers, users))
    users, numbers, spent = users[order], numbers[order], spent[order]
    amounts = clicks["amount"].to_numpy()[ids[order]]
    first = np.ones(len(users), dtype=np.bool_)
    first[1:] = users[1:] != users[:-1]
    starts = np.flatnonzero(first)
    verdict.users = len(starts)
    position = np.arange(len(users)) - np.repeat(starts, np.diff(np.append(starts, len(users))))
    verdict.check(int((numbers != position + 1).sum()), "running totals break their user's 1, 2, 3, …")
    before = np.where(first, 0, np.concatenate(([0], spent[:-1]))) if len(spent) else spent
    verdict.check(int((spent - before != amounts).sum()), "running totals do not add up to what was spent")


def _late(verdict: Verdict, shop: Shop, clicks: pa.Table, late: pa.Table) -> Ints:
    given = late["event_id"].to_numpy()
    ids = np.unique(given)
    verdict.late = len(ids)
    verdict.check(len(given) - len(ids), "late clicks were reported twice")
    punctual = ~np.isin(given, shop.stragglers().to_numpy())
    verdict.check(int(punctual.sum()), "clicks were called late but came in time")
    real = late.filter(pa.array(~punctual))
    expected = clicks.take(pa.array(real["event_id"].to_numpy()))
    changed = np.zeros(real.num_rows, dtype=np.bool_)
    for name in SCHEMA.names:
        changed |= real[name].to_numpy() != expected[name].to_numpy()
    verdict.check(int(changed.sum()), "late clicks are not what they were at the source")
    return ids[(ids >= 0) & (ids < shop.clicks)]


def _windows(verdict: Verdict, clicks: pa.Table, late_ids: Ints, windows: pa.Table) -> None:
    in_time = np.ones(clicks.num_rows, dtype=np.bool_)
    in_time[late_ids] = False
    kept = clicks.filter(pa.array(in_time))
    times = kept["event_time"].to_numpy()
    kept = kept.append_column("start", pa.array(times - times % WINDOW_MS))
    sums = kept.group_by(["page", "start"]).aggregate([("amount", "count"), ("amount", "sum")])
    expected = _by_window(sums, "amount_count", "amount_sum")
    given = _by_window(windows, "clicks", "revenue")
    verdict.windows = windows.num_rows
    verdict.check(windows.num_rows - len(given), "windows were written twice")
    verdict.check(len(expected.keys() - given.keys()), "windows are missing")
    verdict.check(len(given.keys() - expected.keys()), "windows should not exist")
    differ = sum(given[window] != expected[window] for window in given.keys() & expected.keys())
    verdict.check(differ, "windows hold other counts or sums")


def _by_window(table: pa.Table, count: str, total: str) -> dict[tuple[str, int], tuple[int, int]]:
    columns = (table[name].to_pylist() for name in ("page", "start", count, total))
    return {(page, start): (clicks, revenue) for page, start, clicks, revenue in zip(*columns, strict=True)}
