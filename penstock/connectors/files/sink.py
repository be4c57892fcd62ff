"""Exactly-once files: written where readers do not look, put in their places when the checkpoint is complete.

Partitioned output (`partition_by`) has a folder for each value of some columns, or of a function.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import IO, Any, Self, TypeAlias
from urllib.parse import quote

import pyarrow as pa

from penstock.common.time import now_ms
from penstock.connectors.files.buckets import Partitioning, Partitions
from penstock.connectors.files.commit import FileCommitter, InputEnded, run_name, staging_folder
from penstock.connectors.files.folders import Folder, open_folder
from penstock.connectors.files.rolling import (
    FileCompactor,
    FileCompactStrategy,
    OnCheckpointRollingPolicy,
    RollingPolicy,
    StagedFile,
)
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
from penstock.errors import ConfigurationError
from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.records import Block

Path: TypeAlias = str | os.PathLike[str]


class OutputFileConfig:
    """The names of a sink's files: `<prefix>-<epoch>-<subtask>-<run><suffix>`.

    Example:

        OutputFileConfig.builder().with_part_prefix("orders").with_part_suffix(".jsonl").build()
    """

    def __init__(self, part_prefix: str = "part", part_suffix: str | None = None) -> None:
        for text in (part_prefix, part_suffix or ""):
            if "/" in text or part_prefix[:1] in ("", ".", "_"):
                raise ConfigurationError(
                    f"OutputFileConfig: {text!r} must be part of a file's name, and the prefix must not start with '.' or '_'"
                )
        self._prefix, self._suffix = part_prefix, part_suffix

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """A builder, as in PyFlink."""
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """What names begin with; "part" if nothing was said."""
        return self._prefix

    def get_part_suffix(self) -> str:
        """What names end with; "" leaves it to the format."""
        return self._suffix or ""


class OutputFileConfigBuilder:
    """Builds an OutputFileConfig."""

    def __init__(self) -> None:
        self._prefix, self._suffix = "part", ""

    def with_part_prefix(self, prefix: str) -> Self:
        """What names begin with."""
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> Self:
        """What names end with, instead of the format's extension."""
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """The configuration."""
        return OutputFileConfig(self._prefix, self._suffix or None)


class FileSink(Sink):
    """A file a checkpoint and subtask (and partition), `part-<epoch>-<subtask>-<run>.<extension>`, or larger ones: `rolling_policy`
    says when a file ends, `compaction` joins files of all subtasks. None for an empty epoch.

    Files appear whole and once, when a checkpoint that holds them is complete; `_commits/<epoch>-<run>.json` then lists
    them (`committed_files` reads it). Work in progress is in `.staging`, which readers that skip names starting with
    `.` or `_` do not see; there it survives checkpoints and crashes until its file ends. The end of the input ends all files.

    `base_path` is a folder that the driver and all slots share and that renames atomically (a local disk or a POSIX mount), or a
    url of an object store (`s3://bucket/folder`). Other jobs may write there as well, and a job that is run
    again adds its files: `<run>` stands for one sink of one job, over its restarts. A job that goes back to an older checkpoint
    replaces its own files of the epochs it repeats.

    `partition_by` names columns (Hive-style folders `page=a`, the columns leave the file) or is a function from a value
    (a dict for a row of a columnar stream) to a folder name. Each partition of an epoch is an open file in the writer.

    Example:

        totals.sink_to(FileSink.parquet("/data/out", pa.schema([("user", pa.string()), ("total", pa.int64())]))).uid("files")
    """

    def __init__(
        self,
        base_path: Path,
        write_format: WriteFormat,
        *,
        partition_by: Partitioning | None = None,
        rolling_policy: RollingPolicy | None = None,
        compaction: FileCompactStrategy | None = None,
        file_config: OutputFileConfig | None = None,
    ) -> None:
        self._folder = open_folder(base_path)
        self._format = write_format
        self._partitions = Partitions(partition_by, write_format.schema)
        self._file_format = write_format.without(self._partitions.columns)
        self._rule = (compaction or rolling_policy or OnCheckpointRollingPolicy()).rule
        self._names = file_config or OutputFileConfig()

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
        **options: Any,
    ) -> FileSink:
        """`schema` may be left out for columnar streams; streams of objects need one. `options` are those of `FileSink`."""
        return cls(path, ParquetWriteFormat(schema, compression=compression), **options)

    @classmethod
    def csv(
        cls,
        path: Path,
        schema: pa.Schema | None = None,
        *,
        header: bool = True,
        delimiter: str = ",",
        **options: Any,
    ) -> FileSink:
        """`schema` may be left out for columnar streams; streams of objects need one. `options` are those of `FileSink`."""
        return cls(path, CsvWriteFormat(schema, header=header, delimiter=delimiter), **options)

    @classmethod
    def ndjson(cls, path: Path, **options: Any) -> FileSink:
        """Writes one JSON text a line. `options` are those of `FileSink`."""
        return cls(path, RowWriteFormat(NdjsonEncoder(), "ndjson"), **options)

    @classmethod
    def text(cls, path: Path, charset: str = "UTF-8", **options: Any) -> FileSink:
        """`str(value)`, a line each. `options` are those of `FileSink`."""
        return cls(path, RowWriteFormat(TextEncoder(charset)), **options)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _FileWriter(self, context)

    def create_committer(self, sink_id: str) -> Committer:
        return FileCommitter(self._folder, sink_id, self._file_format, self._rule)


