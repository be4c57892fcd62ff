"""Avro with a schema that both sides have: no registry, no schema id in the message."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.common.absent import missing_name
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.types import Row
from penstock.errors import ConfigurationError, JobDefinitionError


def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ImportError as error:
        raise ConfigurationError(
            f"Avro needs fastavro ({error}): install it with `pip install 'penstock[kafka]'`"
        ) from error
    return fastavro


class _Avro:
    """The schema as text travels; the parsed one is made where it is used."""

    def __init__(self, record_class: Any = None, avro_schema_string: str | None = None) -> None:
        if record_class is not None or avro_schema_string is None:
            raise JobDefinitionError("Avro needs avro_schema_string: generated Java classes cannot be used from Python")
        self._text = avro_schema_string
        self._parsed: Any = None
        try:
            self._schema()
        except (ValueError, KeyError, TypeError, _fastavro().schema.SchemaParseException) as error:
            raise JobDefinitionError(f"not an Avro schema ({error}): {avro_schema_string[:200]}") from error

    def _schema(self) -> Any:
        if self._parsed is None:
            self._parsed = _fastavro().parse_schema(json.loads(self._text))
        return self._parsed

    def __getstate__(self) -> dict[str, Any]:
        return {"_text": self._text, "_parsed": None}

    @property
    def _names(self) -> list[str] | None:
        parsed = self._schema()
        return [field["name"] for field in parsed["fields"]] if parsed.get("type") == "record" else None


class AvroRowDeserializationSchema(_Avro, DeserializationSchema):
    """A record schema gives rows with its field names, any other schema its Python value. Bytes left over after the value
    make a message poison: it was written with another schema."""

    def deserialize(self, message: bytes) -> Any:
        stream = io.BytesIO(message)
        value = _fastavro().schemaless_reader(stream, self._schema(), None)
        if stream.tell() != len(message):
            raise ValueError(f"{len(message) - stream.tell()} bytes are left after the Avro value: another schema?")
        names = self._names
        if names is None:
            return value
        row = Row(*[value[name] for name in names])
        row.set_field_names(names)
        return row


class AvroRowSerializationSchema(_Avro, SerializationSchema):
    """Rows (by position) or dicts (by name) of a record schema; other schemas take their Python value."""

    def serialize(self, element: Any) -> bytes:
        names = self._names
        if names is not None and not isinstance(element, Mapping):
            element = dict(zip(names, element, strict=True))
        stream = io.BytesIO()
        _fastavro().schemaless_writer(stream, self._schema(), element)
        return stream.getvalue()


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)
