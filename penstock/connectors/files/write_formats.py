"""How `FileSink` writes a file. The bytes depend on the records only, never on how they were cut into blocks."""

from __future__ import annotations

import datetime
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from decimal import Decimal
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from penstock.common.serialization import BulkWriterFactory
from penstock.connectors.sink_values import as_mapping, field_names, plain_schema, to_batch
from penstock.errors import BadRecordError
from penstock.records import Block, Columns

ROW_GROUP_ROWS = 65_536


class FileEncoder(ABC):
    """Writes one file. `finish` writes what is buffered and the footer, but leaves the file open for fsync."""

    @abstractmethod
    def write(self, block: Block) -> None:
        """Writes a block; some of it may stay in a buffer."""

    @abstractmethod
    def finish(self) -> None:
        """Writes what is buffered and the footer. Called once; nothing is written after it."""

    def abandon(self) -> None:  # noqa: B027 - optional hook
        """Called instead of `finish` when the file is to be deleted."""


class WriteFormat(BulkWriterFactory, ABC):
    """Immutable and picklable."""

    extension: str

    @abstractmethod
    def encoder(self, file: IO[bytes]) -> FileEncoder:
        """An encoder that writes to `file`, which it does not close."""

    @abstractmethod
    def join(self, files: Iterator[IO[bytes]], target: IO[bytes]) -> None:
        """Writes one file with the records of several, which `kind_of` says are alike, in their order."""

    def kind_of(self, file: IO[bytes]) -> object:
        """Only files with an equal kind can become one."""
        return None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the values the sink takes, where they are known before the first one."""
        return None

    def without(self, columns: list[str]) -> WriteFormat:
        """The format of files that lack `columns`, whose values are in the folder's name."""
        return self


class _TableWriteFormat(WriteFormat):
    def __init__(self, schema: pa.Schema | None, **options: Any) -> None:
        self._schema = None if schema is None else plain_schema(schema)
        self._options = options

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    def without(self, columns: list[str]) -> WriteFormat:
        schema = self._schema
        kept = None if schema is None else pa.schema([field for field in schema if field.name not in columns])
        return type(self)(kept, **self._options)


class ParquetWriteFormat(_TableWriteFormat):
    """Row groups of exactly 65,536 rows (the last may be smaller), plain encoding, zstd."""

    extension = "parquet"

    def __init__(self, schema: pa.Schema | None = None, *, compression: str = "zstd") -> None:
        super().__init__(schema, compression=compression)

    def encoder(self, file: IO[bytes]) -> FileEncoder:
        return _ParquetEncoder(file, self._schema, **self._options)

    def join(self, files: Iterator[IO[bytes]], target: IO[bytes]) -> None:
        encoder = self.encoder(target)
        for file in files:
            with pq.ParquetFile(file) as reader:
                for batch in reader.iter_batches(ROW_GROUP_ROWS):
                    encoder.write(Columns(batch))
        encoder.finish()

    def kind_of(self, file: IO[bytes]) -> object:
        return pq.read_schema(file)


class _ParquetEncoder(FileEncoder):
    def __init__(self, file: IO[bytes], schema: pa.Schema | None, compression: str) -> None:
        self._file = file
        self._schema = schema
        self._compression = compression
        self._writer: Any = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0

    def write(self, block: Block) -> None:
        batch = to_batch(block, self._schema, "FileSink (Parquet)")
        self._schema = batch.schema
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        while self._pending_rows >= ROW_GROUP_ROWS:
            self._flush(ROW_GROUP_ROWS)

    def finish(self) -> None:
        if self._pending_rows:
            self._flush(self._pending_rows)
        if self._writer is not None:
            self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()  # else it would write its footer when collected, into a file that is closed by then

    def _flush(self, rows: int) -> None:
        table = pa.Table.from_batches(self._pending, self._schema)
        rest = table.slice(rows)
        self._pending, self._pending_rows = rest.to_batches(), rest.num_rows
        if self._writer is None:
            # Dictionary pages would be fed chunk by chunk; without them, and with one chunk a row group, the pages
            # depend on the values alone.
            self._writer = pq.ParquetWriter(
                self._file, self._schema, compression=self._compression, use_dictionary=False
            )
        self._writer.write_table(table.slice(0, rows).combine_chunks(), row_group_size=rows)


