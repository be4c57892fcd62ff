"""Clicks on a shop's pages, for demonstrations and soak tests: every event is a pure function of (seed, index), so a
verifier that knows both can recompute what a job should have answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.connectors.datagen import ColumnGenerator, IndexArray, below, below_at
from penstock.errors import JobDefinitionError

_USER, _PAGE, _AMOUNT, _JITTER, _IS_LATE, _LATENESS = range(6)  # one stream of random numbers for each
_UNIT = 1 << 32  # resolution of fractions

SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.int64()),
        pa.field("user", pa.int64()),
        pa.field("page", pa.string()),
        pa.field("amount", pa.int64()),
        pa.field("event_time", pa.int64()),
    ]
)


class Click(NamedTuple):
    """One event of the row flavour; `amount` is in cents, `event_time` in milliseconds."""

    event_id: int
    user: int
    page: str
    amount: int
    event_time: int


@dataclass(frozen=True, kw_only=True)
class Clickstream(ColumnGenerator):
    """Use `Clickstream()` itself as the generator for columns, `Clickstream().rows(seed)` for `Click` objects.

    * Event i belongs to the front `start_ms + i * step_ms`: the newest event time there can be at that point.
    * An ordinary event lies 0 to `disorder_ms` behind the front, so bounded disorder of `disorder_ms` catches them all.
    * A fraction `late_fraction` lies `late_ms` to 2 * `late_ms` behind it, beyond that bound (once the stream is 2 *
      `late_ms` old: earlier there is nothing to be late for).
    * Users are skewed by the power `skew`: 1 is uniform; with 3, one per cent of the users make a fifth of the clicks.
    """

    users: int = 10_000
    pages: int = 50
    skew: int = 3
    start_ms: int = 1_700_000_000_000
    step_ms: int = 1
    disorder_ms: int = 500
    late_fraction: float = 0.001
    late_ms: int = 10_000
    event_time_column: str | None = "event_time"

    def __post_init__(self) -> None:
        # Random numbers of 32 bits are multiplied with these bounds in 64 bits.
        for name in ("users", "pages", "skew"):
            if not 1 <= getattr(self, name) <= 1 << 31:
                raise JobDefinitionError(f"Clickstream: {name}={getattr(self, name)} must be in 1..2**31")
        if self.step_ms < 0 or not 0 <= self.disorder_ms < 1 << 31 or not 0 <= self.late_fraction <= 1:
            raise JobDefinitionError(
                f"Clickstream: step_ms={self.step_ms} and disorder_ms={self.disorder_ms} must not be negative and "
                f"late_fraction={self.late_fraction} must be in 0..1"
            )
        if self.late_fraction and not 2 * self.disorder_ms < self.late_ms < 1 << 31:
            raise JobDefinitionError(
                f"Clickstream: late_ms={self.late_ms} must be more than twice disorder_ms={self.disorder_ms}"
            )

    def generate(self, index: IndexArray, seed: int) -> pa.RecordBatch:
        late = self.late(index, seed)
        behind = below(seed, _JITTER, index, self.disorder_ms + 1)
        if late.any():
            behind[late] = below(seed, _LATENESS, index[late], self.late_ms + 1) + np.uint64(self.late_ms)
        front = index * np.uint64(self.step_ms) + np.uint64(self.start_ms)
        pages = pa.array([self.page(number) for number in range(self.pages)], pa.string())
        return pa.RecordBatch.from_arrays(
            [
                pa.array(index.view(np.int64)),
                pa.array(self._user(index, seed)),
                pages.take(pa.array(below(seed, _PAGE, index, self.pages))),
                pa.array((below(seed, _AMOUNT, index, 10_000) + np.uint64(1)).view(np.int64)),
                pa.array((front - behind).view(np.int64)),
            ],
            schema=SCHEMA,
        )

    def late(self, index: IndexArray, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of the events are really late."""
        chosen = below(seed, _IS_LATE, index, _UNIT) < np.uint64(round(self.late_fraction * _UNIT))
        result: np.ndarray[tuple[int], np.dtype[np.bool_]] = chosen & (
            index * np.uint64(self.step_ms) >= np.uint64(2 * self.late_ms)
        )
        return result

    def event(self, index: int, seed: int) -> Click:
        """The same event as `generate` gives, computed with Python's ints."""
        late = below_at(seed, _IS_LATE, index, _UNIT) < round(self.late_fraction * _UNIT)
        if late and index * self.step_ms >= 2 * self.late_ms:
            behind = self.late_ms + below_at(seed, _LATENESS, index, self.late_ms + 1)
        else:
            behind = below_at(seed, _JITTER, index, self.disorder_ms + 1)
        point = below_at(seed, _USER, index, _UNIT) / _UNIT
        skewed = 1.0
        for _ in range(self.skew):
            skewed *= point
        return Click(
            event_id=index,
            user=int(skewed * self.users),
            page=self.page(below_at(seed, _PAGE, index, self.pages)),
            amount=1 + below_at(seed, _AMOUNT, index, 10_000),
            event_time=self.start_ms + index * self.step_ms - behind,
        )

    def rows(self, seed: int) -> ClickRows:
        return ClickRows(self, seed)

    def page(self, number: int) -> str:
        return f"/page/{number}"

    def _user(self, index: IndexArray, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        # Repeated products, not pow: IEEE multiplication is exact everywhere, pow differs between math libraries.
        point = below(seed, _USER, index, _UNIT) / np.float64(_UNIT)
        skewed = np.ones(len(index))
        for _ in range(self.skew):
            skewed *= point
        return (skewed * self.users).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ClickRows:
    """A row function for `DataGeneratorSource`; use `timestamp_of=operator.attrgetter("event_time")`."""

    clickstream: Clickstream
    seed: int

    def __call__(self, index: int) -> Click:
        return self.clickstream.event(index, self.seed)
