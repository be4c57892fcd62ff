"""The file source as users meet it.

Driver side of the file source: finds files and decides how much of which is read in an epoch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from penstock.connectors.files.formats import ParquetFormat, ReadFormat
from penstock.connectors.files.lines import TextLineFormat
from penstock.connectors.files.locations import Locations
from penstock.connectors.files.tabular import CsvFormat, NdjsonFormat
from penstock.errors import ConfigurationError
from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.records import Block

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation


_STATE_VERSION = 1


@dataclass(slots=True)
class _File:
    """`position` is None once the whole file has been planned. A file's ordinal is its place in the list."""

    name: str
    size: int
    position: Json


class FileEnumerator(SplitEnumerator):
    """A file is found once, by name, and read as it was then. All names ever found are in the state, so a watched
    folder that gains millions of files should be rotated.

    The budget of an epoch is shared by the first `concurrent_files` unread files, so that several subtasks have work;
    what they leave goes to the files after them.
    """

    def __init__(
        self,
        locations: Locations,
        read_format: ReadFormat,
        *,
        monitor_interval_ms: int | None,
        max_bytes_per_epoch: int | None,
        concurrent_files: int,
    ) -> None:
        self._locations = locations
        self._format = read_format
        self._interval_ms = monitor_interval_ms
        self._max_bytes = max_bytes_per_epoch
        self._concurrent = concurrent_files
        self._files: list[_File] = []
        self._known: set[str] = set()
        self._listed_ms: int | None = None
        self._paused: frozenset[str] = frozenset()

    def pause(self, splits: frozenset[str]) -> None:
        self._paused = splits

    def restore(self, state: Json) -> None:
        self._files = [_File(name, size, position) for name, size, position in state["files"]]
        self._known = {file.name for file in self._files}
        self._listed_ms = state["listed_ms"]

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        new = self._discover(now_ms)
        budget = max_records if self._format.unit == "records" else self._max_bytes
        ranges: list[SplitRange] = []
        used = 0
        unread = [
            (ordinal, file)
            for ordinal, file in enumerate(self._files)
            if file.position is not None and file.name not in self._paused
        ]
        sharing = min(self._concurrent, len(unread))
        for turn, (ordinal, file) in enumerate(unread):
            left = None if budget is None else budget - used
            if left is not None and left <= 0:
                if ordinal >= new:
                    ranges.append(_range(ordinal, file, file.position, last=False))
                continue
            # Rounded up, so that small budgets reach the files at all.
            share = None if left is None else -(-left // max(1, sharing - turn))
            cut = self._format.cut(self._locations, file.name, file.size, file.position, share)
            ranges.append(_range(ordinal, file, cut.end, last=cut.last))
            file.position = None if cut.last else cut.end
            used += cut.used
        finished = self._interval_ms is None and all(file.position is None for file in self._files)
        records = used if self._format.unit == "records" else None
        return SourcePlan(ranges=tuple(ranges), state=self._state(), finished=finished, records=records)

    def splits_found(self) -> int:
        return len(self._files)

    def _discover(self, now_ms: int) -> int:
        """List the locations if it is time; returns the ordinal from which on files are new."""
        first_new = len(self._files)
        if self._listed_ms is not None and (
            self._interval_ms is None or 0 <= now_ms - self._listed_ms < self._interval_ms
        ):
            return first_new
        for found in self._locations.list():
            if found.name not in self._known:
                self._known.add(found.name)
                self._files.append(_File(found.name, found.size, 0))
        self._listed_ms = now_ms
        return first_new

    def _state(self) -> Json:
        return {
            "version": _STATE_VERSION,
            "listed_ms": self._listed_ms,
            "files": [[file.name, file.size, file.position] for file in self._files],
        }


def _range(ordinal: int, file: _File, end: Json, *, last: bool) -> SplitRange:
    return SplitRange(split=file.name, ordinal=ordinal, start=file.position, end=end, last=last)


Path: TypeAlias = str | os.PathLike[str]
Paths: TypeAlias = Path | Sequence[Path]

DEFAULT_MAX_BYTES_PER_EPOCH = 256 << 20


class FileSource(Source):
    """Every record of every file exactly once; a file is a split.

    Files must be complete when they appear and must not change afterwards: a file that vanished, shrank or grew before
    it was read to its end is an error that names it. The set is fixed when the job starts, or, when monitored, grows by
    the files found later; new files are taken by (modification time, name).

    How much an epoch reads is bounded by its `max_records` for Parquet, whose row counts are known, and by
    `max_bytes_per_epoch` for the others.

    Example:

        source = FileSource.parquet("/data/in", columns=["user", "amount", "at"], event_time_column="at")
        payments = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "payments")
    """

    def __init__(
        self,
        read_format: ReadFormat,
        paths: Paths,
        *,
        monitor_interval: Any = None,
        max_bytes_per_epoch: int | None = DEFAULT_MAX_BYTES_PER_EPOCH,
        concurrent_files: int = 8,
        filesystem: Any = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        if max_bytes_per_epoch is not None and max_bytes_per_epoch < 1:
            raise ConfigurationError(f"FileSource: max_bytes_per_epoch={max_bytes_per_epoch} must be at least 1")
        if concurrent_files < 1:
            raise ConfigurationError(f"FileSource: concurrent_files={concurrent_files} must be at least 1")
        self._locations = Locations([paths] if isinstance(paths, str | os.PathLike) else paths, filesystem)
        self._interval_ms = None if monitor_interval is None else _milliseconds(monitor_interval)
        self._max_bytes = max_bytes_per_epoch
        self._concurrent = concurrent_files
        self._type_info = type_info
        self._format = read_format.prepared(self._locations)

    @staticmethod
    def for_record_stream_format(stream_format: ReadFormat, *paths: Path) -> FileSourceBuilder:
        """Starts a source of files that are read record by record: lines of text, or `CsvReaderFormat.for_schema(…)`.

        Example:

            source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/data/in").build()
            lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
        """
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: ReadFormat, *paths: Path) -> FileSourceBuilder:
        """Starts a source of files in a columnar or delimited format, such as `ParquetFormat`."""
        return FileSourceBuilder(bulk_format, paths)

    @classmethod
    def text(cls, paths: Paths, charset: str = "UTF-8", **options: Any) -> FileSource:
        """Lines as `str`. `options` are those of the constructor, here and below."""
        return cls(TextLineFormat(charset), paths, **options)

    @classmethod
    def parquet(
        cls,
        paths: Paths,
        columns: Sequence[str] | None = None,
        *,
        schema: pa.Schema | None = None,
        event_time_column: str | None = None,
        **options: Any,
    ) -> FileSource:
        """Columns; `schema` (after choosing `columns`) is what all files must have, else the oldest file's."""
        return cls(ParquetFormat(columns=columns, schema=schema, event_time_column=event_time_column), paths, **options)

    @classmethod
    def csv(
        cls,
        paths: Paths,
        *,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        header: bool = True,
        delimiter: str = ",",
        quoted_newlines: bool = False,
        event_time_column: str | None = None,
        **options: Any,
    ) -> FileSource:
        """Columns; see `CsvFormat` for headers, types and newlines inside quotes."""
        read_format = CsvFormat(
            schema=schema,
            columns=columns,
            header=header,
            delimiter=delimiter,
            quoted_newlines=quoted_newlines,
            event_time_column=event_time_column,
        )
        return cls(read_format, paths, **options)

    @classmethod
    def ndjson(
        cls,
        paths: Paths,
        *,
        schema: pa.Schema | None = None,
        event_time_column: str | None = None,
        **options: Any,
    ) -> FileSource:
        """Columns; see `NdjsonFormat`."""
        return cls(NdjsonFormat(schema=schema, event_time_column=event_time_column), paths, **options)

    def create_enumerator(self) -> SplitEnumerator:
        return FileEnumerator(
            self._locations,
            self._format,
            monitor_interval_ms=self._interval_ms,
            max_bytes_per_epoch=self._max_bytes,
            concurrent_files=self._concurrent,
        )

    def create_reader(self) -> SplitReader:
        # A reader may learn its schema from its first file, and keeps files open.
        return _FileReader(self._locations, deepcopy(self._format))

    @property
    def bounded(self) -> bool:
        return self._interval_ms is None

    @property
    def has_timestamps(self) -> bool:
        return self._format.has_timestamps

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info

    @property
    def gives_columns(self) -> bool | None:
        return not isinstance(self._format, TextLineFormat)


class FileSourceBuilder:
    """PyFlink's way to make a `FileSource`: a static set of files unless `monitor_continuously` is called."""

    def __init__(self, read_format: ReadFormat, paths: Sequence[Path]) -> None:
        self._format = read_format
        self._paths = tuple(paths)
        self._interval: Any = None

    def monitor_continuously(self, discovery_interval: Any) -> FileSourceBuilder:
        """Look for new files every `discovery_interval`: a Duration, a timedelta or milliseconds."""
        self._interval = _milliseconds(discovery_interval)
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Reads the files that are there when the job starts, then ends: the default."""
        self._interval = None
        return self

    def build(self) -> FileSource:
        """The source."""
        return FileSource(self._format, self._paths, monitor_interval=self._interval)


class _FileReader(SplitReader):
    def __init__(self, locations: Locations, read_format: ReadFormat) -> None:
        self._locations = locations
        self._format = read_format

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        return self._format.read(self._locations, split, block_size)

    def close(self) -> None:
        self._format.close()


def _milliseconds(interval: Any) -> int:
    """Durations are told by their method, so that this module needs no class of penstock.common."""
    if isinstance(interval, timedelta):
        return _positive(int(interval / timedelta(milliseconds=1)))
    for method in ("to_milliseconds", "to_millis"):
        if hasattr(interval, method):
            return _positive(int(getattr(interval, method)()))
    if isinstance(interval, int) and not isinstance(interval, bool):
        return _positive(interval)
    raise ConfigurationError(f"FileSource: {interval!r} is not a Duration, a timedelta or a number of milliseconds")


def _positive(milliseconds: int) -> int:
    if milliseconds < 1:
        raise ConfigurationError(f"FileSource: the discovery interval is {milliseconds} ms; it must be at least 1 ms")
    return milliseconds
