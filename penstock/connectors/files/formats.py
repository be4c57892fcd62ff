"""What a file format has to say: how a file is cut into ranges, and how a range is read.

Parquet files, cut at row groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.connectors.files.locations import Locations
from penstock.errors import BadRecordError, ConfigurationError, StorageError
from penstock.functions.connectors import Json, SplitRange
from penstock.records import Block, Columns
from penstock.records.arrow_columns import milliseconds
from penstock.records.sizes import BLOCK_BYTES, cut

_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where the next range of a file ends."""

    end: Json
    used: int  # of the budget, in the format's unit
    last: bool


class ReadFormat(ABC):
    """Picklable; driver and readers each have a copy. Positions start at 0 in every format."""

    unit: Literal["records", "bytes"]
    _event_time: str | None = None  # the column with event time, in formats that have columns

    @property
    def has_timestamps(self) -> bool:
        """True if records come with event times, taken from a column."""
        return self._event_time is not None

    @abstractmethod
    def cut(self, locations: Locations, name: str, size: int, start: Json, budget: int | None) -> Cut:
        """Driver side: end the range that begins at `start` within `budget` (at least 1) units, or at the end of the
        file when None. A format that cannot cut a file takes it whole, over the budget."""

    @abstractmethod
    def read(self, locations: Locations, split: SplitRange, block_size: int) -> Iterator[Block]:
        """Slot side: the records of a range."""

    def prepared(self, locations: Locations) -> ReadFormat:
        """The format with what it must know before the job starts, such as an inferred schema."""
        return self

    def close(self) -> None:  # noqa: B027 - only for those that keep files open
        """Slot side: nothing more is read."""


def is_compressed(name: str) -> bool:
    """True if the name ends as those of compressed files do; such a file cannot be read from its middle."""
    return name.partition("?")[0].endswith(_COMPRESSED)


def decompressed(file: pa.NativeFile, name: str) -> pa.NativeFile:
    """The file's content as a stream; the compression is told by the name's ending."""
    if not is_compressed(name):
        return file
    return pa.CompressedInputStream(file, pa.Codec.detect(name.partition("?")[0]).name)


def columns_blocks(batch: pa.RecordBatch, event_time: str | None, block_size: int, where: str) -> Iterator[Block]:
    """Slices of `batch` with timestamps from its column `event_time`."""
    timestamps = None if event_time is None else _timestamps(batch, event_time, where)
    yield from cut(Columns(batch, timestamps), block_size)


def check_schema(found: pa.Schema, expected: pa.Schema, name: str) -> None:
    """All files of a source have one schema, since the stream has one type."""
    if found.equals(expected, check_metadata=False):
        return
    ours, theirs = {f.name: str(f.type) for f in expected}, {f.name: str(f.type) for f in found}
    differences = [
        f"{column}: expected {ours.get(column, 'no such column')}, found {theirs.get(column, 'no such column')}"
        for column in dict.fromkeys([*ours, *theirs])
        if ours.get(column) != theirs.get(column)
    ] or [f"column order: expected {list(ours)}, found {list(theirs)}, or nullability differs"]
    raise BadRecordError(
        f"FileSource: the schema of {name} (at position 0) differs from the source's: {'; '.join(differences)}. "
        "Give the files one schema, or read them with two sources."
    )


