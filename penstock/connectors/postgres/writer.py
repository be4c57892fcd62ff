"""Slot side of the PostgreSQL sink: records are checked against the table, turned into COPY's text and staged."""

from __future__ import annotations

from penstock.connectors.base import WriterContext
from penstock.connectors.errors import BadRecordError
from penstock.connectors.postgres.client import Database
from penstock.connectors.postgres.encoding import Encoder, Segment, pack
from penstock.connectors.postgres.table import describe
from penstock.connectors.staged_sink import StagingWriter
from penstock.records import Block


class RowWriter(StagingWriter[Segment]):
    """Asks the catalog once, with the first record; nothing else goes to the database before the commit."""

    def __init__(
        self,
        database: Database,
        table: str,
        columns: tuple[str, ...] | None,
        keys: tuple[str, ...],
        context: WriterContext,
    ) -> None:
        super().__init__(context)
        self._database, self._table, self._columns, self._keys = database, table, columns, keys
        self._encoder: Encoder | None = None

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
        return pack(parts)

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
        return Encoder(table, self._columns, keys=self._keys, sink=self._name)
