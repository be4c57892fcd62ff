"""Frames carry the events of all channels in their order, aligned, and none is too small; no Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.pipelined.frames import FrameBuffer, events_in, flush_gap_ms
from penstock.runtime.pipelined.spark_plan import BATCH_BYTES

Event = tuple[int, int, int, int, int, int, bytes]

events = st.tuples(
    st.integers(0, 3),
    st.integers(0, 9),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(0, 2**40),
    st.integers(0, 8),
    st.binary(max_size=100),
)


def received(batch: pa.RecordBatch) -> dict[int, list[tuple[int, int, int, int, int, bytes]]]:
    found: dict[int, list[tuple[int, int, int, int, int, bytes]]] = {}
    for target, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
        for *head, data in events_in(memoryview(payload.as_buffer())):
            found.setdefault(target, []).append((*head, bytes(data)))  # type: ignore[arg-type]
    return found


@given(st.lists(events, min_size=1, max_size=30))
def test_what_is_added_for_a_target_comes_out_for_it_in_order(added: list[Event]) -> None:
    buffer = FrameBuffer(4)
    expected: dict[int, list[tuple[int, int, int, int, int, bytes]]] = {}
    for target, *rest in added:
        buffer.add(target, *rest)  # type: ignore[arg-type]
        expected.setdefault(target, []).append(tuple(rest))  # type: ignore[arg-type]
    batch = buffer.take()
    assert batch is not None
    assert received(batch) == expected
    assert buffer.take() is None, "it was taken"


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=10))
def test_every_payload_starts_at_a_multiple_of_eight_bytes(payloads: list[bytes]) -> None:
    buffer = FrameBuffer(1)
    for number, payload in enumerate(payloads):
        buffer.add(0, 1, 2, 3, number, 0, payload)
    batch = buffer.take()
    assert batch is not None
    frame = memoryview(batch.column(1)[0].as_buffer())
    at = 0
    for *_, data in events_in(frame):
        at += 24
        assert at % 8 == 0
        at += len(data) + -len(data) % 8


def test_only_targets_that_something_is_for_get_a_row() -> None:
    buffer = FrameBuffer(3)
    buffer.add(2, 1, 0, 0, 0, 0, b"x")
    buffer.add(0, 1, 0, 0, 0, 0, b"y")
    waiting = [buffer.waiting]
    batch = buffer.take()
    assert batch is not None
    assert batch.column(0).to_pylist() == [0, 2]
    assert [*waiting, buffer.waiting] == [True, False]


def test_no_frame_is_so_small_that_spark_would_wait_for_more() -> None:
    buffer = FrameBuffer(1)
    buffer.add(0, 1, 0, 0, 0, 0, b"")  # an event without a payload
    batch = buffer.take()
    assert batch is not None
    nothing_but_offsets_and_validity = 16
    assert len(batch.column(1)[0].as_buffer()) >= BATCH_BYTES - nothing_but_offsets_and_validity


def test_the_more_rows_all_hosts_send_the_rarer_they_send_them() -> None:
    assert flush_gap_ms(3, 2, 2) == pytest.approx(4.0)
    assert flush_gap_ms(6, 2, 2) == pytest.approx(10.0)
    assert flush_gap_ms(3, 8, 16) == pytest.approx(8.0), "with as many more cores it grows with the parallelism"
    assert flush_gap_ms(1, 1, 2) == 2.0, "never more often than this"
    assert flush_gap_ms(3, 333, 1000) == pytest.approx(2 * 333**2 * 0.3 / 300), "on a thousand cores, too"
    assert flush_gap_ms(6, 64, 4) == 1000.0, "never more rarely than this"
