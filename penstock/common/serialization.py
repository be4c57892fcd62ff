"""Schemas between records and the bytes of a message queue or a file.

Serializers a user or a window assigner supplies: one element to bytes and back.

Formats that read many messages at once into Arrow columns.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

import pyarrow as pa

from penstock.common.absent import missing_name
from penstock.common.typeinfo import TypeInformation, Types
from penstock.errors import JobDefinitionError


class SerializationSchema(ABC):
    """Records to messages. Instances travel pickled to the slots."""

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """The message for a record. An exception fails the job."""


class DeserializationSchema(ABC):
    """Messages to records. Instances travel pickled to the slots."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """The record in `message`; None drops it. An exception fails the job and names the message."""

    def get_produced_type(self) -> TypeInformation:
        """The type of the records; pickled unless a subclass says otherwise."""
        return Types.PICKLED_BYTE_ARRAY()


class BulkWriterFactory:
    """How a file of many records is written: what `ParquetBulkWriters` and `CsvBulkWriters` make for `FileSink.for_bulk_format`."""


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in a character set. Bytes that are no text in it become U+FFFD, as in Flink."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = _known_charset(charset)

    def serialize(self, element: Any) -> bytes:
        if not isinstance(element, str):
            raise TypeError(f"SimpleStringSchema serializes str, not {element!r}: map the stream to strings first")
        return element.encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self._charset, errors="replace")

    def get_produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Passes bytes on as they are, both ways."""

    def serialize(self, element: Any) -> bytes:
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        return message

    def get_produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row, which holds bytes already: for the key or the value of a message."""

    def __init__(self, field_index: int) -> None:
        if isinstance(field_index, bool) or field_index < 0:
            raise ValueError(f"RowFieldExtractorSchema: Field index must be non-negative, but is {field_index!r}")
        self._field_index = field_index

    def serialize(self, element: Any) -> bytes:
        field = element[self._field_index]
        if not isinstance(field, (bytes, bytearray)):
            raise TypeError(
                f"field {self._field_index} of {element!r} holds a {type(field).__name__}: RowFieldExtractorSchema passes bytes "
                "on as they are, so map the field to bytes first"
            )
        return bytes(field)


class Encoder:
    """Records to a file's bytes, one after the other."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode

    def encode(self, element: Any) -> bytes:
        """All bytes of one record, with what separates it from the next."""
        return self._encode(element)

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """`str(record)` and a line feed."""
        return Encoder(_LineEncoding(_known_charset(charset_name)))


class _LineEncoding:
    """A class rather than a closure, so that plain pickle can carry it."""

    def __init__(self, charset: str) -> None:
        self._charset = charset

    def __call__(self, element: Any) -> bytes:
        return f"{element}\n".encode(self._charset)


def _known_charset(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError as error:
        raise JobDefinitionError(f"Python knows no character set {name!r}: use one such as 'UTF-8'") from error


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)


T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Stateless; two of one class with equal attributes are equal."""

    @abstractmethod
    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write `element`; what is written must be self-delimiting."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> T:
        """Read exactly what `serialize` wrote."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ColumnarDeserializationSchema(DeserializationSchema):
    """May read a whole block of messages at once; `deserialize` stays the truth for single ones."""

    @abstractmethod
    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """One row for each message, in order; None if that cannot be done: the caller then reads them one by one."""
