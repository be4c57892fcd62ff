"""CSV and NDJSON files: lines that become Arrow columns.

The columns' types must not depend on where a range or a block begins, so they are fixed before the job starts: given
as `schema`, or inferred once from the head of the oldest file.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from penstock.connectors.files.formats import Cut, ReadFormat, columns_blocks, decompressed, is_compressed
from penstock.connectors.files.lines import Lines, check_size, cut_bytes, read_lines
from penstock.connectors.files.locations import Locations
from penstock.errors import BadRecordError, ConfigurationError
from penstock.functions.connectors import Json, SplitRange
from penstock.records import Block

_SAMPLE_LINES = 10_000
_BOM = b"\xef\xbb\xbf"


class _TabularFormat(ReadFormat):
    """Cut by bytes, parsed block by block with a fixed schema."""

    unit = "bytes"
    _name: str

    def __init__(self, schema: pa.Schema | None, event_time_column: str | None) -> None:
        self._schema = schema
        self._schema_was_given = schema is not None
        self._event_time = event_time_column

    def prepared(self, locations: Locations) -> ReadFormat:
        if self._schema is not None:
            return self
        for file in locations.list():
            if file.size:
                ready = copy(self)
                ready._schema = self._inferred(locations, file.name, file.size)
                return ready
        raise ConfigurationError(
            f"FileSource: there is no {self._name} file yet to infer the columns from; give schema=pa.schema([...])"
        )

    def cut(self, locations: Locations, name: str, size: int, start: Json, budget: int | None) -> Cut:
        return cut_bytes(size, start, budget, whole=is_compressed(name))

    def _blocks(self, block: Lines, name: str, block_size: int) -> Iterator[Block]:
        lines = block.lines
        if block.offset == 0 and lines and lines[0].startswith(_BOM):
            lines = [lines[0].removeprefix(_BOM), *lines[1:]]
        if not any(line.strip() for line in lines):
            return
        try:
            table = self._parse(b"\n".join(lines))
        except pa.ArrowInvalid as error:
            raise self._bad_line(replace(block, lines=lines), name, error) from error
        where = f"{name} from byte {block.offset}"
        for batch in table.combine_chunks().to_batches():
            yield from columns_blocks(batch, self._event_time, block_size, where)

    def _bad_line(self, block: Lines, name: str, error: Exception) -> BadRecordError:
        """Parse line by line to say where: only the failing block pays for it."""
        for offset, line in block.located():
            try:
                if line.strip():
                    self._parse(line)
            except pa.ArrowInvalid as cause:
                return self._bad(name, f"byte {offset}", line[:200].decode("utf-8", "replace"), cause)
        return self._bad(name, f"a line after byte {block.offset}", "", error)

    def _bad(self, name: str, place: str, line: str, cause: Exception) -> BadRecordError:
        assert self._schema is not None
        columns = ", ".join(f"{field.name}: {field.type}" for field in self._schema)
        origin = "given" if self._schema_was_given else "inferred from the oldest file; schema= overrides it"
        return BadRecordError(
            f"FileSource: {name} at {place}: not a {self._name} line of the columns ({columns}) [{origin}]: "
            f"{line!r}: {cause}"
        )

    @abstractmethod
    def _inferred(self, locations: Locations, name: str, size: int) -> pa.Schema: ...

    @abstractmethod
    def _parse(self, data: bytes) -> pa.Table: ...


def _cannot_infer(name: str, error: Exception) -> BadRecordError:
    return BadRecordError(
        f"FileSource: cannot infer columns from the head of {name} (from byte 0): {error}. Mend it, or give "
        "schema=pa.schema([...])"
    )


class NdjsonFormat(_TabularFormat):
    """One JSON object a line; blank lines are skipped. Fields beyond a given `schema` are ignored; beyond an inferred
    one they are an error, since dropping them would lose data nobody decided to drop."""

    _name = "NDJSON"

    def __init__(self, *, schema: pa.Schema | None = None, event_time_column: str | None = None) -> None:
        super().__init__(schema, event_time_column)

    def read(self, locations: Locations, split: SplitRange, block_size: int) -> Iterator[Block]:
        for block in read_lines(locations, split, block_size):
            yield from self._blocks(block, split.split, block_size)

    def _inferred(self, locations: Locations, name: str, size: int) -> pa.Schema:
        whole = SplitRange(split=name, ordinal=0, start=0, end=size, last=True)
        first = next(read_lines(locations, whole, _SAMPLE_LINES), Lines(offset=0, lines=[]))
        head = b"\n".join(first.lines).removeprefix(_BOM)
        try:
            return pa_json.read_json(pa.BufferReader(head), _json_options(head)).schema
        except pa.ArrowInvalid as error:
            raise _cannot_infer(name, error) from error

    def _parse(self, data: bytes) -> pa.Table:
        options = pa_json.ParseOptions(
            explicit_schema=self._schema,
            unexpected_field_behavior="ignore" if self._schema_was_given else "error",
        )
        table = pa_json.read_json(pa.BufferReader(data), _json_options(data), options)
        # Arrow takes objects over several lines if all of them are in the block: no answer may depend on that.
        if table.num_rows != sum(1 for line in data.split(b"\n") if line.strip()):
            raise pa.ArrowInvalid("every line must hold one JSON object")
        return table


def _json_options(data: bytes) -> pa_json.ReadOptions:
    return pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1)  # one block: no line straddles two


class CsvFormat(_TabularFormat):
    """Delimited lines, the first being a header with the column names (`header=False`: names come from `schema`, or
    are f0, f1, …). Blank lines are skipped; empty fields are null, in string columns the empty string.

    Cut by bytes at line ends, which is wrong when quoted values contain newlines: `quoted_newlines=True` reads each
    file whole, as one range, in one epoch.
    """

    _name = "CSV"

    def __init__(
        self,
        *,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        header: bool = True,
        delimiter: str = ",",
        quoted_newlines: bool = False,
        event_time_column: str | None = None,
    ) -> None:
        super().__init__(schema, event_time_column)
        self._columns = None if columns is None else list(columns)
        self._header = header
        self._quoted_newlines = quoted_newlines
        self._delimiter = delimiter
        field = rf'(?>"(?>[^"]|"")*+"[^{re.escape(delimiter)}]*+|(?!")[^{re.escape(delimiter)}]*+)'
        self._closed_line = re.compile(f"{field}(?:{re.escape(delimiter)}{field})*+".encode())
        self._file_columns: list[str] | None = None if schema is None or header else schema.names
        if columns is not None and schema is None and not header:
            raise ConfigurationError(
                "FileSource: CSV without header and schema has no names that columns= could choose"
            )

    def prepared(self, locations: Locations) -> ReadFormat:
        ready = super().prepared(locations)
        if isinstance(ready, CsvFormat) and ready._schema is not None and not self._header:
            ready._file_columns = ready._schema.names
        return ready

    def cut(self, locations: Locations, name: str, size: int, start: Json, budget: int | None) -> Cut:
        return cut_bytes(size, start, budget, whole=self._quoted_newlines or is_compressed(name))

    def read(self, locations: Locations, split: SplitRange, block_size: int) -> Iterator[Block]:
        if split.start >= split.end:
            return
        reader = copy(self)
        if self._header:
            reader._file_columns = self._header_of(locations, split)
        if self._quoted_newlines:
            yield from reader._read_whole(locations, split, block_size)
            return
        for block in read_lines(locations, split, block_size, skip_lines=int(self._header)):
            self._check_quotes(block, split.split)
            yield from reader._blocks(block, split.split, block_size)

    def _read_whole(self, locations: Locations, split: SplitRange, block_size: int) -> Iterator[Block]:
        with locations.open(split.split) as file:
            check_size(file, split)
            stream = decompressed(file, split.split)
            options = self._read_options(None if self._header else self._file_columns)
            try:
                with pa_csv.open_csv(stream, options, self._parse_options(), self._convert_options()) as batches:
                    row = 0
                    for batch in batches:
                        yield from columns_blocks(batch, self._event_time, block_size, f"{split.split} from row {row}")
                        row += batch.num_rows
            except pa.ArrowInvalid as error:
                raise self._bad(split.split, "byte 0 or later (the file is read whole)", "", error) from error

    def _check_quotes(self, block: Lines, name: str) -> None:
        """Arrow would join such a line with the next if both are in the block: no answer may depend on that."""
        for offset, line in block.located():
            if b'"' in line and not self._closed_line.fullmatch(line):
                problem = ConfigurationError("a quoted value does not end on its line; quoted_newlines=True allows it")
                raise self._bad(name, f"byte {offset}", line[:200].decode("utf-8", "replace"), problem)

    def _header_of(self, locations: Locations, split: SplitRange) -> list[str]:
        name = split.split
        start = SplitRange(split=name, ordinal=split.ordinal, start=0, end=split.end, last=split.last)
        first = next(read_lines(locations, start, 1), None)
        line = b"" if first is None else first.lines[0].removeprefix(_BOM)
        names: list[str] = pa_csv.read_csv(
            pa.BufferReader(line + b"\n"), pa_csv.ReadOptions(use_threads=False), self._parse_options()
        ).column_names
        expected = [] if self._schema is None else self._schema.names
        missing = [column for column in expected if column not in names]
        unexpected = [] if self._schema_was_given or self._columns else [c for c in names if c not in expected]
        if self._schema is not None and (missing or unexpected):
            raise BadRecordError(
                f"FileSource: the header of {name} (at byte 0) has the columns {names}, the source has {expected}: "
                f"missing {missing}, unexpected {unexpected}. Give the files one header, or read them with two sources."
            )
        return names

    def _inferred(self, locations: Locations, name: str, size: int) -> pa.Schema:
        options = pa_csv.ReadOptions(use_threads=False, autogenerate_column_names=not self._header)
        convert = pa_csv.ConvertOptions(include_columns=self._columns)
        try:
            with locations.open(name) as file:  # only the first block (1 MiB) is read
                stream = decompressed(file, name)
                return pa_csv.open_csv(stream, options, self._parse_options(), convert).schema
        except (pa.ArrowInvalid, KeyError) as error:
            raise _cannot_infer(name, error) from error

    def _parse(self, data: bytes) -> pa.Table:
        options = self._read_options(self._file_columns, block_size=len(data) + 1)
        return pa_csv.read_csv(pa.BufferReader(data), options, self._parse_options(), self._convert_options())

    def _read_options(self, names: list[str] | None, block_size: int | None = None) -> pa_csv.ReadOptions:
        return pa_csv.ReadOptions(use_threads=False, column_names=names, block_size=block_size)

    def _parse_options(self) -> pa_csv.ParseOptions:
        return pa_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=self._quoted_newlines)

    def _convert_options(self) -> pa_csv.ConvertOptions:
        assert self._schema is not None
        return pa_csv.ConvertOptions(
            column_types=self._schema, include_columns=self._columns or self._schema.names, strings_can_be_null=False
        )
