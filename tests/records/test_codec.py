"""A batch as bytes is Arrow's stream format to the byte, whichever way it is written."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.records.codec import batch_to_bytes, bytes_to_batch

COLUMNS: dict[str, Any] = {
    "numbers": pa.array(np.arange(1000)),
    "texts": pa.array([str(number) for number in range(1000)]),
    "with nulls": pa.array([None, 1.5] * 500),
    "truths": pa.array([True, None] * 500),
    "nothing": pa.nulls(1000),
    "decimals": pa.array([1] * 1000, pa.decimal128(10, 2)),
    "views": pa.array(
        [f"a text of more than twelve bytes, number {number}" for number in range(1000)], pa.string_view()
    ),
    "lists": pa.array([[1, 2], None] * 500),
    "dictionaries": pa.array(["a", "b"] * 500).dictionary_encode(),
    "lists of dictionaries": pa.ListArray.from_arrays(
        pa.array(range(1001), pa.int32()), pa.array(["a", "b"] * 500).dictionary_encode()
    ),
    "ids": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([uuid.UUID(int=7).bytes] * 1000, pa.binary(16))),
}


def by_a_writer(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


@pytest.mark.parametrize("name", COLUMNS)
def test_a_batch_is_written_as_arrows_own_writer_does(name: str) -> None:
    whole = pa.record_batch({"first": np.arange(1000), name: COLUMNS[name]}).replace_schema_metadata(
        {"of": "the stream"}
    )
    for batch in (whole, whole.slice(13, 700), whole.slice(5, 0), whole.select([])):
        data = batch_to_bytes(batch)
        assert data == by_a_writer(batch)
        read = bytes_to_batch(memoryview(data))
        assert read.equals(batch)
        assert read.schema.equals(batch.schema, check_metadata=True)
