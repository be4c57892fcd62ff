"""What operators over columns with event time have in common: records without a time, late records, times of windows' results."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.operators.base import OperatorContext
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.records import Columns, TimestampArray
from penstock.records.arrow_columns import filter_rows


def times_of(columns: Columns, ctx: OperatorContext, cannot: str, before: str) -> TimestampArray:
    """The times of records, which must have some; else an error says what the operator `cannot` do, and `before` what to assign
    them."""
    stamps = columns.timestamps
    if stamps is None or int(stamps.min()) == MIN_WATERMARK:
        raise PenstockError(
            f"operator {ctx.name!r} cannot {cannot} that has no timestamp: call assign_timestamps_and_watermarks(...) with a "
            f"timestamp assigner before the {before}"
        )
    return stamps


def drop_late(columns: Columns | None, late: npt.NDArray[np.bool_], ctx: OperatorContext, tag: str | None) -> None:
    """Counts records that are too late, or sends them to a side output; where there is none, nobody need have kept the records."""
    number = int(np.count_nonzero(late))
    if tag is None or not number:
        ctx.metrics.late_dropped += number
        return
    assert columns is not None
    assert columns.timestamps is not None
    ctx.metrics.records_out += number
    ctx.output.side(tag, Columns(filter_rows(columns.batch, pa.array(late)), columns.timestamps[late]))


def last_timestamps(ends: TimestampArray) -> TimestampArray:
    """The last millisecond of windows that end there, as `last_timestamp` of each."""
    return np.where(ends < MAX_WATERMARK, ends - 1, MAX_WATERMARK)
