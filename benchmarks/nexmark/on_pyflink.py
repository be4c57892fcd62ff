"""The queries in PyFlink's DataStream API, with the very functions of ours where a query has any. Set up as in `benchmarks.peers`.

Not there: q8, which has no co-group in that API, q12, whose windows are of the clock, and q13, which has no side input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyflink.common import Duration, Row, Types, WatermarkStrategy  # type: ignore[import-not-found,unused-ignore]
from pyflink.common.time import Time  # type: ignore[import-not-found,unused-ignore]
from pyflink.common.watermark_strategy import TimestampAssigner  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream import AggregateFunction, ProcessWindowFunction  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream.connectors.file_system import FileSource  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream.formats.parquet import ParquetColumnarRowInputFormat  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream.window import (  # type: ignore[import-not-found,unused-ignore]
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from pyflink.java_gateway import get_gateway  # type: ignore[import-not-found,unused-ignore]
from pyflink.table.types import DataTypes  # type: ignore[import-not-found,unused-ignore]

from benchmarks.nexmark.functions import (
    AuctionStatistics,
    Average,
    ChannelStatistics,
    Expanded,
    Highest,
    Hottest,
    Newest,
    Sellers,
    Statistics,
    Top,
    Winner,
    WinningPrice,
)
from benchmarks.peers.on_pyflink import environment
from benchmarks.peers.program import Job, main

DOLLAR_IN_EUROS: Final = 0.908
_AUCTION: Final = (
    "id", "item_name", "description", "initial_bid", "reserve", "date_time", "expires", "seller", "category", "extra",
)  # fmt: skip
_BID: Final = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")
_TEXTS: Final = frozenset(
    {"name", "email", "credit_card", "city", "state", "extra", "item_name", "description", "channel", "url"}
)
_TIMED: Final = frozenset({"q4", "q5", "q7", "q9", "q11"})


class EventTime(TimestampAssigner):  # type: ignore[misc,unused-ignore]
    """The column of the event."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.date_time)


class Streams:
    """The three streams; with event time where the query needs it. Only the columns that are asked for are read."""

    def __init__(self, env: Any, query: str, source: str, bound_ms: int) -> None:
        self._env, self._source, self._bound_ms, self._timed = env, source, bound_ms, query in _TIMED

    def __call__(self, kind: str, *columns: str) -> Any:
        fields = [
            DataTypes.FIELD(name, DataTypes.STRING() if name in _TEXTS else DataTypes.BIGINT()) for name in columns
        ]
        form = ParquetColumnarRowInputFormat(row_type=DataTypes.ROW(fields))
        files = FileSource.for_bulk_file_format(form, f"file://{self._source}/{kind}").build()
        read = self._env.from_source(files, WatermarkStrategy.no_watermarks(), kind)
        types = [Types.STRING() if name in _TEXTS else Types.LONG() for name in columns]
        named = read.map(lambda row: row, output_type=Types.ROW_NAMED(list(columns), types))
        if not self._timed:
            return named
        in_order = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(self._bound_ms))
        return named.assign_timestamps_and_watermarks(in_order.with_timestamp_assigner(EventTime()))


