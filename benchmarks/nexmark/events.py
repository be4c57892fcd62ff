"""The events of an auction site: seeded, made as columns, in the proportions of Nexmark.

Of 50 events in a row one is a person, three are auctions and 46 are bids. Half of the bids go to one hot auction of the last
hundred, three quarters come from a hot bidder, three quarters of the auctions are a hot seller's; the others are spread over what
is in flight. Event `i` happens at `i / rate`; it arrives behind up to `disorder` later ones.

One stream each for `person`, `auction` and `bid`. Times are milliseconds since 1970, prices are cents.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.datagen import ColumnGenerator, IndexArray, random_u64

Longs: TypeAlias = npt.NDArray[np.int64]

KINDS: Final = ("person", "auction", "bid")
PERSONS, AUCTIONS, EVENTS = 1, 3, 50  # of so many events in a row
FIRST_ID: Final = 1000  # of persons and auctions
FIRST_CATEGORY, CATEGORIES = 10, 5
IN_FLIGHT, ACTIVE, LEAD, HOT = 100, 1000, 10, 100
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS: Final = 10_000
_POOL: Final = 997  # different texts of a kind

BEGINNING: Final = 1_700_000_000_000 // 86_400_000 * 86_400_000  # midnight: few days are cut

LONG, TEXT = pa.int64(), pa.string()
SCHEMAS: Final = {
    "person": pa.schema(
        [
            ("id", LONG),
            *((name, TEXT) for name in ("name", "email", "credit_card", "city", "state")),
            ("date_time", LONG),
            ("extra", TEXT),
        ]
    ),
    "auction": pa.schema(
        [
            ("id", LONG),
            ("item_name", TEXT),
            ("description", TEXT),
            ("initial_bid", LONG),
            ("reserve", LONG),
            ("date_time", LONG),
            ("expires", LONG),
            ("seller", LONG),
            ("category", LONG),
            ("extra", TEXT),
        ]
    ),
    "bid": pa.schema(
        [
            ("auction", LONG),
            ("bidder", LONG),
            ("price", LONG),
            ("channel", TEXT),
            ("url", TEXT),
            ("date_time", LONG),
            ("extra", TEXT),
        ]
    ),
}


SHARES: Final = {"person": PERSONS, "auction": AUCTIONS, "bid": EVENTS - PERSONS - AUCTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Which events there are. `rate` is per second of event time; `disorder` is in events."""

    events: int
    rate: int = 10_000
    disorder: int = 1_000
    seed: int = 1

    @property
    def bound_ms(self) -> int:
        """By how much an event may be behind: the bound of out-of-orderness that makes none late."""
        return self.disorder * 1000 // self.rate + 1

    def count(self, kind: str) -> int:
        """How many events of a kind there are."""
        return self.events // EVENTS * SHARES[kind]

    def columns(self, kind: str, index: npt.ArrayLike) -> pa.RecordBatch:
        """Events of a kind by their place in its stream: 0 is the first to arrive. They depend on the seed and the place alone."""
        return _Columns(self, kind, np.asarray(index, dtype=np.int64)).made()


class Events(ColumnGenerator):
    """The events of a kind for a `DataGeneratorSource`, which hands them out at a rate."""

    event_time_column = "date_time"

    def __init__(self, site: Site, kind: str) -> None:
        self._site, self._kind = site, kind

    def generate(self, index: IndexArray, seed: int) -> pa.RecordBatch:
        return self._site.columns(self._kind, index)


