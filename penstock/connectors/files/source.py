"""The file source as users meet it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from penstock.connectors.files.enumerator import FileEnumerator
from penstock.connectors.files.formats import ReadFormat
from penstock.connectors.files.locations import Locations
from penstock.connectors.files.parquet import ParquetFormat
from penstock.connectors.files.tabular import CsvFormat, NdjsonFormat
from penstock.connectors.files.text import TextLineFormat
from penstock.errors import ConfigurationError
from penstock.functions.connectors import Source, SplitEnumerator, SplitRange, SplitReader
from penstock.records import Block

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation

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
    def for_record_stream_format(stream_format: TextLineFormat, *paths: Path) -> FileSourceBuilder:
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: ReadFormat, *paths: Path) -> FileSourceBuilder:
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
        return _FileReader(self._locations, copy(self._format))  # a reader may learn its schema from its first file

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
        self._interval = None
        return self

    def build(self) -> FileSource:
        return FileSource(self._format, self._paths, monitor_interval=self._interval)


class _FileReader(SplitReader):
    def __init__(self, locations: Locations, read_format: ReadFormat) -> None:
        self._locations = locations
        self._format = read_format

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        return self._format.read(self._locations, split, block_size)


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
