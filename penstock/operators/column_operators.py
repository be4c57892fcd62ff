"""Operators over whole blocks of columns: projection, filter, computed columns and functions from Arrow to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import _create_row
from penstock.errors import PenstockError
from penstock.functions.batches import MapBatchesFunction
from penstock.operators.base import Operator
from penstock.operators.expressions import alike, evaluate, field_names, typed_columns
from penstock.operators.selectors import read_column
from penstock.records import Block, Columns, Rows, TimestampArray
from penstock.records.arrow_columns import filter_rows
from penstock.records.convert import column_of, event_times, require_columns, single_batch
from penstock.records.exact_arrays import DoesNotFit, exact_array


class SelectOperator(Operator):
    """Some columns under new names. With `names` None records are tuples, whose columns are f0, f1, …"""

    columnar = True
    gives = "what it gets"

    def __init__(
        self, columns: Sequence[str], names: Sequence[str] | None, positions: Sequence[int] | None = None
    ) -> None:
        """`positions` of the columns in a declared type, whose records may be tuples without names."""
        super().__init__()
        self.columns = tuple(columns)
        self.names = None if names is None else tuple(names)
        self.positions = None if positions is None else tuple(positions)

    def process(self, input: int, block: Block) -> None:
        self.ctx.metrics.records_in += len(block)
        if isinstance(block, Columns):
            arrays = [column_of(block.batch, name, f"operator {self.ctx.name!r}") for name in self.columns]
            names = self.names or [f"f{index}" for index in range(len(arrays))]
            self.ctx.metrics.records_out += len(block)
            self.ctx.output.block(Columns(pa.RecordBatch.from_arrays(arrays, list(names)), block.timestamps))
            return
        value: Any = None
        out = []
        try:
            for value in block.values:
                out.append(self._selected(value))
        except Exception as error:
            self.fail(error, "select", value, has_record=True)
        self.emit(out, block.timestamps)

    def _selected(self, value: Any) -> Any:
        if self.positions is not None and isinstance(value, (tuple, list)):
            fields = [value[position] for position in self.positions]
        else:
            fields = [read_column(value, name) for name in self.columns]
        return tuple(fields) if self.names is None else _create_row(self.names, fields)


class ExpressionOperator(Operator):
    """An operator around an expression of Arrow's."""

    columnar = True
    gives = "what it gets"

    def __init__(self, expression: pc.Expression, input_type: TypeInformation | None = None) -> None:
        super().__init__()
        self.expression = expression
        self.input_type = input_type

    def evaluated(self, block: Block) -> pa.Array | list[Any]:
        """A column, or for records without a declared type their values."""
        batch = typed_columns(block, self.input_type, f"the operator before {self.ctx.name!r}")
        if batch is not None:
            return self._evaluate(batch, None)
        assert isinstance(block, Rows)
        values: list[Any] = [None] * len(block)
        for positions, columns in alike(block.values):
            results = self._evaluate(columns, block.values[positions[0]])
            for position, value in zip(positions, results.to_pylist(), strict=True):
                values[position] = value
        return values

    def _evaluate(self, batch: pa.RecordBatch, record: Any) -> pa.Array:
        try:
            column = evaluate(self.expression, batch)
        except Exception as error:
            what = f"the expression {self.expression} over the columns {batch.schema.names}"
            self.fail(error, what, record, has_record=record is not None)
        self.check(column.type)
        return column

    def check(self, kind: pa.DataType) -> None:
        """Refuse an expression of a type that the operator cannot use."""


class FilterColumnsOperator(ExpressionOperator):
    """Keeps the rows for which the expression is true; false and null drop a row, as WHERE does."""

    def process(self, input: int, block: Block) -> None:
        self.ctx.metrics.records_in += len(block)
        if not len(block):
            return
        mask = self.evaluated(block)
        mask = pa.array(mask, pa.bool_()) if isinstance(mask, list) else mask.cast(pa.bool_())
        keep = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        kept = int(np.count_nonzero(keep))
        if kept == 0:
            return
        self.ctx.metrics.records_out += kept
        self.ctx.output.block(block if kept == len(block) else _filtered(block, keep))

    def check(self, kind: pa.DataType) -> None:
        if not pa.types.is_boolean(kind) and not pa.types.is_null(kind):
            raise PenstockError(
                f"operator {self.ctx.name!r} keeps rows for which {self.expression} is true, but it is of type {kind}"
            )


def _filtered(block: Block, keep: Any) -> Block:
    if isinstance(block, Columns):
        stamps = None if block.timestamps is None else block.timestamps[keep]
        return Columns(filter_rows(block.batch, pa.array(keep)), stamps)
    chosen = np.flatnonzero(keep).tolist()
    times = None if block.timestamps is None else [block.timestamps[index] for index in chosen]
    return Rows([block.values[index] for index in chosen], times)


