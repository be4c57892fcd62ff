"""Records as Flink shows them: the text that Java makes of a value of a declared type.

`print` of a stream with a declared type uses it, so that a program's output is the same on Flink and here. Without a type, both
show what Python's `str` makes of a value.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.common.types import Row


def java_text(value: Any, type_info: TypeInformation | None) -> str:
    """The text of a value: `+I[a, 1]` for a row, `(a,1)` for a tuple, `true`, `null`."""
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return str(value)
    if value is None:
        return "null"
    match type_info:
        case RowTypeInfo():
            kind = value.get_row_kind() if isinstance(value, Row) else "+I"
            return f"{kind}[{', '.join(_fields(value, type_info))}]"
        case TupleTypeInfo():
            return f"({','.join(_fields(value, type_info))})"
        case MapTypeInfo():
            pairs = (
                f"{_nested(k, type_info._key_type_info)}={_nested(v, type_info._value_type_info)}"
                for k, v in value.items()
            )
            return "{" + ", ".join(pairs) + "}"
        case BasicTypeInfo(_basic_type=BasicType.FLOAT):
            return _number(value, float(np.float32(value)), str(np.float32(value)))
    element = getattr(type_info, "_element_type", None)
    if isinstance(element, TypeInformation) and not isinstance(value, (bytes, bytearray)):
        return "[" + ", ".join(_nested(item, element) for item in value) + "]"
    return _plain(value)


def _nested(value: Any, type_info: TypeInformation) -> str:
    return "null" if value is None else _plain(value) if _is_pickled(type_info) else java_text(value, type_info)


def _is_pickled(type_info: TypeInformation) -> bool:
    return isinstance(type_info, PickledBytesTypeInfo)


def _fields(value: Iterable[Any], type_info: RowTypeInfo | TupleTypeInfo) -> Iterable[str]:
    return map(_nested, value, type_info.get_field_types())


def _plain(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _number(value, value, repr(value))
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime():  # before date, its base class
            fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
            return f"{value:%Y-%m-%d %H:%M:%S}.{fraction}"
        case datetime.time():
            return f"{value:%H:%M:%S}"
        case bytes() | bytearray():
            return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"
    return str(value)


def _number(value: Any, number: float, shortest: str) -> str:
    """Java's `Double.toString`: from 10⁻³ to 10⁷ with a point, others with an exponent, as in 1.0E10."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    digits = decimal.Decimal(shortest)
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        text = format(digits, "f")
        return text if "." in text else f"{text}.0"
    sign, figures, _ = digits.as_tuple()
    kept = "".join(map(str, figures)).rstrip("0") or "0"
    return f"{'-' if sign else ''}{kept[0]}.{kept[1:] or '0'}E{digits.adjusted()}"
