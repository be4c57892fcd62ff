"""`agg`: built-in aggregates of windows, over columns where that can be and over rows where it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.common.arrow_types import schema_of, type_of_arrow
from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from penstock.datastream.column_verbs import gives_columns
from penstock.datastream.data_stream import DataStream
from penstock.errors import JobDefinitionError
from penstock.functions.aggregates import Aggregate, Partial, result_columns
from penstock.functions.window import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CumulativeEventTimeWindows,
    EventTimeTrigger,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.operators.columnar_window import ColumnarWindowOperator
from penstock.operators.row_aggregation import AggregatedRow, RowAggregation
from penstock.operators.selectors import ColumnKeySelector, check_columns
from penstock.operators.window_contents import AggregateContents
from penstock.records.arrow_columns import plain_type
from penstock.records.convert import travels_as_arrow
from penstock.records.exact_sums import has_order, sum_type

if TYPE_CHECKING:
    from penstock.datastream.windowed_stream import WindowedStream

# Exact types: a subclass may assign other windows.
_PANED = (TumblingEventTimeWindows, SlidingEventTimeWindows, CumulativeEventTimeWindows)
_WITHOUT_BOUNDS = (GlobalWindows, CountTumblingWindowAssigner, CountSlidingWindowAssigner)


def aggregate(windowed: WindowedStream, aggregates: Mapping[str, Aggregate]) -> DataStream:
    selector, stream = windowed._selector, windowed._stream
    if not isinstance(selector, ColumnKeySelector):
        raise JobDefinitionError(
            "agg names its key columns: key_by column names, as in key_by('user'), before the window"
        )
    if isinstance(windowed._assigner, _WITHOUT_BOUNDS):
        raise JobDefinitionError(
            f"agg gives the start and end of every window, and those of {type(windowed._assigner).__name__} have none: use "
            "aggregate() or process()"
        )
    names = result_columns(selector.names, aggregates)
    partials = [p for a in aggregates.values() for p in a.partials]
    check_columns([p.column for p in partials if p.column is not None], stream._type, "agg")
    _check_types(partials, stream._type)
    output_type = _result_type(names, selector, aggregates, stream._type)
    why_rows = _why_rows(windowed)
    if why_rows is not None:
        function = AggregatedRow(selector.names, aggregates)
        rows = RowAggregation(aggregates)
        return windowed._window(function, AggregateContents(rows, rows.partials), output_type, why_rows)
    operator = ColumnarWindowOperator(
        keys=selector.names,
        assigner=windowed._assigner,
        aggregates=aggregates,
        allowed_lateness=windowed._lateness,
        late_tag=None if windowed._late_tag is None else windowed._late_tag.tag_id,
        input_type=stream._type,
    )
    return stream._apply(f"Columnar Window({type(windowed._assigner).__name__})", operator, output_type, stateful=True)


def _why_rows(windowed: WindowedStream) -> str | None:
    """The reason, for the plan; None: the window can be columnar."""
    trigger, stream = windowed._trigger, windowed._stream
    if windowed._evictor is not None:
        return "an evictor looks at single records"
    if trigger is not None and type(trigger) is not EventTimeTrigger:
        return f"{type(trigger).__name__} looks at single records"
    if type(windowed._assigner) not in _PANED:
        return f"{type(windowed._assigner).__name__} are not made of panes"
    if stream._type is not None and not travels_as_arrow(stream._type):
        return f"{stream._type} has no columns"
    if stream._type is None and not gives_columns(stream):
        return "the type of its input is not declared"
    schema = schema_of(stream._type)
    if schema is not None and any(pa.types.is_nested(schema.field(name).type) for name in windowed._selector.names):
        return "a key has parts"
    return None


def _check_types(partials: Iterable[Partial], type_info: TypeInformation | None) -> None:
    """While the program is built: refuse sums of what has none, the smallest of what has no order."""
    schema = schema_of(type_info)
    for partial in partials:
        if schema is None or partial.column is None:
            continue
        kind = schema.field(partial.column).type
        if (partial.function == "sum" and sum_type(kind) is None) or (
            partial.function in ("min", "max") and not has_order(kind)
        ):
            raise JobDefinitionError(f"agg: column {partial.column!r} is of {kind}, which has no {partial.function}")


def _result_type(
    names: list[str],
    selector: ColumnKeySelector,
    aggregates: Mapping[str, Aggregate],
    type_info: TypeInformation | None,
) -> TypeInformation | None:
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return None
    columns = dict(zip(type_info.get_field_names(), type_info.get_field_types(), strict=True))
    results = []
    for aggregate in aggregates.values():
        column = aggregate.partials[0].column
        results.append(aggregate.result_type(None if column is None else columns[column]))
    keys = [_plain(columns[key]) for key in selector.names]
    types = [*keys, Types.LONG(), Types.LONG(), *results]
    known = [kind for kind in types if kind is not None]
    return RowTypeInfo(known, names) if len(known) == len(types) else None


def _plain(kind: TypeInformation) -> TypeInformation | None:
    """Of a key in the result: string views and the like come out as what they are views of."""
    arrow = kind.to_arrow()
    if arrow is None:
        return None
    return kind if plain_type(arrow) == arrow else type_of_arrow(plain_type(arrow))
