"""Rolling aggregates of one field: sum, min, max, min_by, max_by. Each is a reduce function over whole records.

With sum, min and max only the field changes: the other fields are those of the key's first record, as in Flink. With
min_by and max_by the result is a record that came in, the first of several with the same value. Floats are in Java's order:
NaN is larger than everything, -0.0 less than 0.0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.common.types import Row
from penstock.errors import JobDefinitionError, PenstockError
from penstock.functions import ReduceFunction
from penstock.records.exact_sums import comes_before, exact_add

Field: TypeAlias = int | str


def check_field(field: Any, verb: str) -> Field:
    """A position or a field name, refused while the program is built if it is neither."""
    if isinstance(field, bool) or not isinstance(field, (int, str)):
        raise JobDefinitionError(f"{verb} takes the position of a field or its name, not {field!r}")
    if isinstance(field, int) and field < 0:
        raise JobDefinitionError(f"{verb}: positions count from 0, but the position is {field}")
    return field


def read_field(value: Any, field: Field) -> Any:
    """The field of a tuple, list, Row, dict or object; position 0 of a plain value is the value itself."""
    if isinstance(value, (Row, dict)):
        return value[field]
    if isinstance(value, (tuple, list)) and isinstance(field, int):
        return value[field]
    if isinstance(field, str):
        return getattr(value, field)
    if field == 0:
        return value
    raise PenstockError(f"{value!r} has no fields, only position 0, and so no position {field}")


def with_field(value: Any, field: Field, new: Any) -> Any:
    """A copy of the record with another value in one field; the record given is left alone."""
    match value, field:
        case Row(), _:
            copy = Row(*value)
            if value._fields is not None:
                copy.set_field_names(value._fields)
            copy.set_row_kind(value.get_row_kind())
            copy[field] = new
            return copy
        case dict(), _:
            return {**value, field: new}
        case list(), int():
            return [*value[:field], new, *value[field + 1 :]]
        case tuple(), int():
            changed = [*value[:field], new, *value[field + 1 :]]
            return value._make(changed) if hasattr(value, "_make") else tuple(changed)
        case tuple(), str() if hasattr(value, "_replace"):
            return value._replace(**{field: new})
        case _, str() if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(value, **{field: new})
        case _, 0:
            return new
    raise PenstockError(
        f"cannot set field {field!r} of a {type(value).__name__}: rolling aggregates work on tuples, lists, Rows, dicts, "
        "dataclasses and plain values; use reduce() for others"
    )


class FieldAggregate(ReduceFunction):
    """One field is folded, the others stay as they were first. `verb` and field tell in checkpoints what it makes."""

    def __init__(self, verb: str, field: Field, fold: Callable[[Any, Any], Any]) -> None:
        self.described = f"{verb}({field!r})"
        self._field, self._fold = field, fold

    def reduce(self, value1: Any, value2: Any) -> Any:
        field = self._field
        return with_field(value1, field, self._fold(read_field(value1, field), read_field(value2, field)))


class ExtremeRecord(ReduceFunction):
    """The record whose field is the smallest or largest; the earlier one if they are equal."""

    def __init__(self, verb: str, field: Field, replaces: Callable[[Any, Any], bool]) -> None:
        self.described = f"{verb}({field!r})"
        self._field, self._replaces = field, replaces

    def reduce(self, value1: Any, value2: Any) -> Any:
        field = self._field
        return value2 if self._replaces(read_field(value2, field), read_field(value1, field)) else value1


def _add(a: Any, b: Any) -> Any:
    return exact_add(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return b if comes_before(b, a) else a


def _larger(a: Any, b: Any) -> Any:
    return b if comes_before(a, b) else a


def _comes_after(a: Any, b: Any) -> bool:
    return comes_before(b, a)


def sum_of(field: Field) -> ReduceFunction:
    """Adds up a field."""
    return FieldAggregate("sum", field, _add)


def min_of(field: Field) -> ReduceFunction:
    """Keeps the smallest value of a field."""
    return FieldAggregate("min", field, _smaller)


def max_of(field: Field) -> ReduceFunction:
    """Keeps the largest value of a field."""
    return FieldAggregate("max", field, _larger)


def min_by(field: Field) -> ReduceFunction:
    """Keeps the record with the smallest value of a field."""
    return ExtremeRecord("min_by", field, comes_before)


def max_by(field: Field) -> ReduceFunction:
    """Keeps the record with the largest value of a field."""
    return ExtremeRecord("max_by", field, _comes_after)


class Projection:
    """`project`: the fields at some positions, as a tuple."""

    def __init__(self, positions: tuple[int, ...]) -> None:
        self._positions = positions

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return tuple(value[position] for position in self._positions)
