"""The receive log: durable records with numbers, whatever a crash leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.push import ReceiveLog
from penstock.errors import FencedError, StorageError


def write(log: ReceiveLog, *records: bytes, at: int = 1) -> None:
    writer = log.writer()
    writer.append(records, at)
    writer.close()


def contents(log: ReceiveLog, start: int = 0, end: int | None = None) -> list[bytes]:
    return [record.data for record in log.read(start, log.end() if end is None else end)]


def test_records_are_read_by_number_across_writers_and_segments(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path / "log", segment_bytes=60)
    write(log, b"a", b"", b"c")
    write(log, b"d")
    writer = log.writer()
    for data in (b"e" * 50, b"f", b"g"):
        writer.append([data], 1)
    writer.close()
    assert len(log.segments()) == 4
    assert log.end() == 7
    assert contents(log) == [b"a", b"", b"c", b"d", b"e" * 50, b"f", b"g"]
    assert contents(log, 1, 4) == [b"", b"c", b"d"]
    assert contents(log, 4, 4) == []
    assert contents(log, 1, 2) == [b""]


def test_an_empty_log_has_nothing(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path / "log")
    assert (log.first(), log.end(), log.ended_at()) == (0, 0, None)


@settings(deadline=None, max_examples=60)
@given(cut=st.integers(0, 200), after=st.lists(st.binary(max_size=5), min_size=1, max_size=3))
def test_a_record_that_a_crash_cut_off_is_not_there_and_its_number_is_given_again(
    tmp_path_factory: pytest.TempPathFactory, cut: int, after: list[bytes]
) -> None:
    log = ReceiveLog(tmp_path_factory.mktemp("log"))
    write(log, b"one", b"two", b"three")
    segment = log.folder / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[: min(cut, len(whole))])
    survivors = [b"one", b"two", b"three"][: log.end()]
    assert contents(log) == survivors
    write(log, *after)
    assert contents(log) == survivors + after


def test_what_an_earlier_writer_adds_after_a_later_one_has_started_does_not_count(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path)
    write(log, b"a", b"b")
    segment = log.folder / f"{0:020d}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[: len(whole) - 1])
    write(log, b"B", b"C")
    segment.write_bytes(whole)  # the record that was not whole a moment ago
    assert contents(log) == [b"a", b"B", b"C"]


def test_only_one_process_receives_into_a_log(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path)
    first = log.writer()
    with pytest.raises(FencedError, match="another process receives"):
        log.writer()
    first.close()
    with pytest.raises(FencedError, match="no longer"):
        first.append([b"late"], 1)
    log.writer().close()
    assert log.end() == 0


def test_a_damaged_record_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path)
    write(log, b"one", b"two")
    write(log, b"three")
    segment = log.folder / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with pytest.raises(StorageError, match=rf"{segment}: record 1 is damaged"):
        contents(log, 0, 3)


def test_records_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path)
    write(log, b"one")
    with pytest.raises(StorageError, match="ends at record 1, but records up to 5 were planned"):
        contents(log, 0, 5)
    write(log, b"two")
    log.truncate(1)
    with pytest.raises(StorageError, match="starts at record 1, but record 0 is needed"):
        contents(log, 0, 2)


def test_truncating_deletes_whole_segments_that_are_not_needed_and_never_the_newest(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path)
    for text in (b"a", b"b", b"c"):
        write(log, text, text)
    log.truncate(3)
    assert log.segments() == [2, 4]
    assert contents(log, 3) == [b"b", b"c", b"c"]
    log.truncate(100)
    assert log.segments() == [4]
    assert log.end() == 6


def test_times_of_receipt_never_fall(tmp_path: Path) -> None:
    log = ReceiveLog(tmp_path)
    writer = log.writer()
    for at in (5, 9, 7):
        writer.append([b"x"], at)
    writer.end()
    writer.close()
    assert [record.received_ms for record in log.read(0, 3)] == [5, 9, 9]
    assert log.ended_at() == 3
