"""SparkSink: what Spark can write in batch is a sink. One batch write for each checkpoint, on the driver.

Blocks are staged as Parquet at pre-commit. The write follows the manifest and is repeated after a crash whose moment is unknown, so
a sink is exactly once if repeating the write of an epoch changes nothing: that is the format's affair, and each maker of sinks
here says which it is.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.builder_arguments import instance, names
from penstock.connectors.sink_values import plain_schema, to_batch
from penstock.connectors.staging import StagedCommitter, StagedOutput, StagingWriter, is_done, note_done, staged_data
from penstock.errors import CommitRefusedError, ConfigurationError, PenstockError
from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.records import Block, Columns
from penstock.spark.sink_writes import (
    AppendWrite,
    CallingWrite,
    Commit,
    DeltaWrite,
    IcebergWrite,
    ParquetWrite,
    Write,
    WriteTarget,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("penstock.spark")


class SparkSink(Sink):
    """Takes a columnar stream, or any stream when `schema` says what its values are.

    Example:

        totals.sink_to(SparkSink.parquet("file:///data/totals", schema=TOTAL)).uid("totals")
    """

    commits_on_spark = True

    def __init__(self, name: str, write: Write, schema: pa.Schema | None) -> None:
        self._name, self._write = name, write
        self._schema = None if schema is None else instance("SparkSink: schema", schema, pa.Schema)

    @staticmethod
    def parquet(
        path: str,
        *,
        schema: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> SparkSink:
        """Exactly once: files of an epoch are named by it (`epoch-00000001-…`), and a repeated write replaces them. Readers of
        `path` see the stream's columns and no other; files of an epoch appear one after the other."""
        _require(path, "SparkSink.parquet: no path is given")
        partitions = _partitions(partition_by, schema)
        return SparkSink("parquet", ParquetWrite(path, partitions, dict(options or {})), schema)

    @staticmethod
    def delta(
        path: str | None = None,
        *,
        table: str | None = None,
        schema: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> SparkSink:
        """Exactly once by Delta's own means: an append names its job and epoch (`txnAppId`, `txnVersion`), and Delta leaves out one
        it has seen. Needs Delta's jar, SQL extension and catalog in the session."""
        if (path is None) == (table is None):
            raise ConfigurationError("SparkSink.delta: give either a path or a table")
        if taken := sorted({"txnAppId", "txnVersion", "userMetadata"} & set(options or {})):
            raise ConfigurationError(f"SparkSink.delta: the sink needs the option {taken[0]} itself")
        target = WriteTarget(
            format="delta",
            path=path,
            table=table,
            partition_by=_partitions(partition_by, schema),
            options=dict(options or {}),
        )
        return SparkSink("delta", DeltaWrite(target), schema)

    @staticmethod
    def iceberg(
        table: str,
        *,
        schema: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> SparkSink:
        """Exactly once: the snapshot that an append makes carries the commit's name, which is looked for before one. `table` is
        named with its catalog; the first epoch creates it if it is not there. Needs Iceberg's jar and a catalog in the session."""
        _require(table, "SparkSink.iceberg: no table is given")
        target = WriteTarget(
            format="iceberg", table=table, partition_by=_partitions(partition_by, schema), options=dict(options or {})
        )
        return SparkSink("iceberg", IcebergWrite(target), schema)

    @staticmethod
    def format(
        format: str,
        *,
        path: str | None = None,
        table: str | None = None,
        options: Mapping[str, str] | None = None,
        mode: str = "append",
        schema: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
    ) -> SparkSink:
        """**At least once**: any format of the session's (JDBC, ORC …). An epoch whose write was under way when the driver died is
        written again. With `mode="overwrite"` the target holds the newest epoch only."""
        if mode not in ("append", "overwrite"):
            raise ConfigurationError(f"SparkSink.format: the mode is append or overwrite, not {mode!r}")
        if path is not None and table is not None:
            raise ConfigurationError("SparkSink.format: give a path or a table, not both")
        _require(format, "SparkSink.format: no format is given")
        target = WriteTarget(
            format=format,
            path=path,
            table=table,
            mode=mode,
            partition_by=_partitions(partition_by, schema),
            options=dict(options or {}),
        )
        return SparkSink(format, AppendWrite(target), schema)

    @staticmethod
    def foreach_epoch(function: Callable[[DataFrame, int], None], *, schema: pa.Schema | None = None) -> SparkSink:
        """`function(frame, epoch)` writes, on the driver. It may be called again with the same epoch and the same rows: exactly
        once if it then changes nothing (a MERGE, a DELETE of the epoch's rows before the append, a table of epochs)."""
        if not callable(function):
            raise ConfigurationError(
                f"SparkSink.foreach_epoch takes a function of a frame and an epoch, not {function!r}"
            )
        return SparkSink("foreach_epoch", CallingWrite(function), schema)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _ParquetWriter(f"SparkSink({self._name}) {context.sink_id}", self._schema, context)

    def create_committer(self, sink_id: str) -> Committer:
        return _SparkCommitter(self._name, self._write, sink_id)


class _ParquetWriter(StagingWriter[pa.RecordBatch]):
    def __init__(self, name: str, schema: pa.Schema | None, context: WriterContext) -> None:
        super().__init__(context)
        self._name, self._schema = name, schema

    def encode(self, block: Block) -> pa.RecordBatch:
        if self._schema is None:
            self._schema = plain_schema(to_batch(block, None, self._name).schema)
        # Values have to fit the schema as it was given; that Spark has only instants is not theirs to know.
        columns = block if isinstance(block, Columns) else Columns(to_batch(block, self._schema, self._name))
        return to_batch(columns, _spark_schema(self._schema), self._name)

    def pack(self, parts: list[pa.RecordBatch]) -> bytes:
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_batches(parts), buffer, store_schema=False)
        return buffer.getvalue()


class _SparkCommitter(StagedCommitter):
    def __init__(self, name: str, write: Write, sink_id: str) -> None:
        super().__init__(sink_id)
        self._name, self._write = name, write

    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        # First of all: what is committed is staged no longer, and most formats cannot tell which epochs they hold.
        if is_done(self.storage, staged, sink_id=self.sink_id):
            _log.info("sink %s: epoch %d is written already", self.sink_id, epoch)
            return
        self._write_epoch(epoch, name, staged)
        note_done(self.storage, staged, sink_id=self.sink_id)

    def _write_epoch(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        try:
            commit = Commit(sink=f"{staged[-1].job_id}-{self.sink_id}", epoch=epoch, name=name)
            self._write(self._frame(staged), commit)
        except Exception as error:  # Spark's own, py4j's, or of the user's function
            # What Spark finds before it runs anything (columns, tables, options) it finds again.
            kind = CommitRefusedError if isinstance(error, (*_refusing(), CommitRefusedError)) else PenstockError
            raise kind(
                f"SparkSink({self._name}) {self.sink_id}: Spark could not write epoch {epoch}: {str(error)[:600]}. The epoch's "
                "rows are in a checkpoint and are written at the next start: mend the table, or the sink's options, and start the "
                "job again with the same job folder"
            ) from error

    def _frame(self, staged: Sequence[StagedOutput]) -> DataFrame:
        """Executors read files of the job folder where they can; what is small, or in an object store, goes through the driver."""
        from pyspark.sql import SparkSession

        session = SparkSession.builder.getOrCreate()
        files = [f"{s.folder}/{s.path}" for s in staged if s.path is not None and str(s.folder).startswith("file:")]
        others = [s for s in staged if s.path is None or not str(s.folder).startswith("file:")]
        tables = [
            pq.read_table(io.BytesIO(staged_data(output, self.storage, sink_id=self.sink_id))) for output in others
        ]
        frame: DataFrame | None = None
        if tables:
            frame = session.createDataFrame(pa.concat_tables(tables))
        if files:
            read = session.read.parquet(*files)
            frame = read if frame is None else frame.unionByName(read.select(*frame.columns))
        assert frame is not None
        return frame


def _partitions(columns: Sequence[str], schema: pa.Schema | None) -> tuple[str, ...]:
    """Checked, if the schema is known."""
    checked = names("SparkSink: partition_by", columns)
    if schema is not None:
        instance("SparkSink: schema", schema, pa.Schema)
    if schema is not None and (missing := [column for column in checked if column not in schema.names]):
        raise ConfigurationError(f"SparkSink: partition_by names {missing}, the schema has only {schema.names}")
    return checked


def _refusing() -> tuple[type[Exception], ...]:
    from pyspark.errors import AnalysisException, IllegalArgumentException, UnsupportedOperationException

    return (AnalysisException, IllegalArgumentException, UnsupportedOperationException)


def _spark_schema(schema: pa.Schema) -> pa.Schema:
    """Timestamps as Spark has them: microseconds, and instants. Those without a zone are taken as UTC, so that the way through a
    file and the way through the driver give the same."""
    fields = [
        f.with_type(pa.timestamp("us", f.type.tz or "UTC")) if pa.types.is_timestamp(f.type) else f for f in schema
    ]
    return pa.schema(fields)


def _require(value: str | None, message: str) -> None:
    if not value:
        raise ConfigurationError(message)
