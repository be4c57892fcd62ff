"""Sessions over rows and sessions over columns are one contract: the same sessions of every key in the same order, the same late
records, whatever the blocks, the parallelism, and wherever the job failed or was rescaled; and they are those of plain words."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream.window import EventTimeSessionWindows
from penstock.operators import columnar_sessions, session_blocks
from penstock.operators.base import Operator
from penstock.operators.columnar_sessions import ColumnarSessionOperator
from tests.contract.window_paths import STATISTICS, Fleet, Record, columns, row_windows, rows
from tests.operators.windows_by_hand import MAX, MIN, WindowsByHand

# Few keys and times, so that records meet: on one session before and after a restore, on the edge of a watermark and of a gap.
# Quarters, so that sums of floats do not depend on their order.
values = st.one_of(st.none(), st.integers(-5, 5).map(lambda number: number / 4))
keys = st.sampled_from(["a", "b", "ab", None])
records = st.lists(st.tuples(keys, st.sampled_from([1, 2, None]), values, st.integers(-9, 25)), min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("records"), records),
        st.tuples(st.just("records"), records),
        st.tuples(st.just("watermark"), st.integers(-10, 30)),
        st.tuples(st.just("rescale"), st.sampled_from([1, 1, 2, 3])),
        st.tuples(st.just("crash"), st.none()),
    ),
    min_size=5,
    max_size=20,
)


def columnar_sessions_of(by: Sequence[str], assigner: Any) -> Operator:
    return ColumnarSessionOperator(by, assigner, STATISTICS, late_tag="late")


@contextmanager
def limits(gathered: int, blocks: int) -> Iterator[None]:
    """Of records that are grouped together, and of blocks before some are merged."""
    with (
        patch.object(columnar_sessions, "_GATHERED_ROWS", gathered),
        patch.object(session_blocks, "MAX_BLOCKS", blocks),
    ):
        yield


class Sessions:
    """What must come out, by hand."""

    def __init__(self, by: Sequence[str], gap: int) -> None:
        self._by, self._hand, self._number = len(by), WindowsByHand(gap=gap), 0

    def push(self, records: Sequence[Record]) -> None:
        for record in records:
            self._number += 1
            self._hand.element(record[: self._by], (self._number, record), record[3])

    def advance(self, watermark: int) -> None:
        self._hand.advance(watermark)

    def take(self) -> tuple[dict[Any, list[Any]], list[Record]]:
        fired: dict[Any, list[Any]] = {}
        for key, start, end, contents in sorted(self._hand.fired, key=lambda session: session[2]):
            found = [record[2] for _, record in contents if record[2] is not None]
            summary = (sum(found), min(found), max(found), sum(found) / len(found)) if found else (None,) * 4
            fired.setdefault(key, []).append((*key, start, end, len(contents), *summary, end - 1))
        late = [record for _, record in self._hand.late]
        self._hand.fired, self._hand.late = [], []
        return fired, late


def without_names(fired: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
    names = ("window_start", "window_end", *STATISTICS)
    assert all(row[0][-len(names) :] == names for found in fired.values() for row in found)
    return {key: [row[1:] for row in found] for key, found in fired.items()}


class Compared:
    """The same job by hand, over rows and over columns, step by step."""

    def __init__(self, gap: int, by: Sequence[str], block_size: int) -> None:
        assigner: Any = EventTimeSessionWindows(gap)
        self._hand = Sessions(by, gap)
        self._rows = Fleet(row_windows(by, assigner, 0), by, rows, 100)
        self._columns = Fleet(columnar_sessions_of(by, assigner), by, columns, block_size)
        self._fleets = (self._rows, self._columns)
        self._epoch: list[tuple[str, Any]] = []
        self._late: list[list[Any]] = [[], [], []]
        self._watermark = MIN
        self.late = self.fired = 0

    def step(self, kind: str, what: Any) -> None:
        match kind:
            case "records":
                self._do(kind, what)
                self._epoch.append((kind, what))
            case "watermark":
                self._do(kind, what)
                self._epoch.append((kind, what))
                if what > self._watermark:  # others go nowhere
                    self._watermark = what
                    self._compare_late()
            case "rescale":
                for fleet in self._fleets:
                    for harness in fleet.subtasks:
                        harness._open().end_epoch()  # what leaves at the barrier, before it is gone
                self._compare()
                self._compare_late()
                for fleet in self._fleets:
                    fleet.rescale(what)
                self._epoch = []
            case "crash":
                for fleet in self._fleets:
                    fleet.rollback()
                    for again, step in self._epoch:
                        fleet.push(step) if again == "records" else fleet.advance(step)
                (by_rows, _), (by_columns, _) = (fleet.take() for fleet in self._fleets)
                assert by_columns == by_rows
                for harness in self._columns.subtasks:
                    harness._open().end_epoch()
                self._columns.take()
                self._late = [[], [], []]

    def _do(self, kind: str, what: Any) -> None:
        for each in (self._hand, *self._fleets):
            each.push(what) if kind == "records" else each.advance(what)
        self._compare()

    def _compare(self) -> None:
        (expected, late), (by_rows, late_rows), (by_columns, late_columns) = (
            each.take() for each in (self._hand, *self._fleets)
        )
        assert by_columns == by_rows
        assert without_names(by_columns) == expected
        self.fired += sum(map(len, expected.values()))
        for found, more in zip(self._late, (late, late_rows, late_columns), strict=True):
            found.append(more)

    def _compare_late(self) -> None:
        """Over columns they leave when records are grouped, no later than the next watermark or barrier."""
        by_hand, by_rows, by_columns = self._late
        of_rows, of_columns = (
            [list(chain(*parts)) for parts in zip(*found, strict=True)] for found in (by_rows, by_columns)
        )
        assert of_columns == of_rows
        late = list(chain(*by_hand))
        assert sorted(map(repr, chain(*of_columns))) == sorted(map(repr, late))
        self.late += len(late)
        self._late = [[], [], []]


@settings(max_examples=300)
@given(
    gap=st.integers(1, 8),
    by=st.sampled_from([("key",), ("key", "part")]),
    block_size=st.sampled_from([1, 2, 3, 100]),
    gathered=st.sampled_from([1, 4, 1000]),
    blocks=st.sampled_from([2, 3, 16]),
    script=steps,
)
def test_rows_and_columns_and_plain_words_give_the_same_sessions_and_the_same_late_records(
    gap: int, by: tuple[str, ...], block_size: int, gathered: int, blocks: int, script: list[tuple[str, Any]]
) -> None:
    with limits(gathered, blocks):
        job = Compared(gap, by, block_size)
        for kind, what in [*script, ("watermark", MAX)]:
            job.step(kind, what)


@pytest.mark.parametrize("seed", range(12))
def test_uneven_streams_give_the_same_at_every_parallelism(seed: int) -> None:
    """Bursts and silences, records up to thrice the gap behind and some far behind, watermarks in jumps, barriers, crashes."""
    rng = random.Random(seed)
    gap, lag = rng.choice([3, 20, 100]), rng.choice([0, 10, 200])
    with limits(rng.choice([7, 50, 10_000]), rng.choice([2, 4, 16])):
        job = Compared(gap, ("key",) if seed % 2 else ("key", "part"), rng.choice([5, 64, 1000]))
        now = 0
        for _ in range(60):
            now += rng.choice([0, 1, gap // 2, gap, 4 * gap])
            made: list[Record] = []
            for _ in range(rng.choice([1, 10, 60])):
                key = rng.choice(["hot", "hot", None, *(f"k{n}" for n in range(rng.choice([3, 40])))])
                behind = rng.choice(
                    [
                        0,
                        rng.randint(0, gap),
                        rng.randint(0, 3 * gap),
                        rng.randint(0, 20 * gap) if rng.random() < 0.1 else 0,
                    ]
                )
                made.append((key, rng.choice([1, None]), rng.randint(-9, 9) / 4, now - behind))
            job.step("records", made)
            if rng.random() < 0.6:
                job.step("watermark", now - lag)
            if rng.random() < 0.2:
                job.step("rescale", rng.choice([1, 2, 7, 7]))
            elif rng.random() < 0.1:
                job.step("crash", None)
        job.step("watermark", MAX)
        assert job.fired > 100
        assert lag > 3 * gap or job.late > 10
