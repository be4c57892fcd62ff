"""Values of a stream turned into what a file holds: Arrow batches, or plain rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import BadRecordError
from penstock.records import Block, Columns
from penstock.records.exact_arrays import exact_array


def field_names(value: Any) -> list[str] | None:
    """The names a value gives its fields itself: a mapping's keys, a named tuple's or a named Row's fields."""
    if isinstance(value, Mapping):
        return list(value)
    if isinstance(value, tuple) or _is_row(value):
        names = getattr(value, "_fields", None)
        return None if names is None else list(names)
    return None


def as_mapping(value: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """The value's fields by name; `names` names those of a value that has none. Raises ValueError if they do not
    match."""
    own = field_names(value)
    if own is not None:
        return dict(value) if isinstance(value, Mapping) else dict(zip(own, value, strict=True))
    if names is None:
        raise ValueError("the value has no field names")
    positional = list(value) if isinstance(value, tuple | list) or _is_row(value) else [value]
    if len(positional) != len(names):
        raise ValueError(f"it has {len(positional)} fields, the schema {len(names)}")
    return dict(zip(names, positional, strict=True))


def _is_row(value: Any) -> bool:
    return hasattr(value, "as_dict") and hasattr(value, "_fields")  # penstock.common.Row, without importing it


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Without metadata and dictionaries: what a file's bytes must not depend on is how blocks were encoded."""
    fields = [field.with_type(field.type.value_type) if _is_dictionary(field) else field for field in schema]
    return pa.schema([field.remove_metadata() for field in fields])


def to_batch(block: Block, schema: pa.Schema | None, sink: str) -> pa.RecordBatch:
    """The block as a batch of exactly `schema` (None: the block's own, which only Columns have)."""
    if isinstance(block, Columns):
        return _cast(block.batch, plain_schema(block.batch.schema) if schema is None else schema, sink)
    if schema is None:
        raise BadRecordError(
            f"{sink}: cannot tell the columns of {_shown(block.values[0])}: give the sink schema=pa.schema([...]), or "
            "feed it a columnar stream"
        )
    names = schema.names
    if (fitting := _plain_tuples(block.values, schema)) is not None:
        return fitting
    mappings = []
    for value in block.values:
        try:
            mapping = as_mapping(value, names)
            if unknown := [name for name in mapping if name not in names]:
                raise ValueError(f"the schema has no field {', '.join(map(str, unknown))}")
        except ValueError as error:
            raise _misfit(value, schema, sink, error) from error
        mappings.append(mapping)
    try:
        return _from_mappings(mappings, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
        for value, mapping in zip(block.values, mappings, strict=True):
            try:
                _from_mappings([mapping], schema)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as cause:
                raise _misfit(value, schema, sink, cause) from cause
        raise BadRecordError(f"{sink}: a block of {len(block)} values does not fit the schema: {error}") from error


def _plain_tuples(values: list[Any], schema: pa.Schema) -> pa.RecordBatch | None:
    """The common case, without a dict per value: plain tuples as long as the schema. None when it is another case, or
    when something does not fit, which the slow way then names."""
    if set(map(type, values)) != {tuple} or len(values[0]) != len(schema):
        return None
    try:
        columns = zip(zip(*values, strict=True), schema, strict=True)  # strict: all are as long as the first
        arrays = [exact_array(column, field.type) for column, field in columns]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        return None
    if any(array.null_count and not field.nullable for array, field in zip(arrays, schema, strict=True)):
        return None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _from_mappings(mappings: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [exact_array([mapping.get(field.name) for mapping in mappings], field.type) for field in schema]
    for field, array in zip(schema, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise ValueError(f"the field {field.name} must not be null")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, sink: str) -> pa.RecordBatch:
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    # Columns of a tuple have places and no names: it may have become columns in an exchange.
    of_a_tuple = batch.schema.names == [f"f{place}" for place in range(len(schema))]
    if batch.schema.names != schema.names and not of_a_tuple:
        raise BadRecordError(
            f"{sink}: a batch with the columns {batch.schema.names} came, the sink writes {schema.names}. Select the "
            "columns before the sink, in this order."
        )
    arrays = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadRecordError(
                f"{sink}: the column {field.name} is {column.type}, the sink writes {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_dictionary(field: pa.Field) -> bool:
    return bool(pa.types.is_dictionary(field.type))


def _misfit(value: Any, schema: pa.Schema, sink: str, cause: Exception) -> BadRecordError:
    columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return BadRecordError(f"{sink}: {_shown(value)} does not fit the schema ({columns}): {cause}")


def _shown(value: Any) -> str:
    text = repr(value)
    return f"the {type(value).__name__} {text if len(text) <= 200 else text[:200] + '…'}"
