"""Grouped aggregates over Arrow columns that never wrap around and do not depend on how rows were cut into blocks.

Arrow's sums are as wide as their column: 64 bits for integers, 38 digits for decimals, and what does not fit wraps. So a sum
that could overflow is made in 256 bits, and is *wide* until it fits again; whether it could is told by the largest value and
the number of rows, which costs one pass. A wide sum is a decimal256 of a precision that no other column has, so that its
type says what it is a sum of:

    int64 8 bytes ──▶ decimal256(40, 0) ──▶ int64 if it fits        the result of a window must fit, parts of it need not

Sums of decimals and durations are made alike. Of two zeros the negative one is the smaller, as in Flink, where Arrow takes
whichever came first.

Adding and comparing single Python values as whole columns are added and compared.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.records.arrow_columns import plain, plain_type
from penstock.records.dense_groups import grouped_densely

Finish: TypeAlias = Callable[[pa.Array], pa.Array]

_t = pa.types
_WIDEST: Final = 76  # digits of a decimal256

# Precision of the wide sum → the type of the sum if it fits. 60 is for decimals, whose scale goes with them.
_NARROW: Final[dict[int, pa.DataType]] = {
    40: pa.int64(),
    41: pa.uint64(),
    **{43 + index: pa.duration(unit) for index, unit in enumerate(("s", "ms", "us", "ns"))},
}
_WIDE: Final[dict[pa.DataType, pa.DataType]] = {kind: pa.decimal256(digits, 0) for digits, kind in _NARROW.items()}
_WIDE_DECIMAL: Final = 60


def sum_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of a sum over a column of this type; None if it has none."""
    if _t.is_dictionary(kind):
        return sum_type(kind.value_type)
    if _t.is_signed_integer(kind) or _t.is_null(kind):
        return pa.int64()
    if _t.is_unsigned_integer(kind) or _t.is_boolean(kind):
        return pa.uint64()
    if _t.is_floating(kind):
        return pa.float64()
    if _t.is_decimal256(kind):
        return pa.decimal256(_WIDEST, kind.scale)
    if _t.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    return kind if _t.is_duration(kind) else None


def has_order(kind: pa.DataType) -> bool:
    """Whether there is a smallest of its values."""
    return (not _t.is_nested(kind) and not _t.is_interval(kind)) or _t.is_dictionary(kind)


