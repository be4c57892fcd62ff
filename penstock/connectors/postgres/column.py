"""A column as the catalog describes it, and whether values fit it.

Checked in the slots, while an epoch runs: what the database refuses at commit has been promised by a checkpoint already,
and would be refused again after every restart. What can be told from the type is told here; of the rest the database itself is
asked, with a copy of the rows that is rolled back (`trial`).
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
