"""Rows that the database refuses, put aside in a table of their own instead of ending the job (`set_rejected_rows`).

They are written in the transaction of their epoch, so each is there exactly once, as all others are in the real table.

Asking the database in advance whether it takes rows: they are copied into a temporary table like the real one, and rolled back.

For what cannot be told from here: values of types that only the database knows (enums, domains, ranges, times as text) and check
constraints. It costs a second COPY, so it is done only where there is something to ask.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from penstock.connectors.postgres.client import Database, KeepsConnection, psycopg
from penstock.connectors.postgres.encoding import DELETED, Segment
from penstock.connectors.postgres.table import Table, describe
from penstock.errors import BadRecordError, CommitRefusedError

_log = logging.getLogger("penstock.postgres")
_PLACE = re.compile(r"COPY [^,]*, line (\d+)(?:, column ([^:]+))?")


def copy(connection: Any, target: str, segment: Segment) -> None:
    """Copies rows into the table `target`, whose name is quoted already, within the caller's transaction."""
    statement = f"copy {target} ({names(segment.columns)}) from stdin"
    with connection.cursor().copy(statement.encode()) as into:
        into.write(segment.data)


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def names(columns: Sequence[str]) -> str:
    """Column names as SQL takes them, separated by commas."""
    return ", ".join(map(quoted, columns))


def place_of(error: Any, segments: Sequence[Segment]) -> tuple[str | None, str]:
    """The column that an error names, if any, and in words what it says of the record."""
    place = _PLACE.search(error.diag.context or "")
    column = error.diag.column_name or (place[2] if place is not None else None)
    if place is not None and len(segments) == 1:  # else nobody says in which of them the line is
        (segment,) = segments
        lines = segment.data.split(b"\n")
        line = lines[min(int(place[1]), len(lines)) - 1].decode(errors="replace").split("\t")
        found = {name: text for name, text in zip(segment.columns, line, strict=False) if name != DELETED}
        shown = str(found)
        return column, f" The first such record is {shown if len(shown) <= 600 else shown[:600] + '…'}."
    return column, f" {error.diag.message_detail}" if error.diag.message_detail else ""


class Trial(KeepsConnection):
    """Tries rows of one writer in the table without keeping them; holds its connection between epochs."""

    def __init__(self, database: Database, table: Table, sink: str) -> None:
        self._database, self._table, self._sink = database, table, sink
        self._possible = True

    def check(self, segments: Sequence[Segment]) -> None:
        """BadRecordError if the database would refuse a row because of a value in it or a check constraint."""
        self.insist(f"{self._sink}: the check of an epoch's rows", lambda: self._check(segments))

    def _check(self, segments: Sequence[Segment]) -> None:
        if not self._possible:
            return
        if self._connection is None:
            self._connection = self._database.connect()
        with self._database.attempt(f"checking rows for table {self._table.name} of {self._sink}"):
            self._possible = self._create()
            for segment in segments if self._possible else ():
                self._try(segment)
            self._connection.rollback()
        if not self._possible:
            self.close()

    def _create(self) -> bool:
        library, execute = psycopg(), self._connection.execute
        try:
            execute(
                f"create temp table penstock_trial (like {self._table.name} including constraints including generated)".encode()
            )
        except (library.errors.InsufficientPrivilege, library.errors.WrongObjectType) as error:
            _log.warning(
                "%s: rows cannot be checked before they are promised, only when they are committed: %s",
                self._sink,
                error,
            )
            self._connection.rollback()
            return False
        # Nulls have been looked for already. Columns that have a default need not be there, and rows that delete need only keys.
        nullable = [f"alter {quoted(column.name)} drop not null" for column in self._table.columns if column.not_null]
        execute(f"alter table penstock_trial {', '.join([*nullable, f'add {DELETED} boolean'])}".encode())
        return True

    def _try(self, segment: Segment) -> None:
        library = psycopg()
        try:
            copy(self._connection, "penstock_trial", segment)
        except (library.DataError, library.IntegrityError) as error:
            column, record = place_of(error, [segment])
            where = f"table {self._table.name}" + (f", column {column}" if column else "")
            raise BadRecordError(
                f"{self._sink}: {where}: the database would refuse it: {error.diag.message_primary or error}.{record} Convert or "
                "filter such records before the sink, or change the table"
            ) from error