class _Columns:
    """Events of one kind, by number among all events. Each random choice is a hash of the number and of what is chosen."""

    def __init__(self, site: Site, kind: str, index: Longs) -> None:
        share = SHARES[kind]
        place = _shuffled(site.seed, index, site.disorder * share // EVENTS)
        first = {"person": 0, "auction": PERSONS, "bid": PERSONS + AUCTIONS}[kind]
        self.site, self.kind = site, kind
        self.number = place // share * EVENTS + first + place % share
        self.time = BEGINNING + self.number * 1000 // site.rate
        self.person = self.number // EVENTS  # the newest
        self.texts = _texts(site.seed)
        self._choices = 0

    def made(self) -> pa.RecordBatch:
        """All columns."""
        make = {"person": self._persons, "auction": self._auctions, "bid": self._bids}[self.kind]
        return pa.record_batch(make(), schema=SCHEMAS[self.kind])

    def _choice(self, bound: int | Longs) -> Longs:
        """One of 0, 1, … below `bound` for every event."""
        high = self._random() >> np.uint64(32)
        chosen: Longs = ((high * np.asarray(bound, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)
        return chosen

    def _random(self) -> IndexArray:
        self._choices += 1
        return random_u64(self.site.seed, 100 * KINDS.index(self.kind) + self._choices, self.number.astype(np.uint64))

    def _of(self, texts: pa.Array) -> pa.Array:
        return texts.take(pa.array(self._choice(len(texts))))

    def _prices(self) -> Longs:
        """From a dollar to a million, each order of magnitude as likely."""
        prices: Longs = np.rint(100 * 10 ** (6 * (self._random() >> np.uint64(11)) * 2.0**-53)).astype(np.int64)
        return prices

    def _someone(self) -> Longs:
        """One of the last thousand persons, or of those who come next."""
        active = np.minimum(self.person + 1, ACTIVE)
        someone: Longs = self.person + 1 - active + self._choice(active + LEAD)
        return someone

    def _persons(self) -> list[Any]:
        texts = self.texts
        return [
            FIRST_ID + self.person,
            *(self._of(text) for text in (texts.names, texts.emails, texts.cards, texts.cities, texts.states)),
            self.time,
            self._of(texts.person_extras),
        ]

    def _auctions(self) -> list[Any]:
        initial = self._prices()
        horizon = max(IN_FLIGHT * EVENTS // AUCTIONS * 1000 // self.site.rate, 1)  # until as many auctions are new
        hot = self._choice(4) > 0
        return [
            FIRST_ID + self.person * AUCTIONS + self.number % EVENTS - PERSONS,
            self._of(self.texts.items),
            self._of(self.texts.descriptions),
            initial,
            initial + self._prices(),
            self.time,
            self.time + 1 + self._choice(2 * horizon),
            FIRST_ID + np.where(hot, self.person // HOT * HOT, self._someone()),
            FIRST_CATEGORY + self._choice(CATEGORIES),
            self._of(self.texts.auction_extras),
        ]

    def _bids(self) -> list[Any]:
        newest = self.person * AUCTIONS + AUCTIONS - 1
        oldest = np.maximum(newest - IN_FLIGHT, 0)
        hot_auction, hot_bidder, hot_channel = self._choice(2) > 0, self._choice(4) > 0, self._choice(2) > 0
        others = len(HOT_CHANNELS) + self._choice(CHANNELS)
        channel = pa.array(np.where(hot_channel, self._choice(len(HOT_CHANNELS)), others))
        in_flight = oldest + self._choice(newest - oldest + 1 + LEAD)
        return [
            FIRST_ID + np.where(hot_auction, newest // HOT * HOT, in_flight),
            FIRST_ID + np.where(hot_bidder, self.person // HOT * HOT + 1, self._someone()),
            self._prices(),
            self.texts.channels.take(channel),
            self.texts.urls.take(channel),
            self.time,
            self._of(self.texts.bid_extras),
        ]


def _shuffled(seed: int, index: Longs, within: int) -> Longs:
    """A permutation that moves nothing further than `within`: in each run of so many a multiplication, which begins elsewhere."""
    if within < 2:
        return index
    factor = next(n for n in range(within * 5 // 8, within) if math.gcd(n, within) == 1)
    run, place = index // within, index % within
    start = (random_u64(seed, 99, run.astype(np.uint64)) % np.uint64(within)).astype(np.int64)
    return run * within + (place * factor + start) % within


@functools.lru_cache(maxsize=4)
def _texts(seed: int) -> _Texts:
    return _Texts(seed)


class _Texts:
    """Texts to choose from: random letters, of the lengths that make records as long as Nexmark's."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng([seed, 7])

        def pool(shortest: int, longest: int, count: int = _POOL) -> pa.Array:
            letters = random.integers(97, 123, (count, longest), dtype=np.uint8).tobytes().decode("ascii")
            lengths = random.integers(shortest, longest + 1, count).tolist()
            return pa.array([letters[n * longest : n * longest + length] for n, length in enumerate(lengths)])

        self.cities, self.states = pa.array(CITIES), pa.array(STATES)
        self.names = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
        self.emails = pa.array(
            [f"{name}@{host}.com" for name, host in zip(*(pool(4, 7).to_pylist() for _ in "nh"), strict=True)]
        )
        self.cards = pa.array([" ".join(f"{part:04}" for part in random.integers(0, 10_000, 4)) for _ in range(_POOL)])
        self.items, self.descriptions = pool(3, 20), pool(50, 100)
        self.person_extras, self.auction_extras, self.bid_extras = pool(60, 120), pool(280, 420), pool(50, 85)
        parts = pool(5, 5, 3 * (CHANNELS + len(HOT_CHANNELS))).to_pylist()
        urls = [
            f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1" for a, b, c in zip(*[iter(parts)] * 3, strict=True)
        ]
        named = [f"{url}&channel_id={n}" if n % 10 else url for n, url in enumerate(urls[len(HOT_CHANNELS) :])]
        self.channels = pa.array([*HOT_CHANNELS, *(f"channel-{n}" for n in range(CHANNELS))])
        self.urls = pa.array([*urls[: len(HOT_CHANNELS)], *named])


def write(site: Site, folder: Path, *, files: int, rows: int = 20_000) -> None:
    """Parquet files of each kind, `files` of them, to be read side by side: parts of a stream go to them in turn."""
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
        count = site.count(kind)
        part = max(1, min(rows, count // files))
        writers = [pq.ParquetWriter(folder / kind / f"part-{n}.parquet", SCHEMAS[kind]) for n in range(files)]
        for turn, start in enumerate(range(0, count, part)):
            writers[turn % files].write_batch(site.columns(kind, np.arange(start, min(start + part, count))))
        for writer in writers:
            writer.close()
