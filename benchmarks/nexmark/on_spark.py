"""The queries in Spark Structured Streaming: micro-batches as often as it can, RocksDB with a changelog.

Not there, as streams do not have them: an aggregation of an aggregation that is not of windows (q4), ranks (q9, q19), distinct
counts (q15, q16), windows of the clock (q12).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.nexmark.events import SCHEMAS
from benchmarks.peers.program import Job, main
from benchmarks.spark_side import session

SIDE_INPUT: Final = 10_000
_TEN: Final = "10 seconds"

# Reads a stream by its kind: with event time and a watermark.
Read = Callable[[str], DataFrame]


def q0(read: Read) -> DataFrame:
    return read("bid").select("auction", "bidder", "price", "date_time", "extra")


def q1(read: Read) -> DataFrame:
    return read("bid").select("auction", "bidder", F.col("price") * 0.908, "date_time", "extra")


def q2(read: Read) -> DataFrame:
    return read("bid").where("auction % 123 = 0").select("auction", "price")


def q3(read: Read) -> DataFrame:
    persons = read("person").where("state in ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    auctions = read("auction").where("category = 10").select("seller", F.col("id").alias("auction"))
    return persons.join(auctions, F.col("id") == F.col("seller")).select("name", "city", "state", "auction")


def q5(read: Read) -> DataFrame:
    counts = read("bid").groupBy(F.window("at", _TEN, "2 seconds"), "auction").agg(F.count("*").alias("num"))
    in_windows = counts.groupBy(F.window(F.window_time("window"), "2 seconds").alias("ends")).agg(
        F.max("num").alias("most"), F.collect_list(F.struct("auction", "num")).alias("all")
    )
    each = in_windows.select("ends", "most", F.explode("all").alias("one")).where("one.num = most")
    return each.select("one.auction", "one.num", F.unix_millis("ends.end"))


def q7(read: Read) -> DataFrame:
    highest = read("bid").groupBy(F.window("at", _TEN).alias("w")).agg(F.max("price").alias("most"))
    bids = read("bid").withColumn("window", F.window("at", _TEN))
    both = bids.join(highest, (F.col("window") == F.col("w")) & (F.col("price") == F.col("most")))
    return both.select("price", "auction", "bidder", "date_time", "extra")


def q8(read: Read) -> DataFrame:
    persons = read("person").groupBy(F.window("at", _TEN), "id", "name").agg(F.count("*").alias("n"))
    auctions = read("auction").groupBy(F.window("at", _TEN).alias("w"), "seller").agg(F.count("*").alias("m"))
    both = persons.join(auctions, (F.col("id") == F.col("seller")) & (F.col("window") == F.col("w")))
    return both.select("id", "name", F.unix_millis("window.start"))


def q11(read: Read) -> DataFrame:
    sessions = read("bid").groupBy(F.session_window("at", _TEN).alias("w"), "bidder").agg(F.count("*").alias("num"))
    return sessions.select("bidder", F.unix_millis("w.start"), F.unix_millis("w.end"), "num")


def q13(read: Read) -> DataFrame:
    side = (
        session().range(SIDE_INPUT).select("id", F.concat(F.lit("value "), F.col("id").cast("string")).alias("value"))
    )
    bids = read("bid").join(side, F.col("auction") % SIDE_INPUT == F.col("id"))
    return bids.select("auction", "bidder", "price", "date_time", "value")


def q14(read: Read) -> DataFrame:
    hour = F.expr("date_time div 3600000 % 24")
    bids = read("bid").withColumn("euros", F.col("price") * 0.908).where("euros > 1000000 and euros < 50000000")
    kind = F.when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    letters = F.expr("length(extra) - length(replace(extra, 'c', ''))")
    return bids.select("auction", "bidder", "euros", "date_time", "extra", kind, letters)


def q17(read: Read) -> DataFrame:
    ranks = ("price < 10000", "price >= 10000 and price < 1000000", "price >= 1000000")
    day = F.date_format("at", "yyyy-MM-dd").alias("day")
    return (
        read("bid")
        .groupBy("auction", day)
        .agg(
            F.count("*"),
            *(F.count_if(F.expr(rank)) for rank in ranks),
            F.min("price"),
            F.max("price"),
            F.expr("sum(price) div count(*)"),
            F.sum("price"),
        )
    )


def q18(read: Read) -> DataFrame:
    last = F.max_by(F.struct("price", "channel", "url", "date_time", "extra"), "date_time").alias("last")
    return read("bid").groupBy("auction", "bidder").agg(last).select("auction", "bidder", "last.*")


def q20(read: Read) -> DataFrame:
    auctions = (
        read("auction")
        .where("category = 10")
        .select(*(F.col(name).alias(f"a_{name}") for name in SCHEMAS["auction"].names))
    )
    bids = read("bid").select(*SCHEMAS["bid"].names)
    return bids.join(auctions, F.col("auction") == F.col("a_id"))


def q22(read: Read) -> DataFrame:
    folders = (F.split_part(F.col("url"), F.lit("/"), F.lit(place)) for place in (4, 5, 6))
    return read("bid").select("auction", "bidder", "price", "channel", *folders)


QUERIES: Final = {query.__name__: query for query in (q0, q1, q2, q3, q5, q7, q8, q11, q13, q14, q17, q18, q20, q22)}
CLOSED: Final = ("q5", "q7", "q8", "q11")  # whose last results a watermark has to bring about
UPDATED: Final = ("q17", "q18")  # whose results change


def job(name: str) -> Job:
    """One query."""

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        spark = session()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.sparkContext.setLogLevel("ERROR")

        def read(kind: str) -> DataFrame:
            schema = ", ".join(
                f"{field.name} {'long' if field.type == 'int64' else 'string'}" for field in SCHEMAS[kind]
            )
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{source}/{kind}")
            timed = stream.withColumn("at", F.timestamp_millis("date_time"))
            return timed.withWatermark("at", f"{spec['bound_ms']} milliseconds") if name in CLOSED else timed

        rows: list[list[Any]] = []
        stream = QUERIES[name](read).writeStream.outputMode("update" if name in UPDATED else "append")
        if output:
            stream = stream.foreachBatch(lambda frame, _: rows.extend(list(row) for row in frame.collect()))
        else:
            stream = stream.format("noop")
        stream = stream.option("checkpointLocation", f"{spec['folder']}/checkpoint-{spec['run']}")
        query = stream.trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        query.stop()
        if output:
            Path(output).write_text("".join(json.dumps(row) + "\n" for row in rows if -1 not in row))

    return run


if __name__ == "__main__":
    main({name: job(name) for name in QUERIES})
