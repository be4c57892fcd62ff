"""Files: a source (Parquet, CSV, NDJSON and text, a fixed set or folders watched for new files) and an exactly-once sink."""

from typing import TYPE_CHECKING, Any

from penstock.common.absent import missing_name
from penstock.connectors.files.buckets import BucketAssigner
from penstock.connectors.files.commit import committed_files
from penstock.connectors.files.formats import ParquetFormat
from penstock.connectors.files.formats import ReadFormat as BulkFormat
from penstock.connectors.files.lines import StreamFormat, TextLineFormat
from penstock.connectors.files.rolling import (
    DefaultRollingPolicy,
    FileCompactor,
    FileCompactStrategy,
    OnCheckpointRollingPolicy,
    RollingPolicy,
)
from penstock.connectors.files.sink import (
    BulkFormatBuilder,
    FileSink,
    OutputFileConfig,
    RowFormatBuilder,
    StreamingFileSink,
)
from penstock.connectors.files.source import FileSource, FileSourceBuilder
from penstock.connectors.files.tabular import CsvFormat, NdjsonFormat

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "BulkFormatBuilder",
    "CsvFormat",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "NdjsonFormat",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "ParquetFormat",
    "RollingPolicy",
    "RowFormatBuilder",
    "StreamFormat",
    "StreamingFileSink",
    "TextLineFormat",
    "committed_files",
]


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)
