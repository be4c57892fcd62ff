"""A table as the catalog describes it, and whether values fit its columns.

Checked in the slots, while an epoch runs: what the database refuses at commit has been promised by a checkpoint already,
and would be refused again after every restart.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.connectors.errors import BadRecordError
from penstock.connectors.postgres.client import Database, PostgresError

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
_EXACT = decimal.Context(prec=1200, rounding=decimal.ROUND_HALF_UP)  # PostgreSQL's numeric has up to 1000 digits
_INTEGERS = {"smallint": 15, "integer": 31, "bigint": 63}
_ACCEPTED: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "real": (int, float, decimal.Decimal),
    "double precision": (int, float, decimal.Decimal),
    "numeric": (int, float, decimal.Decimal),
    "text": (str,),
    "character varying": (str,),
    "character": (str,),
    "date": (datetime.date, str),
    "timestamp without time zone": (datetime.datetime, str),
    "timestamp with time zone": (datetime.datetime, str),
    "time without time zone": (datetime.time, str),
    "uuid": (uuid.UUID, str),
    "bytea": (bytes,),
    **dict.fromkeys(_INTEGERS, (int,)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type: str  # as PostgreSQL writes it: character varying(20)
    not_null: bool
    writable: bool
    has_default: bool

    @property
    def base(self) -> str:
        """The type without its modifiers."""
        return re.sub(r"\(.*?\)", "", self.type).strip()

    def misfit(self, values: Sequence[Any], *, key: bool = False) -> tuple[int, str] | None:
        """The first value that does not fit, and why. A `key` of upserts is never null: it would equal no other."""
        if self.type.endswith("[]"):
            return self._misfit_of_arrays(values, key)
        accepted, base = _ACCEPTED.get(self.base), self.base
        kinds = set(map(type, values))
        if accepted is not None and not kinds.issubset({*accepted, type(None)}):
            # bool is an int in Python but not in SQL; other subclasses are as good as their base.
            for index, value in enumerate(values):
                wrong_bool = isinstance(value, bool) and bool not in accepted
                if value is not None and (wrong_bool or not isinstance(value, accepted)):
                    return index, f"is {type(value).__name__}"
        if type(None) in kinds and (key or self.not_null):
            why = "the column does not allow" if self.not_null else "a key of the upserts cannot be"
            return next(i for i, value in enumerate(values) if value is None), f"is null, which {why}"
        if base in _INTEGERS:
            limit = 1 << _INTEGERS[base]
            present = [value for value in values if value is not None]
            if present and (max(present) >= limit or min(present) < -limit):
                return next(
                    (i, "is out of range") for i, v in enumerate(values) if v is not None and not -limit <= v < limit
                )
        numeric = re.fullmatch(r"numeric\((\d+),(\d+)\)", self.type)
        if numeric is not None:
            bound, digits = decimal.Decimal(10) ** (int(numeric[1]) - int(numeric[2])), int(numeric[2])
            for index, value in enumerate(values):
                if value is not None and not _rounds_below(value, bound, digits):
                    return index, "is out of range"
        length = re.fullmatch(r"character(?: varying)?\((\d+)\)", self.type)
        for index, value in enumerate(values):
            if length is not None and value is not None and len(value.rstrip(" ")) > int(length[1]):
                return index, f"has {len(value)} characters"
            if isinstance(value, str) and "\x00" in value:
                return index, "contains a NUL character, which PostgreSQL cannot store"
            if base in ("json", "jsonb") and isinstance(value, str):
                try:
                    json.loads(value)
                except ValueError as error:
                    return index, f"is not JSON: {error}"
        return None

    def _misfit_of_arrays(self, values: Sequence[Any], key: bool) -> tuple[int, str] | None:
        element = replace(self, type=self.type.removesuffix("[]"), not_null=False)
        for index, value in enumerate(values):
            if value is None:
                if key or self.not_null:
                    return index, "is null, which the column does not allow"
            elif not isinstance(value, list | tuple):
                return index, f"is {type(value).__name__} and not a list"
            elif wrong := element.misfit(list(_flat(value))):
                return index, f"has an element that {wrong[1]}"
        return None


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    """The elements of an array of any number of dimensions: PostgreSQL has one type for all of them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _rounds_below(value: Any, limit: decimal.Decimal, digits: int) -> bool:
    """Whether PostgreSQL takes a value into numeric(p,s): it rounds to s digits, and the rest must be below 10^(p-s)."""
    number = decimal.Decimal(str(value))
    if not number.is_finite():
        return number.is_nan()  # a bounded numeric can be NaN but not infinite
    if not number or number.adjusted() < limit.adjusted() - 1:
        return True
    if number.adjusted() >= limit.adjusted():
        return False
    return _EXACT.quantize(abs(number), decimal.Decimal(1).scaleb(-digits)) < limit  # 9.995 is 10.00


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`name` is quoted where needed: fit for statements."""

    name: str
    columns: tuple[Column, ...]
    unique: tuple[frozenset[str], ...] = ()  # the columns of its primary key and unique indexes

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def check_keys(self, keys: Sequence[str], sink: str) -> None:
        """Upserts need a unique index over exactly the keys."""
        if frozenset(keys) not in self.unique:
            there = " or ".join("(" + ", ".join(sorted(columns)) + ")" for columns in self.unique) or "none"
            raise PostgresError(
                f"{sink}: table {self.name} has no primary key or unique index over exactly ({', '.join(keys)}), which upserts by "
                f"them need; there is {there}"
            )

    def check_columns(self, names: Sequence[str], sink: str, record: str) -> None:
        """All that are given exist and can be written, and none that is needed is left out."""
        for name in names:
            column = self.column(name)
            if column is None or not column.writable:
                what = "has no column" if column is None else "computes by itself the column"
                raise BadRecordError(
                    f"{sink}: table {self.name} {what} {name}; its columns are {', '.join(c.name for c in self.columns)}. "
                    f"The first record is {record}"
                )
        for column in self.columns:
            if column.not_null and not column.has_default and column.name not in names:
                raise BadRecordError(
                    f"{sink}: table {self.name} needs a value for column {column.name}, which the records do not have. The first "
                    f"record is {record}"
                )


def describe(database: Database, connection: Any, table: str, sink: str) -> Table:
    """Ask the catalog. A table that is not there is an error that names it."""
    with database.attempt(f"looking up table {table} for {sink}"):
        (found,) = connection.execute("select to_regclass(%s)::text", (table,)).fetchone()
        rows = connection.execute(_COLUMNS, (table,)).fetchall()
        unique = connection.execute(_UNIQUE, (table,)).fetchall()
        connection.rollback()
    if found is None:
        raise PostgresError(
            f"{sink}: PostgreSQL at {database.name} has no table {table}, or this user may not see it: create it before the job "
            "starts, or name its schema too"
        )
    columns = tuple(
        Column(name=name, type=type_, not_null=not_null, writable=writable, has_default=has_default)
        for name, type_, not_null, writable, has_default in rows
    )
    return Table(name=found, columns=columns, unique=tuple(frozenset(names) for (names,) in unique))
