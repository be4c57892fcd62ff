from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.clickstream.clicks import Clickstream
from penstock.connectors.base import SplitEnumerator
from penstock.connectors.datagen import (
    ColumnGenerator,
    DataGeneratorSource,
    IndexArray,
    below,
    below_at,
    random_u64,
    random_u64_at,
)
from penstock.connectors.program import CollectionSource
from penstock.errors import JobDefinitionError, UserFunctionError
from penstock.testing.contracts import drain

_INTS = st.integers(0, 2**64 - 1)


@given(_INTS, st.integers(0, 9), st.lists(_INTS, min_size=1), st.integers(1, 2**32))
def test_numbers_over_arrays_and_over_ints_are_the_same(seed: int, stream: int, index: list[int], bound: int) -> None:
    array = np.array(index, dtype=np.uint64)
    assert random_u64(seed, stream, array).tolist() == [random_u64_at(seed, stream, i) for i in index]
    assert below(seed, stream, array, bound).tolist() == [below_at(seed, stream, i, bound) for i in index]


@settings(max_examples=30)
@given(st.integers(0, 2**40), st.integers(0, 2**63), st.integers(0, 50), st.sampled_from([0.0, 0.1, 1.0]))
def test_clicks_as_columns_and_as_rows_are_the_same(first: int, seed: int, step_ms: int, late: float) -> None:
    clicks = Clickstream(step_ms=step_ms, late_fraction=late, users=1000)
    index = np.arange(first, first + 20, dtype=np.uint64)
    columns = [tuple(row.values()) for row in clicks.generate(index, seed).to_pylist()]
    assert columns == [tuple(clicks.event(i, seed)) for i in range(first, first + 20)]


def test_ordinary_clicks_keep_the_disorder_bound_and_late_ones_break_it() -> None:
    clicks = Clickstream(step_ms=10, disorder_ms=200, late_fraction=0.02, late_ms=3_000)
    index = np.arange(20_000, dtype=np.uint64)
    times = clicks.generate(index, 1).column("event_time").to_numpy()
    late = clicks.late(index, 1)
    newest = np.maximum.accumulate(times)
    assert (newest - times)[~late].max() <= 200
    assert (newest - times)[~late].max() > 150, "there is disorder at all"
    assert (newest - times)[late].min() > 200
    assert 0.015 < late.mean() < 0.025


def test_a_few_users_make_most_clicks() -> None:
    users = Clickstream(users=1000, skew=3).generate(np.arange(50_000, dtype=np.uint64), 1).column("user").to_numpy()
    counts = np.sort(np.bincount(users, minlength=1000))[::-1]
    assert counts[:100].sum() > 0.4 * 50_000
    assert 0 <= users.min() <= users.max() < 1000


def test_the_records_do_not_depend_on_the_number_of_splits() -> None:
    def values(splits: int) -> set[int]:
        return {
            value for part in drain(DataGeneratorSource(lambda i: i, 10, splits=splits)).values() for value, _ in part
        }

    assert values(1) == values(3) == values(16) == set(range(10))


def _planned(enumerator: SplitEnumerator, now_ms: int, max_records: int | None = None) -> int:
    records = enumerator.plan(now_ms=now_ms, max_records=max_records).records
    assert records is not None
    return records


def test_the_rate_gives_what_elapsed_time_allows() -> None:
    enumerator = DataGeneratorSource(lambda i: i, None, rate_per_second=100).create_enumerator()
    assert [_planned(enumerator, ms) for ms in (5_000, 5_100, 5_105, 5_115, 6_115)] == [0, 10, 0, 1, 100]


def test_catching_up_is_bounded_to_two_seconds() -> None:
    enumerator = DataGeneratorSource(lambda i: i, None, rate_per_second=100).create_enumerator()
    assert [_planned(enumerator, ms) for ms in (0, 60_000, 60_100)] == [0, 200, 10]


def test_the_rate_goes_on_after_a_restore_without_a_burst() -> None:
    source = DataGeneratorSource(lambda i: i, None, splits=2, rate_per_second=100)
    enumerator = source.create_enumerator()
    _planned(enumerator, 0)
    state = json.loads(json.dumps(enumerator.plan(now_ms=1_000, max_records=None).state))
    restored = source.create_enumerator()
    restored.restore(state)
    first = restored.plan(now_ms=3_600_000, max_records=None)
    assert [split.start for split in first.ranges] == [split.end for split in first.ranges] == [50, 50]
    assert _planned(restored, 3_600_500) == 50


def test_a_rate_below_one_in_two_seconds_still_comes_through() -> None:
    enumerator = DataGeneratorSource(lambda i: i, None, rate_per_second=0.1).create_enumerator()
    assert sum(_planned(enumerator, second * 1_000) for second in range(101)) == 10


def test_an_endless_source_without_rate_still_ends_its_epochs() -> None:
    source = DataGeneratorSource(lambda i: i, None)
    assert not source.bounded
    plan = source.create_enumerator().plan(now_ms=0, max_records=None)
    assert not plan.finished
    assert plan.records
    assert not any(split.last for split in plan.ranges)


def test_a_checkpoint_of_another_number_of_splits_is_refused() -> None:
    plan = DataGeneratorSource(lambda i: i, 9, splits=3).create_enumerator().plan(now_ms=0, max_records=4)
    with pytest.raises(JobDefinitionError, match="3 splits, the program has 2"):
        DataGeneratorSource(lambda i: i, 9, splits=2).create_enumerator().restore(plan.state)


class _TooShort(ColumnGenerator):
    def generate(self, index: IndexArray, seed: int) -> pa.RecordBatch:
        return pa.record_batch({"i": index[1:]})


def test_a_column_generator_that_gives_too_few_rows_is_named() -> None:
    with pytest.raises(UserFunctionError, match=r"_TooShort.generate was asked for 5 rows .* and gave 4"):
        drain(DataGeneratorSource(_TooShort(), 5))


def test_epoch_cuts_of_a_collection_are_kept() -> None:
    enumerator = CollectionSource("abcdef", epochs=[2, 2, 5]).create_enumerator()
    plans = [enumerator.plan(now_ms=0, max_records=None) for _ in range(4)]
    assert [(plan.ranges[0].start, plan.ranges[0].end) for plan in plans] == [(0, 2), (2, 2), (2, 5), (5, 6)]
    assert [plan.finished for plan in plans] == [False, False, False, True]


def test_an_empty_collection_is_one_split_that_has_ended() -> None:
    plan = CollectionSource([]).create_enumerator().plan(now_ms=0, max_records=10)
    assert plan.finished
    assert [(split.start, split.end, split.last) for split in plan.ranges] == [(0, 0, True)]


def test_a_collection_shorter_than_its_checkpoint_is_refused() -> None:
    state = CollectionSource(range(5)).create_enumerator().plan(now_ms=0, max_records=None).state
    with pytest.raises(JobDefinitionError, match="position 5: the collection has only 3"):
        CollectionSource(range(3)).create_enumerator().restore(state)
