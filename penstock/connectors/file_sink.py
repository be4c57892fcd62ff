"""The file sink under the name it had before `penstock.connectors.files` held source and sink."""

from penstock.connectors.files import BulkFormatBuilder, FileSink, RowFormatBuilder, committed_files

__all__ = ["BulkFormatBuilder", "FileSink", "RowFormatBuilder", "committed_files"]
