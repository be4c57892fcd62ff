"""Python values of columns as PySpark and PyFlink have them: a map is a dict, a struct is a Row.

Arrow itself gives a list of pairs for a map and a dict for a struct; it takes dicts for both. And it gives instants in a zone as
datetimes that name it, where PySpark has the bare time of the session's zone (`bare`).
"""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from penstock.common.types import Row, _create_row

_t = pa.types


def is_other(kind: pa.DataType, *, bare: bool = False) -> bool:
    """Whether a column's values are other ones than those that Arrow gives: it is, or holds, a map, a struct or an instant."""
    if _t.is_map(kind) or _t.is_struct(kind) or (bare and _is_instant(kind)):
        return True
    return _is_list(kind) and is_other(kind.value_type, bare=bare)


def python_value(value: Any, kind: pa.DataType, *, bare: bool = False) -> Any:
    """The user's value for what Arrow gave for a value of this type."""
    if value is None:
        return None
    if _t.is_map(kind):
        keys, items = kind.key_type, kind.item_type
        return {python_value(key, keys, bare=bare): python_value(item, items, bare=bare) for key, item in value}
    if _t.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        values = [python_value(value[field.name], field.type, bare=bare) for field in fields]
        return _create_row([field.name for field in fields], values)
    if _is_list(kind) and is_other(kind.value_type, bare=bare):
        return [python_value(element, kind.value_type, bare=bare) for element in value]
    return value.replace(tzinfo=None) if bare and _is_instant(kind) else value


def arrow_value(value: Any, kind: pa.DataType, *, bare: bool = False) -> Any:
    """The value as Arrow takes it. What is no value of the type is left as it is, for who checks it to say so."""
    if _t.is_map(kind) and isinstance(value, dict):
        keys, items = kind.key_type, kind.item_type
        return [(arrow_value(key, keys, bare=bare), arrow_value(item, items, bare=bare)) for key, item in value.items()]
    if _t.is_struct(kind) and isinstance(value, dict | Row):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        fields = _by_name(value, names)
        if fields is None or not fields.keys() <= set(names):
            return value
        return {name: arrow_value(item, kind.field(name).type, bare=bare) for name, item in fields.items()}
    if _is_list(kind) and is_other(kind.value_type, bare=bare) and isinstance(value, list | tuple):
        return [arrow_value(element, kind.value_type, bare=bare) for element in value]
    if bare and _is_instant(kind) and isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=ZoneInfo(kind.tz))
    return value


def _by_name(value: dict[str, Any] | Row, names: list[str]) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    own = names if value._fields is None else value._fields
    return dict(zip(own, value, strict=True)) if len(own) == len(value) else None


def _is_list(kind: pa.DataType) -> bool:
    return bool(_t.is_list(kind) or _t.is_large_list(kind) or _t.is_fixed_size_list(kind))


def _is_instant(kind: pa.DataType) -> bool:
    return bool(_t.is_timestamp(kind) and kind.tz is not None)
