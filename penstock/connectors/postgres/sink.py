"""PostgresSink and its builder.

Slot side of the PostgreSQL sink: records are checked against the table, turned into COPY's text and staged.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.connectors.builder_arguments import names, text
from penstock.connectors.postgres.client import Database, DatabaseBuilder
from penstock.connectors.postgres.committer import PostgresCommitter
from penstock.connectors.postgres.encoding import CopyEncoder, Segment, merge, pack
from penstock.connectors.postgres.rejected import MOST_REJECTED, Trial, rejected_segment
from penstock.connectors.postgres.table import describe
from penstock.connectors.staging import StagingWriter
from penstock.errors import BadRecordError, ConfigurationError
from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.records import Block, Columns, Rows


class RowWriter(StagingWriter[Segment]):
    """Asks the catalog once, with the first record. Nothing else goes to the database before the commit, unless only the
    database knows whether it will take the rows."""

    def __init__(
        self,
        database: Database,
        table: str,
        columns: tuple[str, ...] | None,
        keys: tuple[str, ...],
        context: WriterContext,
        *,
        rejecting: bool = False,
    ) -> None:
        super().__init__(context)
        self._database, self._table, self._columns, self._keys = database, table, columns, keys
        self._encoder: CopyEncoder | None = None
        self._trial: Trial | None = None
        self._rejecting, self._rejected = rejecting, 0

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        super().begin_epoch(epoch, attempt)
        self._rejected = 0

    def write(self, block: Block) -> None:
        """With a table for rejected rows what does not fit is staged for that."""
        waiting = [block]
        while waiting:
            part = waiting.pop()
            try:
                super().write(part)
            except BadRecordError as error:
                if not self._rejecting or self._rejected >= MOST_REJECTED:
                    raise
                if len(part) > 1:
                    half = len(part) // 2
                    waiting += [_part(part, half, len(part)), _part(part, 0, half)]
                else:
                    self._rejected += 1
                    self._parts.append(rejected_segment(_shown(part), str(error)))

    def encode(self, block: Block) -> Segment | None:
        if self._encoder is None:
            self._encoder = self._create_encoder()
        segment = self._encoder.encode(block)
        if segment is not None and (missing := [key for key in self._keys if key not in segment.columns]):
            raise BadRecordError(
                f"{self._name}: table {self._table}: the records have no column {', '.join(missing)}, a key of the upserts; they "
                f"have {', '.join(segment.columns)}"
            )
        return segment

    def pack(self, parts: list[Segment]) -> bytes:
        parts = merge(parts)
        if not self._rejecting and (doubtful := [part for part in parts if part.doubtful]) and self._trial is not None:
            self._trial.check(doubtful)
        return pack(parts)

    def close(self) -> None:
        if self._trial is not None:
            self._trial.close()

    @property
    def _name(self) -> str:
        return f"PostgresSink {self.context.sink_id}"

    def _create_encoder(self) -> CopyEncoder:
        connection = self._database.connect()
        try:
            table = describe(self._database, connection, self._table, self._name)
        finally:
            connection.close()
        if self._keys:
            table.check_keys(self._keys, self._name)
        self._trial = Trial(self._database, table, self._name)
        return CopyEncoder(table, self._columns, keys=self._keys, sink=self._name)


def _part(block: Block, start: int, end: int) -> Block:
    if isinstance(block, Columns):
        return Columns(block.batch.slice(start, end - start))
    return Rows(block.values[start:end])


def _shown(block: Block) -> str:
    return repr(block.batch.to_pylist()[0] if isinstance(block, Columns) else block.values[0])


class PostgresSink(Sink):
    """Appends to a table, or upserts into it, exactly once. Takes named rows, mappings, tuples and columns. Made by
    `PostgresSink.builder()`."""

    def __init__(
        self,
        database: Database,
        table: str,
        columns: tuple[str, ...] | None,
        keys: tuple[str, ...],
        rejected: str | None = None,
    ) -> None:
        self._database, self._table, self._columns, self._keys = database, table, columns, keys
        self._rejected = rejected

    @staticmethod
    def builder() -> PostgresSinkBuilder:
        """Starts a sink; a connection and a table are required.

        Example:

            stream.sink_to(
                PostgresSink.builder().set_connection("host=db dbname=shop").set_table("totals").set_upsert_keys(["user"]).build()
            )
        """
        return PostgresSinkBuilder()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return RowWriter(
            self._database, self._table, self._columns, self._keys, context, rejecting=self._rejected is not None
        )

    def create_committer(self, sink_id: str) -> Committer:
        return PostgresCommitter(
            self._database, self._table, self._keys, sink_id, columns=self._columns, rejected=self._rejected
        )


class PostgresSinkBuilder(DatabaseBuilder):
    """Builds a PostgresSink; each setter returns the builder."""

    _builds = "PostgresSink"

    def __init__(self) -> None:
        super().__init__()
        self._table = ""
        self._columns: tuple[str, ...] | None = None
        self._keys: tuple[str, ...] = ()
        self._rejected: str | None = None

    def set_table(self, table: str) -> PostgresSinkBuilder:
        """Sets the table, named as in SQL: with its schema and quoted if need be. It must exist."""
        self._table = text("PostgresSink.set_table", table)
        return self

    def set_columns(self, columns: Sequence[str]) -> PostgresSinkBuilder:
        """Which columns are written, in the order of the fields of records that have no names."""
        self._columns = names("PostgresSink.set_columns", columns)
        if not columns:
            raise ConfigurationError(
                "PostgresSink.set_columns: no column is named; leave it out to write those of the records"
            )
        return self

    def set_upsert_keys(self, keys: Sequence[str]) -> PostgresSinkBuilder:
        """Replace the row with the same keys instead of appending. Needs a unique index over exactly these columns, and a
        stream keyed by them, or no order is promised among records of one key."""
        self._keys = names("PostgresSink.set_upsert_keys", keys)
        return self

    def set_rejected_rows(self, table: str) -> PostgresSinkBuilder:
        """Rows that the table does not take go to this one, in the same transaction, with the reason; it is created if it is not
        there. Without it such a row ends the job. More than 1,000 in an epoch end it in any case."""
        self._rejected = text("PostgresSink.set_rejected_rows", table)
        return self

    def build(self) -> PostgresSink:
        """The sink; ConfigurationError says what is missing or does not go together."""
        if not self._table:
            raise ConfigurationError("PostgresSink: no table is named: call set_table")
        if self._columns is not None and (missing := [key for key in self._keys if key not in self._columns]):
            raise ConfigurationError(
                f"PostgresSink: the upsert keys {missing} are not among the columns {self._columns}"
            )
        return PostgresSink(self._database(), self._table, self._columns, self._keys, self._rejected)
