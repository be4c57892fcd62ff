"""Columns on their way between two processes: whole numbers take the bytes that their range in this batch needs.

    1700000000123 1700000000130 1700000000007    8 bytes each     ──▶     116 123 0    2 bytes each, from 1700000000007 on

Every byte of a batch is copied some ten times on its way through two Python processes and a JVM.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa

_FROM: Final = b"penstock.from"  # in the schema: place of a column → its type and least number
_LEAST_ROWS: Final = 1 << 13  # looking at them costs a tenth of a millisecond, however few they are
_TYPES: Final = {"int64": pa.int64(), **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")}}


def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The batch with 16 or 32 bits for numbers that do not need 64; None: there are none, or too few."""
    if batch.num_rows < _LEAST_ROWS or _FROM in (batch.schema.metadata or {}):
        return None
    arrays, fields, lows = list(batch.columns), list(batch.schema), {}
    for place, column in enumerate(batch.columns):
        kind = str(column.type)
        if kind not in _TYPES or column.null_count:
            continue
        numbers = column.view(pa.int64()).to_numpy()
        low = int(numbers.min())
        reach = int(numbers.max()) - low
        if reach < 1 << 32:
            arrays[place] = pa.array((numbers - low).astype(np.uint16 if reach < 1 << 16 else np.uint32))
            fields[place] = fields[place].with_type(arrays[place].type)
            lows[place] = (kind, low)
    if not lows:
        return None
    metadata = {**(batch.schema.metadata or {}), _FROM: json.dumps(lows).encode()}
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata))


def widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What `narrowed` was given."""
    metadata = dict(batch.schema.metadata)
    arrays, fields = list(batch.columns), list(batch.schema)
    lows: dict[str, tuple[str, int]] = json.loads(metadata.pop(_FROM))
    for key, (kind, low) in lows.items():
        place = int(key)
        numbers: Any = arrays[place].to_numpy().astype(np.int64)
        numbers += low
        arrays[place] = pa.array(numbers).view(_TYPES[kind])
        fields[place] = fields[place].with_type(_TYPES[kind])
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata or None))
