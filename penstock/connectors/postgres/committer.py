"""Driver side of the PostgreSQL sink: one transaction for each checkpoint, with a marker of the epoch inside it.

Whatever dies when, the marker tells whether the epoch is in the database: it is there exactly if the epoch's rows are.

Which epochs of a sink are in the database: rows written in the same transactions as their data.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.connectors.postgres.client import (
    Database,
    KeepsConnection,
    PostgresError,
    PostgresSetupError,
    is_final,
    psycopg,
    refuses,
)
from penstock.connectors.postgres.encoding import DELETED, Segment, merge, unpack
from penstock.connectors.postgres.rejected import RejectedRows, copy, names, place_of, quoted
from penstock.connectors.postgres.table import check_rights, describe
from penstock.connectors.staging import StagedCommitter, StagedOutput, staged_data
from penstock.errors import CommitRefusedError, FencedError

# Names of commits that are remembered: more than checkpoints are retained, so that one that is fallen back to is known.
_REMEMBERED = 64
_CREATE = (
    # Two jobs may come at once, and "if not exists" alone is no protection from that.
    "select pg_advisory_xact_lock(hashtext('penstock_commits'))",
    "create table if not exists penstock_sinks (job text, sink text, owner text not null, primary key (job, sink))",
    "create table if not exists penstock_commits (job text, sink text, name text, epoch bigint not null, rows bigint not null, "
    "committed_at timestamptz not null default now(), primary key (job, sink, name))",
)


class Markers:
    """The commits of one sink, noted in the database. All methods but `create` work inside the caller's transaction."""

    def __init__(self, sink_id: str) -> None:
        self._sink_id = sink_id
        self._token = uuid.uuid4().hex  # this committer among all attempts of the job
        self._accepted: dict[str, set[str]] = {}  # by job: owners who are us, or whom we were about to replace

    def create(self, connection: Any) -> None:
        """Unless they are there. Needs the right to create tables; or create them beforehand (docs/howto/postgres.md)."""
        there = connection.execute("select to_regclass('penstock_sinks'), to_regclass('penstock_commits')").fetchone()
        if None in there:
            for statement in _CREATE:
                connection.execute(statement)
        connection.commit()

    def committed(self, connection: Any, job: str, name: str) -> bool:
        """Locks the sink against all other committers until the transaction ends, so that the answer stays true."""
        key = (job, self._sink_id)
        connection.execute("insert into penstock_sinks values (%s, %s, '') on conflict do nothing", key)
        (self._owner,) = connection.execute(
            "select owner from penstock_sinks where job = %s and sink = %s for update", key
        ).fetchone()
        found = connection.execute(
            "select from penstock_commits where job = %s and sink = %s and name = %s", (*key, name)
        ).fetchone()
        return found is not None

    def claim(self, connection: Any, job: str) -> None:
        """After `committed`. The first commit takes the sink over; from then on, another owner means that a newer attempt did."""
        accepted = self._accepted.get(job)
        if accepted is not None and self._owner not in accepted:
            raise FencedError(
                f"sink {self._sink_id} of job {job}: a newer attempt of this job has taken over its output in the database; this "
                "one stops and changes nothing"
            )
        # The outcome of this transaction may never be known: then the owner is either of these.
        self._accepted[job] = {self._token, self._owner}
        connection.execute(
            "update penstock_sinks set owner = %s where job = %s and sink = %s", (self._token, job, self._sink_id)
        )

    def mark(self, connection: Any, job: str, name: str, epoch: int, rows: int) -> None:
        """Notes that a commit is done, in the transaction that does it, and forgets old ones."""
        key = (job, self._sink_id)
        connection.execute(
            "insert into penstock_commits (job, sink, name, epoch, rows) values (%s, %s, %s, %s, %s)",
            (*key, name, epoch, rows),
        )
        # By the job's own count, not by the server's clock, which may go back. Commits of later epochs are there when the job fell
        # back to an older checkpoint: they stay until it has passed them, and never push out what it commits now.
        connection.execute(
            "delete from penstock_commits where (job, sink) = (%s, %s) and epoch < (select min(epoch) from (select epoch from "
            "penstock_commits where (job, sink) = (%s, %s) and epoch <= %s order by epoch desc limit %s) newest)",
            (*key, *key, epoch, _REMEMBERED),
        )

    def done(self, job: str) -> None:
        """The transaction is known to be committed."""
        self._accepted[job] = {self._token}


_log = logging.getLogger("penstock.postgres")
_CREATING = (
    "creating the tables penstock_sinks and penstock_commits (grant the right, or create them: docs/howto/postgres.md)"
)
_MEMORY = "select set_config('work_mem', '64MB', false), set_config('temp_buffers', '64MB', false)"


