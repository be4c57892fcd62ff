"""Files as a source: Parquet, CSV, NDJSON and text, a fixed set or folders watched for new files."""

from penstock.connectors.files.parquet import ParquetFormat
from penstock.connectors.files.source import FileSource, FileSourceBuilder
from penstock.connectors.files.tabular import CsvFormat, NdjsonFormat
from penstock.connectors.files.text import StreamFormat, TextLineFormat

__all__ = [
    "CsvFormat",
    "FileSource",
    "FileSourceBuilder",
    "NdjsonFormat",
    "ParquetFormat",
    "StreamFormat",
    "TextLineFormat",
]
