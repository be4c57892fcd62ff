"""SparkSink: what Spark can write in batch is a sink. One batch write for each checkpoint, on the driver.

Blocks are staged as Parquet at pre-commit. The write follows the manifest and is repeated after a crash whose moment is unknown, so
a sink is exactly once if repeating the write of an epoch changes nothing: that is the format's affair, and each maker of sinks
here says which it is.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.checkpoint.storage import CheckpointStorage
from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.sink_values import plain_schema, to_batch
from penstock.connectors.staging import StagedOutput, discard, stage, staged_data
from penstock.errors import ConfigurationError, PenstockError
from penstock.records import Block

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Given the epoch's rows, its number, and the id of the sink's job.
Write: TypeAlias = "Callable[[DataFrame, int, str], None]"
EPOCH_COLUMN = "penstock_epoch"


class SparkSink(Sink):
    """Takes a columnar stream, or any stream when `schema` says what its values are."""

    def __init__(self, name: str, write: Write, schema: pa.Schema | None) -> None:
        self._name, self._write = name, write
        self._schema = None if schema is None else _spark_schema(schema)

    @staticmethod
    def parquet(
        path: str,
        *,
        schema: pa.Schema | None = None,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> SparkSink:
        """Exactly once: each epoch has the folder `penstock_epoch=<n>` below `path`, and a repeated write replaces it. Readers of
        `path` see a column `penstock_epoch`; an epoch is whole when its folder holds `_SUCCESS`."""
        _require(path, "SparkSink.parquet: no path is given")
        return SparkSink("parquet", _ParquetWrite(path, tuple(partition_by), dict(options or {})), schema)

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
        it has seen. Needs Delta's jar in the session."""
        _one_of(path, table, "SparkSink.delta")
        return SparkSink(
            "delta", _BatchWrite("delta", path, table, "append", tuple(partition_by), dict(options or {}), True), schema
        )

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
        """**At least once**: any format of the session's (JDBC, Iceberg, ORC …). An epoch whose write was under way when the driver
        died is written again. With `mode="overwrite"` the target holds the newest epoch only."""
        if mode not in ("append", "overwrite"):
            raise ConfigurationError(f"SparkSink.format: the mode is append or overwrite, not {mode!r}")
        if path is not None and table is not None:
            raise ConfigurationError("SparkSink.format: give a path or a table, not both")
        return SparkSink(
            format, _BatchWrite(format, path, table, mode, tuple(partition_by), dict(options or {}), False), schema
        )

    @staticmethod
    def foreach_epoch(function: Callable[[DataFrame, int], None], *, schema: pa.Schema | None = None) -> SparkSink:
        """`function(frame, epoch)` writes, on the driver. It may be called again with the same epoch and the same rows: exactly
        once if it then changes nothing (a MERGE, a DELETE of the epoch's rows before the append, a table of epochs)."""
        return SparkSink("foreach_epoch", _Calling(function), schema)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _ParquetStagingWriter(f"SparkSink({self._name}) {context.sink_id}", self._schema, context)

    def create_committer(self, sink_id: str) -> Committer:
        return _SparkCommitter(self._name, self._write, sink_id)


@dataclass(frozen=True, slots=True)
class _ParquetWrite:
    path: str
    partition_by: tuple[str, ...]
    options: dict[str, str]

    def __call__(self, frame: DataFrame, epoch: int, job_id: str) -> None:
        writer = frame.write.mode("overwrite").options(**self.options)
        writer = writer.partitionBy(*self.partition_by) if self.partition_by else writer
        writer.parquet(f"{self.path.rstrip('/')}/{EPOCH_COLUMN}={epoch}")


@dataclass(frozen=True, slots=True)
class _BatchWrite:
    format: str
    path: str | None
    table: str | None
    mode: str
    partition_by: tuple[str, ...]
    options: dict[str, str]
    transactional: bool

    def __call__(self, frame: DataFrame, epoch: int, job_id: str) -> None:
        writer = frame.write.format(self.format).mode(self.mode).options(**self.options)
        if self.transactional:
            writer = writer.options(**delta_transaction(job_id, epoch))
        writer = writer.partitionBy(*self.partition_by) if self.partition_by else writer
        if self.table is not None:
            writer.saveAsTable(self.table)
        else:
            writer.save(self.path)


@dataclass(frozen=True, slots=True)
class _Calling:
    function: Callable[[Any, int], None]

    def __call__(self, frame: DataFrame, epoch: int, job_id: str) -> None:
        self.function(frame, epoch)


def delta_transaction(name: str, epoch: int) -> dict[str, str]:
    """Options that make an append to a Delta table idempotent."""
    return {"txnAppId": f"penstock-{name}", "txnVersion": str(epoch)}


@dataclass(slots=True)
class _ParquetStagingWriter(SinkWriter):
    name: str
    schema: pa.Schema | None
    context: WriterContext
    epoch: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self.epoch, self.batches = epoch, []

    def write(self, block: Block) -> None:
        if not len(block):
            return
        batch = to_batch(block, self.schema, self.name)
        if self.schema is None:
            self.schema = _spark_schema(plain_schema(batch.schema))
            batch = to_batch(block, self.schema, self.name)
        self.batches.append(batch)

    def prepare_commit(self) -> list[Any]:
        if not self.batches:
            return []
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_batches(self.batches), buffer, store_schema=False)
        self.batches = []
        context = self.context
        return [
            stage(
                buffer.getvalue(),
                context.storage,
                job_id=context.job_id,
                sink_id=context.sink_id,
                epoch=self.epoch,
                subtask=context.subtask,
            )
        ]


class _SparkCommitter(Committer):
    def __init__(self, name: str, write: Write, sink_id: str) -> None:
        self._name, self._write, self._sink_id = name, write, sink_id
        self._storage: CheckpointStorage | None = None

    def open(self, storage: CheckpointStorage | None) -> None:
        self._storage = storage

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        staged: Sequence[StagedOutput] = committables
        if not staged:
            return
        try:
            self._write(self._frame(staged), epoch, f"{staged[-1].job_id}-{self._sink_id}")
        except Exception as error:  # Spark's own, py4j's, or of the user's function
            raise PenstockError(
                f"SparkSink({self._name}) {self._sink_id}: Spark could not write epoch {epoch}: {str(error)[:600]}. The epoch is "
                "part of a checkpoint and is written again at the next start"
            ) from error
        discard(self._storage, self._sink_id, up_to=epoch)

    def discard_after(self, epoch: int) -> None:
        discard(self._storage, self._sink_id, after=epoch)

    def _frame(self, staged: Sequence[StagedOutput]) -> DataFrame:
        """Executors read files of the job folder where they can; what is small, or in an object store, goes through the driver."""
        from pyspark.sql import SparkSession

        session = SparkSession.builder.getOrCreate()
        files = [f"{s.folder}/{s.path}" for s in staged if s.path is not None and str(s.folder).startswith("file:")]
        others = [s for s in staged if s.path is None or not str(s.folder).startswith("file:")]
        tables = [
            pq.read_table(io.BytesIO(staged_data(output, self._storage, sink_id=self._sink_id))) for output in others
        ]
        frame: DataFrame | None = None
        if tables:
            frame = session.createDataFrame(pa.concat_tables(tables))
        if files:
            read = session.read.parquet(*files)
            frame = read if frame is None else frame.unionByName(read.select(*frame.columns))
        assert frame is not None
        return frame


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


def _one_of(path: str | None, table: str | None, where: str) -> None:
    if (path is None) == (table is None):
        raise ConfigurationError(f"{where}: give either a path or a table")