def _timestamps(batch: pa.RecordBatch, column: str, where: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    position = batch.schema.get_field_index(column)
    if position < 0:
        raise BadRecordError(
            f"FileSource: {where}: there is no event time column {column!r}; the columns are {batch.schema.names}"
        )
    values = batch.column(position)
    if not pa.types.is_timestamp(values.type) and not pa.types.is_integer(values.type):
        raise BadRecordError(
            f"FileSource: {where}: the event time column {column!r} is {values.type}; it must hold integers "
            "(milliseconds) or timestamps"
        )
    if values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise BadRecordError(
            f"FileSource: {where}: row {row} of this block has no value in the event time column {column!r}. "
            "Filter such rows out of the files, or assign timestamps with a WatermarkStrategy."
        )
    if pa.types.is_timestamp(values.type):
        return milliseconds(values)
    result: np.ndarray[Any, np.dtype[np.int64]] = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return result


_DECODE_ROWS = 16_384  # rows decoded at once: small blocks are slices of it


@dataclass(slots=True)
class _Cursor:
    """An open file, where it was left off: who goes on there need not decode a row group twice."""

    file: pa.NativeFile
    parquet: Any
    position: tuple[int, int]  # row group and row
    batches: Iterator[pa.RecordBatch] | None = None  # the rest of the row group
    batch: pa.RecordBatch | None = None
    batch_start: int = 0  # its first row's number in the row group


class ParquetFormat(ReadFormat):
    """A position is the index of a row group, or [row group, row] inside one that is larger than an epoch, or a grant, may be."""

    unit = "records"

    def __init__(
        self,
        *,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        event_time_column: str | None = None,
    ) -> None:
        self._columns = None if columns is None else list(columns)
        self._schema = schema
        self._event_time = event_time_column
        self._counts: dict[str, list[int]] = {}  # rows of the row groups of files that are being read: for who cuts
        self._cursors: dict[str, _Cursor] = {}  # where files were left off: for who reads
        if columns is not None and event_time_column is not None and event_time_column not in columns:
            raise ConfigurationError(f"FileSource: event_time_column {event_time_column!r} is not among {columns}")

    def prepared(self, locations: Locations) -> ReadFormat:
        files = [] if self._schema is not None else locations.list()
        if not files:
            return self
        with locations.open(files[0].name) as file:
            ready = copy(self)
            ready._schema = self._projected(self._opened(file, files[0].name), files[0].name)
        return ready

    def cut(self, locations: Locations, name: str, size: int, start: Json, budget: int | None) -> Cut:
        counts = self._counts.get(name)
        if counts is None:
            with locations.open(name) as file:
                metadata = self._opened(file, name).metadata
                counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            self._counts[name] = counts
        group, row = _decoded(start)
        used = 0
        while group < len(counts):
            left = counts[group] - row
            if budget is not None and used + left > budget:
                if used == 0:
                    row, used = row + budget, budget
                break
            group, row, used = group + 1, 0, used + left
        if group == len(counts):
            del self._counts[name]
        return Cut(end=[group, row] if row else group, used=used, last=group == len(counts))

    def read(self, locations: Locations, split: SplitRange, block_size: int) -> Iterator[Block]:
        name, start, end = split.split, _decoded(split.start), _decoded(split.end)
        cursor = self._cursors.pop(name, None)
        if cursor is None or cursor.position != start:
            if cursor is not None:
                cursor.file.close()
            cursor = self._cursor(locations, name, start)
        try:
            self._check_extent(cursor.parquet.metadata, split, *end)
            while cursor.position < end:
                yield from self._read_group(cursor, end, name, block_size)
        except BaseException:
            cursor.file.close()
            raise
        if split.last:
            cursor.file.close()
        else:
            self._cursors[name] = cursor

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.file.close()
        self._cursors.clear()

    def _cursor(self, locations: Locations, name: str, start: tuple[int, int]) -> _Cursor:
        file = locations.open(name)
        try:
            parquet = self._opened(file, name)
            schema = self._projected(parquet, name)
            if self._schema is not None:
                check_schema(schema, self._schema, name)
            else:
                self._schema = schema  # no file was there when the job was built: the first one read sets the type
        except BaseException:
            file.close()
            raise
        return _Cursor(file, parquet, start)

    def _read_group(self, cursor: _Cursor, until: tuple[int, int], name: str, block_size: int) -> Iterator[Block]:
        """What of the cursor's row group is in front of `until`."""
        assert self._schema is not None
        group, row = cursor.position
        stored = cursor.parquet.metadata.row_group(group)
        end = until[1] if group == until[0] else stored.num_rows
        if cursor.batches is None:
            fitting = BLOCK_BYTES * stored.num_rows // max(stored.total_byte_size, 1)  # of all columns, uncompressed
            decode_rows = max(1, min(max(block_size, _DECODE_ROWS), fitting))
            cursor.batches = cursor.parquet.iter_batches(
                decode_rows, row_groups=[group], columns=self._columns, use_threads=False
            )
            cursor.batch, cursor.batch_start = None, 0
        while row < end:
            batch = cursor.batch
            if batch is None or cursor.batch_start + batch.num_rows <= row:
                cursor.batch_start += 0 if batch is None else batch.num_rows
                cursor.batch = next(cursor.batches).select(self._schema.names)
                continue
            stop = min(end, cursor.batch_start + batch.num_rows)
            part = batch.slice(row - cursor.batch_start, stop - row)
            where = f"{name}, row group {group}, rows from {row}"
            row = stop
            cursor.position = (group, row) if row < stored.num_rows else (group + 1, 0)
            yield from columns_blocks(part, self._event_time, block_size, where)
        if row == stored.num_rows:
            cursor.position, cursor.batches, cursor.batch = (group + 1, 0), None, None

    def _opened(self, file: pa.NativeFile, name: str) -> Any:
        try:
            return pq.ParquetFile(file)
        except pa.ArrowInvalid as error:
            raise BadRecordError(
                f"FileSource: {name} at position 0: not a Parquet file, or not a complete one ({error}). "
                "Write files elsewhere and rename them into place when they are complete."
            ) from error

    def _projected(self, parquet: Any, name: str) -> pa.Schema:
        schema = parquet.schema_arrow.remove_metadata()
        columns = self._columns
        if columns is None:
            return schema
        missing = [column for column in columns if column not in schema.names]
        if missing:
            raise BadRecordError(
                f"FileSource: {name} (at position 0) has no column {', '.join(missing)}; it has {schema.names}"
            )
        return pa.schema([schema.field(column) for column in columns])

    def _check_extent(self, metadata: Any, split: SplitRange, group: int, row: int) -> None:
        groups = metadata.num_row_groups
        rows_there = metadata.row_group(group).num_rows if group < groups else 0
        if group > groups or row > rows_there or (split.last and group < groups):
            raise StorageError(
                f"FileSource: {split.split} has changed: it now has {groups} row groups, but the epoch was planned "
                f"from {split.start} to {split.end}{' (the end)' if split.last else ''}. Files must not change once "
                "they are in place: write new data to a new file."
            )


def _decoded(position: Json) -> tuple[int, int]:
    return (position, 0) if isinstance(position, int) else (position[0], position[1])
