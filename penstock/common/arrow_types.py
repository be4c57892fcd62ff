"""Arrow types as Penstock type information, and back: what a columnar operator needs to know of a stream's type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types


class ArrowTypeInfo(TypeInformation):
    """A type of Arrow's that has no other name here: decimals, lists, structs, timestamps with a zone …"""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._arrow_type = arrow_type

    def to_arrow(self) -> pa.DataType | None:
        return self._arrow_type

    def _structure(self) -> tuple[Any, ...]:
        return (self._arrow_type,)

    def __repr__(self) -> str:
        return str(self._arrow_type)


# Equal ones only: an expression must find the type that the column really has.
_NAMED: list[tuple[pa.DataType, TypeInformation]] = [
    (pa.string(), Types.STRING()),
    (pa.large_string(), Types.STRING()),
    (pa.bool_(), Types.BOOLEAN()),
    (pa.int8(), Types.BYTE()),
    (pa.int16(), Types.SHORT()),
    (pa.int32(), Types.INT()),
    (pa.int64(), Types.LONG()),
    (pa.float32(), Types.FLOAT()),
    (pa.float64(), Types.DOUBLE()),
    (pa.date32(), Types.SQL_DATE()),
    (pa.timestamp("us"), Types.SQL_TIMESTAMP()),
]


def type_of_arrow(kind: pa.DataType) -> TypeInformation:
    return next((named for arrow, named in _NAMED if arrow == kind), None) or ArrowTypeInfo(kind)


def row_type_of(schema: pa.Schema) -> RowTypeInfo:
    return RowTypeInfo([type_of_arrow(field.type) for field in schema], list(schema.names))


def schema_of(type_info: TypeInformation | None) -> pa.Schema | None:
    """The columns that records of a declared row or tuple type travel as; None if they do not."""
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return None
    struct = type_info.to_arrow()
    return None if struct is None else pa.schema(list(struct))
