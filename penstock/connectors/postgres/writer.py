"""Slot side of the PostgreSQL sink: records are checked against the table, turned into COPY's text and staged."""

from __future__ import annotations

from typing import Any

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.connectors.errors import BadRecordError
from penstock.connectors.postgres.client import Database
from penstock.connectors.postgres.encoding import Encoder, Segment, pack
from penstock.connectors.postgres.table import describe
from penstock.connectors.staging import stage
from penstock.records import Block


class StagingWriter(SinkWriter):
    """Asks the catalog once, with the first record; nothing else goes to the database before the checkpoint is complete, so
    no transaction is open while a checkpoint, or a job that was stopped, takes its time."""

    def __init__(
        self,
        database: Database,
        table: str,
        columns: tuple[str, ...] | None,
        keys: tuple[str, ...],
        context: WriterContext,
    ) -> None:
        self._database, self._table, self._columns, self._keys = database, table, columns, keys
        self._context = context
        self._encoder: Encoder | None = None
        self._epoch = 0
        self._segments: list[Segment] = []

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._segments = epoch, []

    def write(self, block: Block) -> None:
        if self._encoder is None:
            self._encoder = self._create_encoder()
        segment = self._encoder.encode(block)
        if segment is None:
            return
        if missing := [key for key in self._keys if key not in segment.columns]:
            raise BadRecordError(
                f"{self._name}: table {self._table}: the records have no column {', '.join(missing)}, a key of the upserts; they "
                f"have {', '.join(segment.columns)}"
            )
        self._segments.append(segment)

    def prepare_commit(self) -> list[Any]:
        if not self._segments:
            return []
        data, self._segments = pack(self._segments), []
        context = self._context
        return [
            stage(
                data,
                context.storage,
                job_id=context.job_id,
                sink_id=context.sink_id,
                epoch=self._epoch,
                subtask=context.subtask,
            )
        ]

    @property
    def _name(self) -> str:
        return f"PostgresSink {self._context.sink_id}"

    def _create_encoder(self) -> Encoder:
        connection = self._database.connect()
        try:
            table = describe(self._database, connection, self._table, self._name)
        finally:
            connection.close()
        if self._keys:
            table.check_keys(self._keys, self._name)
        return Encoder(table, self._columns, changelog=bool(self._keys), sink=self._name)
