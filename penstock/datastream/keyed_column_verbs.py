"""The verbs of streams keyed by columns that keep something of each key: running aggregates, the first or last record, the best
records. Part of KeyedStream.

They make no Python object of a record or a key. What they give changes: the newest row of a key counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types, schema_of
from penstock.datastream.aggregate_types import aggregated_type, check_aggregated, plain_of
from penstock.datastream.column_verbs import gives_columns
from penstock.errors import JobDefinitionError
from penstock.functions.aggregates import Aggregate, result_columns
from penstock.operators.base import Operator
from penstock.operators.keyed_choice import KeyedChoiceOperator
from penstock.operators.running_aggregation import RunningAggregationOperator
from penstock.operators.selectors import ColumnKeySelector, check_columns
from penstock.operators.top import TopOperator
from penstock.records.arrow_columns import plain_type
from penstock.records.key_index import can_be_indexed
from penstock.records.ordering import can_be_ordered

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream


class KeyedColumnVerbs:
    """The verbs of a KeyedStream that keep columns of each key (not in PyFlink)."""

    _type: TypeInformation | None
    _selector: Callable[[Any], Any]

    if TYPE_CHECKING:

        def _apply(
            self,
            name: str,
            operator: Operator,
            output_type: TypeInformation | None = None,
            *,
            stateful: bool = False,
            kind: str = "operator",
            parallelism: int | None = None,
            why_rows: str = "",
        ) -> DataStream: ...

    def agg(self, **aggregates: Aggregate) -> DataStream:
        """Running aggregates of each key: `agg(n=count(), total=sum_("amount"))` (not in PyFlink's DataStream). Needs key_by on
        column names, and columns or a declared row type.

        The result has the key columns and the aggregates, and it changes: the newest row of a key counts. Records that come
        together give one row for each of their keys, so how many rows of a key there are before its last is not specified.

        Example:

            clicks.key_by("user").agg(total=sum_("amount"))  # gives [Row(user="ann", total=3), Row(user="bob", total=4)]
        """
        keys = self._key_columns("agg")
        names = result_columns(keys, aggregates, bounds=())
        check_aggregated(aggregates, self._type)
        output_type = aggregated_type(names, keys, (), aggregates, self._type)
        return self._apply(
            "Running Aggregates", RunningAggregationOperator(keys, aggregates, self._type), output_type, stateful=True
        )

    def first(self, by: str | None = None, *, event_time: bool = False) -> DataStream:
        """The first record of each key, as it came (not in PyFlink's DataStream): once, when the key comes for the first time. With
        `by`, a column, or `event_time` the one that has the least; a record that has less than those before it is given
        when it comes, and the newest result of a key counts. Of equal ones the first stays. Null is more than every value.

        Example:

            clicks.key_by("user").first()  # gives [Row(user="ann", amount=3), Row(user="bob", amount=4)]
        """
        return self._choice("first", by, event_time)

    def last(self, by: str | None = None, *, event_time: bool = False) -> DataStream:
        """The last record of each key so far (not in PyFlink's DataStream): the newest result of a key counts. With `by`, a column,
        or `event_time` it is the one that has the most, and records that have less than one before them are dropped. Of
        records of a key that come together only the last is given. Null is less than every value.

        Example:

            clicks.key_by("user").last(by="amount")  # gives [Row(user="ann", amount=3), Row(user="bob", amount=4)]
        """
        return self._choice("last", by, event_time)

    def _choice(self, which: Literal["first", "last"], by: str | None, event_time: bool) -> DataStream:
        keys = self._key_columns(which)
        if by is not None and event_time:
            raise JobDefinitionError(
                f"{which} goes by a column, or by event time, not by both: it is given by={by!r} and event_time=True"
            )
        if by is not None:
            self._check_order(which, by)
        operator = KeyedChoiceOperator(keys, which, True if event_time else by, self._type)
        return self._apply(f"{which.title()} of Key", operator, self._type, stateful=True)

    def top(self, number: int, by: str, *, descending: bool = True, rank: str = "rank") -> DataStream:
        """The best records of each key: those that have the most in a column, with `descending=False` the least (not in PyFlink's
        DataStream). The result has their columns and `rank`, from 1 on, and it changes: the newest row of a key and rank counts.
        Records that come together give one row for each rank that they change. Of equal records the one that came first is
        before the others; null is the worst.

        Example:

            best = clicks.key_by("user").top(2, by="amount")
            best  # gives [Row(user="ann", amount=3, rank=1), Row(user="bob", amount=4, rank=1)]
        """
        keys = self._key_columns("top")
        self._check_number(number)
        self._check_order("top", by)
        output_type = None
        if isinstance(self._type, (RowTypeInfo, TupleTypeInfo)):
            names = self._type.get_field_names()
            if rank in names:
                raise JobDefinitionError(
                    f"top: the stream has a column {rank!r} already; give the rank another name with rank=…"
                )
            types = [plain_of(kind) for kind in self._type.get_field_types()]
            known = [kind for kind in types if kind is not None]
            output_type = RowTypeInfo([*known, Types.LONG()], [*names, rank]) if len(known) == len(types) else None
        operator = TopOperator(keys, number, by, descending, rank, self._type)
        return self._apply(f"Top {number}", operator, output_type, stateful=True)

    @staticmethod
    def _check_number(number: Any) -> None:
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise JobDefinitionError(f"top takes how many records of each key are wanted, from 1 on, not {number!r}")

    def _check_order(self, verb: str, by: Any) -> None:
        if not isinstance(by, str):
            raise JobDefinitionError(f"{verb} takes the name of a column, not {by!r}")
        check_columns([by], self._type, verb)
        schema = schema_of(self._type)
        kind = pa.null() if schema is None else schema.field(by).type
        if not can_be_ordered(plain_type(kind)):
            raise JobDefinitionError(f"{verb}: column {by!r} is of {kind}, which has no order")

    def _key_columns(self, verb: str) -> tuple[str, ...]:
        """The names of the key columns; refuses streams that have none."""
        selector = self._selector
        if not isinstance(selector, ColumnKeySelector):
            raise JobDefinitionError(
                f"{verb} names its key columns: key_by column names, as in key_by('user'), before it"
            )
        schema = schema_of(self._type)
        if schema is None and (self._type is not None or not gives_columns(self)):
            raise JobDefinitionError(
                f"{verb} works on columns, but this stream is of Python objects: declare their row type in the operator before "
                f"key_by (output_type=Types.ROW_NAMED(…)); it is {self._type}"
            )
        for name in selector.names:
            kind = pa.null() if schema is None else schema.field(name).type
            if not can_be_indexed(plain_type(kind)):
                raise JobDefinitionError(f"{verb}: column {name!r} is of {kind}, which cannot be a key of columns")
        return selector.names
