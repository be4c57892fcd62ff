"""Arrow's expressions over blocks: `pc.field("amount") > 3`, evaluated column by column."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from penstock.common.types import Row
from penstock.operators.selectors import read_column
from penstock.records import Block, Columns, Rows
from penstock.records.convert import single_batch, to_columns, travels_as_arrow


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
