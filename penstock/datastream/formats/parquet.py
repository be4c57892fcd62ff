"""Parquet files, under PyFlink's names. A row type is one of `Types`: those of Flink's Table API are not here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.absent import missing_name
from penstock.common.typeinfo import RowTypeInfo, schema_of
from penstock.connectors.files import ParquetFormat
from penstock.connectors.files.write_formats import ParquetWriteFormat
from penstock.errors import JobDefinitionError


def _schema(row_type: Any, where: str) -> pa.Schema:
    schema = schema_of(row_type) if isinstance(row_type, RowTypeInfo) else None
    if schema is None:
        raise JobDefinitionError(
            f"{where} takes a row type such as Types.ROW_NAMED(['id'], [Types.LONG()]) whose fields Parquet can hold, not "
            f"{row_type!r}"
        )
    return schema


class ParquetBulkWriters:
    """Writes Parquet files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo,
        hadoop_config: Mapping[str, str] | None = None,
        utc_timestamp: bool = False,
    ) -> ParquetWriteFormat:
        """The format that writes rows of this type. Settings of Hadoop and the zone of timestamps have no effect: timestamps are
        written without a zone, as they are.

        Example:

            row = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
            sink = FileSink.for_bulk_format("out", ParquetBulkWriters.for_row_type(row)).build()
        """
        return ParquetWriteFormat(_schema(row_type, "ParquetBulkWriters.for_row_type"))


class ParquetColumnarRowInputFormat(ParquetFormat):
    """Reads the fields of a row type from Parquet files, for `FileSource.for_bulk_file_format`. Settings of Hadoop, the size of a
    batch, the zone of timestamps and the case of names have no effect."""

    def __init__(
        self,
        row_type: RowTypeInfo,
        hadoop_config: Mapping[str, str] | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        schema = _schema(row_type, "ParquetColumnarRowInputFormat")
        super().__init__(columns=schema.names, schema=schema)


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)
