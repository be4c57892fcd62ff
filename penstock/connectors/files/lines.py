"""Lines of a byte range. A line belongs to the range that holds its first byte, so ranges cut anywhere, even inside a
line or a character, share the lines out without loss or repetition.

Text files, a record a line.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from penstock.connectors.files.formats import Cut, ReadFormat, decompressed, is_compressed
from penstock.connectors.files.locations import Locations
from penstock.errors import BadRecordError, ConfigurationError, StorageError
from penstock.functions.connectors import Json, SplitRange
from penstock.records import Block, Rows
from penstock.records.sizes import BLOCK_BYTES, gathered, within

_CHUNK = 1 << 20
_ALIGN_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Consecutive lines, without their newlines; `offset` is the first one's position (in a compressed file: in the
    uncompressed bytes)."""

    offset: int
    lines: list[bytes]

    def located(self) -> Iterator[tuple[int, bytes]]:
        """Each line with its position."""
        offset = self.offset
        for line in self.lines:
            yield offset, line
            offset += len(line) + 1


LineBlocks: TypeAlias = Iterator[Lines]


def read_lines(locations: Locations, split: SplitRange, block_size: int, *, skip_lines: int = 0) -> LineBlocks:
    """The lines of a range in blocks of at most `block_size`. `skip_lines` drops lines (a header) from the start of
    the file, wherever the range begins."""
    with locations.open(split.split) as file:
        check_size(file, split)
        if split.start >= split.end:
            return
        if is_compressed(split.split):
            with decompressed(file, split.split) as stream:
                yield from _dropping(_blocks(stream.read, 0, None, block_size), skip_lines)
            return
        head = 0
        for _ in range(skip_lines):
            head = line_start(file, head + 1)
        start = max(head, line_start(file, split.start))
        end = split.end if split.last else line_start(file, split.end)
        if start < end:
            file.seek(start)
            yield from _blocks(file.read, start, end - start, block_size)


def check_size(file: pa.NativeFile, split: SplitRange) -> None:
    """A file must be whole when it appears and must not change: otherwise a replay would read other records."""
    size = file.size()
    if size < split.end:
        raise StorageError(
            f"FileSource: {split.split} has shrunk to {size} bytes, but bytes {split.start} to {split.end} are to be "
            "read. Files must not change once they are in place: write new data to a new file."
        )
    if split.last and size > split.end:
        raise StorageError(
            f"FileSource: {split.split} has grown from {split.end} to {size} bytes since it was found, and what was "
            "added would be lost. Write files elsewhere and rename them into place when they are complete."
        )


def line_start(file: pa.NativeFile, position: int) -> int:
    """The first position at or after `position` where a line starts, or the end of the file."""
    if position == 0:
        return 0
    size = int(file.size())
    at = position - 1
    while at < size:
        chunk = file.read_at(min(_ALIGN_CHUNK, size - at), at)
        newline = chunk.find(b"\n")
        if newline >= 0:
            return int(at + newline + 1)
        at += len(chunk)
    return size


def _blocks(read: Callable[[int], bytes], offset: int, limit: int | None, block_size: int) -> LineBlocks:
    """Cut a stream into lines; the last one need not end with a newline."""
    rest = b""
    pending: list[bytes] = []
    size = 0  # bytes read and not yet passed on
    while True:
        chunk = read(_CHUNK if limit is None else min(_CHUNK, limit))
        if limit is not None:
            limit -= len(chunk)
        size += len(chunk)
        if chunk:
            *whole, rest = (rest + chunk).split(b"\n")
            pending += whole
        elif rest:
            pending.append(rest)
            rest = b""
        used = 0
        while used < len(pending) and (len(pending) - used >= block_size or size > BLOCK_BYTES or not chunk):
            block = pending[used : used + block_size]
            block = block[: within(map(len, block))]
            yield Lines(offset=offset, lines=block)
            passed = sum(map(len, block)) + len(block)
            offset += passed
            size -= passed
            used += len(block)
        del pending[:used]
        if not chunk:
            return


def _dropping(blocks: LineBlocks, count: int) -> LineBlocks:
    for block in blocks:
        dropped = min(count, len(block.lines))
        count -= dropped
        if dropped < len(block.lines):
            skipped = sum(len(line) + 1 for line in block.lines[:dropped])
            yield Lines(offset=block.offset + skipped, lines=block.lines[dropped:])


def cut_bytes(size: int, start: int, budget: int | None, *, whole: bool) -> Cut:
    """The part of a file from `start` on that an epoch of `budget` bytes reads; `whole`: the file cannot be divided."""
    end = size if whole or budget is None else min(size, start + budget)
    return Cut(end=end, used=end - start, last=end == size)


class TextLineFormat(ReadFormat):
    """Lines as `str`, without `\\n` or `\\r\\n`; an empty line is an empty string. Cut by bytes; compressed files, and
    charsets whose newline is not the single byte 10 (UTF-16, UTF-32), are read whole."""

    unit = "bytes"

    def __init__(self, charset: str = "UTF-8") -> None:
        try:
            self._charset = codecs.lookup(charset).name
        except LookupError as error:
            raise ConfigurationError(f"text_line_format: {charset!r} is not a charset Python knows") from error
        self._newline_is_a_byte = "\n".encode(self._charset) == b"\n"

    def cut(self, locations: Locations, name: str, size: int, start: Json, budget: int | None) -> Cut:
        return cut_bytes(size, start, budget, whole=is_compressed(name) or not self._newline_is_a_byte)

    def read(self, locations: Locations, split: SplitRange, block_size: int) -> Iterator[Block]:
        if not self._newline_is_a_byte:
            yield from self._read_whole(locations, split, block_size)
            return
        for block in read_lines(locations, split, block_size):
            try:
                text = b"\n".join(block.lines).decode(self._charset)
            except UnicodeDecodeError:
                self._fail_on_first_bad_line(block.located(), split.split)
                raise
            yield Rows([line.removesuffix("\r") for line in text.split("\n")])

    def _read_whole(self, locations: Locations, split: SplitRange, block_size: int) -> Iterator[Block]:
        with locations.open(split.split) as file:
            check_size(file, split)
            data = decompressed(file, split.split).read()
        try:
            lines = data.decode(self._charset).split("\n")
        except UnicodeDecodeError as error:
            raise self._bad(split.split, error.start, error) from error
        if not lines[-1]:
            lines.pop()
        for part in gathered(lines, block_size):
            yield Rows([line.removesuffix("\r") for line in part])

    def _fail_on_first_bad_line(self, located: Iterator[tuple[int, bytes]], name: str) -> None:
        for offset, line in located:
            try:
                line.decode(self._charset)
            except UnicodeDecodeError as error:
                raise self._bad(name, offset + error.start, error) from error

    def _bad(self, name: str, position: int, error: UnicodeDecodeError) -> BadRecordError:
        return BadRecordError(
            f"FileSource: {name} at byte {position}: not {self._charset} ({error.reason}). "
            "Name the file's charset in text_line_format(...), or mend the file."
        )


class StreamFormat:
    """PyFlink's name for the choice of a record-wise format."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextLineFormat:
        """Lines of text; each is a record, without its newline."""
        return TextLineFormat(charset_name)
