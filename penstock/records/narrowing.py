"""Whole numbers of a program's own collection that are too large for their declared type lose their upper bits, as in Flink.

Flink hands a collection to Java, which narrows a number to a SHORT or INT without a word. Penstock does the same to the same
numbers and says so. A LONG is not narrowed: what 64 bits do not hold is refused, as everything else that does not fit.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

from penstock.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation

_BITS: Final = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32}


def narrowed(values: list[Any], type_info: TypeInformation) -> list[Any]:
    """The values with such numbers cut to their type; the list itself if there are none. Looks at values, and at the fields
    of tuples and lists."""
    cut = [_narrow(value, type_info) for value in values]
    changed = [(old, new) for old, new in zip(values, cut, strict=True) if new is not old]
    if not changed:
        return values
    old, new = changed[0]
    warnings.warn(
        f"from_collection: {len(changed)} of {len(values)} values have numbers that are too large for the declared {type_info}; "
        f"as in Flink their upper bits are cut off: {old!r} becomes {new!r}",
        stacklevel=3,
    )
    return cut


def _narrow(value: Any, type_info: TypeInformation) -> Any:
    match type_info:
        case BasicTypeInfo() if type_info._basic_type in _BITS and type(value) is int:
            half = 1 << (_BITS[type_info._basic_type] - 1)
            return value if -half <= value < half else (value + half) % (2 * half) - half
        case RowTypeInfo() | TupleTypeInfo() if type(value) in (tuple, list):
            types = type_info.get_field_types()
            if len(types) != len(value):
                return value
            cut = [_narrow(item, field) for item, field in zip(value, types, strict=True)]
            same = all(new is old for new, old in zip(cut, value, strict=True))
            return value if same else type(value)(cut)
    return value
