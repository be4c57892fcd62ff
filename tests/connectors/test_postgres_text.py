"""Rows as COPY reads them, without a database: Arrow's quick way and Python's way must give the same text."""

from __future__ import annotations

import math
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, RowKind
from penstock.connectors.postgres.encoding import CopyEncoder, Segment
from penstock.connectors.postgres.table import Column, Table
from penstock.errors import BadRecordError
from penstock.records import Columns, Rows

TYPES = {
    "text": st.text(),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double precision": st.floats(),
    "boolean": st.booleans(),
}


def encoder(types: dict[str, str], keys: tuple[str, ...] = ()) -> CopyEncoder:
    columns = [Column(name=n, type=t, not_null=False, writable=True, has_default=False) for n, t in types.items()]
    return CopyEncoder(Table(name="t", columns=tuple(columns)), tuple(types), keys=keys, sink="PostgresSink out")


def parsed(segment: Segment) -> list[list[str | None]]:
    """What PostgreSQL makes of COPY's text format, by its documentation."""
    unescaped = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}

    def value(text: str) -> str | None:
        return None if text == "\\N" else re.sub(r"\\.", lambda found: unescaped[found[0]], text)

    lines = segment.data.decode().split("\n")
    assert lines.pop() == ""
    assert len(lines) == segment.rows
    return [[value(text) for text in line.split("\t")] for line in lines]


def same(type_: str, text: str | None, value: Any) -> bool:
    if text is None or value is None:
        return text is value
    match type_:
        case "boolean":
            return text == ("t" if value else "f")
        case "double precision":
            return float(text) == value or (math.isnan(float(text)) and math.isnan(value))
        case _:
            return text == str(value)


@given(st.data())
def test_every_value_of_a_simple_type_is_read_back_as_it_was(data: st.DataObject) -> None:
    values = {
        type_: data.draw(st.lists(st.none() | strategy.filter(lambda v: "\x00" not in str(v)), min_size=3, max_size=3))
        for type_, strategy in TYPES.items()
    }
    made = encoder({type_.split()[0]: type_ for type_ in TYPES})
    rows = list(zip(*values.values(), strict=True))
    segment = made.encode(Rows(rows))
    assert segment is not None
    for row, texts in zip(rows, parsed(segment), strict=True):
        assert [same(type_, text, value) for type_, text, value in zip(TYPES, texts, row, strict=True)] == [True] * 4
    columns = pa.record_batch({type_.split()[0]: pa.array(values[type_]) for type_ in TYPES})
    if not any(pa.types.is_null(field.type) for field in columns.schema):
        assert made.encode(Columns(columns)) == segment
        first = made.encode(Columns(columns.slice(1, 1)))
        assert first is not None
        assert parsed(first) == parsed(segment)[1:2], "of a slice, too"


@pytest.mark.parametrize(
    ("value", "message"),
    [(2**70, "is out of range"), ("one", "is str"), (None, "is null, which a key of the upserts cannot be")],
)
def test_what_arrow_cannot_take_is_named_by_who_looks_at_each_value(value: Any, message: str) -> None:
    with pytest.raises(
        BadRecordError, match=rf"table t, column id \(bigint\): .*{message}. The record is \({value!r},\)"
    ):
        encoder({"id": "bigint"}, ("id",)).encode(Rows([(1,), (value,)]))


def test_records_that_only_undo_earlier_ones_are_nothing_to_write() -> None:
    before = Row(1)
    before.set_row_kind(RowKind.UPDATE_BEFORE)
    assert encoder({"id": "bigint"}, ("id",)).encode(Rows([before])) is None
