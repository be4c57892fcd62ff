"""A table as the catalog describes it: its columns, its unique indexes, whether it has check constraints.

A column as the catalog describes it, and whether values fit it.

Checked in the slots, while an epoch runs: what the database refuses at commit has been promised by a checkpoint already,
and would be refused again after every restart. What can be told from the type is told here; of the rest the database itself is
asked, with a copy of the rows that is rolled back (`Trial`).
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.connectors.postgres.client import Database, PostgresSetupError
from penstock.errors import BadRecordError

_EXACT = decimal.Context(prec=1200, rounding=decimal.ROUND_HALF_UP)  # PostgreSQL's numeric(p,s) has up to 1000 digits
_NUMERIC_DIGITS = (131_072, 16_383)  # before and after the point, of a numeric without bounds
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
_DAY, _TIME = r"\d{4}-\d\d-\d\d", r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?"
_TIMESTAMP = rf"{_DAY}[T ]{_TIME}(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d)?"
# Texts that PostgreSQL reads for sure, if Python can read them too. Others, such as 'yesterday', it may read.
_PLAIN_TEXTS = {
    "date": (re.compile(_DAY), datetime.date.fromisoformat),
    "timestamp without time zone": (re.compile(_TIMESTAMP), datetime.datetime.fromisoformat),
    "timestamp with time zone": (re.compile(_TIMESTAMP), datetime.datetime.fromisoformat),
    "time without time zone": (re.compile(_TIME), datetime.time.fromisoformat),
    "uuid": (re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"), uuid.UUID),
}
# In a jsonb: characters written as codes (NUL and halves of pairs are refused) and numbers that may be too large.
_DOUBTFUL_JSON = re.compile(r"\\u|[eE][+-]?\d{4}|\d{10000}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table, as the server's catalogue describes it."""

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
        if base in ("real", "double precision", "numeric"):
            for index, value in enumerate(values):
                if value is not None and (wrong := self._wrong_number(value)):
                    return index, wrong
        length = re.fullmatch(r"character(?: varying)?\((\d+)\)", self.type)
        for index, value in enumerate(values):
            if length is not None and value is not None and len(value.rstrip(" ")) > int(length[1]):
                return index, f"has {len(value)} characters"
            if isinstance(value, str) and "\x00" in value:
                return index, "contains a NUL character, which PostgreSQL cannot store"
            if base in ("json", "jsonb") and isinstance(value, str):
                try:
                    json.loads(value, parse_constant=_no_json)
                except (ValueError, RecursionError) as error:
                    return index, f"is not JSON: {error}"
        return None

    def certain(self, values: Sequence[Any], texts: Sequence[str]) -> bool:
        """Whether the database takes for sure what `misfit` has not refused and is written as `texts`."""
        if self.type.endswith("[]"):
            element = replace(self, type=self.type.removesuffix("[]"))
            flat = [item for value in values if value is not None for item in value]
            if any(isinstance(item, list | tuple) for item in flat):
                return False  # all its parts must be of the same size, in each of at most six dimensions
            return self.base != "jsonb[]" and element.certain(flat, [item for item in flat if isinstance(item, str)])
        base = self.base
        if base == "jsonb":
            return not any(map(_DOUBTFUL_JSON.search, texts))
        if base not in _ACCEPTED:
            return base == "json"
        if base in _PLAIN_TEXTS:
            return all(value is None or self._plain(value) for value in values)
        return True

    def _plain(self, value: Any) -> bool:
        if isinstance(value, datetime.datetime) and self.base.startswith("timestamp"):
            return value.tzinfo is None or 1 < value.year < 9999  # written in UTC, where Python has that instant
        if not isinstance(value, str):
            # A date column takes the day out of a text with any time, but not with any zone.
            return getattr(value, "tzinfo", None) in (None, datetime.UTC)
        pattern, read = _PLAIN_TEXTS[self.base]
        try:
            return pattern.fullmatch(value) is not None and read(value) is not None
        except ValueError:
            return False

    def _wrong_number(self, value: Any) -> str | None:
        """Why a number is not one of the column's, if it is not."""
        if isinstance(value, decimal.Decimal) and value.is_snan():
            return "is a signalling NaN, which PostgreSQL does not have"
        if self.base == "numeric":
            return None if self._is_numeric(value) else "is out of range"
        try:
            rounded = float(value)
            if self.base == "real":
                (rounded,) = struct.unpack("f", struct.pack("f", rounded))
        except OverflowError:
            return "is out of range"
        if math.isinf(rounded) and not _is_infinite(value):
            return "is out of range"
        return "is too small: it would be 0" if not rounded and value else None

    def _is_numeric(self, value: Any) -> bool:
        bounds = re.fullmatch(r"numeric\((\d+),(-?\d+)\)", self.type)
        if bounds is not None:
            precision, scale = int(bounds[1]), int(bounds[2])
            return _rounds_below(value, decimal.Decimal(10) ** (precision - scale), scale)
        if isinstance(value, float):
            return True
        if isinstance(value, int):
            return value.bit_length() < _NUMERIC_DIGITS[0] * 3  # more than three bits are a digit
        most, least = _NUMERIC_DIGITS
        exponent = value.as_tuple().exponent
        return not isinstance(exponent, int) or (exponent >= -least and value.adjusted() < most)

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


def _no_json(constant: str) -> Any:
    raise ValueError(f"it contains {constant}, which Python writes and nobody else reads")


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    """The elements of an array of any number of dimensions: PostgreSQL has one type for all of them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _is_infinite(value: Any) -> bool:
    return bool(value.is_infinite()) if isinstance(value, decimal.Decimal) else math.isinf(value)


def _rounds_below(value: Any, limit: decimal.Decimal, digits: int) -> bool:
    """Whether PostgreSQL takes a value into numeric(p,s): it rounds to s digits, and the rest must be below 10^(p-s)."""
    number = decimal.Decimal(str(value))
    if not number.is_finite():
        return number.is_nan()  # a bounded numeric can be NaN but not infinite
    if not number or number.adjusted() < limit.adjusted() - 1:
        return number.adjusted() > -_NUMERIC_DIGITS[1]
    if number.adjusted() >= limit.adjusted():
        return False
    return _EXACT.quantize(abs(number), decimal.Decimal(1).scaleb(-digits)) < limit  # 9.995 is 10.00


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
        """The column of this name; None if there is none."""
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