class PostgresCommitter(KeepsConnection, StagedCommitter):
    """Copies what is staged into the table, each commit in one transaction together with its marker."""

    commits_beside_next_epoch = True  # the database works while the slots do

    def __init__(
        self,
        database: Database,
        table: str,
        keys: tuple[str, ...],
        sink_id: str,
        *,
        columns: tuple[str, ...] | None = None,
        rejected: str | None = None,
    ) -> None:
        super().__init__(sink_id)
        self._database, self._table, self._keys, self._columns = database, table, keys, columns
        self._rejected = None if rejected is None else RejectedRows(database, rejected, sink_id)
        self._markers = Markers(sink_id)
        self._target = ""  # the table's name, quoted where needed

    def check(self) -> None:
        """The database can be reached, the table is as the sink needs it, and the user may do what a commit does."""
        try:
            self._begin_life()
        except PostgresError as error:
            raise (PostgresSetupError(str(error)) if is_final(error) else error) from error.__cause__

    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        job = staged[-1].job_id
        # The marker makes a second try safe.
        self.insist(f"sink {self.sink_id}: epoch {epoch}", lambda: self._transact(epoch, job, name, staged))

    def _transact(self, epoch: int, job: str, name: str, staged: Sequence[StagedOutput]) -> None:
        what = f"committing epoch {epoch} of sink {self.sink_id} to table {self._table}"
        if self._connection is None:
            self._begin_life()
        connection = self._connection
        segments: list[Segment] = []
        with self._database.attempt(what), self._refusing(epoch, segments):
            if self._markers.committed(connection, job, name):
                connection.rollback()
                _log.info("sink %s: epoch %d is in the database already", self.sink_id, epoch)
                return
            self._markers.claim(connection, job)
            outputs = [unpack(staged_data(output, self.storage, sink_id=self.sink_id)) for output in staged]
            segments += merge([segment for output in outputs for segment in output])
            if self._rejected is None:
                for segment in segments:
                    self._write(connection, segment)
            elif refused := self._rejected.write(
                connection, segments, lambda segment: self._write(connection, segment), job=job, epoch=epoch
            ):
                _log.warning("sink %s: %d rows of epoch %d are rejected", self.sink_id, refused, epoch)
            self._markers.mark(connection, job, name, epoch, sum(segment.rows for segment in segments))
            connection.commit()
        self._markers.done(job)

    def _begin_life(self) -> None:
        sink, connection = f"PostgresSink {self.sink_id}", self._database.connect()
        try:
            table = describe(self._database, connection, self._table, sink)
            if self._columns is not None:
                table.check_columns(self._columns, sink)
            if self._keys:
                table.check_keys(self._keys, sink)
            with self._database.attempt(f"looking up rights on table {self._table} for {sink}"):
                check_rights(connection, table.name, changing=bool(self._keys), sink=sink)
                if self._keys:  # an epoch's rows are sorted by key: in memory, not on the server's disk
                    connection.execute(_MEMORY)
            with self._database.attempt(_CREATING):
                self._markers.create(connection)
            if self._rejected is not None:
                self._rejected.create(connection)
            self._target = table.name
        except BaseException:
            connection.close()
            raise
        self.close()
        self._connection = connection

    def _write(self, connection: Any, segment: Segment) -> None:
        if self._keys:
            self._upsert(connection, segment)
        else:
            copy(connection, self._target, segment)

    def _upsert(self, connection: Any, segment: Segment) -> None:
        """The last row of each key of the epoch decides: INSERT cannot touch a row twice, and need not."""
        columns = [column for column in segment.columns if column != DELETED]
        keys, others = names(self._keys), [column for column in columns if column not in self._keys]
        execute = connection.execute
        execute(
            f"create temp table penstock_rows on commit drop as select {names(columns)} from {self._target} with no data".encode()
        )
        execute(f"alter table penstock_rows add {DELETED} boolean".encode())
        copy(connection, "penstock_rows", segment)
        # COPY fills a new table from its beginning, so that a row's place in it is its place in the epoch.
        last = f"(select distinct on ({keys}) * from penstock_rows order by {keys}, ctid desc) as n"
        (deletes,) = execute(f"select coalesce(bool_or({DELETED}), false) from penstock_rows".encode()).fetchone()
        if deletes:
            same = " and ".join(f"t.{name} = n.{name}" for name in map(quoted, self._keys))
            execute(f"delete from {self._target} as t using {last} where n.{DELETED} and {same}".encode())
        updates = ", ".join(f"{name} = excluded.{name}" for name in map(quoted, others))
        execute(
            f"insert into {self._target} ({names(columns)}) select {names(columns)} from {last} where not n.{DELETED} "
            f"on conflict ({keys}) do {f'update set {updates}' if others else 'nothing'}".encode()
        )
        execute(b"drop table penstock_rows")

    @contextmanager
    def _refusing(self, epoch: int, segments: list[Segment]) -> Iterator[None]:
        """What the slots cannot find out, such as unique indexes, is said with the column and record."""
        try:
            yield
        except psycopg().Error as error:
            if not refuses(error):
                raise
            column, record = place_of(error, segments)
            where = f"table {self._table}" + (f", column {column}" if column else "")
            constraint = f" (constraint {error.diag.constraint_name})" if error.diag.constraint_name else ""
            rows = sum(segment.rows for segment in segments)
            raise CommitRefusedError(
                f"PostgresSink {self.sink_id}: {where} at {self._database.name}: the database refuses epoch {epoch}, {rows} rows: "
                f"{error.diag.message_primary or error}{constraint}.{record} None of them is written; a checkpoint has them and "
                "commits them, once, when the table takes them. Change the table (alter or drop the constraint, add the partition "
                "or the row that is referred to, grant the right), or let the sink put such rows aside (set_rejected_rows), and "
                "start the job again with the same job folder"
            ) from error
