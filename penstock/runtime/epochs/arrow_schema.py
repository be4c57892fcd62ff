"""Types of a DataFrame: the columns in which PySpark hands its rows to Python, and the values that Python code sees of them.

The columns are the same for every version of Spark that is supported. The values are those of PySpark's own functions and of
`collect`: maps are dicts, structs are rows, and a timestamp is the bare time of the session's zone.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.common.arrow_values import arrow_value, is_other, python_value
from penstock.common.typeinfo import ArrowTypeInfo, RowTypeInfo, TypeInformation, type_of_arrow


def arrow_schema(schema: StructType, zone: str) -> pa.Schema:
    """The schema of Arrow's for one of Spark's, with instants in this zone."""
    convert: Any = to_arrow_schema  # whose arguments depend on the version
    if "timezone" in inspect.signature(convert).parameters:
        return convert(schema, timezone=zone)
    return pa.schema([field.with_type(_in_zone(field.type, zone)) for field in convert(schema)])  # Spark 4.1: in UTC


def row_type(schema: pa.Schema) -> RowTypeInfo:
    """The type of the rows that `arrow_schema` describes."""
    return RowTypeInfo([_field_type(field.type) for field in schema], list(schema.names))


def _field_type(kind: pa.DataType) -> TypeInformation:
    return SparkTypeInfo(kind) if is_other(kind, bare=True) else type_of_arrow(kind)


class SparkTypeInfo(ArrowTypeInfo):
    """A type of Spark's with instants in it."""

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        return arrow_value(obj, self._arrow_type, bare=True)

    def from_internal_type(self, obj: Any) -> Any:
        return python_value(obj, self._arrow_type, bare=True)


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_list(kind):
        return pa.list_(_field_in_zone(kind.value_field, zone))
    if pa.types.is_map(kind):
        return pa.map_(_field_in_zone(kind.key_field, zone), _field_in_zone(kind.item_field, zone))
    if pa.types.is_struct(kind):
        return pa.struct([_field_in_zone(kind.field(place), zone) for place in range(kind.num_fields)])
    return kind


def _field_in_zone(field: pa.Field, zone: str) -> pa.Field:
    return field.with_type(_in_zone(field.type, zone))
