"""The receive log: what was pushed, on disk before anybody works on it.

Records have numbers, from 0 on, that never change. They lie one after the other in segments, files named by the number of
their first record. A writer never touches the segment of an earlier one: it counts what is whole in the newest segment
(a record that a crash cut off was never told to anybody) and starts the next one there. So where segments overlap, the
later one is right.

    00000000000000000000.log   0 1 2 3 4 5 (6 …     cut off by a crash
    00000000000000000006.log   6 7 8                the next writer
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Final

from penstock.common.secrets import make_private
from penstock.common.storage import fsync_folder
from penstock.errors import FencedError, StorageError

_FRAME: Final = struct.Struct(">IIQq")  # length, checksum, number, time of receipt
_SEGMENT_BYTES: Final = 16 << 20
_ENDED: Final = "ended.json"
_LOCK: Final = "writer.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A record and when it came, in milliseconds; times never fall."""

    number: int
    received_ms: int
    data: bytes


class ReceiveLog:
    """A folder on a POSIX filesystem that the driver writes to and all slots can read. One writer at a time."""

    def __init__(self, folder: str | os.PathLike[str], *, segment_bytes: int = _SEGMENT_BYTES) -> None:
        self.folder = Path(folder)
        self._segment_bytes = segment_bytes
        self._hint = (-1, 0, 0)  # segment, number, offset: where the last read ended, and the next one usually begins

    # ---------------------------------------------------------------- reading

    def segments(self) -> list[int]:
        """The numbers the segments start at, in order."""
        return sorted(int(path.stem) for path in self.folder.glob("*.log"))

    def first(self) -> int:
        """The oldest record that is still here, or the next one to come."""
        return next(iter(self.segments()), 0)

    def end(self) -> int:
        """The number after the newest record."""
        segments = self.segments()
        if not segments:
            return 0
        last = segments[-1]
        for record in self._read_segment(last, strict=False):
            last = record.number + 1
        return last

    def ended_at(self) -> int | None:
        """The number at which the sender ended the stream for good."""
        try:
            return int(json.loads((self.folder / _ENDED).read_text())["at"])
        except FileNotFoundError:
            return None

    def read(self, start: int, end: int) -> Iterator[Received]:
        """The records from `start` up to `end`, which must be in the log."""
        segments = self.segments()
        if start < end and (not segments or segments[0] > start):
            raise StorageError(
                f"receive log {self.folder} starts at record {segments[0] if segments else 0}, but record {start} is needed: "
                "it was deleted because a later checkpoint does not need it. Resume from that one"
            )
        position = start
        for index, segment in enumerate(segments):
            until = min(segments[index + 1] if index + 1 < len(segments) else end, end)
            if position < until:
                for record in self._read_segment(segment, position):
                    if record.number >= position:
                        yield record
                        position += 1
                    if position == until:
                        break
        if position < end:
            raise StorageError(
                f"receive log {self.folder} ends at record {position}, but records up to {end} were planned: if the folder is "
                "on a network filesystem, this host does not see it as the driver does"
            )

    def _read_segment(self, segment: int, start: int = 0, *, strict: bool = True) -> Iterator[Received]:
        """From `start` or earlier up to the first record that is not whole; with `strict` that is an error unless the file
        just ends."""
        path = self._path(segment)
        known, number, offset = self._hint
        expected, offset = (number, offset) if known == segment and number <= start else (segment, 0)
        with path.open("rb") as file:
            file.seek(offset)
            while len(header := file.read(_FRAME.size)) == _FRAME.size:
                length, checksum, number, received_ms = _FRAME.unpack(header)
                data = file.read(length)
                if len(data) < length:
                    return
                if number != expected or checksum != zlib.crc32(data, zlib.crc32(header[8:])):
                    if strict:
                        raise StorageError(f"receive log {path}: record {expected} is damaged; restore the file")
                    return
                expected += 1
                self._hint = (segment, expected, file.tell())
                yield Received(number=number, received_ms=received_ms, data=data)

    def _path(self, segment: int) -> Path:
        return self.folder / f"{segment:020d}.log"

    # ---------------------------------------------------------------- writing

    def writer(self) -> ReceiveLogWriter:
        """Raises FencedError while another process writes."""
        return ReceiveLogWriter(self, self._segment_bytes)

    def truncate(self, number: int) -> None:
        """Delete the segments that hold nothing from record `number` on. The newest one stays."""
        segments = self.segments()
        for segment, following in pairwise(segments):
            if following <= number:
                self._path(segment).unlink(missing_ok=True)


class ReceiveLogWriter:
    """Not thread-safe: the thread that receives is the one that writes."""

    def __init__(self, log: ReceiveLog, segment_bytes: int) -> None:
        self._log, self._segment_bytes = log, segment_bytes
        make_private(log.folder)
        self._lock = (log.folder / _LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise FencedError(
                f"another process receives into {log.folder}: a log belongs to one source of one job. End the other driver, or "
                "give this source a folder of its own"
            ) from error
        self.next = log.end()
        self._last_ms = 0
        self._file: IO[bytes] | None = None

    def append(self, records: Sequence[bytes], received_ms: int) -> None:
        """Durable when it returns."""
        if self._lock.closed:
            raise FencedError(f"{self._log.folder} is no longer received into by this job")
        if self._file is None or self._file.tell() >= self._segment_bytes:
            self._roll()
        assert self._file is not None
        self._last_ms = max(self._last_ms, received_ms)  # a clock that is set back must not take event time with it
        frames = bytearray()
        for number, data in enumerate(records, start=self.next):
            tail = struct.pack(">Qq", number, self._last_ms)
            frames += struct.pack(">II", len(data), zlib.crc32(data, zlib.crc32(tail))) + tail + data
        self._file.write(frames)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.next += len(records)

    def end(self) -> None:
        """The sender ended the stream: a restarted job must not wait for more."""
        temporary = self._log.folder / f"{_ENDED}.new"
        with temporary.open("w") as file:
            json.dump({"version": 1, "at": self.next}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._log.folder / _ENDED)
        fsync_folder(self._log.folder)

    def _roll(self) -> None:
        if self._file is not None:
            self._file.close()
        path = self._log._path(self.next)
        path.unlink(missing_ok=True)  # of a writer that died before its first record was whole
        self._file = path.open("xb")
        fsync_folder(self._log.folder)

    def close(self) -> None:
        """Closes the file and lets another process write the log."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with contextlib.suppress(OSError):
            self._lock.close()
