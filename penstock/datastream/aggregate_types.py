"""The types of aggregates, while the program is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, schema_of, type_of_arrow
from penstock.errors import JobDefinitionError
from penstock.functions.aggregates import Aggregate, Partial
from penstock.operators.selectors import check_columns
from penstock.records.arrow_columns import plain_type
from penstock.records.exact_sums import has_order, sum_type


def check_aggregated(aggregates: Mapping[str, Aggregate], type_info: TypeInformation | None) -> None:
    """Refuse columns that are not there, sums of what has none, the smallest of what has no order."""
    partials: Iterable[Partial] = [p for a in aggregates.values() for p in a.partials]
    check_columns([p.column for p in partials if p.column is not None], type_info, "agg")
    schema = schema_of(type_info)
    for partial in partials:
        if schema is None or partial.column is None:
            continue
        kind = schema.field(partial.column).type
        if (partial.function == "sum" and sum_type(kind) is None) or (
            partial.function in ("min", "max") and not has_order(kind)
        ):
            raise JobDefinitionError(f"agg: column {partial.column!r} is of {kind}, which has no {partial.function}")


def aggregated_type(
    names: Sequence[str],
    keys: Sequence[str],
    bounds: Sequence[TypeInformation],
    aggregates: Mapping[str, Aggregate],
    type_info: TypeInformation | None,
) -> TypeInformation | None:
    """The type of a result: keys, bounds of windows, aggregates. None if it is not known."""
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return None
    columns = dict(zip(type_info.get_field_names(), type_info.get_field_types(), strict=True))
    results = []
    for aggregate in aggregates.values():
        column = aggregate.partials[0].column
        results.append(aggregate.result_type(None if column is None else columns[column]))
    types = [*(plain_of(columns[key]) for key in keys), *bounds, *results]
    known = [kind for kind in types if kind is not None]
    return RowTypeInfo(known, list(names)) if len(known) == len(types) else None


def plain_of(kind: TypeInformation) -> TypeInformation | None:
    """Of a column in a result: string views and the like come out as what they are views of."""
    arrow = kind.to_arrow()
    if arrow is None:
        return None
    return kind if plain_type(arrow) == arrow else type_of_arrow(plain_type(arrow))
