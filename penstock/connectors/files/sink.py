"""Exactly-once files: written where readers do not look, renamed into place when the checkpoint is complete.

Partitioned output (`partition_by`) has a folder for each value of some columns, or of a function.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Self, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa

from penstock.common.storage import fsync_folder
from penstock.connectors.files.commit import FileCommitter, StagedFile, staging_folder
from penstock.connectors.files.write_formats import (
    CsvWriteFormat,
    FileEncoder,
    NdjsonEncoder,
    ParquetWriteFormat,
    RowEncoder,
    RowWriteFormat,
    TextEncoder,
    WriteFormat,
)
from penstock.connectors.sink_values import as_mapping, to_batch
from penstock.errors import BadRecordError, ConfigurationError
from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.records import Block, Columns, Rows
from penstock.records.arrow_columns import take_rows

Partitioning: TypeAlias = Sequence[str] | Callable[[Any], str]

_NULL = "__HIVE_DEFAULT_PARTITION__"


class Partitions:
    """Splits blocks by folder, keeping the order of the values inside each. `schema` is the sink's, if it has one."""

    def __init__(self, partition_by: Partitioning | None, schema: pa.Schema | None) -> None:
        if isinstance(partition_by, str):
            raise ConfigurationError(f"FileSink: partition_by={partition_by!r} must be a list of column names")
        self._function = partition_by if callable(partition_by) else None
        self.columns: list[str] = [] if partition_by is None or callable(partition_by) else list(partition_by)
        self._schema = schema
        if schema is not None:
            missing = [column for column in self.columns if column not in schema.names]
            if missing or (self.columns and len(self.columns) == len(schema)):
                raise ConfigurationError(
                    f"FileSink: partition_by={self.columns} must be some, not all, of the columns {schema.names}"
                )

    @property
    def partitioned(self) -> bool:
        """True if records go to several folders."""
        return self._function is not None or bool(self.columns)

    def split(self, block: Block) -> Iterator[tuple[str, Block]]:
        """The parts of a block with the folder each goes to."""
        if not self.partitioned:
            yield "", block
        elif self._function is not None:
            yield from self._by_function(block, self._function)
        elif isinstance(block, Columns):
            yield from self._by_columns(block.batch)
        elif self._schema is not None:
            yield from self._by_columns(to_batch(block, self._schema, "FileSink"))
        else:
            yield from self._by_fields(block)

    def _by_function(self, block: Block, function: Callable[[Any], str]) -> Iterator[tuple[str, Block]]:
        values = block.batch.to_pylist() if isinstance(block, Columns) else block.values
        for folder, rows in _grouped([_checked(function(value), value) for value in values]).items():
            if isinstance(block, Columns):
                yield folder, Columns(take_rows(block.batch, pa.array(rows)))
            else:
                yield folder, Rows([values[row] for row in rows])

    def _by_columns(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Block]]:
        missing = [column for column in self.columns if column not in batch.schema.names]
        if missing:
            raise BadRecordError(
                f"FileSink: cannot partition by {missing}: a batch with the columns {batch.schema.names} came"
            )
        keys = zip(*(batch.column(column).to_pylist() for column in self.columns), strict=True)
        rest = batch.drop_columns(self.columns)
        for folder, rows in _grouped([self._folder(key) for key in keys]).items():
            yield folder, Columns(take_rows(rest, pa.array(rows)))

    def _by_fields(self, block: Rows) -> Iterator[tuple[str, Block]]:
        parts: dict[str, list[Any]] = {}
        for value in block.values:
            try:
                fields = as_mapping(value, None)
                key = tuple(fields.pop(column) for column in self.columns)
            except (ValueError, KeyError) as error:
                raise BadRecordError(
                    f"FileSink: cannot partition the {type(value).__name__} {value!r:.200} by {self.columns}: {error}"
                ) from error
            parts.setdefault(self._folder(key), []).append(fields)
        for folder, values in parts.items():
            yield folder, Rows(values)

    def _folder(self, key: tuple[Any, ...]) -> str:
        return "/".join(
            f"{quote(name, safe='')}={_quoted(value)}" for name, value in zip(self.columns, key, strict=True)
        )


