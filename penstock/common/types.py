"""Rows: tuples whose fields may have names and whose kind says how they change a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from penstock.common.absent import Explaining


class RowKind(Explaining, Enum):
    """The change that a row stands for in a changelog; plain streams only hold INSERT."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return _SHORT_NAMES[self]


_SHORT_NAMES = {
    RowKind.INSERT: "+I",
    RowKind.UPDATE_BEFORE: "-U",
    RowKind.UPDATE_AFTER: "+U",
    RowKind.DELETE: "-D",
}


def _create_row(fields: Sequence[str] | None, values: Sequence[Any], row_kind: RowKind | None = None) -> Row:
    row = Row(*values)
    if fields is not None:
        row._fields = list(fields)
    if row_kind is not None:
        row._row_kind = row_kind
    return row


class _ReadByName:
    """Has a property for each name by which a field of a Row was read: `_read_quickly`."""

    __slots__ = ()


class Row(_ReadByName):
    """Values by position (`row[0]`) and, when they have names, by name (`row.age`, `row["age"]`).

    `Row(name="Alice", age=11)` has names; `Row("Alice", 11)` has none. A row without names also serves as a class of
    rows: `Person = Row("name", "age")`, then `Person("Alice", 11)` is `Row(name='Alice', age=11)`.

    Rows are equal when kind and values are, and names decide which value is compared with which: the order of named
    fields does not matter, and a row with names never equals one without. A row is hashable when its values are;
    do not change it while it is a key.
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    _fields: list[str] | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                f"A Row takes positional values or named ones, not both: got {len(args)} positional and "
                f"the names {list(kwargs)}"
            )
        self._fields = list(kwargs) if kwargs else None
        self._values: list[Any] = list(kwargs.values()) if kwargs else list(args)
        self._row_kind = RowKind.INSERT

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """A row of this kind, with values by position or by name."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def get_row_kind(self) -> RowKind:
        """The change that the row stands for: insert, update (before or after) or delete."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Changes the kind of the row."""
        self._row_kind = row_kind

    def set_field_names(self, field_names: list[str]) -> None:
        """Names the values, in their order."""
        self._fields = list(field_names)

    def get_fields_by_names(self, names: list[str]) -> list[Any]:
        """The values of `names`, in that order; all values of a row that has no names."""
        if self._fields is None or names == self._fields:
            return self._values
        missing = [name for name in names if name not in self._fields]
        if missing:
            raise KeyError(f"Fields {missing} are not among the fields {self._fields} of the row")
        return [self._values[self._fields.index(name)] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Names to values; with `recursive` also for rows inside, in lists and in dicts."""
        if self._fields is None:
            raise TypeError(f"{self!r} has no field names, so it cannot become a dict: use set_field_names first")
        values = [_rows_to_dicts(value) for value in self._values] if recursive else self._values
        return dict(zip(self._fields, values, strict=False))

    def __call__(self, *args: Any) -> Row:
        """A row with these values, named by the values of this one."""
        if len(args) > len(self):
            raise ValueError(f"{self!r} names {len(self)} fields but got {len(args)} values: {args}")
        return _create_row(self._values, args, self._row_kind)

    def __contains__(self, item: object) -> bool:
        return item in (self._values if self._fields is None else self._fields)

    def __getitem__(self, item: int | slice | str) -> Any:
        if type(item) is int or isinstance(item, (int, slice)):
            return self._values[item]
        return self._values[self._index_of(item)]

    def __setitem__(self, key: int | slice | str, value: Any) -> None:
        if isinstance(key, (int, slice)):
            self._values[key] = value
        else:
            self._values[self._index_of(key)] = value

    def _index_of(self, name: str) -> int:
        if self._fields is None:
            raise KeyError(name)
        try:
            return self._fields.index(name)
        except ValueError:
            # PyFlink's type, which jobs may catch.
            raise ValueError(name) from None

    def __getattr__(self, item: str) -> Any:
        # Only reached for names that are not slots. Names with an underscore must fail at once: pickle and copy ask
        # for some of them before the slots are filled.
        if item[:1] != "_":
            fields = self._fields
            if fields is not None and item in fields:
                _read_quickly(item)
                return self._values[fields.index(item)]
        raise AttributeError(item)

    def __reduce__(self) -> tuple[Any, ...]:
        return _create_row, (self._fields, tuple(self._values), self._row_kind)

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        named = zip(self._fields, self._values, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in named)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row) or type(self) is not type(other) or self._row_kind != other._row_kind:
            return False
        if self._fields == other._fields:
            return self._values == other._values
        if self._fields is None or other._fields is None or sorted(self._fields) != sorted(other._fields):
            return False
        return self._values == other.get_fields_by_names(self._fields)

    def __hash__(self) -> int:
        if self._fields is None:
            return hash(tuple(self._values))
        # Equal rows may hold their named fields in different orders, so the hash must not see the order.
        return hash(frozenset(zip(self._fields, self._values, strict=False)))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


_MOST_NAMES = 1_000


def _read_quickly(name: str) -> None:
    """Gives rows an attribute of this name. Python asks `__getattr__` only when it has looked everywhere else and made an
    error of that, which costs three times what reading the field does; so only the first row is read that way."""

    def field(row: Row) -> Any:
        try:
            return row._values[row._fields.index(name)]  # type: ignore[union-attr]
        except (AttributeError, ValueError):
            raise AttributeError(name) from None

    if len(_read_names) < _MOST_NAMES and name not in _read_names and not hasattr(Row, name):
        _read_names.add(name)
        setattr(_ReadByName, name, property(field, doc=f"The field {name!r}."))


_read_names: set[str] = set()


def _rows_to_dicts(value: Any) -> Any:
    match value:
        case Row():
            return value.as_dict(True)
        case list():
            return [_rows_to_dicts(item) for item in value]
        case dict():
            return {key: _rows_to_dicts(item) for key, item in value.items()}
        case _:
            return value
