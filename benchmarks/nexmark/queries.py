"""The queries, each as one would write it for this API: on columns where a question is one of columns, else in functions.

Where SQL has a result that changes (an average so far, a rank), a query emits what is new, and the last one of each `key`
counts. Nobody is late: the watermark waits for as much disorder as there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark.events import SCHEMAS, Site
from benchmarks.nexmark.functions import Highest, Hottest, Winner
from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.connectors.files import FileSource
from penstock.datastream import DataStream, MapBatchesFunction, StreamExecutionEnvironment
from penstock.datastream.aggregates import count, max_, min_, sum_
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
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


def q3(streams: Streams) -> DataStream:
    """Who sells in category 10, in three states."""
    there = (pc.field("state") == "OR") | (pc.field("state") == "ID") | (pc.field("state") == "CA")
    persons = streams("person", "id", "name", "city", "state", "date_time").filter(there)
    auctions = streams("auction", "id", "seller", "category", "date_time").filter(pc.field("category") == 10)
    offered = persons.join(auctions).where("id").equal_to("seller")
    return offered.select(left=["name", "city", "state"], right=["id"])


def _in_time(streams: Streams, *columns: str) -> DataStream:
    """Auctions with each of their bids that came in time."""
    bids = streams("bid", "auction", "bidder", "price", "date_time")
    of_bid = {"bidder": "bidder", "price": "price", "bid_time": "date_time"}
    both = streams("auction", *columns).join(bids).where("id").equal_to("auction").select(left=columns, right=of_bid)
    bid_time = pc.field("bid_time")
    return both.filter((bid_time >= pc.field("date_time")) & (bid_time <= pc.field("expires")))


def q4(streams: Streams) -> DataStream:
    """The average winning price of each category."""
    bids = _in_time(streams, "id", "category", "date_time", "expires")
    winning = bids.key_by("category", "id").agg(price=max_("price"))  # so far: the newest of an auction counts
    return winning.key_by("category").process(Average())


def q5(streams: Streams) -> DataStream:
    """The auctions with the most bids in the last ten seconds, every two."""
    bids = streams("bid", "auction", "date_time").key_by("auction")
    counts = bids.window(SlidingEventTimeWindows.of(TEN_SECONDS, Time.seconds(2))).agg(num=count())
    return counts.key_by("window_end").window(TumblingEventTimeWindows.of(Time.seconds(2))).process(Hottest())


def _highest_of_block(batch: pa.RecordBatch, timestamps: pa.Array) -> Any:
    """Of each window in a block only the highest can be the highest of all."""
    window = pc.divide(timestamps, 10_000)
    highest = pa.table({"window": window, "price": batch["price"]}).group_by("window").aggregate([("price", "max")])
    place = pc.index_in(window, highest["window"].combine_chunks())
    keep = pc.equal(batch["price"], highest["price_max"].combine_chunks().take(place))
    return batch.filter(keep), timestamps.filter(keep)


class Average(KeyedProcessFunction):
    """The average of a category, rounded down, of a stream in which the newest price of an auction counts."""

    def open(self, runtime_context: Any) -> None:
        self.prices = runtime_context.get_map_state(MapStateDescriptor("prices", Types.LONG(), Types.LONG()))
        self.so_far = runtime_context.get_state(ValueStateDescriptor("so far"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        before = self.prices.get(value.id)
        self.prices.put(value.id, value.price)
        number, total = self.so_far.value() or (0, 0)
        number, total = number + (before is None), total + value.price - (before or 0)
        self.so_far.update((number, total))
        yield value.category, total // number


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


def q8(streams: Streams) -> DataStream:
    """Who offered something within the ten seconds in which they came."""
    ten_seconds = TumblingEventTimeWindows.of(TEN_SECONDS)
    persons, auctions = streams("person", "id", "name", "date_time"), streams("auction", "seller", "date_time")
    sellers = auctions.key_by("seller").window(ten_seconds).agg(offered=count())  # each once
    both = persons.join(sellers).where("id").equal_to("seller").window(ten_seconds)
    return both.select(left=["id", "name"], right=["window_start"])


def q9(streams: Streams) -> DataStream:
    """The winning bid of every auction. On columns, as q4, each bid would carry the texts of its auction: that is slower."""
    auctions = streams("auction", *SCHEMAS["auction"].names)
    bids = streams("bid", "auction", "bidder", "price", "date_time")
    return auctions.key_by("id").connect(bids.key_by("auction")).process(Winner())


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


_PLACES: Final = [f"n{place}" for place in range(12)]  # bids, bidders, auctions: all, and those of each rank


def _with_rank(batch: pa.RecordBatch) -> pa.RecordBatch:
    price, time = batch["price"].to_numpy(), batch["date_time"].to_numpy()
    rank = pa.array((1 + (price >= 10_000) + (price >= 1_000_000)).astype(np.int8))
    more = {"day": time // 86_400_000, "minute": time % 86_400_000 // 60_000, "rank": rank}
    kept = batch.drop_columns(["price", "date_time"])
    return pa.record_batch([*kept.columns, *map(pa.array, more.values())], names=[*kept.schema.names, *more])


class Once(MapBatchesFunction):
    """What a block has more than once is sent once."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = list(columns)

    def map_batch(self, batch: pa.RecordBatch, timestamps: Any) -> Any:
        found = pa.table(batch.select(self.columns)).group_by(self.columns, use_threads=False).aggregate([])
        return found, pa.repeat(pc.max(timestamps), found.num_rows)


