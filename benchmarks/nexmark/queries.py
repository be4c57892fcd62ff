"""The queries, each as one would write it for this API: on columns where a question is one of columns, else in functions.

Where SQL has a result that changes (an average so far, a rank), a query emits what is new, and the last one of each `key`
counts. Nobody is late: the watermark waits for as much disorder as there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.events import SCHEMAS, Site
from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.connectors.files import FileSource
from penstock.datastream import DataStream, MapBatchesFunction, StreamExecutionEnvironment
from penstock.datastream.aggregates import count
from penstock.datastream.functions import (
    AggregateFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

DOLLAR_IN_EUROS: Final = 0.908
TEN_SECONDS: Final = Time.seconds(10)


class Streams:
    """The three streams, with event time. Only the columns that are asked for are read."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, site: Site) -> None:
        self.env, self.folder, self.site = env, folder, site

    def __call__(self, kind: str, *columns: str) -> DataStream:
        source = FileSource.parquet(
            str(self.folder / kind), list(columns or SCHEMAS[kind].names), event_time_column="date_time"
        )
        in_order = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(self.site.bound_ms))
        return self.env.from_source(source, in_order, kind).uid(kind)


def q0(streams: Streams) -> DataStream:
    """Pass on: what it costs to do nothing."""
    return streams("bid", "auction", "bidder", "price", "date_time", "extra")


def q1(streams: Streams) -> DataStream:
    """Prices in euros."""
    bids = streams("bid", "auction", "bidder", "price", "date_time", "extra")
    return bids.with_column("price", pc.field("price") * DOLLAR_IN_EUROS)


def q2(streams: Streams) -> DataStream:
    """Bids on some auctions."""
    auction = pc.field("auction")
    bids = streams("bid", "auction", "price", "date_time").filter(auction == pc.divide(auction, 123) * 123)
    return bids.select("auction", "price")


class Sellers(KeyedCoProcessFunction):
    """Auctions wait for the person who offers them, and the person for all that they will offer."""

    def open(self, runtime_context: Any) -> None:
        self.person = runtime_context.get_state(ValueStateDescriptor("person", Types.PICKLED_BYTE_ARRAY()))
        self.offered = runtime_context.get_list_state(ListStateDescriptor("offered", Types.LONG()))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        person = (value.name, value.city, value.state)
        self.person.update(person)
        for auction in self.offered.get():
            yield (*person, auction)
        self.offered.clear()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        person = self.person.value()
        if person is None:
            self.offered.add(value.id)
        else:
            yield (*person, value.id)


def q3(streams: Streams) -> DataStream:
    """Who sells in category 10, in three states."""
    there = (pc.field("state") == "OR") | (pc.field("state") == "ID") | (pc.field("state") == "CA")
    persons = streams("person", "id", "name", "city", "state", "date_time").filter(there)
    auctions = streams("auction", "id", "seller", "category", "date_time").filter(pc.field("category") == 10)
    return persons.key_by("id").connect(auctions.key_by("seller")).process(Sellers())


class Winner(KeyedCoProcessFunction):
    """The best bid of an auction, when it is over: the highest price, of equal ones the first."""

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", Types.PICKLED_BYTE_ARRAY()))
        self.best = runtime_context.get_state(ValueStateDescriptor("best", Types.PICKLED_BYTE_ARRAY()))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", Types.PICKLED_BYTE_ARRAY()))

    def process_element1(self, value: Any, ctx: Any) -> None:
        auction = tuple(value)
        self.auction.update((value.date_time, value.expires, auction))
        ctx.timer_service().register_event_time_timer(value.expires)
        for bid in self.early.get():
            self._offer(bid, value.date_time, value.expires)
        self.early.clear()

    def process_element2(self, value: Any, ctx: Any) -> None:
        known = self.auction.value()
        bid = (value.price, value.date_time, value.bidder)
        if known is None:
            self.early.add(bid)
            ctx.timer_service().register_event_time_timer(value.date_time)  # no auction that begins later takes it
        else:
            self._offer(bid, known[0], known[1])

    def _offer(self, bid: tuple[int, int, int], begin: int, end: int) -> None:
        if begin <= bid[1] <= end:
            best = self.best.value()
            if best is None or (-bid[0], bid[1]) < (-best[0], best[1]):
                self.best.update(bid)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        known = self.auction.value()
        if known is None:
            waiting = [bid for bid in self.early.get() if bid[1] > timestamp]
            self.early.update(waiting)
        elif timestamp >= known[1]:
            best = self.best.value()
            self.auction.clear()
            self.best.clear()
            if best is not None:
                yield self.won(known[2], best)

    def won(self, auction: tuple[Any, ...], bid: tuple[int, int, int]) -> Any:
        """What is emitted."""
        price, time, bidder = bid
        return (*auction, bidder, price, time)


