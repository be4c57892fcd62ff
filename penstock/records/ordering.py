"""The order of values, as whole numbers that compare as the values do.

Null is less than everything, NaN more than every other float, and -0.0 less than 0.0.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.records.arrow_columns import plain
from penstock.records.key_index import Longs

_LOWEST = -(2**63)
_t = pa.types


def can_be_ordered(kind: pa.DataType) -> bool:
    """Whether columns of this type, in its plain layout, have an order here."""
    return bool(
        _t.is_null(kind)
        or _t.is_boolean(kind)
        or _t.is_integer(kind)
        or _t.is_floating(kind)
        or (_t.is_temporal(kind) and not _t.is_interval(kind))
        or _t.is_decimal(kind)
        or _t.is_string(kind)
        or _t.is_large_string(kind)
        or _t.is_binary(kind)
        or _t.is_large_binary(kind)
    )


def ranks(column: pa.Array) -> Longs:
    """Numbers that compare as the values of this column do; those of another column are others."""
    column = plain(column)
    kind = column.type
    if not can_be_ordered(kind):
        raise PenstockError(f"a column of {kind} has no order")
    if _t.is_null(kind):
        return np.full(len(column), _LOWEST, np.int64)
    exact = _exact(column)
    # Whole numbers at the ends of the range leave none for null: then, as for text, what counts is the place in the order.
    if exact is None or (column.null_count and (exact.min() == _LOWEST or exact.max() == ~_LOWEST)):
        exact = pc.rank(column, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _LOWEST, exact) if column.null_count else exact


def _exact(column: pa.Array) -> Longs | None:
    kind = column.type
    if _t.is_boolean(kind) or (_t.is_integer(kind) and not _t.is_uint64(kind)):
        return _longs(column.cast(pa.int64()))
    if _t.is_uint64(kind):
        return _longs(column.view(pa.int64())) ^ np.int64(_LOWEST)
    if _t.is_floating(kind):
        doubles = np.ascontiguousarray(column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
        bits = np.where(np.isnan(doubles), np.float64("nan"), doubles).view(np.int64)
        return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    if _t.is_temporal(kind):
        return _longs(column.view(pa.int64() if kind.bit_width == 64 else pa.int32()))
    return None


def _longs(column: pa.Array) -> Longs:
    values: Longs = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)
