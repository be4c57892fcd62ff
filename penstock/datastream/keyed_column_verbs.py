"""The verbs of streams keyed by columns that keep something of each key: running aggregates. Part of KeyedStream.

They make no Python object of a record or a key. What they give changes: the newest row of a key counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation, schema_of
from penstock.datastream.aggregate_types import aggregated_type, check_aggregated
from penstock.datastream.column_verbs import gives_columns
from penstock.errors import JobDefinitionError
from penstock.functions.aggregates import Aggregate, result_columns
from penstock.operators.base import Operator
from penstock.operators.running_aggregation import RunningAggregationOperator
from penstock.operators.selectors import ColumnKeySelector
from penstock.records.arrow_columns import plain_type
from penstock.records.key_index import can_be_indexed

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
