"""Arrow columns in a form that Arrow's own kernels can work on.

Several types say the same in another layout (string views, dictionaries, narrow decimals, half floats), and some kernels do
not know those: sorting, grouping and even taking rows. What the values are does not depend on the layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_t = pa.types


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that `plain` gives."""
    if _t.is_dictionary(kind) or _t.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if _t.is_string_view(kind):
        return pa.string()
    if _t.is_binary_view(kind):
        return pa.binary()
    if _t.is_decimal32(kind) or _t.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.float32() if _t.is_float16(kind) else kind


def plain(column: pa.Array) -> pa.Array:
    """The column in a layout that every kernel knows: decoded, copied only where it has to be."""
    kind = column.type
    if _t.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if _t.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(column))
    wanted = plain_type(kind)
    return column if wanted == kind else column.cast(wanted)


def one_nan(column: pa.Array) -> pa.Array:
    """NaNs of every sign and payload as the same one: as keys they are one, and kernels compare bits."""
    if not _t.is_floating(column.type) or not pc.any(pc.is_nan(column)).as_py():
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)


def take_rows(batch: pa.RecordBatch, rows: Any) -> pa.RecordBatch:
    """`batch.take`, also of columns that it does not know."""
    return _each_plain(batch, lambda plain_batch: plain_batch.take(rows))


def filter_rows(batch: pa.RecordBatch, mask: Any) -> pa.RecordBatch:
    """`batch.filter`, also of columns that it does not know."""
    return _each_plain(batch, lambda plain_batch: plain_batch.filter(mask))


def _each_plain(batch: pa.RecordBatch, do: Any) -> pa.RecordBatch:
    if not any(_is_view(field.type) for field in batch.schema):
        return do(batch)
    columns = [plain(column) if _is_view(column.type) else column for column in batch.columns]
    done = do(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    arrays = [column.cast(field.type) for column, field in zip(done.columns, batch.schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _is_view(kind: pa.DataType) -> bool:
    return bool(_t.is_string_view(kind) or _t.is_binary_view(kind))


def milliseconds(column: pa.Array) -> npt.NDArray[np.int64]:
    """Timestamps without nulls as milliseconds since 1970 in UTC, rounded down. A zone is only how they are shown: what is
    stored is UTC, and is taken as it is, since an hour that a clock shows twice cannot be taken back from its zone."""
    stored: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    match column.type.unit:
        case "s":
            if len(stored) and max(abs(int(stored.min())), abs(int(stored.max()))) > (2**63 - 1) // 1000:
                raise OverflowError("a timestamp in seconds is too large to be one in milliseconds")
            return stored * 1000
        case "ms":
            return stored
        case "us":
            return stored // 1000
    return stored // 1_000_000
