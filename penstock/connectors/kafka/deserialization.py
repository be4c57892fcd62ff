"""From Kafka's messages to records, and what happens to messages that are none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.common.serialization import ColumnarDeserializationSchema, DeserializationSchema
from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.kafka.offsets import KafkaTopicPartition
from penstock.errors import BadRecordError, shorten
from penstock.records import Block, Columns, Rows, SideRows

_NO_TYPE = Types.PICKLED_BYTE_ARRAY()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRecord:
    """A whole message: what a full-record deserialiser sees, and what a side output of poison records carries."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None  # ms; None if the producer gave none
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @staticmethod
    def of(message: Any) -> KafkaRecord:
        """The record of a message of confluent_kafka's."""
        kind, timestamp = message.timestamp()
        return KafkaRecord(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            timestamp=timestamp if kind else None,
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
        )


class KafkaRecordDeserializationSchema(ABC):
    """Whole messages to records. Instances travel pickled to the slots."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """The record; None drops the message. An exception makes it a poison record."""

    def get_produced_type(self) -> TypeInformation:
        """The type of the records; pickled unless a subclass says otherwise."""
        return _NO_TYPE

    @staticmethod
    def value_only(schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """The message's value; messages without a value (tombstones) are dropped."""
        return ValueOnly(schema)

    @staticmethod
    def of(
        function: Callable[[KafkaRecord], Any], type_info: TypeInformation | None = None
    ) -> KafkaRecordDeserializationSchema:
        """A function of the whole message: key, value, headers, topic, partition, offset, timestamp."""
        return _OfFunction(function, type_info)

    @staticmethod
    def key_value() -> KafkaRecordDeserializationSchema:
        """Tuples (key, value) of bytes or None: what most jobs need of a message, without the price of a whole record."""
        return _KeyValue()

    @staticmethod
    def full_record() -> KafkaRecordDeserializationSchema:
        """The `KafkaRecord` itself."""
        return _OfFunction(None, None)


class ValueOnly(KafkaRecordDeserializationSchema):
    """Gives the value of a message to a DeserializationSchema; a message without a value is dropped."""

    def __init__(self, schema: DeserializationSchema) -> None:
        self.schema = schema

    def deserialize(self, record: KafkaRecord) -> Any:
        return None if record.value is None else self.schema.deserialize(record.value)

    def get_produced_type(self) -> TypeInformation:
        return self.schema.get_produced_type()


class _OfFunction(KafkaRecordDeserializationSchema):
    def __init__(self, function: Callable[[KafkaRecord], Any] | None, type_info: TypeInformation | None) -> None:
        self._function, self._type = function, type_info

    def deserialize(self, record: KafkaRecord) -> Any:
        return record if self._function is None else self._function(record)

    def get_produced_type(self) -> TypeInformation:
        return self._type or _NO_TYPE


class _KeyValue(KafkaRecordDeserializationSchema):
    def deserialize(self, record: KafkaRecord) -> Any:
        return record.key, record.value


class Decoder:
    """Messages of one partition to blocks. `poison_tag` names the side output of messages that cannot be read; without
    one they fail the job."""

    def __init__(self, schema: KafkaRecordDeserializationSchema, poison_tag: str | None, drop_poison: bool) -> None:
        self._schema, self._poison_tag, self._drop = schema, poison_tag, drop_poison
        self._columnar = (
            schema.schema
            if isinstance(schema, ValueOnly) and isinstance(schema.schema, ColumnarDeserializationSchema)
            else None
        )

    def blocks(self, partition: KafkaTopicPartition, messages: list[Any]) -> Iterator[Block]:
        """The records of consecutive messages of one partition, as columns where the schema can."""
        stamps: list[int | None] = [message.timestamp()[1] for message in messages]
        if self._columnar is not None:
            values = [message.value() for message in messages]
            batch = None if None in values else self._columnar.deserialize_columns(values)
            if batch is not None:
                yield Columns(batch, np.asarray(stamps, dtype=np.int64))
                return
            # Something in it cannot be read that way: one by one, to find out what.
        yield from self._one_by_one(messages, stamps)

    def _one_by_one(self, messages: list[Any], stamps: list[int | None]) -> Iterator[Block]:
        results: list[Any] = []
        poison: list[KafkaRecord] = []
        if isinstance(self._schema, _KeyValue):
            results = [(message.key(), message.value()) for message in messages]
        elif isinstance(self._schema, ValueOnly):
            deserialize = self._schema.schema.deserialize
            for message in messages:
                value = message.value()
                try:
                    results.append(None if value is None else deserialize(value))
                except Exception as error:
                    results.append(None)
                    self._poisoned(message, error, poison)
        else:
            for message in messages:
                try:
                    results.append(self._schema.deserialize(KafkaRecord.of(message)))
                except Exception as error:
                    results.append(None)
                    self._poisoned(message, error, poison)
        if None in results:
            kept = [(value, stamp) for value, stamp in zip(results, stamps, strict=True) if value is not None]
            results, stamps = [value for value, _ in kept], [stamp for _, stamp in kept]
        if results:
            yield Rows(results, stamps)
        if poison and self._poison_tag is not None:
            yield SideRows(poison, [record.timestamp for record in poison], tag=self._poison_tag)

    def _poisoned(self, message: Any, error: Exception, poison: list[KafkaRecord]) -> None:
        if self._poison_tag is not None:
            poison.append(KafkaRecord.of(message))
        elif not self._drop:
            raise BadRecordError(
                f"the message at offset {message.offset()} of {message.topic()}-{message.partition()} cannot be read by "
                f"{type(self._schema).__name__}: {error} (key {shorten(message.key())}, value {shorten(message.value())}). "
                "Send such records to a side output with set_poison_records(OutputTag(…)), or drop them with "
                "set_poison_records('drop')"
            ) from error
