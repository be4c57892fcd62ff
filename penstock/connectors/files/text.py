"""Text files, a record a line."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from penstock.connectors.errors import BadRecordError
from penstock.connectors.files.formats import Cut, ReadFormat, decompressed, is_compressed
from penstock.connectors.files.lines import check_size, read_lines
from penstock.connectors.files.locations import Locations
from penstock.errors import ConfigurationError
from penstock.functions.connectors import Json, SplitRange
from penstock.records import Block, Rows
from penstock.records.sizes import gathered


def cut_bytes(size: int, start: int, budget: int | None, *, whole: bool) -> Cut:
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
        return TextLineFormat(charset_name)