class Count(AggregateFunction):  # type: ignore[misc,unused-ignore]
    """How many."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return one + other


class OfAuction(ProcessWindowFunction):  # type: ignore[misc,unused-ignore]
    """A count with its auction and the end of its window."""

    def process(self, key: int, context: Any, elements: Iterable[int]) -> Iterator[Any]:
        for number in elements:
            yield Row(auction=key, num=number, window_end=context.window().end)


class OfSession(ProcessWindowFunction):  # type: ignore[misc,unused-ignore]
    """(bidder, begin, end, count)."""

    def process(self, key: int, context: Any, elements: Iterable[int]) -> Iterator[Any]:
        for number in elements:
            yield key, context.window().start, context.window().end, number


def q0(streams: Streams) -> Any:
    return streams("bid", "auction", "bidder", "price", "date_time", "extra")


def q1(streams: Streams) -> Any:
    bids = streams("bid", "auction", "bidder", "price", "date_time", "extra")
    return bids.map(lambda bid: (bid.auction, bid.bidder, bid.price * DOLLAR_IN_EUROS, bid.date_time, bid.extra))


def q2(streams: Streams) -> Any:
    bids = streams("bid", "auction", "price", "date_time").filter(lambda bid: bid.auction % 123 == 0)
    return bids.map(lambda bid: (bid.auction, bid.price))


def q3(streams: Streams) -> Any:
    persons = streams("person", "id", "name", "city", "state").filter(lambda person: person.state in ("OR", "ID", "CA"))
    auctions = streams("auction", "id", "seller", "category").filter(lambda auction: auction.category == 10)
    return persons.key_by(_id).connect(auctions.key_by(lambda auction: auction.seller)).process(Sellers())


def _id(value: Any) -> Any:
    return value.id


def _with_bids(streams: Streams, winner: Winner, *columns: str) -> Any:
    bids = streams("bid", "auction", "bidder", "price", "date_time")
    return streams("auction", *columns).key_by(_id).connect(bids.key_by(lambda bid: bid.auction)).process(winner)


def q4(streams: Streams) -> Any:
    prices = _with_bids(streams, WinningPrice(), "id", "category", "date_time", "expires")
    return prices.key_by(lambda price: price[0]).process(Average())


def q5(streams: Streams) -> Any:
    bids = streams("bid", "auction", "date_time").key_by(lambda bid: bid.auction)
    counts = bids.window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2))).aggregate(Count(), OfAuction())
    windows = counts.key_by(lambda count: count.window_end).window(TumblingEventTimeWindows.of(Time.seconds(2)))
    return windows.process(Hottest())


def q7(streams: Streams) -> Any:
    columns = ("price", "auction", "bidder", "date_time", "extra")
    bids = streams("bid", *columns).window_all(TumblingEventTimeWindows.of(Time.seconds(10)))
    return bids.aggregate(Highest()).flat_map(lambda found: found)


def q9(streams: Streams) -> Any:
    return _with_bids(streams, Winner(), *_AUCTION)


def q11(streams: Streams) -> Any:
    bids = streams("bid", "bidder", "date_time").key_by(lambda bid: bid.bidder)
    return bids.window(EventTimeSessionWindows.with_gap(Time.seconds(10))).aggregate(Count(), OfSession())


def q14(streams: Streams) -> Any:
    bids = streams("bid", "auction", "bidder", "price", "date_time", "extra")
    chosen = bids.filter(lambda bid: 1_000_000 < bid.price * DOLLAR_IN_EUROS < 50_000_000)
    return chosen.map(_calculated)


def _calculated(bid: Any) -> tuple[Any, ...]:
    hour = bid.date_time // 3_600_000 % 24
    kind = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
    return (
        bid.auction, bid.bidder, bid.price * DOLLAR_IN_EUROS, bid.date_time, bid.extra, kind, bid.extra.count("c"),
    )  # fmt: skip


def q15(streams: Streams) -> Any:
    bids = streams("bid", "auction", "bidder", "price", "date_time")
    return bids.key_by(lambda bid: bid.date_time // 86_400_000).process(Statistics())


def q16(streams: Streams) -> Any:
    bids = streams("bid", "auction", "bidder", "price", "channel", "date_time")
    return bids.key_by(lambda bid: (bid.channel, bid.date_time // 86_400_000)).process(ChannelStatistics())


def q17(streams: Streams) -> Any:
    bids = streams("bid", "auction", "price", "date_time")
    return bids.key_by(lambda bid: (bid.auction, bid.date_time // 86_400_000)).process(AuctionStatistics())


def q18(streams: Streams) -> Any:
    return streams("bid", *_BID).key_by(lambda bid: (bid.bidder, bid.auction)).process(Newest())


def q19(streams: Streams) -> Any:
    return streams("bid", *_BID).key_by(lambda bid: bid.auction).process(Top())


def q20(streams: Streams) -> Any:
    auctions = streams("auction", *_AUCTION).filter(lambda auction: auction.category == 10)
    bids = streams("bid", *_BID).map(tuple)  # pickled: what the function hands on is a tuple
    return auctions.key_by(_id).connect(bids.key_by(lambda bid: bid[0])).process(Expanded())


def q22(streams: Streams) -> Any:
    return streams("bid", "auction", "bidder", "price", "channel", "url").map(_with_folders)


def _with_folders(bid: Any) -> tuple[Any, ...]:
    return (bid.auction, bid.bidder, bid.price, bid.channel, *bid.url.split("/")[3:6])


_BUILT: Final[dict[str, Callable[[Streams], Any]]] = {
    build.__name__: build for build in (q0, q1, q2, q3, q4, q5, q7, q9, q11, q14, q15, q16, q17, q18, q19, q20, q22)
}


def job(name: str) -> Job:
    """One query."""

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        env = environment(spec)
        results = _BUILT[name](Streams(env, name, source, spec["bound_ms"]))
        if output is None:
            sink = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
            results._j_data_stream.sinkTo(sink)
            env.execute(f"nexmark-{name}")
            return
        with Path(output).open("w") as lines, results.execute_and_collect() as rows:
            for row in rows:
                lines.write(json.dumps(list(row)) + "\n")

    return run


if __name__ == "__main__":
    main({name: job(name) for name in _BUILT})
