"""Arrow types of Spark's columns as Penstock type information."""

from __future__ import annotations

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation, Types


def type_of_arrow(kind: pa.DataType) -> TypeInformation:
    for test, made in (
        (pa.types.is_string, Types.STRING),
        (pa.types.is_large_string, Types.STRING),
        (pa.types.is_boolean, Types.BOOLEAN),
        (pa.types.is_int8, Types.BYTE),
        (pa.types.is_int16, Types.SHORT),
        (pa.types.is_int32, Types.INT),
        (pa.types.is_int64, Types.LONG),
        (pa.types.is_float32, Types.FLOAT),
        (pa.types.is_float64, Types.DOUBLE),
        (pa.types.is_date, Types.SQL_DATE),
        (pa.types.is_timestamp, Types.SQL_TIMESTAMP),
    ):
        if test(kind):
            return made()
    return Types.PICKLED_BYTE_ARRAY()
