"""The same questions asked of DuckDB, over the same files, in SQL: an answer that shares no code with ours.

Only columns that a question determines are compared: which of two equal bids is the winner, or the tenth, is nobody's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.nexmark.events import KINDS
from benchmarks.nexmark.queries import DOLLAR_IN_EUROS, QUERIES, SIDE_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`columns` are the places in our rows that the rows of `sql` are compared with; None: all of them."""

    sql: str
    columns: tuple[int, ...] | None = None


_STATISTICS: Final = ", ".join(
    f"count({what}){condition}"
    for what in ("*", "distinct bidder", "distinct auction")
    for condition in (
        "",
        " filter (price < 10000)",
        " filter (price >= 10000 and price < 1000000)",
        " filter (price >= 1000000)",
    )
)
_DAY: Final = "strftime(epoch_ms(date_time), '%Y-%m-%d')"
_MINUTE: Final = "max(date_time % 86400000 // 60000)"
_WON: Final = "from auction a join bid b on a.id = b.auction and b.date_time between a.date_time and a.expires"

ANSWERS: Final[dict[str, Answer]] = {
    "q0": Answer(sql="select auction, bidder, price, date_time, extra from bid"),
    "q1": Answer(sql=f"select auction, bidder, price * {DOLLAR_IN_EUROS}::double, date_time, extra from bid"),
    "q2": Answer(sql="select auction, price from bid where auction % 123 = 0"),
    "q3": Answer(
        sql="select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id "
        "where a.category = 10 and p.state in ('OR', 'ID', 'CA')"
    ),
    "q4": Answer(
        sql="select category, (sum(final) // count(*))::bigint from "
        f"(select a.id, a.category, max(b.price) as final {_WON} group by a.id, a.category) group by category"
    ),
    "q5": Answer(
        sql="with hops as (select auction, date_time // 2000 * 2000 + 2000 + 2000 * hop as ends from bid, range(5) r(hop)), "
        "counts as (select auction, ends, count(*) as num from hops group by auction, ends) "
        "select auction, num, ends from counts qualify num = max(num) over (partition by ends)"
    ),
    "q7": Answer(
        sql="select price, auction, bidder, date_time, extra from bid qualify price = "
        "max(price) over (partition by date_time // 10000)"
    ),
    "q8": Answer(
        sql="select distinct p.id, p.name, p.date_time // 10000 * 10000 from person p join auction a "
        "on p.id = a.seller and p.date_time // 10000 = a.date_time // 10000"
    ),
    "q9": Answer(
        sql=f"select id, price, time from (select a.id, b.price, b.date_time as time, row_number() over "
        f"(partition by a.id order by b.price desc, b.date_time) as place {_WON}) where place = 1",
        columns=(0, 11, 12),
    ),
    "q11": Answer(
        sql="with gaps as (select bidder, date_time, coalesce(date_time - lag(date_time) over w > 10000, true) as new "
        "from bid window w as (partition by bidder order by date_time)), "
        "sessions as (select bidder, date_time, sum(new::int) over (partition by bidder order by date_time rows unbounded "
        "preceding) as number from gaps) "
        "select bidder, min(date_time), max(date_time) + 10000, count(*) from sessions group by bidder, number"
    ),
    "q13": Answer(
        sql=f"select auction, bidder, price, date_time, 'value ' || (auction % {SIDE_INPUT}) from bid",
    ),
    "q14": Answer(
        sql=f"select auction, bidder, euros, date_time, extra, case when hour >= 8 and hour <= 18 then 'dayTime' "
        "when hour <= 6 or hour >= 20 then 'nightTime' else 'otherTime' end, len(extra) - len(replace(extra, 'c', '')) from "
        f"(select *, price * {DOLLAR_IN_EUROS}::double as euros, date_time // 3600000 % 24 as hour from bid) "
        "where euros > 1000000 and euros < 50000000"
    ),
    "q15": Answer(sql=f"select {_DAY}, {_MINUTE}, {_STATISTICS} from bid group by {_DAY}"),
    "q16": Answer(sql=f"select channel, {_DAY}, {_MINUTE}, {_STATISTICS} from bid group by channel, {_DAY}"),
    "q17": Answer(
        sql=f"select auction, {_DAY}, count(*), count(*) filter (price < 10000), "
        "count(*) filter (price >= 10000 and price < 1000000), count(*) filter (price >= 1000000), "
        f"min(price), max(price), (sum(price) // count(*))::bigint, sum(price)::bigint from bid group by auction, {_DAY}"
    ),
    "q18": Answer(sql="select auction, bidder, max(date_time) from bid group by auction, bidder", columns=(0, 1, 5)),
    "q19": Answer(
        sql="select auction, place, price from (select auction, price, row_number() over (partition by auction order by price "
        "desc) as place from bid) where place <= 10",
        columns=(0, 1, 2),
    ),
    "q20": Answer(sql="select b.*, a.* from bid b join auction a on b.auction = a.id where a.category = 10"),
    "q22": Answer(
        sql="select auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6) "
        "from bid"
    ),
}


def of_duckdb(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a question over the files in a folder."""
    import duckdb

    with duckdb.connect() as connection:
        for kind in KINDS:
            connection.execute(f"create view {kind} as select * from '{folder}/{kind}/*.parquet'")
        found: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
        return found


def difference(name: str, rows: Iterable[Any], folder: Path) -> str | None:
    """What is wrong with the rows of a query; None if nothing is."""
    ours = [tuple(row) for row in rows]
    if name == "q12":  # by the clock: which windows there are is nobody's to say, and at the end the last one is open
        counts: Counter[int] = Counter()
        for bidder, _, _, number in ours:
            counts[bidder] += number
        expected = dict(of_duckdb(folder, "select bidder, count(*) from bid group by bidder"))
        more_than = [bidder for bidder, number in counts.items() if number > expected.get(bidder, 0)]
        return f"more bids than there are, of {more_than}" if more_than else None
    answer, key = ANSWERS[name], QUERIES[name].key
    if key is not None:
        ours = list({row[:key]: row for row in ours}.values())
    if answer.columns is not None:
        ours = [tuple(row[place] for place in answer.columns) for row in ours]
    got, expected_rows = Counter(ours), Counter(of_duckdb(folder, answer.sql))
    if got == expected_rows:
        return None
    missing, more = expected_rows - got, got - expected_rows
    return (
        f"{got.total()} rows in place of {expected_rows.total()}; missing {missing.total()}, such as {next(iter(missing), None)}; "
        f"too many {more.total()}, such as {next(iter(more), None)}"
    )
