"""Type information: what a stream's records are, and whether they can travel as Arrow columns.

Arrow types as Penstock type information, and back: what a columnar operator needs to know of a stream's type.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.common.atomic_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    PickledBytesTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    check_type,
)
from penstock.common.composite_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "check_type",
]


class Types:
    """The factory of all types."""

    @staticmethod
    def STRING() -> TypeInformation:
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation:
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation:
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation:
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation:
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation:
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation:
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation:
        return BasicTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: list[TypeInformation]) -> RowTypeInfo:
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[TypeInformation]) -> RowTypeInfo:
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TupleTypeInfo:
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        return ListTypeInfo(element_type_info)


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
