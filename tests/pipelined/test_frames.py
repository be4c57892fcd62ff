"""Frames carry the events of all channels in their order, aligned, with nudges where nothing follows; no Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.pipelined.frames import FrameBuffer, events_in, flush_gap_ms

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


@given(st.lists(events, min_size=1, max_size=30), st.booleans())
def test_what_is_added_for_a_target_comes_out_for_it_in_order(added: list[Event], nudge: bool) -> None:
    buffer = FrameBuffer(4)
    expected: dict[int, list[tuple[int, int, int, int, int, bytes]]] = {}
    for target, *rest in added:
        buffer.add(target, *rest)  # type: ignore[arg-type]
        expected.setdefault(target, []).append(tuple(rest))  # type: ignore[arg-type]
    batch = buffer.take(nudge=nudge)
    assert batch is not None
    assert received(batch) == expected
    assert buffer.take(nudge=nudge) is None, "it was taken"


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=10))
def test_every_payload_starts_at_a_multiple_of_eight_bytes(payloads: list[bytes]) -> None:
    buffer = FrameBuffer(1)
    for number, payload in enumerate(payloads):
        buffer.add(0, 1, 2, 3, number, 0, payload)
    batch = buffer.take(nudge=False)
    assert batch is not None
    frame = memoryview(batch.column(1)[0].as_buffer())
    at = 0
    for *_, data in events_in(frame):
        at += 24
        assert at % 8 == 0
        at += len(data) + -len(data) % 8


def test_a_nudge_is_an_empty_row_for_every_target_that_something_was_for_behind_all_of_it() -> None:
    buffer = FrameBuffer(3)
    buffer.add(2, 1, 0, 0, 0, 0, b"x")
    buffer.add(0, 1, 0, 0, 0, 0, b"y")
    batch = buffer.take(nudge=True)
    assert batch is not None
    assert batch.column(0).to_pylist() == [0, 2, 0, 2]
    assert [len(payload) > 0 for payload in batch.column(1).to_pylist()] == [True, True, False, False]


def test_a_row_that_left_without_a_nudge_gets_one_later_whatever_else_was_sent_meanwhile() -> None:
    buffer = FrameBuffer(3)
    buffer.add(0, 1, 0, 0, 0, 0, b"x")
    assert buffer.take(nudge=False) is not None
    waiting = [buffer.waiting]
    buffer.add(1, 1, 0, 0, 0, 0, b"y")
    batch = buffer.take(nudge=True)
    assert batch is not None
    assert batch.column(0).to_pylist() == [1, 0, 1]
    assert [len(payload) > 0 for payload in batch.column(1).to_pylist()] == [True, False, False]
    assert [*waiting, buffer.waiting] == [True, False], "a row stays in the JVM until something follows it"
    assert buffer.take(nudge=True) is None


def test_a_nudge_alone_is_a_batch() -> None:
    buffer = FrameBuffer(2)
    buffer.add(1, 1, 0, 0, 0, 0, b"x")
    assert buffer.take(nudge=False) is not None
    batch = buffer.take(nudge=True)
    assert batch is not None
    assert batch.to_pydict() == {"target": [1], "payload": [b""]}


def test_a_busy_host_nudges_targets_that_its_next_batch_has_nothing_for() -> None:
    buffer = FrameBuffer(3)
    buffer.add(0, 1, 0, 0, 0, 0, b"x")
    buffer.add(1, 1, 0, 0, 0, 0, b"x")
    assert buffer.take(nudge=False) is not None
    buffer.add(1, 1, 0, 0, 1, 0, b"y")
    batch = buffer.take(nudge=False)
    assert batch is not None
    assert batch.column(0).to_pylist() == [1, 0], "the row for 1 is followed by one, that for 0 is not"


def test_the_more_rows_all_hosts_send_the_rarer_they_send_them() -> None:
    assert flush_gap_ms(3, 2, 2) == pytest.approx(6.0)
    assert flush_gap_ms(6, 2, 2) == pytest.approx(15.0)
    assert flush_gap_ms(3, 8, 16) == pytest.approx(12.0), "with as many more cores it grows with the parallelism"
    assert flush_gap_ms(1, 1, 2) == 2.0, "never more often than this"
    assert flush_gap_ms(6, 64, 64) == 100.0, "never more rarely than this"
