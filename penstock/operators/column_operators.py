"""Operators over whole blocks of columns: projection, filter, computed columns and functions from Arrow to Arrow.

Arrow's expressions over blocks: `pc.field("amount") > 3`, evaluated column by column.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Row, _create_row
from penstock.errors import PenstockError
from penstock.functions.elementwise import MapBatchesFunction
from penstock.operators.base import Operator
from penstock.operators.selectors import read_column
from penstock.operators.simple import FunctionOperator
from penstock.records import Block, Columns, Rows, TimestampArray
from penstock.records.arrow_columns import filter_rows
from penstock.records.convert import column_of, event_times, require_columns, single_batch, to_columns, travels_as_arrow
from penstock.records.exact_arrays import DoesNotFit, exact_array


def evaluate(expression: pc.Expression, batch: pa.RecordBatch) -> pa.Array:
    """One value per row. Arrow's own errors say which column or which function does not fit."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"]), [source])
    return single_batch(project.to_table(use_threads=False)).column(0)  # one thread: the order of rows stays


def type_in(expression: pc.Expression, schema: pa.Schema) -> pa.DataType:
    """The type the expression has over these columns; an expression that does not fit them raises here."""
    return evaluate(expression, single_batch(schema.empty_table())).type


def _no_columns() -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([], pa.struct([])))


def typed_columns(block: Block, type_info: Any, where: str) -> pa.RecordBatch | None:
    """The columns of a block of columns or of rows of a declared type; None: its records have no declared type."""
    if isinstance(block, Columns):
        return block.batch
    if not travels_as_arrow(type_info):
        return None
    columns = to_columns(Rows(block.values), type_info, where)
    assert isinstance(columns, Columns)  # no timestamps, so nothing to stay rows for
    return columns.batch


def alike(values: Sequence[Any]) -> Iterator[tuple[list[int], pa.RecordBatch]]:
    """Records without a declared type as columns: the positions of records whose fields are of the same types, and their
    columns, for all such. An integer must not become a float because a float is beside it, or what an expression gives for a
    record would depend on the block the record is in. Fields that Arrow cannot hold are no columns."""
    groups: dict[Any, list[int]] = {}
    for position, value in enumerate(values):
        names = field_names(value)
        kinds = tuple(_kind(_field(value, name), position) for name in names)
        groups.setdefault((tuple(names), kinds), []).append(position)
    for (names_, _), positions in groups.items():
        yield positions, _inferred([values[position] for position in positions], names_)


def _kind(value: Any, position: int) -> Any:
    """What Arrow infers of this value alone: for the common types its class says it; others are evaluated one by one."""
    kind = type(value)
    return kind if kind in _SIMPLE else (kind, position)


_SIMPLE: Final = frozenset({int, float, bool, str, bytes, type(None), datetime.date, datetime.timedelta})


def field_names(value: Any) -> list[str]:
    """The names under which `read_column` finds the fields of a record."""
    match value:
        case Row() if value._fields is not None:
            return list(value._fields)
        case dict():
            return [name for name in value if isinstance(name, str)]
        case tuple() if hasattr(value, "_fields"):
            return list(value._fields)
        case tuple() | list() | Row():
            return [f"f{index}" for index in range(len(value))]
        case _ if dataclasses.is_dataclass(value):
            return [field.name for field in dataclasses.fields(value)]
        case _ if hasattr(value, "__dict__"):
            return list(vars(value))
    return []


def _inferred(values: Sequence[Any], names: Sequence[str]) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {}
    for name in names:
        try:
            columns[name] = pa.array([_field(value, name) for value in values])
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            continue  # an object Arrow does not know: an expression that names it is told which columns there are
    return pa.record_batch(columns) if columns else _no_columns()


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else read_column(value, name)


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
        self.reads = tuple(dict.fromkeys(columns))
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


class MapBatchesOperator(FunctionOperator):
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
        super().__init__(function, input_type)
        self.output_schema = output_schema

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
