"""Type information: what a stream's records are, and whether they can travel as Arrow columns.

Arrow types as Penstock type information, and back: what a columnar operator needs to know of a stream's type.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.common.arrow_values import arrow_value, is_other, python_value
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
        """A `str`."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation:
        """An `int` of 8 bits."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """A `bool`."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation:
        """An `int` of 16 bits."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation:
        """An `int` of 32 bits."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation:
        """An `int` of 64 bits."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation:
        """A `float` of 32 bits: values lose precision on the way."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """A `float`."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation:
        """A `str` of one character."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """An `int` of any size."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """A `decimal.Decimal`."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation:
        """An `Instant`."""
        return BasicTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """A `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """A `datetime.time` without a time zone."""
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """A `datetime.datetime` without a time zone; one with a zone is refused."""
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any picklable Python object: the type of a stream that declares none."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: list[TypeInformation]) -> RowTypeInfo:
        """A `Row` with fields of these types, named f0, f1 …"""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[TypeInformation]) -> RowTypeInfo:
        """A `Row` with fields of these names and types.

        Example:

            Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.DOUBLE()])
        """
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TupleTypeInfo:
        """A `tuple` with fields of these types."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """A `list` of numbers, booleans or characters without None; of BYTE: `bytes`."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """A `list` of basic values; None is allowed."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """A `list` of values of any one type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """A `dict` with keys and values of these types."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """A `list` with elements of this type."""
        return ListTypeInfo(element_type_info)


class ArrowTypeInfo(TypeInformation):
    """A type of Arrow's that has no other name here: decimals, lists, structs, timestamps with a zone … Maps are dicts, and
    structs are rows."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._arrow_type = arrow_type

    def to_arrow(self) -> pa.DataType | None:
        return self._arrow_type

    def need_conversion(self) -> bool:
        return is_other(self._arrow_type)

    def to_internal_type(self, obj: Any) -> Any:
        return arrow_value(obj, self._arrow_type)

    def from_internal_type(self, obj: Any) -> Any:
        return python_value(obj, self._arrow_type)

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
    """The type that travels as this type of Arrow's."""
    return next((named for arrow, named in _NAMED if arrow == kind), None) or ArrowTypeInfo(kind)


def row_type_of(schema: pa.Schema) -> RowTypeInfo:
    """The row type with the names and types of this schema."""
    return RowTypeInfo([type_of_arrow(field.type) for field in schema], list(schema.names))


def schema_of(type_info: TypeInformation | None) -> pa.Schema | None:
    """The columns that records of a declared row or tuple type travel as; None if they do not."""
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return None
    struct = type_info.to_arrow()
    return None if struct is None else pa.schema(list(struct))