class StreamingFileSink(FileSink):
    """FileSink under the name of PyFlink's older one, which programs hand to `add_sink`.

    Example:

        lines.add_sink(StreamingFileSink.for_row_format("/data/out", Encoder.simple_string_encoder()).build())
    """


class _FormatBuilder:
    def __init__(self, base_path: Path, write_format: WriteFormat) -> None:
        self._base_path = base_path
        self._format = write_format
        self._partition_by: Partitioning | None = None
        self._rolling_policy: RollingPolicy | None = None
        self._file_config: OutputFileConfig | None = None
        self._compaction: tuple[FileCompactStrategy, FileCompactor] | None = None

    def with_bucket_assigner(self, bucket_assigner: Partitioning) -> Self:
        """A `BucketAssigner`, a function from a value to a folder name, or column names."""
        self._partition_by = bucket_assigner
        return self

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Checked and else without effect: files are looked at whenever a checkpoint completes."""
        if interval <= 0:
            raise ConfigurationError("FileSink: the bucket check interval must be more than 0")
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """When files end. Bulk formats, too, may go by size and time."""
        self._rolling_policy = rolling_policy
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """How files are named."""
        self._file_config = output_file_config
        return self

    def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
        """Joins files of all subtasks before they are shown. The strategy then says when files end, not the rolling policy."""
        self._compaction = strategy, compactor
        return self

    def disable_compact(self) -> Self:
        """Takes `enable_compact` back. What waits from before is shown by the rolling policy."""
        self._compaction = None
        return self

    def build(self) -> FileSink:
        """The sink."""
        write_format = self._format
        if self._compaction is not None and self._compaction[1].delimiter:
            if not isinstance(write_format, RowWriteFormat):
                raise ConfigurationError("FileSink: files of a bulk format are joined row by row and take no delimiter")
            write_format = write_format.delimited(self._compaction[1].delimiter)
        return FileSink(
            self._base_path,
            write_format,
            partition_by=self._partition_by,
            rolling_policy=self._rolling_policy,
            compaction=None if self._compaction is None else self._compaction[0],
            file_config=self._file_config,
        )


class RowFormatBuilder(_FormatBuilder):
    """Builds a FileSink that writes record by record. Without a rolling policy every checkpoint ends files."""


class BulkFormatBuilder(_FormatBuilder):
    """Builds a FileSink with a columnar format. Without a rolling policy every checkpoint ends files."""


class _OpenFile:
    def __init__(self, folder: Folder, path: str, write_format: WriteFormat) -> None:
        self.path = path
        self.rows = 0
        self._folder = folder
        self._file: IO[bytes] = folder.create(path)
        self._encoder: FileEncoder = write_format.encoder(self._file)

    def write(self, block: Block) -> None:
        self._encoder.write(block)
        self.rows += len(block)

    def finish(self) -> int:
        """Make the file durable; returns its size."""
        self._encoder.finish()
        return self._folder.seal(self.path, self._file)

    def drop(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the file goes anyway
            self._encoder.abandon()
        self._folder.abandon(self.path, self._file)


class _FileWriter(SinkWriter):
    def __init__(self, sink: FileSink, context: WriterContext) -> None:
        self._folder = sink._folder
        self._format = sink._file_format
        self._partitions = sink._partitions
        self._prefix = sink._names.get_part_prefix()
        self._suffix = sink._names.get_part_suffix() or f".{self._format.extension}"
        self._waits = sink._rule.checkpoints != 1
        self._context = context
        self._run = run_name(context.sink_id, context.job_id)
        self._staging = staging_folder(context.sink_id, context.job_id)
        self._epoch = 0
        self._attempt = ""
        self._ended = False
        self._open: dict[str, _OpenFile] = {}

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._drop_unfinished()
        self._epoch, self._attempt, self._ended = epoch, attempt, False

    def write(self, block: Block) -> None:
        if len(block):
            for folder, part in self._partitions.split(block, self._context.processing_time()):
                self._file_for(folder).write(part)

    def end_input(self) -> None:
        self._ended = True

    def prepare_commit(self) -> list[Any]:
        made: list[Any] = [self._finished(folder, file) for folder, file in sorted(self._open.items())]
        self._open = {}
        if self._ended and self._waits:
            made.append(InputEnded(job_id=self._context.job_id))
        return made

    def close(self) -> None:
        self._drop_unfinished()

    def _file_for(self, folder: str) -> _OpenFile:
        if folder not in self._open:
            number = f"-{len(self._open)}" if self._partitions.partitioned else ""
            name = f"{self._epoch}-{self._context.subtask}-{quote(self._attempt, safe='')}{number}"
            path = f"{self._staging}/{name}.{self._format.extension}"
            self._open[folder] = _OpenFile(self._folder, path, self._format)
        return self._open[folder]

    def _finished(self, folder: str, file: _OpenFile) -> StagedFile:
        size = file.finish()
        name = f"{self._prefix}-{self._epoch:08d}-{self._context.subtask:04d}-{self._run}{self._suffix}"
        return StagedFile(
            job_id=self._context.job_id,
            epoch=self._epoch,
            staged=file.path,
            final=f"{folder}/{name}" if folder else name,
            rows=file.rows,
            size=size,
            subtask=self._context.subtask,
            created=now_ms(),
        )

    def _drop_unfinished(self) -> None:
        unfinished: Sequence[_OpenFile] = list(self._open.values())
        self._open = {}
        for file in unfinished:
            file.drop()