class WinningPrice(Winner):
    """(category, price) of auctions with the columns id, category, date_time, expires."""

    def won(self, auction: tuple[Any, ...], bid: tuple[int, int, int]) -> Any:
        return auction[1], bid[0]


def _with_bids(streams: Streams, winner: Winner, *columns: str) -> DataStream:
    auctions = streams("auction", *columns)
    bids = streams("bid", "auction", "bidder", "price", "date_time")
    return auctions.key_by("id").connect(bids.key_by("auction")).process(winner)


class Average(KeyedProcessFunction):
    """The average so far, rounded down."""

    def open(self, runtime_context: Any) -> None:
        self.so_far = runtime_context.get_state(ValueStateDescriptor("so far", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Any]:
        number, total = self.so_far.value() or (0, 0)
        number, total = number + 1, total + value[1]
        self.so_far.update((number, total))
        yield value[0], total // number


def q4(streams: Streams) -> DataStream:
    """The average winning price of each category."""
    prices = _with_bids(streams, WinningPrice(), "id", "category", "date_time", "expires")
    return prices.key_by(lambda price: price[0]).process(Average())


class Hottest(ProcessWindowFunction[Any, Any, Any, Any]):
    """Of the counts of one window, the largest: several if they are equal."""

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        counts = list(elements)
        most = max(row.num for row in counts)
        for row in counts:
            if row.num == most:
                yield row.auction, row.num, row.window_end


def q5(streams: Streams) -> DataStream:
    """The auctions with the most bids in the last ten seconds, every two."""
    bids = streams("bid", "auction", "date_time").key_by("auction")
    counts = bids.window(SlidingEventTimeWindows.of(TEN_SECONDS, Time.seconds(2))).agg(num=count())
    return counts.key_by("window_end").window(TumblingEventTimeWindows.of(Time.seconds(2))).process(Hottest())


class Highest(AggregateFunction):
    """The bids with the highest price."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        if accumulator and value[0] < accumulator[0][0]:
            return accumulator
        if accumulator and value[0] > accumulator[0][0]:
            accumulator.clear()
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        for value in acc_b:
            acc_a = self.add(value, acc_a)
        return acc_a


def _highest_of_block(batch: pa.RecordBatch, timestamps: pa.Array) -> Any:
    """Of each window in a block only the highest can be the highest of all."""
    window = pc.divide(timestamps, 10_000)
    highest = pa.table({"window": window, "price": batch["price"]}).group_by("window").aggregate([("price", "max")])
    place = pc.index_in(window, highest["window"].combine_chunks())
    keep = pc.equal(batch["price"], highest["price_max"].combine_chunks().take(place))
    return batch.filter(keep), timestamps.filter(keep)


class HighestOfBlock(MapBatchesFunction):
    """Leaves out what cannot be the highest of its ten seconds, before it is sent anywhere."""

    def map_batch(self, batch: pa.RecordBatch, timestamps: Any) -> Any:
        return _highest_of_block(batch, timestamps)


def q7(streams: Streams) -> DataStream:
    """The highest bid of every ten seconds."""
    columns = ("price", "auction", "bidder", "date_time", "extra")
    schema = pa.schema([SCHEMAS["bid"].field(name) for name in columns])
    bids = streams("bid", *columns).select(*columns).map_batches(HighestOfBlock(), schema).map(tuple)
    highest = bids.window_all(TumblingEventTimeWindows.of(TEN_SECONDS)).aggregate(Highest())
    return highest.flat_map(lambda found: found)


def _new_sellers(persons: list[Any], auctions: list[Any]) -> Iterator[Any]:
    if auctions:
        for person in persons:
            yield person.id, person.name, person.date_time // 10_000 * 10_000


def q8(streams: Streams) -> DataStream:
    """Who offered something within the ten seconds in which they came."""
    persons, auctions = streams("person", "id", "name", "date_time"), streams("auction", "seller", "date_time")
    both = persons.co_group(auctions).where(lambda person: person.id).equal_to(lambda auction: auction.seller)
    return both.window(TumblingEventTimeWindows.of(TEN_SECONDS)).apply(_new_sellers)


def q9(streams: Streams) -> DataStream:
    """The winning bid of every auction."""
    return _with_bids(streams, Winner(), *SCHEMAS["auction"].names)


def q11(streams: Streams) -> DataStream:
    """How often a user bids in one session."""
    bids = streams("bid", "bidder", "date_time").key_by("bidder")
    return bids.window(EventTimeSessionWindows.with_gap(TEN_SECONDS)).agg(bid_count=count())


def q12(streams: Streams) -> DataStream:
    """How often a user bids in ten seconds of the clock."""
    bids = streams("bid", "bidder", "date_time").key_by("bidder")
    return bids.window(TumblingProcessingTimeWindows.of(TEN_SECONDS)).agg(bid_count=count())


SIDE_INPUT: Final = 10_000


class WithSideInput(MapBatchesFunction):
    """Joins with a small table that is there from the beginning."""

    def open(self, runtime_context: Any) -> None:
        self.values = pa.array([f"value {key}" for key in range(SIDE_INPUT)])

    def map_batch(self, batch: pa.RecordBatch, timestamps: Any) -> Any:
        found = self.values.take(pa.array(batch["auction"].to_numpy() % SIDE_INPUT))
        return batch.append_column("value", found), timestamps


def q13(streams: Streams) -> DataStream:
    """Bids with what a side input says of their auction."""
    columns = ("auction", "bidder", "price", "date_time")
    schema = pa.schema([*(SCHEMAS["bid"].field(name) for name in columns), ("value", pa.string())])
    return streams("bid", *columns).map_batches(WithSideInput(), schema)


def _time_of_day(batch: pa.RecordBatch) -> pa.RecordBatch:
    hour = batch["date_time"].to_numpy() // 3_600_000 % 24
    day, night = (hour >= 8) & (hour <= 18), (hour <= 6) | (hour >= 20)
    kind = pa.array(["otherTime", "nightTime", "dayTime"]).take(pa.array(np.where(day, 2, np.where(night, 1, 0))))
    return batch.append_column("bid_time_type", kind).append_column("c_counts", pc.count_substring(batch["extra"], "c"))


def q14(streams: Streams) -> DataStream:
    """A calculation: euros, the time of day, a letter that is counted; a filter on the result."""
    columns = ("auction", "bidder", "price", "date_time", "extra")
    bids = streams("bid", *columns).with_column("price", pc.field("price") * DOLLAR_IN_EUROS)
    fields = {field.name: field.type for field in SCHEMAS["bid"]} | {"price": pa.float64()}
    schema = pa.schema(
        [*((name, fields[name]) for name in columns), ("bid_time_type", pa.string()), ("c_counts", pa.int32())]
    )
    chosen = bids.filter((pc.field("price") > 1_000_000) & (pc.field("price") < 50_000_000))
    return chosen.map_batches(_time_of_day, schema)


def _rank(price: int) -> int:
    return 1 if price < 10_000 else 2 if price < 1_000_000 else 3


def _day(time: int) -> str:
    return datetime.fromtimestamp(time // 86_400_000 * 86_400, UTC).strftime("%Y-%m-%d")


class Statistics(KeyedProcessFunction):
    """Bids, bidders and auctions of a day, by rank: 12 numbers so far, behind the key and the last minute."""

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_state(ValueStateDescriptor("counts", Types.PICKLED_BYTE_ARRAY()))
        numbers = Types.LONG()
        self.bidders = runtime_context.get_map_state(MapStateDescriptor("bidders", numbers, numbers))
        self.auctions = runtime_context.get_map_state(MapStateDescriptor("auctions", numbers, numbers))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        rank = _rank(value.price)
        last, counts = self.counts.value() or (0, [0] * 12)
        counts[0] += 1
        counts[rank] += 1
        for seen, one, first in ((self.bidders, value.bidder, 4), (self.auctions, value.auction, 8)):
            before = seen.get(one) or 0  # bit 0: seen at all, bits 1 to 3: with this rank
            now = before | 1 | 1 << rank
            if now != before:
                seen.put(one, now)
                counts[first] += not before
                counts[first + rank] += not before >> rank & 1
        last = max(last, value.date_time % 86_400_000 // 60_000)
        self.counts.update((last, counts))
        yield (*self.name(value), last, *counts)

    def name(self, value: Any) -> tuple[Any, ...]:
        """What the numbers are of."""
        return (_day(value.date_time),)


class ChannelStatistics(Statistics):
    """The same by channel."""

    def name(self, value: Any) -> tuple[Any, ...]:
        return value.channel, _day(value.date_time)


def q15(streams: Streams) -> DataStream:
    """Statistics of each day."""
    bids = streams("bid", "auction", "bidder", "price", "date_time")
    return bids.key_by(lambda bid: bid.date_time // 86_400_000).process(Statistics())


def q16(streams: Streams) -> DataStream:
    """Statistics of each day and channel."""
    bids = streams("bid", "auction", "bidder", "price", "channel", "date_time")
    return bids.key_by(lambda bid: (bid.channel, bid.date_time // 86_400_000)).process(ChannelStatistics())


class AuctionStatistics(KeyedProcessFunction):
    """Prices of an auction on a day."""

    def open(self, runtime_context: Any) -> None:
        self.so_far = runtime_context.get_state(ValueStateDescriptor("so far", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        price = value.price
        ranks, low, high, total = self.so_far.value() or ((0, 0, 0), price, price, 0)
        rank = _rank(price)
        ranks = tuple(number + (rank == which) for which, number in enumerate(ranks, 1))
        low, high, total = min(low, price), max(high, price), total + price
        self.so_far.update((ranks, low, high, total))
        number = sum(ranks)
        yield value.auction, _day(value.date_time), number, *ranks, low, high, total // number, total


def q17(streams: Streams) -> DataStream:
    """Prices of each auction and day."""
    bids = streams("bid", "auction", "price", "date_time")
    return bids.key_by(lambda bid: (bid.auction, bid.date_time // 86_400_000)).process(AuctionStatistics())


class Newest(KeyedProcessFunction):
    """A record that is newer than those before it."""

    def open(self, runtime_context: Any) -> None:
        self.newest = runtime_context.get_state(ValueStateDescriptor("newest", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        newest = self.newest.value()
        if newest is None or value.date_time > newest:
            self.newest.update(value.date_time)
            yield value


def q18(streams: Streams) -> DataStream:
    """The last bid of each bidder on each auction."""
    return streams("bid").key_by("bidder", "auction").process(Newest())


class Top(KeyedProcessFunction):
    """The ten highest bids of an auction; emits (auction, rank, price, …) for every rank that has changed."""

    def open(self, runtime_context: Any) -> None:
        self.top = runtime_context.get_state(ValueStateDescriptor("top", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        top = self.top.value() or []
        price = value.price
        if len(top) == 10 and price <= top[-1][0]:
            return
        place = next((at for at, bid in enumerate(top) if price > bid[0]), len(top))
        top.insert(place, (price, value.bidder, value.channel, value.url, value.date_time, value.extra))
        del top[10:]
        self.top.update(top)
        for at in range(place, len(top)):
            yield value.auction, at + 1, *top[at]


def q19(streams: Streams) -> DataStream:
    """The ten highest bids of every auction."""
    return streams("bid").key_by("auction").process(Top())


class Expanded(KeyedCoProcessFunction):
    """Bids with their auction, in whichever order they come."""

    def open(self, runtime_context: Any) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", Types.PICKLED_BYTE_ARRAY()))
        self.bids = runtime_context.get_list_state(ListStateDescriptor("bids", Types.PICKLED_BYTE_ARRAY()))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        auction = tuple(value)
        self.auction.update(auction)
        for bid in self.bids.get():
            yield bid + auction
        self.bids.clear()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        auction, bid = self.auction.value(), tuple(value)
        if auction is None:
            self.bids.add(bid)
        else:
            yield bid + auction


def q20(streams: Streams) -> DataStream:
    """Bids on auctions of category 10, with the auction."""
    auctions = streams("auction").filter(pc.field("category") == 10)
    return auctions.key_by("id").connect(streams("bid").key_by("auction")).process(Expanded())


def _folders(batch: pa.RecordBatch) -> pa.RecordBatch:
    parts = pc.split_pattern(batch["url"], "/")
    folders = [pc.list_element(parts, place) for place in (3, 4, 5)]
    kept = batch.select(["auction", "bidder", "price", "channel"])
    return pa.record_batch([*kept.columns, *folders], names=[*kept.schema.names, "dir1", "dir2", "dir3"])


def q22(streams: Streams) -> DataStream:
    """Three parts of a bid's address."""
    columns = ("auction", "bidder", "price", "channel")
    schema = pa.schema(
        [*(SCHEMAS["bid"].field(name) for name in columns), *((f"dir{n}", pa.string()) for n in (1, 2, 3))]
    )
    return streams("bid", *columns, "url", "date_time").map_batches(_folders, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """How a query is built; with `key` only the last row of each of the first so many columns counts."""

    build: Callable[[Streams], DataStream]
    key: int | None = None


QUERIES: Final[dict[str, Query]] = {
    **{build.__name__: Query(build=build) for build in (q0, q1, q2, q3, q5, q7, q8, q9, q11, q12, q13, q14, q20, q22)},
    "q4": Query(build=q4, key=1),
    "q15": Query(build=q15, key=1),
    "q16": Query(build=q16, key=2),
    "q17": Query(build=q17, key=2),
    "q18": Query(build=q18, key=2),
    "q19": Query(build=q19, key=2),
}
NAMES: Final = sorted(QUERIES, key=lambda name: int(name[1:]))
