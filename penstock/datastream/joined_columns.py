"""`select(left=…, right=…)` of joins: which columns the result has, and whether the join can be one of columns.

    orders.key_by("id").interval_join(payments.key_by("order"))
          .between(Time.seconds(0), Time.minutes(5))
          .select(left=["id", "user"], right={"paid": "cents"})      ─▶  id, user, paid

A join that cannot, because of its keys, its windows or what its streams are, runs record by record with the same results;
the plan says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, schema_of
from penstock.common.types import _create_row
from penstock.datastream.aggregate_types import plain_of
from penstock.datastream.column_verbs import gives_columns
from penstock.datastream.connected_streams import _two_inputs
from penstock.datastream.data_stream import DataStream
from penstock.errors import JobDefinitionError
from penstock.functions import ProcessJoinFunction
from penstock.operators.columnar_join import SIDES, ColumnarJoinOperator
from penstock.operators.selectors import ColumnKeySelector, check_columns, read_column
from penstock.records.convert import travels_as_arrow
from penstock.state.key_codes import kind_of_key

Chosen: TypeAlias = Sequence[str] | Mapping[str, str]
Both: TypeAlias = tuple[DataStream, DataStream]


class _JoinedColumns:
    """The columns of a join's result: by the name that each has there, of the left stream and of the right one."""

    def __init__(self, verb: str, streams: Both, selectors: tuple[Any, Any], left: Chosen, right: Chosen) -> None:
        self._verb, self._streams, self._selectors = verb, streams, selectors
        self.chosen = (self._named("left", left), self._named("right", right))
        both = [name for name in self.chosen[0] if name in self.chosen[1]]
        if both:
            raise JobDefinitionError(
                f"{verb}: both streams give a column {', '.join(map(repr, both))} to the result: give one of them another name, as "
                f"in right={{'right_{both[0]}': {self.chosen[1][both[0]]!r}}}"
            )
        if not any(self.chosen):
            raise JobDefinitionError(f"{verb}: the result has no columns: name some with left=[…] or right=[…]")
        for stream, columns in zip(streams, self.chosen, strict=True):
            check_columns(list(columns.values()), stream._type, verb)

    def _named(self, side: str, chosen: Chosen) -> dict[str, str]:
        pairs = dict(chosen) if isinstance(chosen, Mapping) else {}
        if not isinstance(chosen, (str, Mapping)):
            pairs = {name: name for name in chosen}
        listed = all(isinstance(name, str) for pair in pairs.items() for name in pair)
        if isinstance(chosen, str) or not listed or len(pairs) != len(chosen):
            raise JobDefinitionError(
                f"{self._verb}: {side} takes names of columns, each once, as in ['user', 'amount'], or new names with the "
                f"columns they are for, as in {{'paid': 'amount'}}; not {chosen!r}"
            )
        return pairs

    @property
    def names(self) -> list[str]:
        """The columns of the result."""
        return [*self.chosen[0], *self.chosen[1]]

    @property
    def types(self) -> tuple[TypeInformation | None, TypeInformation | None]:
        """The types of both streams."""
        return self._streams[0]._type, self._streams[1]._type

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The key columns of both streams, if `why_rows` finds nothing."""
        left, right = self._selectors
        return left.names, right.names

    def why_rows(self) -> str | None:
        """What keeps the streams and keys from a join of columns; None: nothing. JobDefinitionError for keys of columns that
        cannot be compared."""
        if not all(isinstance(selector, ColumnKeySelector) for selector in self._selectors):
            return "a key is a function of a record"
        for side, stream in zip(SIDES, self._streams, strict=True):
            if stream._type is not None and not travels_as_arrow(stream._type):
                return f"{stream._type} on the {side} has no columns"
            if stream._type is None and not gives_columns(stream):
                return f"the type of the {side} input is not declared"
        schemas = [schema_of(stream._type) for stream in self._streams]
        for schema, names in zip(schemas, self.keys, strict=True):
            if schema is not None and any(pa.types.is_nested(schema.field(name).type) for name in names):
                return "a key has parts"
        self._check_keys(schemas)
        return None

    def _check_keys(self, schemas: Sequence[pa.Schema | None]) -> None:
        left, right = self.keys
        if len(left) != len(right):
            raise JobDefinitionError(
                f"{self._verb}: the key of the left stream is {list(left)} and that of the right one {list(right)}: name as many "
                "columns of each"
            )
        one, other = schemas
        for mine, theirs in zip(left, right, strict=True):
            here, there = (None if s is None else s.field(n).type for s, n in ((one, mine), (other, theirs)))
            if here is not None and there is not None and kind_of_key(here) != kind_of_key(there):
                raise JobDefinitionError(
                    f"{self._verb}: {mine!r} of the left stream is of {here} and {theirs!r} of the right one of {there}: they are "
                    "never equal as columns; cast one of them before the join"
                )

    @property
    def result_type(self) -> TypeInformation | None:
        """The type of the result, if those of both streams are known."""
        types = []
        for kind, columns in zip(self.types, self.chosen, strict=True):
            if not isinstance(kind, (RowTypeInfo, TupleTypeInfo)):
                return None
            fields = dict(zip(kind.get_field_names(), kind.get_field_types(), strict=True))
            types += [plain_of(fields[column]) for column in columns.values()]
        known = [kind for kind in types if kind is not None]
        return RowTypeInfo(known, self.names) if len(known) == len(types) else None

    def joined(self, name: str, operator: ColumnarJoinOperator) -> DataStream:
        """The result of an operator over both streams."""
        left, right = (s.key_by(list(names)) for s, names in zip(self._streams, self.keys, strict=True))
        return _two_inputs(left, right, name, operator, self.result_type)

    def pair(self) -> PairOfRecords:
        """The function that gives the result for two records."""
        fields = []
        for kind, columns in zip(self.types, self.chosen, strict=True):
            declared = kind.get_field_names() if isinstance(kind, (RowTypeInfo, TupleTypeInfo)) else None
            fields.append([(name, None if declared is None else declared.index(name)) for name in columns.values()])
        return PairOfRecords(self.names, fields)


class PairOfRecords:
    """The chosen fields of two records as one named Row."""

    def __init__(self, names: Sequence[str], fields: Sequence[Sequence[tuple[str, int | None]]]) -> None:
        """`fields` of each record: a name, and its place in a declared type, whose records may be tuples without names."""
        self._names, self._fields = list(names), fields

    def __call__(self, left: Any, right: Any) -> Any:
        values = [
            record[place] if place is not None and isinstance(record, (tuple, list)) else read_column(record, name)
            for record, fields in ((left, self._fields[0]), (right, self._fields[1]))
            for name, place in fields
        ]
        return _create_row(self._names, values)


class PairsInInterval(ProcessJoinFunction):
    """The same as the function of an interval join."""

    def __init__(self, pair: PairOfRecords) -> None:
        self._pair = pair

    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield self._pair(left, right)
