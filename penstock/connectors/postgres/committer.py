"""Driver side of the PostgreSQL sink: one transaction for each checkpoint, with a marker of the epoch inside it.

Whatever dies when, the marker tells whether the epoch is in the database: it is there exactly if the epoch's rows are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from penstock.connectors.postgres.client import Database, KeepsConnection, PostgresError, psycopg
from penstock.connectors.postgres.encoding import DELETED, Segment, merge, unpack
from penstock.connectors.postgres.markers import Markers
from penstock.connectors.postgres.table import describe
from penstock.connectors.staged_sink import StagedCommitter
from penstock.connectors.staging import StagedOutput, staged_data

_log = logging.getLogger("penstock.postgres")
_MEMORY = "select set_config('work_mem', '64MB', false), set_config('temp_buffers', '64MB', false)"
_PLACE = re.compile(r"COPY [^,]*, line (\d+)(?:, column ([^:]+))?")


class TransactionCommitter(KeepsConnection, StagedCommitter):
    commits_beside_next_epoch = True  # the database works while the slots do

    def __init__(self, database: Database, table: str, keys: tuple[str, ...], sink_id: str) -> None:
        super().__init__(sink_id)
        self._database, self._table, self._keys = database, table, keys
        self._markers = Markers(sink_id)
        self._target = ""  # the table's name, quoted where needed

    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        job = staged[-1].job_id
        # A connection that was kept may have died with a server that is back already. The marker makes a second try safe.
        kept = self._connection is not None
        try:
            self._transact(epoch, job, name, staged)
        except PostgresError as error:
            self.close()
            if not (kept and isinstance(error.__cause__, psycopg().OperationalError)):
                raise
            _log.warning("sink %s: epoch %d is tried again on a new connection: %s", self.sink_id, epoch, error)
            self._transact(epoch, job, name, staged)
        except BaseException:
            self.close()
            raise

    def _transact(self, epoch: int, job: str, name: str, staged: Sequence[StagedOutput]) -> None:
        what = f"committing epoch {epoch} of sink {self.sink_id} to table {self._table}"
        if self._connection is None:
            self._begin_life()
        connection = self._connection
        with self._database.attempt(what):
            if self._markers.committed(connection, job, name):
                connection.rollback()
                _log.info("sink %s: epoch %d is in the database already", self.sink_id, epoch)
                return
            self._markers.claim(connection, job)
            outputs = [unpack(staged_data(output, self.storage, sink_id=self.sink_id)) for output in staged]
            segments = merge([segment for output in outputs for segment in output])
            for segment in segments:
                self._write(connection, segment, epoch)
            self._markers.mark(connection, job, name, epoch, sum(segment.rows for segment in segments))
            connection.commit()
        self._markers.done(job)

    def _begin_life(self) -> None:
        connection = self._database.connect()
        try:
            with self._database.attempt("creating the tables penstock_sinks and penstock_commits"):
                if self._keys:  # an epoch's rows are sorted by key: in memory, not on the server's disk
                    connection.execute(_MEMORY)
                self._markers.create(connection)
            self._target = describe(self._database, connection, self._table, f"PostgresSink {self.sink_id}").name
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _write(self, connection: Any, segment: Segment, epoch: int) -> None:
        library = psycopg()
        try:
            if self._keys:
                self._upsert(connection, segment)
            else:
                self._copy(connection, self._target, segment)
        except (library.DataError, library.IntegrityError, library.ProgrammingError) as error:
            raise self._refusal(error, segment, epoch) from error

    def _copy(self, connection: Any, target: str, segment: Segment) -> None:
        statement = f"copy {target} ({_names(segment.columns)}) from stdin"
        with connection.cursor().copy(statement.encode()) as copy:
            copy.write(segment.data)

    def _upsert(self, connection: Any, segment: Segment) -> None:
        """The last row of each key of the epoch decides: INSERT cannot touch a row twice, and need not."""
        columns = [column for column in segment.columns if column != DELETED]
        keys, others = _names(self._keys), [column for column in columns if column not in self._keys]
        execute = connection.execute
        execute(
            f"create temp table penstock_rows on commit drop as select {_names(columns)} from {self._target} with no data".encode()
        )
        execute(f"alter table penstock_rows add {DELETED} boolean".encode())
        self._copy(connection, "penstock_rows", segment)
        # COPY fills a new table from its beginning, so that a row's place in it is its place in the epoch.
        last = f"(select distinct on ({keys}) * from penstock_rows order by {keys}, ctid desc) as n"
        (deletes,) = execute(f"select coalesce(bool_or({DELETED}), false) from penstock_rows".encode()).fetchone()
        if deletes:
            same = " and ".join(f"t.{name} = n.{name}" for name in map(_quoted, self._keys))
            execute(f"delete from {self._target} as t using {last} where n.{DELETED} and {same}".encode())
        updates = ", ".join(f"{name} = excluded.{name}" for name in map(_quoted, others))
        execute(
            f"insert into {self._target} ({_names(columns)}) select {_names(columns)} from {last} where not n.{DELETED} "
            f"on conflict ({keys}) do {f'update set {updates}' if others else 'nothing'}".encode()
        )
        execute(b"drop table penstock_rows")

    def _refusal(self, error: Any, segment: Segment, epoch: int) -> PostgresError:
        """Which column and record the database refuses: what the slots cannot check, such as constraints."""
        place = _PLACE.search(error.diag.context or "")
        column = error.diag.column_name or (place[2] if place is not None else None)
        record = ""
        if place is not None:
            line = segment.data.split(b"\n")[int(place[1]) - 1].decode(errors="replace").split("\t")
            record = f" The first such record is {dict(zip(segment.columns, line, strict=False))}."
        elif error.diag.message_detail:
            record = f" {error.diag.message_detail}"
        where = f"table {self._table}" + (f", column {column}" if column else "")
        return PostgresError(
            f"PostgresSink {self.sink_id}: {where} at {self._database.name}: the database refuses epoch {epoch}: "
            f"{error.diag.message_primary or error}.{record} The epoch is part of a checkpoint and is committed when the table "
            "takes it: repair the table, or go back to an older checkpoint"
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))
