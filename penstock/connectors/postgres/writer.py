"""Slot side of the PostgreSQL sink: records are checked against the table, turned into COPY's text and staged."""

from __future__ import annotations

from penstock.connectors.errors import BadRecordError
from penstock.connectors.postgres.client import Database
from penstock.connectors.postgres.encoding import Encoder, Segment, merge, pack
from penstock.connectors.postgres.rejected import MOST_REJECTED, rejected_segment
from penstock.connectors.postgres.table import describe
from penstock.connectors.postgres.trial import Trial
from penstock.connectors.staged_sink import StagingWriter
from penstock.functions.connectors import WriterContext
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
        self._encoder: Encoder | None = None
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

    def _create_encoder(self) -> Encoder:
        connection = self._database.connect()
        try:
            table = describe(self._database, connection, self._table, self._name)
        finally:
            connection.close()
        if self._keys:
            table.check_keys(self._keys, self._name)
        self._trial = Trial(self._database, table, self._name)
        return Encoder(table, self._columns, keys=self._keys, sink=self._name)


def _part(block: Block, start: int, end: int) -> Block:
    if isinstance(block, Columns):
        return Columns(block.batch.slice(start, end - start))
    return Rows(block.values[start:end])


def _shown(block: Block) -> str:
    return repr(block.batch.to_pylist()[0] if isinstance(block, Columns) else block.values[0])