class Counted(MapBatchesFunction):
    """How many rows of a block have each key: in all, by rank, or both; in the places from `first` on."""

    def __init__(self, keys: Sequence[str], first: int, *, whole: bool = False, ranks: bool = False) -> None:
        self.keys, self.first, self.whole, self.ranks = keys, first, whole, ranks

    def map_batch(self, batch: pa.RecordBatch, timestamps: Any) -> Any:
        counted = {"n0": np.ones(batch.num_rows, np.int64)} if self.whole else {}
        if self.ranks:
            rank = batch["rank"].to_numpy()
            counted |= {f"n{place}": (rank == place).astype(np.int64) for place in (1, 2, 3)}
        minute = batch["minute"] if "minute" in batch.schema.names else np.zeros(batch.num_rows, np.int64)
        given = {**{name: batch[name] for name in self.keys}, "minute": minute, **counted}
        sums = [(name, "sum") for name in counted]
        found = pa.table(given).group_by(list(self.keys)).aggregate([*sums, ("minute", "max")])
        none = pa.array(np.zeros(found.num_rows, np.int64))
        places = {f"n{self.first + int(name[1:])}": found[f"{name}_sum"] for name in counted}
        columns = [*(found[name] for name in self.keys), found["minute_max"], *(places.get(n, none) for n in _PLACES)]
        newest = pc.max(timestamps)
        return pa.table(columns, names=[*self.keys, "minute", *_PLACES]), pa.repeat(newest, found.num_rows)


def _with_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    day = pc.strftime(batch["day"].cast(pa.int32()).cast(pa.date32()), "%Y-%m-%d")
    place = batch.schema.get_field_index("day")
    return batch.set_column(place, "day", day)


