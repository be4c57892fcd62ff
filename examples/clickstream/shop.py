"""The shop whose clicks the job reads: pure functions of an index, so that anybody can recompute every click.

The clicks behave like a log in a broker. They happen at a steady rate by the wall clock whether or not a job reads
them, so a job that was down finds a backlog when it comes back, and the watermark lag is simply the time of day minus
the watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from examples.clickstream.clicks import Click, Clickstream
from penstock.connectors.base import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.connectors.datagen import DataGeneratorSource, IndexArray
from penstock.records import Block, Rows

SPLITS = 4
DISORDER_MS = 500  # how far ordinary clicks are out of order
LATE_MS = 3_000  # stragglers come this late, up to twice as much


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Click i happens `i / clicks_per_ms` milliseconds after the shop opens."""

    opens_ms: int
    clicks: int
    clicks_per_ms: int = 16
    seed: int = 20

    def batch(self, index: IndexArray) -> pa.RecordBatch:
        """The clicks with these numbers, in the columns of `Click`."""
        batch = self._clickstream().generate(index, self.seed)
        times = batch.column("event_time").to_numpy() // self.clicks_per_ms
        return batch.set_column(batch.schema.get_field_index("event_time"), "event_time", pa.array(times))

    def table(self) -> pa.Table:
        """All clicks there will ever be."""
        return pa.Table.from_batches([self.batch(np.arange(self.clicks, dtype=np.uint64))])

    def stragglers(self) -> pa.Array:
        """Ids of the clicks that were made late on purpose; no other click may ever be called late."""
        index = np.arange(self.clicks, dtype=np.uint64)
        return pa.array(np.flatnonzero(self._clickstream().late(index, self.seed)))

    def made_ms(self, number: int) -> float:
        """When a click was made: it can be read from then on."""
        return self.opens_ms + number / self.clicks_per_ms

    def happened(self, now_ms: int) -> int:
        """How many clicks there have been at a moment."""
        return min(self.clicks, max(0, (now_ms - self.opens_ms) * self.clicks_per_ms))

    def _clickstream(self) -> Clickstream:
        # Clickstream's clock ticks once a click. It runs `clicks_per_ms` times as fast as ours and is divided after.
        tick = self.clicks_per_ms
        return Clickstream(
            users=5_000,
            pages=40,
            start_ms=self.opens_ms * tick,
            disorder_ms=DISORDER_MS * tick,
            late_ms=LATE_MS * tick,
            late_fraction=0.002,
        )


class LiveClicks(Source):
    """A bounded, replayable source in four splits that never runs ahead of the clock."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def create_enumerator(self) -> SplitEnumerator:
        # The generator source deals numbers to splits; only its enumerator is used, records come from our reader.
        numbers = DataGeneratorSource(int, self._shop.clicks, splits=SPLITS)
        return _LiveEnumerator(self._shop, numbers.create_enumerator())

    def create_reader(self) -> SplitReader:
        return _ClickReader(self._shop)

    @property
    def bounded(self) -> bool:
        return True


class _LiveEnumerator(SplitEnumerator):
    """Lets the inner enumerator deal what has happened by now. How much that is gets logged with the epoch's
    plan, so a repeated epoch reads the same clicks whatever the clock says then."""

    def __init__(self, shop: Shop, numbers: SplitEnumerator) -> None:
        self._shop = shop
        self._numbers = numbers
        self._dealt = 0

    def restore(self, state: Json) -> None:
        self._numbers.restore(state)
        self._dealt = sum(state["positions"])

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        waiting = max(0, self._shop.happened(now_ms) - self._dealt)
        plan = self._numbers.plan(
            now_ms=now_ms, max_records=waiting if max_records is None else min(waiting, max_records)
        )
        self._dealt = sum(plan.state["positions"])
        return plan


class _ClickReader(SplitReader):
    """Number g is record g // SPLITS of split g % SPLITS."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        for start in range(split.start, split.end, block_size):
            end = min(start + block_size, split.end)
            batch = self._shop.batch(
                np.arange(start, end, dtype=np.uint64) * np.uint64(SPLITS) + np.uint64(split.ordinal)
            )
            yield Rows(list(map(Click, *(column.to_pylist() for column in batch.columns))))
