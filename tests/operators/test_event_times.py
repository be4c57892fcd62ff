"""Event time is UTC, whatever zone a column of it is shown in."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common.watermark_strategy import ColumnTimestampAssigner
from penstock.operators.column_operators import FilterColumnsOperator
from penstock.records import Columns
from penstock.records.convert import event_times
from penstock.testing.harness import OperatorHarness


def _paris(*minutes: int) -> list[datetime.datetime]:
    """Around 2:00 of the night in which clocks go back from 3:00 to 2:00: they show every minute of it twice."""
    start = datetime.datetime(2026, 10, 25, 0, 0, tzinfo=datetime.UTC)
    return [start + datetime.timedelta(minutes=minute) for minute in minutes]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris", "America/New_York", "+01:00"])
def test_event_time_is_utc_also_in_the_hour_that_comes_twice_and_the_one_that_never_comes(
    unit: str, zone: str | None
) -> None:
    moments = [
        *_paris(-30, 0, 30, 59, 60, 61, 90, 119, 120),
        *(m.replace(month=3, day=29) for m in _paris(0, 30, 60, 90)),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 0, tzinfo=datetime.UTC),
    ]
    expected = [round(moment.timestamp() * 1000) for moment in moments]
    column = pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")).cast(pa.timestamp(unit))
    zoned = pa.array(column.cast(pa.int64()).to_numpy(), pa.int64()).cast(pa.timestamp(unit, zone))
    assert event_times(zoned, "here").tolist() == expected


def test_event_time_is_rounded_down_before_1970_too() -> None:
    column = pa.array([-1, -1000, -1001, 999], pa.timestamp("us", "Europe/Paris"))
    assert event_times(column, "here").tolist() == [-1, -1, -2, 0]


def test_an_hour_that_comes_twice_is_two_hours_for_windows() -> None:
    paris = ZoneInfo("Europe/Paris")
    shown = [moment.astimezone(paris) for moment in _paris(0, 60)]
    assert [moment.hour for moment in shown] == [2, 2]
    stamps: Sequence[int] = event_times(pa.array(shown, pa.timestamp("us", "Europe/Paris")), "here").tolist()
    assert stamps[1] - stamps[0] == 3_600_000


@pytest.mark.parametrize("stamp", [2.5, "5", None, True])
def test_what_is_no_event_time_in_a_column_is_none_in_a_record(stamp: Any) -> None:
    with pytest.raises(TypeError, match="event time must be an integer"):
        ColumnTimestampAssigner.millis(stamp)


@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.binary_view(), pa.string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_rows_are_filtered_out_of_columns_of_every_layout(kind: pa.DataType) -> None:
    values: list[Any] = [b"a", b"b", None] if pa.types.is_binary_view(kind) else ["a", "b", None]
    batch = pa.record_batch({"n": [1, 2, 3], "v": pa.array(values, kind)})
    harness = OperatorHarness(FilterColumnsOperator(pc.field("n") != 2)).push_block(Columns(batch))
    (kept,) = harness.output.blocks
    assert isinstance(kept, Columns)
    assert kept.batch.schema == batch.schema
    assert kept.batch.column("v").to_pylist() == [values[0], None]