def grouped(
    table: pa.Table, by: Sequence[str], wanted: Sequence[tuple[str | None, str]]
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The distinct keys, and for each of `wanted` (a column, or None: the rows themselves; a function) its results."""
    keys = [table.column(name) for name in by]
    asked: list[tuple[pa.Array | None, str]] = []
    finishes: list[Finish] = []
    for column, function in wanted:
        prepared, finish = (None, _as_it_is) if column is None else _prepared(_one(table.column(column)), function)
        asked.append((prepared, function))
        finishes.append(finish)
    found, made = grouped_densely(keys, asked) or _grouped_by_hash(keys, asked)
    return found, [finish(array) for finish, array in zip(finishes, made, strict=True)]


def _grouped_by_hash(
    keys: Sequence[pa.ChunkedArray], asked: Sequence[tuple[pa.Array | None, str]]
) -> tuple[list[pa.Array], list[pa.Array]]:
    columns = {f"by {index}": key for index, key in enumerate(keys)}
    by = list(columns)
    wanted: list[tuple[Any, str]] = []
    for index, (column, function) in enumerate(asked):
        if column is not None:
            columns[f"of {index}"] = column
        wanted.append(([] if column is None else f"of {index}", function))
    result = pa.table(columns).group_by(by, use_threads=False).aggregate(wanted)
    arrays = [_one(column) for column in result.columns]  # keys, then results in the order they were asked for
    return arrays[: len(by)], arrays[len(by) :]


def unified(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """One table of batches of which some have wide sums where others have narrow ones."""
    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches):
        return pa.Table.from_batches(batches)
    fields = []
    for position, field in enumerate(first):
        kinds = {batch.schema.field(position).type for batch in batches} - {pa.null()}
        wide = [kind for kind in kinds if _is_wide(kind)]
        fields.append(field.with_type((wide or list(kinds) or [pa.null()])[0]))
    schema = pa.schema(fields, metadata=first.metadata)
    return pa.concat_tables([_cast(batch, schema) for batch in batches])


def partial_array(values: list[Any], kind: pa.DataType | None, function: str) -> pa.Array:
    """Partial results of windows over rows as those of a column of this type; None: as what they are. Sums may be wide."""
    if kind is None:
        return plain(pa.array(values))
    if function != "sum":
        return pa.array(values, plain_type(kind))
    total = sum_type(kind)
    try:
        return pa.array(values, total)
    except (pa.ArrowInvalid, OverflowError):
        wide = pa.decimal256(_WIDE_DECIMAL, kind.scale) if _t.is_decimal(kind) else _WIDE[total]
        return pa.array([None if value is None else Decimal(value) for value in values], wide)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    arrays = [
        _integers(column).cast(field.type) if _is_wide(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type of a column of partial results of which some blocks are of one type and some of the other; None if there is none.
    Sums may be wider in some, and a column of nulls only may have no type."""
    if one.equals(other) or _t.is_null(other):
        return one
    if _t.is_null(one) or (_is_wide(other) and _narrow_type(other).equals(one)):
        return other
    return one if _is_wide(one) and _narrow_type(one).equals(other) else None


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as one of a `common_type`."""
    if column.type.equals(kind):
        return column
    return (_integers(column) if _is_wide(kind) else column).cast(kind)


def final_sum(total: pa.Array) -> pa.Array:
    """The sum as a result, which must fit its type."""
    if not _is_wide(total.type):
        return total
    narrow = _narrowed(total)
    if not _is_wide(narrow.type):
        return narrow
    worst = max((value for value in narrow.to_pylist() if value is not None), key=abs)
    raise PenstockError(
        f"a sum is {worst}, which is too large for {_narrow_type(total.type)}: sum a wider or a smaller column, "
        "such as with_column(…, pc.field(…).cast('double')) before it is summed"
    )


def mean_of(total: pa.Array, number: pa.Array) -> pa.Array:
    """The quotient as floats. Where the sum is no 64-bit number its text is read as a float, which rounds once, as Python does;
    Arrow's cast of decimals rounds more often."""
    if _t.is_duration(total.type) or (_is_wide(total.type) and _t.is_duration(_narrow_type(total.type))):
        raise PenstockError("the mean of a column of durations is not known: use sum_(…) and count()")
    if _t.is_decimal(total.type):
        total = total.cast(pa.string())
    # Without a value that is not null the sum is null, and so is the quotient: nothing is divided by zero.
    return pc.divide(total.cast(pa.float64(), safe=False), number.cast(pa.float64(), safe=False))


# -------------------------------------------------------------------- before and after Arrow's kernels


def _prepared(column: pa.Array, function: str) -> tuple[pa.Array, Finish]:
    """The column as the kernel is to see it, and what makes its result one of the column."""
    column = plain(column)
    match function:
        case "sum":
            return _to_sum(column)
        case "min" | "max":
            return _to_compare(column, function)
    return column, _as_it_is


def _as_it_is(result: pa.Array) -> pa.Array:
    return result


def _to_sum(column: pa.Array) -> tuple[pa.Array, Finish]:
    kind = column.type
    total = kind if _is_wide(kind) else sum_type(kind)
    if total is None:
        raise PenstockError(f"a column of {kind} cannot be summed: only numbers and durations can")
    if _t.is_floating(kind) or _t.is_boolean(kind) or _t.is_null(kind):
        return column, _as_it_is
    if _is_wide(kind):
        return column, lambda sums: _narrowed(sums.cast(kind))
    largest = _largest(column)
    if _t.is_decimal(kind):
        digits = 38 if total.bit_width == 128 else _WIDEST
        if largest * len(column) < 10**digits:
            return column, _as_it_is
        if digits == _WIDEST:
            raise PenstockError(
                f"the sum of {len(column)} values up to {largest} of {kind} may need more than 76 digits"
            )
        wide = pa.decimal256(_WIDE_DECIMAL, kind.scale)
    else:
        if largest * len(column) < 2**63:
            if _t.is_duration(kind):
                return column.cast(pa.int64()), lambda sums: sums.cast(kind)
            return column, _as_it_is
        wide = _WIDE[total]
    return _integers(column).cast(wide), lambda sums: _narrowed(sums.cast(wide))


def _integers(column: pa.Array) -> pa.Array:
    """What can be cast to a decimal."""
    return column.cast(pa.int64()) if _t.is_duration(column.type) else column


def _largest(column: pa.Array) -> int:
    """The largest of all values, whatever their signs, without the point of decimals."""
    bounds = pc.min_max(_integers(column))
    scale = Fraction(10) ** (column.type.scale if _t.is_decimal(column.type) else 0)
    ends = [bounds[end].as_py() for end in ("min", "max")]
    return max((abs(int(Fraction(end) * scale)) for end in ends if end is not None), default=0)


def _is_wide(kind: pa.DataType) -> bool:
    if not _t.is_decimal256(kind):
        return False
    return bool(kind.precision == _WIDE_DECIMAL or (kind.precision in _NARROW and kind.scale == 0))


def _narrow_type(wide: pa.DataType) -> pa.DataType:
    return pa.decimal128(38, wide.scale) if wide.precision == _WIDE_DECIMAL else _NARROW[wide.precision]


def _narrowed(wide: pa.Array) -> pa.Array:
    """The wide sums as what they are sums of if all of them fit, else as they are."""
    kind = _narrow_type(wide.type)
    try:
        return wide.cast(pa.int64()).cast(kind) if _t.is_duration(kind) else wide.cast(kind)
    except pa.ArrowInvalid:
        return wide


def _to_compare(column: pa.Array, function: str) -> tuple[pa.Array, Finish]:
    kind = column.type
    if _t.is_duration(kind):
        return column.cast(pa.int64()), lambda found: found.cast(kind)
    if not has_order(kind):
        raise PenstockError(f"a column of {kind} has no smallest or largest value")
    if _t.is_floating(kind) and _negative_zeros(column):
        return _ordered(column, function), lambda found: _floats(found, kind)
    return column, _as_it_is


def _negative_zeros(column: pa.Array) -> bool:
    values = column.fill_null(1.0).to_numpy(zero_copy_only=False)
    return bool(np.any((values == 0) & np.signbit(values)))


def _ordered(column: pa.Array, function: str) -> pa.Array:
    """Floats as integers in the same order, -0.0 below 0.0. NaN is beyond everything, where it is found last."""
    doubles = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.ascontiguousarray(doubles).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    beyond = np.int64(2**63 - 1 if function == "min" else -(2**63))
    return pa.array(np.where(np.isnan(doubles), beyond, ordered), mask=column.is_null().to_numpy(zero_copy_only=False))


def _floats(found: pa.Array, kind: pa.DataType) -> pa.Array:
    ordered = found.fill_null(0).to_numpy(zero_copy_only=False)
    bits = np.where(ordered < 0, ordered ^ np.int64(2**63 - 1), ordered)
    doubles = np.ascontiguousarray(bits).view(np.float64)  # both ends of the integers are NaNs
    return pa.array(doubles, mask=found.is_null().to_numpy(zero_copy_only=False)).cast(kind)


def _one(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# Python's own context rounds to 28 digits.
_EXACT = Context(prec=min(MAX_PREC, 1_000_000), Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def exact_add(a: Any, b: Any) -> Any:
    """The sum, without rounding decimals."""
    if type(a) is Decimal and isinstance(b, (Decimal, int)):
        return _EXACT.add(a, b)
    if type(b) is Decimal and isinstance(a, int):
        return _EXACT.add(Decimal(a), b)
    return a + b


def is_less(a: Any, b: Any) -> bool:
    """Whether a is less than b; of two zeros the negative one is, as in Flink. Of moments the earlier one is: Python compares
    what clocks show where both are of one zone, and in autumn they show an hour twice."""
    if isinstance(a, datetime.datetime) and a.tzinfo is not None:
        return bool(a.astimezone(datetime.UTC) < b.astimezone(datetime.UTC))
    if a < b:
        return True
    return a == b == 0 and isinstance(a, float) and isinstance(b, float) and math.copysign(1, a) < math.copysign(1, b)


def comes_before(a: Any, b: Any) -> bool:
    """Whether a is less than b in the order of Java's `compareTo`: NaN is the largest, and equal to itself."""
    if a != a or b != b:
        return bool(a == a)
    return is_less(a, b)