def _statistics(streams: Streams, *of: str) -> DataStream:
    """Bids, bidders and auctions of each day, and of some column beside it; all, and those of each rank of prices."""
    keys = [*of, "day"]
    texts = [(name, SCHEMAS["bid"].field(name).type) for name in of]
    numbers = [(name, pa.int64()) for name in ("auction", "bidder", "day", "minute")]
    ranked = streams("bid", "auction", "bidder", *of, "price", "date_time").map_batches(
        _with_rank, pa.schema([*numbers[:2], *texts, *numbers[2:], ("rank", pa.int8())])
    )
    counts = pa.schema([*texts, ("day", pa.int64()), ("minute", pa.int64()), *((name, pa.int64()) for name in _PLACES)])

    def seen(who: str, first: int) -> list[DataStream]:
        """Each bidder, or auction, once of each rank; and once."""
        each = [*keys, "rank", who]
        schema = pa.schema([*texts, ("day", pa.int64()), ("rank", pa.int8()), (who, pa.int64())])
        by_rank = ranked.map_batches(Once(each), schema).key_by(*each).first()
        whole = by_rank.key_by(*keys, who).first()
        of_ranks, of_all = Counted(keys, first, ranks=True), Counted(keys, first, whole=True)
        return [by_rank.map_batches(of_ranks, counts), whole.map_batches(of_all, counts)]

    bids = ranked.map_batches(Counted(keys, 0, whole=True, ranks=True), counts)
    parts = bids.union(*seen("bidder", 4), *seen("auction", 8)).key_by(*keys)
    found = parts.agg(minute=max_("minute"), **{name: sum_(name) for name in _PLACES})
    schema = pa.schema([*texts, ("day", pa.string()), *list(counts)[len(keys) :]])
    return found.map_batches(_with_names, schema)


def q15(streams: Streams) -> DataStream:
    """Statistics of each day."""
    return _statistics(streams)


def q16(streams: Streams) -> DataStream:
    """Statistics of each day and channel."""
    return _statistics(streams, "channel")


def _ranked(batch: pa.RecordBatch) -> pa.RecordBatch:
    price = batch["price"].to_numpy()
    ranks = [price < 10_000, (price >= 10_000) & (price < 1_000_000), price >= 1_000_000]
    columns = [batch["auction"], pa.array(batch["date_time"].to_numpy() // 86_400_000), batch["price"]]
    return pa.record_batch([*columns, *(pa.array(rank.astype(np.int8)) for rank in ranks)], names=_RANKED.names)


_RANKED: Final = pa.schema(
    [*((name, pa.int64()) for name in ("auction", "day", "price")), *((f"rank{n}", pa.int8()) for n in (1, 2, 3))]
)


def _with_average(batch: pa.RecordBatch) -> pa.RecordBatch:
    day = pc.strftime(batch["day"].cast(pa.int32()).cast(pa.date32()), "%Y-%m-%d")
    average = pa.array(batch["sum"].to_numpy() // batch["number"].to_numpy())
    columns = [batch["auction"], day, *batch.columns[2:8], average, batch["sum"]]
    return pa.record_batch(columns, names=_PRICES.names)


_PRICES: Final = pa.schema(
    [
        ("auction", pa.int64()),
        ("day", pa.string()),
        *((name, pa.int64()) for name in ("number", "rank1", "rank2", "rank3", "low", "high", "average", "sum")),
    ]
)


def q17(streams: Streams) -> DataStream:
    """Prices of each auction and day."""
    bids = streams("bid", "auction", "price", "date_time").map_batches(_ranked, _RANKED).key_by("auction", "day")
    ranks = {f"rank{n}": sum_(f"rank{n}") for n in (1, 2, 3)}
    prices = bids.agg(number=count(), **ranks, low=min_("price"), high=max_("price"), sum=sum_("price"))
    return prices.map_batches(_with_average, _PRICES)


def q18(streams: Streams) -> DataStream:
    """The last bid of each bidder on each auction."""
    return streams("bid").key_by("bidder", "auction").last(by="date_time")


def q19(streams: Streams) -> DataStream:
    """The ten highest bids of every auction."""
    columns = ("auction", "rank", "price", *(name for name in SCHEMAS["bid"].names if name not in ("auction", "price")))
    return streams("bid").key_by("auction").top(10, by="price").select(*columns)


def q20(streams: Streams) -> DataStream:
    """Bids on auctions of category 10, with the auction."""
    auctions = streams("auction").filter(pc.field("category") == 10)
    expanded = streams("bid").join(auctions).where("auction").equal_to("id")
    both_have = ("date_time", "extra")
    of_auction = {f"auction_{name}" if name in both_have else name: name for name in SCHEMAS["auction"].names}
    return expanded.select(left=SCHEMAS["bid"].names, right=of_auction)


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
