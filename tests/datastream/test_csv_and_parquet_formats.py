"""CSV as messages and as files, Parquet files: under PyFlink's names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Configuration, Encoder, Row, Types, WatermarkStrategy
from penstock.connectors.files import FileSink, FileSource, StreamingFileSink, committed_files
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from penstock.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.errors import JobDefinitionError

TYPE = Types.ROW_NAMED(
    ["id", "name", "score", "ok", "tags"],
    [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.BOOLEAN(), Types.BASIC_ARRAY(Types.STRING())],
)


def test_a_row_survives_as_a_line() -> None:
    row = Row(id=1, name='a, "b"', score=2.5, ok=True, tags=["x", "y"])
    line = CsvRowSerializationSchema.Builder(TYPE).build().serialize(row)
    assert line == b'1,"a, ""b""",2.5,true,x;y\n'
    assert CsvRowDeserializationSchema.Builder(TYPE).build().deserialize(line) == row


def test_characters_and_none_are_as_the_builders_say() -> None:
    writer = (
        CsvRowSerializationSchema.Builder(TYPE)
        .set_field_delimiter("|")
        .set_null_literal("-")
        .set_line_delimiter("\r\n")
    )
    line = writer.build().serialize(Row(id=1, name=None, score=None, ok=False, tags=[]))
    assert line == b"1|-|-|false|\r\n"
    reader = CsvRowDeserializationSchema.Builder(TYPE).set_field_delimiter("|").set_null_literal("-").build()
    assert reader.deserialize(line) == Row(id=1, name=None, score=None, ok=False, tags=[])


def test_a_line_that_does_not_fit_is_an_error_or_ignored() -> None:
    strict = CsvRowDeserializationSchema.Builder(TYPE).build()
    with pytest.raises(ValueError, match="field 'id' is 'x', which is no Long"):
        strict.deserialize(b"x,a,1,true,t")
    with pytest.raises(ValueError, match="has 2 fields"):
        strict.deserialize(b"1,a")
    lax = CsvRowDeserializationSchema.Builder(TYPE).set_ignore_parse_errors(True).set_allow_comments(True).build()
    assert lax.deserialize(b"x,a,1,true,t") == Row(id=None, name="a", score=1.0, ok=True, tags=["t"])
    assert lax.deserialize(b"1,a") is None
    assert lax.deserialize(b"# a comment") is None
    with pytest.raises(JobDefinitionError, match="takes a row type"):
        CsvRowDeserializationSchema.Builder(Types.STRING())


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.runtime": "embedded"})
    )


def test_csv_files_are_read_and_written_by_a_schema(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a;1;0.5\nb;2;1.5\n")
    schema = (
        CsvSchema.builder()
        .add_string_column("name")
        .add_number_column("count")
        .add_number_column("share", Types.DOUBLE())
        .set_column_separator(";")
        .build()
    )
    env = environment()
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path / "in.csv")).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "csv")
    rows.sink_to(FileSink.for_bulk_format(str(tmp_path / "out"), CsvBulkWriters.for_schema(schema)).build())
    env.execute()
    (written,) = (tmp_path / "out").glob("part-*")
    assert written.read_text().replace('"', "") == "a;1;0.5\nb;2;1.5\n"


def test_parquet_files_are_read_and_written_by_a_row_type(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "left out": ["x", "y"]}), tmp_path / "in.parquet")
    row_type = Types.ROW_NAMED(["id"], [Types.LONG()])
    env = environment()
    source = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(row_type), str(tmp_path / "in.parquet")
    ).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "parquet")
    rows.sink_to(FileSink.for_bulk_format(str(tmp_path / "out"), ParquetBulkWriters.for_row_type(row_type)).build())
    env.execute()
    (written,) = (tmp_path / "out").glob("part-*")
    assert pq.read_table(written).to_pydict() == {"id": [1, 2]}


def test_the_older_file_sink_is_one_for_add_sink(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.execution.mode": "embedded"})
    )
    older = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    env.from_collection(["a", "b"], Types.STRING()).add_sink(older.build())
    env.execute("older")
    assert sorted(Path(path).read_text() for path in committed_files(tmp_path)) in (["a\n", "b\n"], ["a\nb\n"])
