"""The queries in Flink SQL, set up as in `benchmarks.peers`; an answer is what is left when all changes have been made.

Not there: q12, whose windows are of the clock, and q13, which has no side input of the same kind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyflink.common import RowKind  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.on_flink_sql import environment, millis
from benchmarks.peers.program import Job, main

_TYPES: Final = {
    "person": "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, date_time BIGINT, extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time BIGINT, "
    "expires BIGINT, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING",
}
_RANKS: Final = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_STATISTICS: Final = ", ".join(
    f"COUNT({what}){condition}"
    for what in ("*", "DISTINCT bidder", "DISTINCT auction")
    for condition in ("", *(f" FILTER (WHERE {rank})" for rank in _RANKS))
)
_DAY: Final = "DATE_FORMAT(`at`, 'yyyy-MM-dd')"
_MINUTE: Final = "MAX(MOD(date_time, 86400000) / 60000)"
_WON: Final = "FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"


def _tumbling(kind: str) -> str:
    return f"TABLE(TUMBLE(TABLE {kind}, DESCRIPTOR(`at`), INTERVAL '10' SECOND))"


_AUCTION: Final = ", ".join(
    f"a.{column.split()[0]} AS a_{column.split()[0]}" for column in _TYPES["auction"].split(", ")
)
_BID: Final = ", ".join(f"b.{column.split()[0]}" for column in _TYPES["bid"].split(", "))

QUERIES: Final = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, price * CAST(0.908 AS DOUBLE) AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT category, SUM(final) / COUNT(*) AS average FROM "
    f"(SELECT a.id, a.category, MAX(b.price) AS final {_WON} GROUP BY a.id, a.category) GROUP BY category",
    "q5": "WITH counts AS (SELECT auction, COUNT(*) AS num, window_start, window_end FROM "
    "TABLE(HOP(TABLE bid, DESCRIPTOR(`at`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
    "GROUP BY auction, window_start, window_end), "
    "most AS (SELECT MAX(num) AS num, window_start, window_end FROM counts GROUP BY window_start, window_end) "
    f"SELECT counts.auction, counts.num, {millis('counts.window_end')} AS ends FROM counts JOIN most ON "
    "counts.window_start = most.window_start AND counts.window_end = most.window_end AND counts.num = most.num",
    "q7": "SELECT b.price, b.auction, b.bidder, b.date_time, b.extra FROM "
    f"(SELECT * FROM {_tumbling('bid')}) b JOIN "
    f"(SELECT MAX(price) AS price, window_start, window_end FROM {_tumbling('bid')} GROUP BY window_start, window_end) m "
    "ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.price",
    "q8": f"SELECT p.id, p.name, {millis('p.window_start')} AS begins FROM "
    f"(SELECT id, name, window_start, window_end FROM {_tumbling('person')} GROUP BY id, name, window_start, window_end) p "
    f"JOIN (SELECT seller, window_start, window_end FROM {_tumbling('auction')} GROUP BY seller, window_start, window_end) a "
    "ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end",
    "q9": "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a_id ORDER BY price DESC, date_time) AS place FROM "
    f"(SELECT {_AUCTION}, b.bidder, b.price, b.date_time {_WON})) WHERE place <= 1",
    "q11": f"SELECT bidder, {millis('window_start')} AS begins, {millis('window_end')} AS ends, COUNT(*) AS num FROM "
    "TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`at`), INTERVAL '10' SECOND)) "
    "GROUP BY bidder, window_start, window_end",
    "q14": "SELECT auction, bidder, euros, date_time, extra, CASE WHEN hours >= 8 AND hours <= 18 THEN 'dayTime' "
    "WHEN hours <= 6 OR hours >= 20 THEN 'nightTime' ELSE 'otherTime' END AS kind, "
    "CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts FROM "
    "(SELECT *, price * CAST(0.908 AS DOUBLE) AS euros, MOD(date_time / 3600000, 24) AS hours FROM bid) "
    "WHERE euros > 1000000 AND euros < 50000000",
    "q15": f"SELECT {_DAY} AS `day`, {_MINUTE}, {_STATISTICS} FROM bid GROUP BY {_DAY}",
    "q16": f"SELECT channel, {_DAY} AS `day`, {_MINUTE}, {_STATISTICS} FROM bid GROUP BY channel, {_DAY}",
    "q17": f"SELECT auction, {_DAY} AS `day`, COUNT(*), {', '.join(f'COUNT(*) FILTER (WHERE {rank})' for rank in _RANKS)}, "
    f"MIN(price), MAX(price), SUM(price) / COUNT(*), SUM(price) FROM bid GROUP BY auction, {_DAY}",
    "q18": "SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY auction, bidder ORDER BY `at` DESC) AS place FROM bid) WHERE place <= 1",
    "q19": "SELECT auction, place, price, bidder, channel, url, date_time, extra FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY auction ORDER BY price DESC) AS place FROM bid) WHERE place <= 10",
    "q20": f"SELECT {_BID}, {_AUCTION} FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10",
    "q22": "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, "
    "SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid",
}


def job(name: str) -> Job:
    """One query."""

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        tables = environment(spec)
        for kind, columns in _TYPES.items():
            tables.execute_sql(
                f"CREATE TABLE {kind} ({columns}, `at` AS TO_TIMESTAMP_LTZ(date_time, 3), "
                f"WATERMARK FOR `at` AS `at` - INTERVAL '{spec['bound_ms'] / 1000:.3f}' SECOND) "
                f"WITH ('connector' = 'filesystem', 'path' = 'file://{source}/{kind}', 'format' = 'parquet')"
            )
        if output is None:
            tables.create_temporary_view("answers", tables.sql_query(QUERIES[name]))
            tables.execute_sql("CREATE TABLE results WITH ('connector' = 'blackhole') AS SELECT * FROM answers").wait()
            return
        left: Counter[str] = Counter()
        with tables.execute_sql(QUERIES[name]).collect() as changes:
            for change in changes:
                added = change.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
                left[json.dumps(list(change))] += 1 if added else -1
        Path(output).write_text("".join(row + "\n" for row in left.elements()))

    return run


if __name__ == "__main__":
    main({name: job(name) for name in QUERIES})