MOST_REJECTED = 1000  # of an epoch: more are no bad rows but a wrong table, and each costs several statements
_COLUMNS = ("job", "sink", "epoch", "record", "problem")
_REFUSED = ("rejected record", "problem")  # columns of a segment that never was one of the table
# Classes of SQLSTATE that speak of a row: its values, constraints, triggers, its size.
_OF_ROWS = frozenset(("22", "23", "27", "44", "54", "P0"))
_CREATE = (
    "select pg_advisory_xact_lock(hashtext('penstock_commits'))",
    "create table if not exists {} (job text not null, sink text not null, epoch bigint not null, record text not null, "
    "problem text not null, rejected_at timestamptz not null default now())",
)


def rejected_segment(record: str, problem: str) -> Segment:
    """A record that does not fit, as a writer stages it."""
    return Segment(columns=_REFUSED, rows=1, data=_line(record, problem))


def _line(*fields: str) -> bytes:
    table = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\x00": "\\\\0"})
    return "\t".join(field.translate(table) for field in fields).encode(errors="backslashreplace") + b"\n"


class RejectedRows:
    """The table for rows that the sink's table does not take, for one committer."""

    def __init__(self, database: Database, table: str, sink_id: str) -> None:
        self._database, self.table, self._sink_id = database, table, sink_id
        self._target = ""

    def create(self, connection: Any) -> None:
        """Creates the table unless it is there."""
        with self._database.attempt(f"creating the table {self.table} for rejected rows"):
            (found,) = connection.execute("select to_regclass(%s)::text", (self.table,)).fetchone()
            if found is None:
                for statement in _CREATE:
                    connection.execute(statement.format(self.table).encode())
            connection.commit()
        sink = f"the rejected rows of PostgresSink {self._sink_id}"
        table: Table = describe(self._database, connection, self.table, sink)
        table.check_columns(_COLUMNS, sink)
        self._target = table.name

    def write(
        self, connection: Any, segments: list[Segment], write: Callable[[Segment], None], *, job: str, epoch: int
    ) -> int:
        """All rows: those that the database refuses here, the others by `write`. How many were refused."""
        connection.execute("set constraints all immediate")  # what is found out at the end has no row any more
        refused: list[bytes] = []
        waiting = segments[::-1]
        while waiting:
            segment = waiting.pop()
            if segment.columns == _REFUSED:
                prefix = _line(job, self._sink_id, str(epoch))[:-1] + b"\t"
                refused += [prefix + line + b"\n" for line in segment.data.splitlines()]
            else:
                problem = self._problem(connection, segment, write)
                if problem is not None and segment.rows == 1:
                    refused.append(_line(job, self._sink_id, str(epoch), _shown(segment), problem))
                elif problem is not None:  # in order, as rows of one key replace each other
                    waiting += segment.halves()[::-1]
            if len(refused) > MOST_REJECTED:
                raise CommitRefusedError(
                    f"PostgresSink {self._sink_id}: more than {MOST_REJECTED:,} rows of epoch {epoch} are refused; the last: "
                    f"{refused[-1].decode(errors='replace').strip()}. So many are not put aside into {self.table}: mend the table "
                    "or the job and start it again; the epoch is in its checkpoint and nothing of it is written yet"
                )
        if refused:
            copy(connection, self._target, Segment(columns=_COLUMNS, rows=len(refused), data=b"".join(refused)))
        return len(refused)

    def _problem(self, connection: Any, segment: Segment, write: Callable[[Segment], None]) -> str | None:
        try:
            with connection.transaction():  # a savepoint
                write(segment)
        except psycopg().Error as error:
            if str(error.sqlstate or "")[:2] not in _OF_ROWS:
                raise
            return f"{error.sqlstate}: {error.diag.message_primary or error}"
        return None


def _shown(segment: Segment) -> str:
    """A row as JSON, of texts as the database would have read them."""
    fields = segment.data.decode(errors="replace").rstrip("\n").split("\t")
    named = zip(segment.columns, fields, strict=True)
    return json.dumps(
        {name: None if text == "\\N" else text for name, text in named if name != DELETED}, ensure_ascii=False
    )
