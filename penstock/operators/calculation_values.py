"""What a calculation over a block works on: columns of numpy and Arrow, tuples of them, and the records as they came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.typeinfo import TupleTypeInfo, TypeInformation
from penstock.operators.positions import OF_ROWS
from penstock.records import Columns
from penstock.records.convert import field_values, fields_of, makes_rows, to_rows

EXACT: Final = 2**53  # whole numbers up to here are floats, too

Places: TypeAlias = npt.NDArray[np.int64]


class CalledInstead(Exception):
    """The function is to be called for each record."""


@dataclass(frozen=True)
class _Array:
    array: npt.NDArray[Any]

    def take(self, places: Places) -> Self:
        """What is at these places."""
        return type(self)(self.array[places])

    def listed(self, count: int) -> Iterable[Any]:
        """The values, of which there are so many, as Python's own."""
        values: list[Any] = self.array.tolist()
        return values


class Floats(_Array):
    """Of 64 bits."""


class Bools(_Array):
    """What comparisons give."""


@dataclass(frozen=True)
class Ints(_Array):
    """Whole numbers of 64 bits. `bounds`: between which they are, if that is known without looking."""

    bounds: tuple[int, int] | None = None

    @cached_property
    def between(self) -> tuple[int, int]:
        """Bounds that hold, if not always the narrowest."""
        if self.bounds is not None:
            return self.bounds
        return (int(self.array.min()), int(self.array.max())) if len(self.array) else (0, 0)

    @property
    def exact(self) -> bool:
        """Whether floats hold all of them."""
        low, high = self.between
        return low >= -EXACT and high <= EXACT


@dataclass(frozen=True)
class Others:
    """A column that nothing is calculated of, but texts may be compared."""

    column: pa.Array
    kind: TypeInformation

    def take(self, places: Places) -> Others:
        """What is at these places."""
        return Others(self.column.take(pa.array(places)), self.kind)

    def listed(self, count: int) -> Iterable[Any]:
        """The values."""
        return field_values(self.column, self.kind)


@dataclass(frozen=True)
class Tuple:
    """One tuple for each record. Fields that are no columns are the same in all."""

    fields: tuple[Value, ...]

    def take(self, places: Places) -> Tuple:
        """What is at these places."""
        return Tuple(tuple([part.take(places) if isinstance(part, MADE) else part for part in self.fields]))

    def listed(self, count: int) -> Iterable[Any]:
        """The tuples, of which there are so many."""
        parts = [part.listed(count) if isinstance(part, MADE) else repeat(part, count) for part in self.fields]
        return zip(*parts, strict=True)

    def at(self, position: Any) -> Value:
        """One field of all."""
        if type(position) is not int or not -len(self.fields) <= position < len(self.fields):
            raise CalledInstead
        return self.fields[position]


@dataclass(frozen=True)
class Given:
    """The records of a block: Rows with fields of these `names`, or tuples (None). `places`: of those that filters have kept."""

    batch: pa.RecordBatch
    type_info: TypeInformation | None
    types: list[TypeInformation]
    names: list[str] | None
    places: Places | None = None
    columns: dict[int, Column] = field(default_factory=dict)

    def take(self, places: Places) -> Given:
        """What is at these places."""
        kept = places if self.places is None else self.places[places]
        return Given(self.batch, self.type_info, self.types, self.names, kept)

    def listed(self, count: int) -> Iterable[Any]:
        """The records."""
        kept = self.batch if self.places is None else self.batch.take(pa.array(self.places))
        return to_rows(Columns(kept), self.type_info).values

    def at(self, position: Any) -> Value:
        """One field of all."""
        if type(position) is not int or not -len(self.types) <= position < len(self.types):
            raise CalledInstead
        position %= len(self.types)
        if position not in self.columns:
            column = _column(self.batch.column(position), self.types[position])
            self.columns[position] = column if self.places is None else column.take(self.places)
        return self.columns[position]

    def named(self, name: str) -> Value:
        """One field of all, by its name."""
        # One name twice, or one of Row's own: Python decides what is meant.
        if self.names is None or self.names.count(name) != 1 or name in OF_ROWS or name[:1] == "_":
            raise CalledInstead
        return self.at(self.names.index(name))


def records_of(batch: pa.RecordBatch, type_info: TypeInformation | None) -> Records:
    """The records of a block, or the values that they are."""
    names, types = fields_of(batch, type_info)
    if isinstance(type_info, TupleTypeInfo):
        return Given(batch, type_info, types, None)
    if makes_rows(batch, type_info):
        return Given(batch, type_info, types, names)
    return _column(batch.column(0), types[0])


def _column(column: pa.Array, kind: TypeInformation) -> Column:
    of_arrow = column.type
    if not column.null_count and not kind.need_conversion():
        if pa.types.is_integer(of_arrow) and of_arrow != pa.uint64():
            return Ints(column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False))
        if pa.types.is_floating(of_arrow) and of_arrow != pa.float16():
            return Floats(column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))
    return Others(column, kind)


Column: TypeAlias = Ints | Floats | Bools | Others
MADE: Final = Ints | Floats | Bools | Others | Tuple  # what a map can have made
Constant: TypeAlias = int | float | str | bool | None
Records: TypeAlias = Given | Column | Tuple
Value: TypeAlias = Records | Constant