class WithColumnOperator(ExpressionOperator):
    """A column computed from the others is added at the end, or takes the place of the one of its name."""

    def __init__(self, name: str, expression: pc.Expression, input_type: TypeInformation | None = None) -> None:
        super().__init__(expression, input_type)
        self.name = name

    def process(self, input: int, block: Block) -> None:
        self.ctx.metrics.records_in += len(block)
        if not len(block):
            return
        column = self.evaluated(block)
        if isinstance(block, Columns):
            index = block.batch.schema.get_field_index(self.name)
            batch = block.batch
            batch = batch.append_column(self.name, column) if index < 0 else batch.set_column(index, self.name, column)
            self.ctx.metrics.records_out += len(block)
            self.ctx.output.block(Columns(batch, block.timestamps))
            return
        news = column if isinstance(column, list) else column.to_pylist()
        self.emit([self._with(value, new) for value, new in zip(block.values, news, strict=True)], block.timestamps)

    def _with(self, value: Any, new: Any) -> Any:
        names = field_names(value)
        declared = getattr(self.input_type, "get_field_names", None)
        if declared is not None and isinstance(value, (tuple, list)):
            fields = dict(zip(declared(), value, strict=True))
        else:
            fields = {name: read_column(value, name) for name in names}
        fields[self.name] = new
        return _create_row(list(fields), list(fields.values()))


class MapBatchesOperator(Operator):
    """A user's function from a record batch to a record batch."""

    columnar = True
    gives = "columns"
    gives_timestamps = True  # it may: only its results will tell

    def __init__(
        self,
        function: MapBatchesFunction | Callable[[pa.RecordBatch], Any],
        input_type: TypeInformation | None,
        output_schema: pa.Schema,
    ) -> None:
        super().__init__()
        self.function = function
        self.input_type = input_type
        self.output_schema = output_schema

    def user_functions(self) -> Iterable[Any]:
        return (self.function,)

    def process(self, input: int, block: Block) -> None:
        self.ctx.metrics.records_in += len(block)
        if not len(block):
            return
        columns = require_columns(block, self.input_type, f"operator {self.ctx.name!r}")
        result = self._call(columns)
        if result is None:
            return
        stamps: TimestampArray | None
        if isinstance(result, tuple) and len(result) == 2:
            batch = self._checked(result[0])
            stamps = self._stamps(batch, result[1])
        else:
            batch = self._checked(result)
            stamps = columns.timestamps
            if stamps is not None and len(stamps) != batch.num_rows:
                raise PenstockError(
                    f"map_batches of {self._where()} made {batch.num_rows} rows of {len(stamps)} and did not say what their "
                    "timestamps are: return (batch, timestamps); a MapBatchesFunction is given those of its input"
                )
        if batch.num_rows:
            self.ctx.metrics.records_out += batch.num_rows
            self.ctx.output.block(Columns(batch, stamps))

    def _call(self, columns: Columns) -> Any:
        function = self.function
        try:
            if isinstance(function, MapBatchesFunction):
                stamps = None if columns.timestamps is None else pa.array(columns.timestamps)
                return function.map_batch(columns.batch, stamps)
            return function(columns.batch)
        except Exception as error:
            self.fail(error, f"map_batches on {len(columns)} rows of {_shape(columns.batch.schema)}", None)

    def _checked(self, result: Any) -> pa.RecordBatch:
        """The result as a batch of exactly the declared columns; their order is the declared one."""
        if not isinstance(result, (pa.RecordBatch, pa.Table)):
            raise PenstockError(
                f"map_batches of {self._where()} must return a pyarrow RecordBatch or Table, or a pair of one and its "
                f"timestamps, but returned a {type(result).__name__}"
            )
        expected, found = self.output_schema, result.schema
        if {f.name: f.type for f in expected} != {f.name: f.type for f in found} or len(found) != len(expected):
            raise PenstockError(
                f"map_batches of {self._where()} declares the columns {_shape(expected)}, but returned {_shape(found)}: "
                "cast the result, or declare the output_type it really has"
            )
        return single_batch(result.select(expected.names))

    def _stamps(self, batch: pa.RecordBatch, timestamps: Any) -> TimestampArray:
        what = f"the timestamps that map_batches of {self._where()} returned"
        if isinstance(timestamps, pa.ChunkedArray):
            timestamps = timestamps.combine_chunks()
        if len(timestamps) != batch.num_rows:
            raise PenstockError(
                f"{what} are {len(timestamps)}, but its batch has {batch.num_rows} rows: give one for each"
            )
        try:
            return event_times(
                timestamps if isinstance(timestamps, pa.Array) else exact_array(timestamps, pa.int64()), what
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError, DoesNotFit) as error:
            raise PenstockError(f"{what} are not milliseconds: {error}") from error

    def _where(self) -> str:
        return f"operator {self.ctx.name!r} (uid {self.ctx.uid or self.ctx.operator_id!r})"


def _shape(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "no columns"
