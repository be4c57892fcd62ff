"""`pyflink.datastream.connectors.file_system`: files as source and as exactly-once sink."""

from __future__ import annotations

from penstock.connectors.file_sink import FileSink
from penstock.connectors.files import FileSource, FileSourceBuilder, StreamFormat

__all__ = ["FileSink", "FileSource", "FileSourceBuilder", "StreamFormat"]
