"""Asking the database in advance whether it takes rows: they are copied into a temporary table like the real one, and rolled back.

For what cannot be told from here: values of types that only the database knows (enums, domains, ranges, times as text) and check
constraints. It costs a second COPY, so it is done only where there is something to ask.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from penstock.connectors.errors import BadRecordError
from penstock.connectors.postgres.client import Database, KeepsConnection, PostgresError, psycopg
from penstock.connectors.postgres.encoding import DELETED, Segment
from penstock.connectors.postgres.table import Table

_log = logging.getLogger("penstock.postgres")
_PLACE = re.compile(r"COPY [^,]*, line (\d+)(?:, column ([^:]+))?")


def copy(connection: Any, target: str, segment: Segment) -> None:
    statement = f"copy {target} ({names(segment.columns)}) from stdin"
    with connection.cursor().copy(statement.encode()) as into:
        into.write(segment.data)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def names(columns: Sequence[str]) -> str:
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
    """Of one writer; keeps its connection between epochs."""

    def __init__(self, database: Database, table: Table, sink: str) -> None:
        self._database, self._table, self._sink = database, table, sink
        self._possible = True

    def check(self, segments: Sequence[Segment]) -> None:
        """BadRecordError if the database would refuse a row because of a value in it or a check constraint."""
        kept = self._connection is not None
        try:
            self._check(segments)
        except PostgresError as error:
            self.close()
            if not (kept and isinstance(error.__cause__, psycopg().OperationalError)):
                raise
            self._check(segments)  # on a new connection: the server may be back
        except BaseException:
            self.close()
            raise

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