class CsvWriteFormat(_TableWriteFormat):
    """A header, then a line a record; strings are quoted, null is an empty field."""

    extension = "csv"

    def __init__(self, schema: pa.Schema | None = None, *, header: bool = True, delimiter: str = ",") -> None:
        super().__init__(schema, header=header, delimiter=delimiter)

    def encoder(self, file: IO[bytes]) -> FileEncoder:
        return _CsvEncoder(file, self._schema, **self._options)

    def join(self, files: Iterator[IO[bytes]], target: IO[bytes]) -> None:
        for index, file in enumerate(files):
            header = self.kind_of(file)
            file.seek(0 if index == 0 else len(header))
            shutil.copyfileobj(file, target)

    def kind_of(self, file: IO[bytes]) -> bytes:
        if not self._options["header"]:
            return b""
        file.seek(0)
        header = file.readline()
        while header.count(b'"') % 2:  # a column's name may hold a line feed
            header += file.readline()
        return header


class _CsvEncoder(FileEncoder):
    def __init__(self, file: IO[bytes], schema: pa.Schema | None, header: bool, delimiter: str) -> None:
        self._file = file
        self._schema = schema
        self._options = pa_csv.WriteOptions(include_header=header, delimiter=delimiter)
        self._writer: Any = None

    def write(self, block: Block) -> None:
        batch = to_batch(block, self._schema, "FileSink (CSV)")
        if self._writer is None:
            self._schema = batch.schema
            self._writer = pa_csv.CSVWriter(self._file, self._schema, write_options=self._options)
        self._writer.write_batch(batch)

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()


class RowEncoder(Protocol):
    """An encoder for `for_row_format`: `penstock.common.Encoder`, or anything with its method."""

    def encode(self, element: Any) -> bytes:
        """The bytes of one record, separator included."""


class _ValueEncoder(FileEncoder):
    """Formats that write value after value: their bytes cannot depend on blocks."""

    def __init__(self, file: IO[bytes], encoder: RowEncoder) -> None:
        self._file = file
        self._encoder = encoder

    def write(self, block: Block) -> None:
        values = block.batch.to_pylist() if isinstance(block, Columns) else block.values
        self._file.write(b"".join(map(self._encoder.encode, values)))

    def finish(self) -> None:
        pass


class RowWriteFormat(WriteFormat):
    """Writes records one by one with an encoder."""

    def __init__(self, encoder: RowEncoder, extension: str = "txt", delimiter: bytes = b"") -> None:
        self._encoder = encoder
        self.extension = extension
        self._delimiter = delimiter

    def encoder(self, file: IO[bytes]) -> FileEncoder:
        return _ValueEncoder(file, self._encoder)

    def join(self, files: Iterator[IO[bytes]], target: IO[bytes]) -> None:
        for index, file in enumerate(files):
            if index:
                target.write(self._delimiter)
            shutil.copyfileobj(file, target)

    def delimited(self, delimiter: bytes) -> RowWriteFormat:
        """The same format with bytes between files that are joined."""
        return RowWriteFormat(self._encoder, self.extension, delimiter)


class TextEncoder:
    """`str(value)` and a line feed; a row of a columnar stream is a dict."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = charset

    def encode(self, element: Any) -> bytes:
        """The record's text and a line feed."""
        return f"{element}\n".encode(self._charset)


class NdjsonEncoder:
    """One JSON text a line. Values with field names become objects; dates and times ISO 8601 strings, decimals
    strings."""

    def encode(self, element: Any) -> bytes:
        """The record as one line of JSON; BadRecordError if JSON has no way to write it."""
        try:
            value = as_mapping(element, None) if field_names(element) is not None else element
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_json_default)
        except (TypeError, ValueError) as error:
            raise BadRecordError(
                f"FileSink (NDJSON): the {type(element).__name__} {element!r:.200} cannot be written as JSON: {error}"
            ) from error
        return text.encode() + b"\n"


def _json_default(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if field_names(value) is not None:
        return as_mapping(value, None)
    if hasattr(value, "as_dict"):  # a Row without names
        return list(value)
    if hasattr(value, "item"):  # a NumPy scalar
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form; map it to one before the sink")