def _quoted(value: Any) -> str:
    return _NULL if value is None or value == "" else quote(str(value), safe="")


def _grouped(folders: list[str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for row, folder in enumerate(folders):
        groups.setdefault(folder, []).append(row)
    return groups


def _checked(folder: object, value: Any) -> str:
    """A folder below the base, and not one that readers skip."""
    if not isinstance(folder, str) or any(not part or part[0] in "._" for part in folder.split("/")):
        raise BadRecordError(
            f"FileSink: the partition function gave {folder!r} for {value!r:.200}; it must give a relative folder "
            "whose names do not start with '.' or '_'"
        )
    return folder


Path: TypeAlias = str | os.PathLike[str]


class FileSink(Sink):
    """One file an epoch and subtask (and partition), `part-<epoch>-<subtask>.<extension>`; none for an empty epoch.

    Files appear whole and once, when the checkpoint that holds them is complete; `_commits/<epoch>.json` then lists
    them (`committed_files` reads it). Work in progress is in `.staging`, which readers that skip names starting with
    `.` or `_` do not see. The same records give the same bytes, whatever the blocks were.

    `base_path` is a folder on a filesystem that the driver and all slots share and that renames atomically: a local
    disk or a POSIX mount; object stores do not qualify. A folder belongs to one sink of one job: files of another job
    are never overwritten. A job that goes back to an older checkpoint replaces its own files of the epochs it repeats.

    `partition_by` names columns (Hive-style folders `page=a`, the columns leave the file) or is a function from a value
    (a dict for a row of a columnar stream) to a folder name. Each partition of an epoch is an open file in the writer.

    Example:

        totals.sink_to(FileSink.parquet("/data/out", pa.schema([("user", pa.string()), ("total", pa.int64())]))).uid("files")
    """

    def __init__(self, base_path: Path, write_format: WriteFormat, *, partition_by: Partitioning | None = None) -> None:
        self._base = _local(base_path)
        self._format = write_format
        self._partitions = Partitions(partition_by, write_format.schema)
        self._file_format = write_format.without(self._partitions.columns)

    @staticmethod
    def for_row_format(base_path: Path, encoder: RowEncoder) -> RowFormatBuilder:
        """PyFlink's name: `encoder` is `Encoder.simple_string_encoder()` or an object with `encode(value) -> bytes`."""
        return RowFormatBuilder(base_path, RowWriteFormat(encoder))

    @staticmethod
    def for_bulk_format(base_path: Path, writer_factory: WriteFormat) -> BulkFormatBuilder:
        """PyFlink's name: `writer_factory` is a `ParquetWriteFormat` or a `CsvWriteFormat`."""
        return BulkFormatBuilder(base_path, writer_factory)

    @classmethod
    def parquet(
        cls,
        path: Path,
        schema: pa.Schema | None = None,
        *,
        compression: str = "zstd",
        partition_by: Partitioning | None = None,
    ) -> FileSink:
        """`schema` may be left out for columnar streams; streams of objects need one."""
        return cls(path, ParquetWriteFormat(schema, compression=compression), partition_by=partition_by)

    @classmethod
    def csv(
        cls,
        path: Path,
        schema: pa.Schema | None = None,
        *,
        header: bool = True,
        delimiter: str = ",",
        partition_by: Partitioning | None = None,
    ) -> FileSink:
        """`schema` may be left out for columnar streams; streams of objects need one."""
        return cls(path, CsvWriteFormat(schema, header=header, delimiter=delimiter), partition_by=partition_by)

    @classmethod
    def ndjson(cls, path: Path, *, partition_by: Partitioning | None = None) -> FileSink:
        """Writes one JSON text a line."""
        return cls(path, RowWriteFormat(NdjsonEncoder(), "ndjson"), partition_by=partition_by)

    @classmethod
    def text(cls, path: Path, charset: str = "UTF-8", *, partition_by: Partitioning | None = None) -> FileSink:
        """`str(value)`, a line each."""
        return cls(path, RowWriteFormat(TextEncoder(charset)), partition_by=partition_by)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _FileWriter(self._base, self._file_format, self._partitions, context)

    def create_committer(self, sink_id: str) -> Committer:
        return FileCommitter(self._base, sink_id)


class _FormatBuilder:
    def __init__(self, base_path: Path, write_format: WriteFormat) -> None:
        self._base_path = base_path
        self._format = write_format
        self._partition_by: Partitioning | None = None

    def with_bucket_assigner(self, bucket_assigner: Partitioning) -> Self:
        """A function from a value to a folder name, or column names."""
        self._partition_by = bucket_assigner
        return self

    def build(self) -> FileSink:
        """The sink."""
        return FileSink(self._base_path, self._format, partition_by=self._partition_by)


class RowFormatBuilder(_FormatBuilder):
    """Files always end with their epoch (Flink's OnCheckpointRollingPolicy), so there is no rolling policy to set."""


class BulkFormatBuilder(_FormatBuilder):
    """Builds a FileSink with a columnar format; files end with their epoch."""


class _OpenFile:
    def __init__(self, path: str, write_format: WriteFormat) -> None:
        self.path = path
        self.rows = 0
        self._file: IO[bytes] = open(path, "wb")  # noqa: SIM115 - closed by finish or drop
        self._encoder: FileEncoder = write_format.encoder(self._file)

    def write(self, block: Block) -> None:
        self._encoder.write(block)
        self.rows += len(block)

    def finish(self) -> int:
        """Make the file durable; returns its size."""
        self._encoder.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return os.path.getsize(self.path)

    def drop(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the file goes anyway
            self._encoder.abandon()
        with contextlib.suppress(OSError):
            self._file.close()
        os.unlink(self.path)


class _FileWriter(SinkWriter):
    def __init__(self, base: str, write_format: WriteFormat, partitions: Partitions, context: WriterContext) -> None:
        self._base = base
        self._format = write_format
        self._partitions = partitions
        self._context = context
        self._staging = staging_folder(base, context.sink_id)
        self._epoch = 0
        self._attempt = ""
        self._open: dict[str, _OpenFile] = {}

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._drop_unfinished()
        self._epoch, self._attempt = epoch, attempt

    def write(self, block: Block) -> None:
        if len(block):
            for folder, part in self._partitions.split(block):
                self._file_for(folder).write(part)

    def prepare_commit(self) -> list[Any]:
        staged = [self._finished(folder, file) for folder, file in sorted(self._open.items())]
        self._open = {}
        if staged:
            fsync_folder(self._staging)
        return staged

    def close(self) -> None:
        self._drop_unfinished()

    def _file_for(self, folder: str) -> _OpenFile:
        if folder not in self._open:
            os.makedirs(self._staging, exist_ok=True)
            number = f"-{len(self._open)}" if self._partitions.partitioned else ""
            name = f"{self._epoch}-{self._context.subtask}-{quote(self._attempt, safe='')}{number}"
            path = os.path.join(self._staging, f"{name}.{self._format.extension}")
            self._open[folder] = _OpenFile(path, self._format)
        return self._open[folder]

    def _finished(self, folder: str, file: _OpenFile) -> StagedFile:
        size = file.finish()
        name = f"part-{self._epoch:08d}-{self._context.subtask:04d}.{self._format.extension}"
        return StagedFile(
            job_id=self._context.job_id,
            epoch=self._epoch,
            staged=os.path.relpath(file.path, self._base),
            final=os.path.join(folder, name),
            rows=file.rows,
            size=size,
        )

    def _drop_unfinished(self) -> None:
        unfinished: Sequence[_OpenFile] = list(self._open.values())
        self._open = {}
        for file in unfinished:
            file.drop()


def _local(path: Path) -> str:
    text = os.fspath(path)
    if "://" in text:
        url = urlsplit(text)
        if url.scheme != "file" or url.netloc not in ("", "localhost"):
            raise ConfigurationError(
                f"FileSink: {text!r} is not on a filesystem with atomic renames. Use a local or mounted folder that "
                "the driver and all slots share."
            )
        text = unquote(url.path)
    return os.path.abspath(text)
