"""What a file format has to say: how a file is cut into ranges, and how a range is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.errors import BadRecordError
from penstock.connectors.files.locations import Locations
from penstock.functions.connectors import Json, SplitRange
from penstock.records import Block, Columns
from penstock.records.arrow_columns import milliseconds
from penstock.records.sizes import cut

_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where the next range of a file ends."""

    end: Json
    used: int  # of the budget, in the format's unit
    last: bool


class ReadFormat(ABC):
    """Immutable and picklable. Positions start at 0 in every format."""

    unit: Literal["records", "bytes"]
    _event_time: str | None = None  # the column with event time, in formats that have columns

    @property
    def has_timestamps(self) -> bool:
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


def is_compressed(name: str) -> bool:
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
