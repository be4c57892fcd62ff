"""The functions of the queries. They run in PyFlink's jobs, whose environment has no Penstock, and some of them in ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or find_spec("pyflink") is None:
    from penstock.common import Types
    from penstock.datastream.functions import (
        AggregateFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        ProcessWindowFunction,
    )
    from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
else:
    from pyflink.common import Types
    from pyflink.datastream import (
        AggregateFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        ProcessWindowFunction,
    )
    from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor


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


class Average(KeyedProcessFunction):
    """The average so far, rounded down."""

    def open(self, runtime_context: Any) -> None:
        self.so_far = runtime_context.get_state(ValueStateDescriptor("so far", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Any]:
        number, total = self.so_far.value() or (0, 0)
        number, total = number + 1, total + value[1]
        self.so_far.update((number, total))
        yield value[0], total // number


class Hottest(ProcessWindowFunction[Any, Any, Any, Any]):
    """Of the counts of one window, the largest: several if they are equal."""

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        counts = list(elements)
        most = max(row.num for row in counts)
        for row in counts:
            if row.num == most:
                yield row.auction, row.num, row.window_end


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


class Newest(KeyedProcessFunction):
    """A record that is newer than those before it."""

    def open(self, runtime_context: Any) -> None:
        self.newest = runtime_context.get_state(ValueStateDescriptor("newest", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        newest = self.newest.value()
        if newest is None or value.date_time > newest:
            self.newest.update(value.date_time)
            yield value


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
