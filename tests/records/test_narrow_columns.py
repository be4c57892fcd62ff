"""Columns come out of an exchange as they went in, whatever bytes their numbers took on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.exchange_rows import EventKind, decode_event, encode_event
from penstock.protocol.events import Data
from penstock.records import Columns
from penstock.records.narrow_columns import narrowed

ROWS = 8_200
LONGS = (-(2**63), 2**63 - 1)


def passed(block: Columns) -> tuple[list[int], Columns]:
    """The kinds of rows that it was, and what came out."""
    encoded = list(encode_event(Data(block), 64 << 20))
    events = [decode_event(kind, payload) for kind, payload in encoded]
    (event,) = events
    assert isinstance(event, Data)
    assert isinstance(event.block, Columns)
    return [kind for kind, _ in encoded], event.block


@given(st.data())
def test_numbers_of_any_range_come_out_as_they_went_in(data: st.DataObject) -> None:
    low = data.draw(st.integers(*LONGS))
    reach = data.draw(st.sampled_from([0, 1, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**63, 2**64 - 1]))
    high = min(low + reach, LONGS[1])
    drawn = data.draw(st.lists(st.integers(low, high), min_size=1, max_size=8))
    numbers = np.resize(np.array([low, high, *drawn], dtype=np.int64), ROWS)
    batch = pa.record_batch({"k": numbers, "t": pa.array(numbers).view(pa.timestamp("us")), "f": np.ones(ROWS)})
    kinds, block = passed(Columns(batch, numbers[::-1].copy()))
    assert kinds == [EventKind.NARROW if high - low < 2**32 else EventKind.COLUMNS]
    assert block.batch.equals(batch)
    assert block.timestamps is not None
    assert block.timestamps.dtype == np.int64
    assert block.timestamps.tolist() == numbers[::-1].tolist()


def test_a_schema_comes_out_with_all_it_says() -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False, metadata={b"of": b"a field"}),
            pa.field("z", pa.timestamp("ms", "Europe/Berlin")),
            pa.field("s", pa.string()),
        ],
        {b"of": b"the stream"},
    )
    arrays: list[Any] = [np.arange(ROWS), pa.array(np.arange(ROWS)).cast(schema.types[1]), ["x"] * ROWS]
    batch = pa.RecordBatch.from_arrays([pa.array(a) for a in arrays], schema=schema)
    for given_ in (batch, batch.slice(7, 8_192), batch.replace_schema_metadata(None)):
        kinds, block = passed(Columns(given_))
        assert kinds == [EventKind.NARROW]
        assert block.batch.equals(given_)
        assert block.batch.schema.equals(given_.schema, check_metadata=True)
        assert block.timestamps is None


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None] * (ROWS // 2)),
        pa.array([0.5] * ROWS),
        pa.array(["text"] * ROWS),
        pa.array([1] * ROWS, pa.uint64()),
        pa.array([1] * 8_191),
    ],
    ids=["nulls", "fractions", "texts", "unsigned", "few"],
)
def test_other_columns_go_as_they_are(column: pa.Array) -> None:
    batch = pa.record_batch({"c": column})
    assert narrowed(batch) is None
    kinds, block = passed(Columns(batch))
    assert kinds == [EventKind.COLUMNS]
    assert block.batch.equals(batch)


def test_three_columns_of_an_event_take_ten_bytes() -> None:
    rng = np.random.default_rng(1)
    batch = pa.record_batch({"key": rng.integers(0, 100_000, 20_000), "amount": rng.integers(0, 10_000, 20_000)})
    ((_, payload),) = encode_event(Data(Columns(batch, 1_700_000_000_000 + rng.integers(0, 1 << 17, 20_000))))
    assert len(payload) < 20_000 * 10 + 2_000
