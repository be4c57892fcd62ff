"""A table as the catalog describes it: its columns, its unique indexes, whether it has check constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connectors.errors import BadRecordError
from penstock.connectors.postgres.client import Database, PostgresSetupError
from penstock.connectors.postgres.column import Column

_COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated = '' and a.attidentity <> 'a',
       a.atthasdef or a.attidentity <> ''
from pg_attribute a where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
_UNIQUE = """
select array_agg(a.attname::text) from pg_index i, unnest(i.indkey) with ordinality as k(attnum, place), pg_attribute a
where i.indrelid = to_regclass(%s) and i.indisunique and i.indimmediate and i.indpred is null and i.indexprs is null
and k.place <= i.indnkeyatts and a.attrelid = i.indrelid and a.attnum = k.attnum group by i.indexrelid
"""
_KIND = """
select c.relkind in ('r', 'p', 'f')
       or c.relkind = 'v' and exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgtype & 68 = 68)
from pg_class c where c.oid = to_regclass(%s)
"""  # COPY writes to tables of all kinds, and to views with a trigger INSTEAD OF INSERT
_CHECKS = "select exists (select from pg_constraint where conrelid = to_regclass(%s) and contype = 'c')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`name` is quoted where needed: fit for statements."""

    name: str
    columns: tuple[Column, ...]
    unique: tuple[frozenset[str], ...] = ()  # the columns of its primary key and unique indexes
    has_checks: bool = False

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def check_keys(self, keys: Sequence[str], sink: str) -> None:
        """Upserts need a unique index over exactly the keys."""
        if frozenset(keys) not in self.unique:
            there = " or ".join("(" + ", ".join(sorted(columns)) + ")" for columns in self.unique) or "none"
            raise PostgresSetupError(
                f"{sink}: table {self.name} has no primary key or unique index over exactly ({', '.join(keys)}), which upserts by "
                f"them need; there is {there}"
            )

    def check_columns(self, names: Sequence[str], sink: str, record: str | None = None) -> None:
        """All that are given exist and can be written, and none that is needed is left out. Without a `record` it is the sink's
        own settings that do not fit."""
        error, suffix = (
            (PostgresSetupError, "") if record is None else (BadRecordError, f". The first record is {record}")
        )
        for name in names:
            column = self.column(name)
            if column is None or not column.writable:
                what = "has no column" if column is None else "computes by itself the column"
                raise error(
                    f"{sink}: table {self.name} {what} {name}; its columns are {', '.join(c.name for c in self.columns)}{suffix}"
                )
        for column in self.columns:
            if column.not_null and not column.has_default and column.name not in names:
                raise error(
                    f"{sink}: table {self.name} needs a value for column {column.name}, which the records do not have{suffix}"
                )


def check_rights(connection: Any, table: str, *, changing: bool, sink: str) -> None:
    """What a commit does to the table, the user may do. `changing`: not only append."""
    needed = ["insert", *(["select", "update"] if changing else [])]  # rows may be deleted too, but few jobs do
    for right in needed:
        row = connection.execute("select has_any_column_privilege(%s, %s), current_user", (table, right)).fetchone()
        if not row[0]:
            raise PostgresSetupError(
                f"{sink}: user {row[1]} has no right to {right} on table {table}: grant {', '.join(needed)} on {table} to {row[1]}"
            )
    connection.rollback()


def _hint(table: str) -> str:
    """Names are written as in SQL, which is not what all who come from Python expect."""
    if '"' in table or table == table.lower():
        return ""
    quoted = ".".join(f'"{part}"' for part in table.split("."))
    return f". SQL reads a name without quotes in lower case: if it is not, write {quoted}"


def describe(database: Database, connection: Any, table: str, sink: str) -> Table:
    """Ask the catalog. A table that is not there is an error that names it."""
    with database.attempt(f"looking up table {table} for {sink}"):
        (found,) = connection.execute("select to_regclass(%s)::text", (table,)).fetchone()
        rows = connection.execute(_COLUMNS, (table,)).fetchall()
        unique = connection.execute(_UNIQUE, (table,)).fetchall()
        (checks,) = connection.execute(_CHECKS, (table,)).fetchone()
        kind = connection.execute(_KIND, (table,)).fetchone()
        connection.rollback()
    if found is None:
        raise PostgresSetupError(
            f"{sink}: PostgreSQL at {database.name} has no table {table}, or this user may not see it: create it before the job "
            f"starts, or name its schema too{_hint(table)}"
        )
    if not kind[0]:
        raise PostgresSetupError(
            f"{sink}: {table} at {database.name} is no table, nor a view with a trigger instead of insert: COPY cannot write to it"
        )
    columns = tuple(
        Column(name=name, type=type_, not_null=not_null, writable=writable, has_default=has_default)
        for name, type_, not_null, writable, has_default in rows
    )
    return Table(name=found, columns=columns, unique=tuple(frozenset(names) for (names,) in unique), has_checks=checks)
