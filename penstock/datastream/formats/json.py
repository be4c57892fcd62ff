"""JSON: PyFlink's row schemas, and one for plain values."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json

from penstock.common.serialization import ColumnarDeserializationSchema, DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.common.types import Row
from penstock.errors import JobDefinitionError


class JsonSchema(SerializationSchema, DeserializationSchema):
    """Reads and writes any JSON value as Python's own: dicts, lists, strings, numbers, booleans. (Not in PyFlink.)"""

    def serialize(self, element: Any) -> bytes:
        return json.dumps(_plain(element), ensure_ascii=False, separators=(",", ":")).encode()

    def deserialize(self, message: bytes) -> Any:
        return json.loads(message)


class JsonRowDeserializationSchema(ColumnarDeserializationSchema):
    """JSON objects to rows of a declared type, by field name. Fields that are not declared are ignored; declared ones
    that are missing are None, unless `fail_on_missing_field`. Whole blocks are parsed at once by Arrow where every field
    is a number, a string or a boolean."""

    class Builder:
        """Builds a JsonRowDeserializationSchema; each setter returns the builder."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None
            self._fail_on_missing = False
            self._ignore_errors = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """The type of the rows: `Types.ROW_NAMED`; anything else is refused."""
            if not isinstance(type_info, RowTypeInfo):
                raise JobDefinitionError(f"JsonRowDeserializationSchema needs Types.ROW_NAMED(…), not {type_info}")
            self._type = type_info
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """An object without one of the declared fields is an error; else the field is None."""
            self._fail_on_missing = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Messages that are no JSON object of the type are dropped."""
            self._ignore_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """The schema; JobDefinitionError if `type_info` was not called."""
            if self._type is None:
                raise JobDefinitionError("JsonRowDeserializationSchema needs a row type: call type_info(…)")
            return JsonRowDeserializationSchema(self._type, self._fail_on_missing, self._ignore_errors)

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Starts a builder; `type_info` is required.

        Example:

            row = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
            schema = JsonRowDeserializationSchema.builder().type_info(row).build()
            schema.deserialize(b'{"name": "ann", "n": 3}')  # gives Row(name="ann", n=3)
        """
        return JsonRowDeserializationSchema.Builder()

    def __init__(self, type_info: RowTypeInfo, fail_on_missing_field: bool, ignore_parse_errors: bool) -> None:
        self._type = type_info
        self._fail_on_missing, self._ignore_errors = fail_on_missing_field, ignore_parse_errors
        self._names = type_info.get_field_names()
        struct = type_info.to_arrow()
        simple = struct is not None and all(_is_simple(field.type) for field in struct)
        self._schema: pa.Schema | None = pa.schema(list(struct)) if simple and struct is not None else None

    def get_produced_type(self) -> TypeInformation:
        return self._type

    def deserialize(self, message: bytes) -> Row | None:
        try:
            return self._row(json.loads(message))
        except ValueError:
            if self._ignore_errors:
                return None
            raise

    def _row(self, parsed: Any) -> Row:
        if not isinstance(parsed, dict):
            raise ValueError(f"a JSON object with the fields {self._names} was expected")
        if self._fail_on_missing and (missing := [name for name in self._names if name not in parsed]):
            raise ValueError(f"the fields {missing} are missing")
        values = [parsed.get(name) for name in self._names]
        if self._schema is not None:
            values = [_checked(value, field) for value, field in zip(values, self._schema, strict=True)]
        row = Row(*values)
        row.set_field_names(self._names)
        return row

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        if self._schema is None or self._fail_on_missing or not messages:
            return None
        text = b"\n".join(messages)
        if text.count(b"\n") != len(messages) - 1:
            return None  # a line break inside a message: it may be one value on two lines, or two values
        options = pyarrow.json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore")
        try:
            table = pyarrow.json.read_json(
                io.BytesIO(text),
                parse_options=options,
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(messages):
            return None
        batches = table.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 else None


class JsonRowSerializationSchema(SerializationSchema):
    """Rows to JSON objects with the type's field names."""

    class Builder:
        """Builds a JsonRowSerializationSchema; each setter returns the builder."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """The type of the rows: `Types.ROW_NAMED`; anything else is refused."""
            if not isinstance(type_info, RowTypeInfo):
                raise JobDefinitionError(f"JsonRowSerializationSchema needs Types.ROW_NAMED(…), not {type_info}")
            self._type = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """The schema; JobDefinitionError if `with_type_info` was not called."""
            if self._type is None:
                raise JobDefinitionError("JsonRowSerializationSchema needs a row type: call with_type_info(…)")
            return JsonRowSerializationSchema(self._type)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Starts a builder; `with_type_info` is required.

        Example:

            row = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
            JsonRowSerializationSchema.builder().with_type_info(row).build().serialize(Row(name="ann", n=3))
        """
        return JsonRowSerializationSchema.Builder()

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._names = type_info.get_field_names()

    def serialize(self, element: Any) -> bytes:
        values = [_plain(value) for value in element]
        return json.dumps(
            dict(zip(self._names, values, strict=True)), ensure_ascii=False, separators=(",", ":")
        ).encode()


def _is_simple(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def _checked(value: Any, field: pa.Field) -> Any:
    """What Arrow would refuse is refused here too, so that it does not matter which of the two read a message."""
    kind = field.type
    fits = (
        value is None
        or (pa.types.is_string(kind) and isinstance(value, str))
        or (pa.types.is_boolean(kind) and isinstance(value, bool))
        or (pa.types.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool))
        or (pa.types.is_floating(kind) and isinstance(value, (int, float)) and not isinstance(value, bool))
    )
    if not fits:
        raise ValueError(f"the field {field.name!r} is {value!r}, which is no {kind}")
    return float(value) if value is not None and pa.types.is_floating(kind) else value


def _plain(value: Any) -> Any:
    """What JSON has no type for: rows as objects or lists, times as ISO texts, bytes as base64, decimals as texts."""
    match value:
        case Row():
            names = getattr(value, "_fields", None)
            values = [_plain(item) for item in value]
            return dict(zip(names, values, strict=True)) if names else values
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
    return value
