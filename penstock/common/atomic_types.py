"""Types without parts: what a type is, numbers, text, dates and times, and whatever is pickled.

A type whose `to_arrow` is not None promises that its values survive the trip: with `t = x.to_arrow()`,
`x.from_internal_type(exact_array([x.to_internal_type(v)], t).to_pylist()[0]) == v`, up to the precision the type declares
(FLOAT is 32 bits wide); what is no value of the type is refused. All others are pickled.
"""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from penstock.common.absent import Explaining
from penstock.errors import JobDefinitionError


class TypeInformation(Explaining):
    """The type of a record, a field, a key or a state. Immutable, picklable, equal and hashable by structure."""

    def to_arrow(self) -> pa.DataType | None:
        """The Arrow type its values travel as, or None when they must be pickled."""
        return None

    def need_conversion(self) -> bool:
        """Whether `to_internal_type` and `from_internal_type` do anything: if not, callers may skip them."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """A user's value as `pa.array` takes it."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Makes the user's value of one that Arrow's `to_pylist` gave."""
        return obj

    def _structure(self) -> tuple[Any, ...]:
        """What makes two types of one class equal."""
        return ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._structure() == other._structure()

    def __hash__(self) -> int:
        return hash((type(self), self._structure()))

    def __repr__(self) -> str:
        return type(self).__name__


class BasicType(Enum):
    """The basic types, each with Java's name of it."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


# BIG_INT and BIG_DEC have no largest precision and INSTANT has nanoseconds over the whole range of seconds: no Arrow
# type holds every value, so these are pickled rather than cut.
_ARROW_OF_BASIC: dict[BasicType, pa.DataType] = {
    BasicType.STRING: pa.string(),
    BasicType.BYTE: pa.int8(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.CHAR: pa.string(),
}


class BasicTypeInfo(TypeInformation):
    """Numbers, booleans, strings and instants."""

    def __init__(self, basic_type: BasicType) -> None:
        self._basic_type = basic_type

    def to_arrow(self) -> pa.DataType | None:
        return _ARROW_OF_BASIC.get(self._basic_type)

    def _structure(self) -> tuple[Any, ...]:
        return (self._basic_type,)

    def __repr__(self) -> str:
        return self._basic_type.value


class DateTypeInfo(TypeInformation):
    """The type of `datetime.date`."""

    def to_arrow(self) -> pa.DataType | None:
        return pa.date32()


class TimeTypeInfo(TypeInformation):
    """`datetime.time` without a time zone."""

    def to_arrow(self) -> pa.DataType | None:
        return pa.time64("us")


class TimestampTypeInfo(TypeInformation):
    """`datetime.datetime` without a time zone; one with a zone is refused."""

    def to_arrow(self) -> pa.DataType | None:
        return pa.timestamp("us")


class PickledBytesTypeInfo(TypeInformation):
    """Any picklable Python object: the type of a stream that declares none."""

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


_HINTS: Final = {str: "STRING", int: "LONG", float: "DOUBLE", bool: "BOOLEAN", bytes: "PICKLED_BYTE_ARRAY"}


def check_type(type_info: object, what: str) -> None:
    """Refuse what is no type while the program is built: `Types.STRING` without its brackets, `str`, "string"."""
    if isinstance(type_info, TypeInformation):
        return
    if inspect.isfunction(type_info) and type_info.__qualname__.startswith("Types."):
        raise JobDefinitionError(
            f"{what} is the function {type_info.__qualname__}: call it, {type_info.__qualname__}()"
        )
    hint = _HINTS.get(type_info, "STRING") if isinstance(type_info, type) else "STRING"
    raise JobDefinitionError(f"{what} must be a TypeInformation such as Types.{hint}(), not {type_info!r}")
