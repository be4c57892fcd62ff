"""Key selectors: of Python values, or of columns by name so that a columnar stream need not be materialised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common.types import Row, _create_row
from penstock.errors import JobDefinitionError, PenstockError
from penstock.functions import KeySelector
from penstock.records.convert import column_of
from penstock.state.keys import PLAIN_KEYS, normal_key

_OF_THE_USER: Final = "_penstock_selector"  # not `__wrapped__`, which functions of the user's may have


@dataclass(frozen=True, slots=True)
class ColumnKeySelector:
    """key_by("user") or key_by("user", "page"): on rows the field (or a tuple of fields), on columns the columns."""

    names: tuple[str, ...]
    positions: tuple[int, ...] | None = None  # of a declared type, whose records may be tuples without names

    def __call__(self, value: Any) -> Any:
        if self.positions is not None and isinstance(value, (tuple, list)):
            fields = [value[position] for position in self.positions]
        else:
            fields = [read_column(value, name) for name in self.names]
        return normal_key(fields[0] if len(fields) == 1 else tuple(fields))

    def reads_columns(self, batch: pa.RecordBatch) -> bool:
        """Whether keys can be taken from the columns: of lists, maps and structs the values of rows are compared."""
        return not any(pa.types.is_nested(column.type) for column in self.columns_of(batch))

    def columns_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of a batch."""
        return [column_of(batch, name, "key_by") for name in self.names]


def key_selector(
    key: Any, type_info: TypeInformation | None = None, key_type: TypeInformation | None = None
) -> Callable[[Any], Any]:
    """What gives the key of a record as routers and state compare it (`normal_key`), of the declared type."""
    selector = as_selector(key, type_info)
    if isinstance(selector, ColumnKeySelector):
        return selector  # columns have types of their own
    convert = _conversion(key_type)

    def select(value: Any) -> Any:
        key = selector(value)
        if convert is not None:
            key = convert(key)
        return key if type(key) in PLAIN_KEYS else normal_key(key)

    select.__dict__[_OF_THE_USER] = selector
    return select


def function_of(selector: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The user's own function in a key selector."""
    function: Callable[[Any], Any] = getattr(selector, _OF_THE_USER, selector)
    return function


def _conversion(key_type: TypeInformation | None) -> Callable[[Any], Any] | None:
    """Keys of a floating-point type are compared as Flink stores them: 1 and 1.0 are one DOUBLE, and numbers that 32 bits
    cannot tell apart are one FLOAT. None: keys of the type are compared as they are."""
    match key_type:
        case BasicTypeInfo(_basic_type=BasicType.DOUBLE):
            return _as_double
        case BasicTypeInfo(_basic_type=BasicType.FLOAT):
            return _as_single
        case RowTypeInfo() | TupleTypeInfo():
            steps = [_conversion(field) for field in key_type.get_field_types()]
            return None if not any(steps) else partial(_with_fields, steps)
    return None


def _as_double(key: Any) -> Any:
    return key if key is None else float(key)


def _as_single(key: Any) -> Any:
    return key if key is None else float(np.float32(key))


def _with_fields(steps: list[Callable[[Any], Any] | None], key: Any) -> Any:
    values = [value if step is None else step(value) for step, value in zip(steps, key, strict=True)]
    return _create_row(key._fields, values) if isinstance(key, Row) else tuple(values)


def read_column(value: Any, name: str) -> Any:
    """What a column of this name would hold for the record: an entry of a dict, a field of a Row, an attribute; of a tuple
    without names f0, f1, …"""
    try:
        return value[name]
    except (TypeError, KeyError, ValueError, IndexError):
        pass
    if (
        isinstance(value, (tuple, list, Row))
        and name[:1] == "f"
        and name[1:].isdecimal()
        and int(name[1:]) < len(value)
    ):
        return value[int(name[1:])]
    try:
        return getattr(value, name)
    except AttributeError:
        raise PenstockError(f"the record {value!r} has no column {name!r}") from None


def as_selector(key: Any, type_info: TypeInformation | None = None) -> Callable[[Any], Any]:
    """A KeySelector, a callable, a column name or a list of column names of a stream of this type."""
    if isinstance(key, str):
        return _column_selector((key,), type_info)
    if isinstance(key, Sequence) and key and all(isinstance(name, str) for name in key):
        return _column_selector(tuple(key), type_info)
    if isinstance(key, KeySelector):
        return key.get_key
    if callable(key):
        function: Callable[[Any], Any] = key
        return function
    raise JobDefinitionError(
        f"key_by takes a function, a KeySelector, a column name or a list of column names, not {key!r}"
    )


def _column_selector(names: tuple[str, ...], type_info: TypeInformation | None) -> ColumnKeySelector:
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return ColumnKeySelector(names)
    check_columns(names, type_info, "key_by")
    fields = type_info.get_field_names()
    return ColumnKeySelector(names, tuple(fields.index(name) for name in names))


def check_columns(names: Sequence[str], type_info: TypeInformation | None, verb: str) -> None:
    """While the program is built: refuse names that the declared type of the stream does not have."""
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        missing = [name for name in names if name not in type_info.get_field_names()]
        if missing:
            raise JobDefinitionError(
                f"{verb}: the stream has no column {', '.join(map(repr, missing))}; its columns are "
                f"{type_info.get_field_names()}"
            )
