"""Formats of messages, without a broker."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from penstock.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema, JsonSchema
from penstock.errors import JobDefinitionError

TYPE = Types.ROW_NAMED(["id", "name", "price", "ok"], [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.BOOLEAN()])
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Sale",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
    }
)


def rows() -> Any:
    return JsonRowDeserializationSchema.builder().type_info(TYPE)


def test_json_rows_are_read_by_name_and_missing_fields_are_none() -> None:
    row = rows().build().deserialize(b'{"price": 1, "id": 7, "other": [1]}')
    assert row == Row(id=7, name=None, price=1.0, ok=None)


def test_columns_and_single_messages_agree() -> None:
    schema = pickle.loads(pickle.dumps(rows().build()))
    messages = [
        json.dumps({"id": n, "name": f"n\u00e9{n}", "price": n / 2, "ok": n % 2 == 0, "x": {}}).encode()
        for n in range(20)
    ]
    batch = schema.deserialize_columns(messages)
    assert batch is not None
    assert [list(row.values()) for row in batch.to_pylist()] == [list(schema.deserialize(m)) for m in messages]


@pytest.mark.parametrize(
    "bad",
    [b"", b"{", b"[1]", b'{"id": "7"}', b'{"id": 1.5}', b'{"id": 1}\n{"id": 2}', b'{"id": 1} {"id": 2}', b"\xff\xfe"],
)
def test_what_one_reader_refuses_the_other_does_not_accept(bad: bytes) -> None:
    schema = rows().build()
    assert schema.deserialize_columns([b'{"id": 1}', bad]) is None
    with pytest.raises(ValueError):
        schema.deserialize(bad)


def test_parse_errors_are_ignored_and_missing_fields_are_errors_when_asked() -> None:
    assert rows().ignore_parse_errors().build().deserialize(b"{") is None
    with pytest.raises(ValueError, match=r"fields \['name', 'price', 'ok'\] are missing"):
        rows().fail_on_missing_field().build().deserialize(b'{"id": 1}')


def test_json_rows_are_written_with_their_names() -> None:
    schema = JsonRowSerializationSchema.builder().with_type_info(TYPE).build()
    assert json.loads(schema.serialize(Row(1, "a", 2.5, True))) == {"id": 1, "name": "a", "price": 2.5, "ok": True}


def test_plain_json_takes_what_json_has_no_type_for() -> None:
    value = {"t": datetime.date(2026, 1, 2), "d": decimal.Decimal("1.10"), "r": Row(a=1), "b": b"x", "l": (1, 2)}
    assert JsonSchema().deserialize(JsonSchema().serialize(value)) == {
        "t": "2026-01-02",
        "d": "1.10",
        "r": {"a": 1},
        "b": "eA==",
        "l": [1, 2],
    }


def test_avro_records_come_back_as_rows() -> None:
    writer = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=SCHEMA)))
    reader = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=SCHEMA)))
    assert reader.deserialize(writer.serialize(Row(7, "a"))) == Row(id=7, name="a")
    assert reader.deserialize(writer.serialize({"id": 8, "name": None})) == Row(id=8, name=None)


def test_avro_of_another_schema_is_refused() -> None:
    writer = AvroRowSerializationSchema(avro_schema_string=SCHEMA)
    reader = AvroRowDeserializationSchema(avro_schema_string='"long"')
    with pytest.raises(ValueError, match="bytes are left after the Avro value"):
        reader.deserialize(writer.serialize(Row(7, "a")))


@pytest.mark.parametrize("schema", ["no json", '{"type": "record"}', None])
def test_a_bad_avro_schema_is_refused_when_the_job_is_built(schema: str | None) -> None:
    with pytest.raises(JobDefinitionError):
        AvroRowDeserializationSchema(avro_schema_string=schema)
