"""The verbs of columnar streams: select, with_column, filter by an expression, map_batches. Part of DataStream.

They take every stream: on one of columns they make no Python object of a record, on one of Python objects they read fields
by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, row_type_of, schema_of, type_of_arrow
from penstock.errors import JobDefinitionError
from penstock.functions.elementwise import MapBatchesFunction
from penstock.operators.base import Operator
from penstock.operators.column_operators import (
    FilterColumnsOperator,
    MapBatchesOperator,
    SelectOperator,
    WithColumnOperator,
    type_in,
)
from penstock.operators.selectors import check_columns

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream
    from penstock.datastream.program import Origin
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


class ColumnVerbs:
    """The verbs of a DataStream that work on whole columns of a block (not in PyFlink)."""

    _env: StreamExecutionEnvironment
    _origins: list[Origin]
    _type: TypeInformation | None

    if TYPE_CHECKING:

        def _apply(self, name: str, operator: Operator, output_type: TypeInformation | None = None) -> DataStream: ...

    def select(self, *columns: str) -> DataStream:
        """The columns of these names, in this order (not in PyFlink's DataStream). Records become named Rows.

        Example:

            clicks.select("user", "amount")  # gives [Row(user="ann", amount=3), Row(user="bob", amount=4)]
        """
        if not columns or not all(isinstance(name, str) for name in columns):
            raise JobDefinitionError(
                f"select takes the names of columns, as in select('user', 'amount'), not {columns}"
            )
        if len(set(columns)) != len(columns):
            raise JobDefinitionError(f"select: a column can be in the result once, but the names are {list(columns)}")
        check_columns(columns, self._type, "select")
        if not isinstance(self._type, (RowTypeInfo, TupleTypeInfo)):
            return self._apply("Select", SelectOperator(columns, columns))
        positions = [self._type.get_field_names().index(name) for name in columns]
        types = [self._type.get_field_types()[position] for position in positions]
        return self._apply("Select", SelectOperator(columns, columns, positions), RowTypeInfo(types, columns))

    def with_column(self, name: str, expression: pc.Expression) -> DataStream:
        """Add a column computed from the others, or replace the one of this name (not in PyFlink's DataStream):
        `with_column("net", pc.field("gross") - pc.field("tax"))`. Records become named Rows.

        Example:

            doubled = clicks.select("amount").with_column("double", pc.field("amount") * 2)
            doubled  # gives [Row(amount=3, double=6), Row(amount=4, double=8)]
        """
        if not isinstance(expression, pc.Expression):
            raise JobDefinitionError(f"with_column takes a name and a pyarrow.compute Expression, not {expression!r}")
        made = _type_over(self._type, expression, "with_column")
        output_type = None
        if made is not None:
            assert isinstance(self._type, (RowTypeInfo, TupleTypeInfo))
            columns = dict(zip(self._type.get_field_names(), self._type.get_field_types(), strict=True))
            columns[name] = type_of_arrow(made)
            output_type = RowTypeInfo(list(columns.values()), list(columns))
        return self._apply("With Column", WithColumnOperator(name, expression, self._type), output_type)

    def map_batches(
        self,
        func: Callable[[pa.RecordBatch], Any] | MapBatchesFunction,
        output_type: TypeInformation | pa.Schema,
    ) -> DataStream:
        """A function from an Arrow record batch to a record batch or table, once per block (not in PyFlink's DataStream).

        `output_type` is a row or tuple type, or an Arrow schema; a result with other columns is an error. A result of as
        many rows keeps their timestamps, row by row; otherwise return `(batch, timestamps)`. How a stream is cut into
        blocks is not specified: the result for a row must not depend on the others. See `MapBatchesFunction`.

        Example:

            def totals(batch):
                return pa.record_batch({"amount": pc.multiply(batch.column("amount"), 100)})

            clicks.map_batches(totals, pa.schema([("amount", pa.int64())]))  # gives [Row(amount=300), Row(amount=400)]
        """
        if inspect.isclass(func) or not (callable(func) or isinstance(func, MapBatchesFunction)):
            raise JobDefinitionError(
                f"map_batches takes a function of a RecordBatch, or a MapBatchesFunction, not {func!r}"
            )
        schema = output_type if isinstance(output_type, pa.Schema) else schema_of(output_type)
        if schema is None or not len(schema) or len(set(schema.names)) != len(schema):
            raise JobDefinitionError(
                "map_batches declares the columns it gives: output_type is Types.ROW_NAMED(…), Types.TUPLE(…) with types that "
                f"have an Arrow form, or a pyarrow Schema, with names that differ; not {output_type!r}"
            )
        if schema_of(self._type) is None and (self._type is not None or not gives_columns(self)):
            raise JobDefinitionError(
                "map_batches works on columns, but this stream is of Python objects: declare their row type in the operator "
                f"before it (output_type=Types.ROW_NAMED(…)); it is {self._type}"
            )
        result = row_type_of(schema) if isinstance(output_type, pa.Schema) else output_type
        return self._apply("Map Batches", MapBatchesOperator(func, self._type, schema), result)

    def _filter_columns(self, expression: pc.Expression) -> DataStream:
        made = _type_over(self._type, expression, "filter")
        if made is not None and not pa.types.is_boolean(made):
            raise JobDefinitionError(f"filter keeps rows for which {expression} is true, but it is of type {made}")
        return self._apply("Filter Columns", FilterColumnsOperator(expression, self._type), self._type)


def gives_columns(stream: Any) -> bool:
    """Whether blocks of a stream whose type is not declared may be columns: False if they are Python objects for sure."""
    for origin in stream._origins:
        stream._env._earlier.recall(stream._env, origin.node)
    return all(_node_gives_columns(stream._env, origin.node) for origin in stream._origins)


def _node_gives_columns(env: StreamExecutionEnvironment, node: Any) -> bool:
    if node.output_type is not None:
        return schema_of(node.output_type) is not None
    if node.operator.gives == "what it gets":
        return all(_node_gives_columns(env, env._nodes[edge.source]) for edge in env._edges if edge.target == node.id)
    return bool(node.operator.gives == "columns")


def _type_over(type_info: TypeInformation | None, expression: pc.Expression, verb: str) -> pa.DataType | None:
    """The type of the expression over the stream's columns; None if they are not known before the job runs."""
    schema = schema_of(type_info)
    if schema is None:
        return None
    try:
        return type_in(expression, schema)
    except (pa.ArrowException, KeyError) as error:
        shape = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise JobDefinitionError(
            f"{verb}: {expression} does not fit the columns of the stream ({shape}): {error}"
        ) from error
