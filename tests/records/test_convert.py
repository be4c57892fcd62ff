"""Typed streams travel as columns and come back as what they were."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.errors import PenstockError
from penstock.records import Columns, Rows
from penstock.records.convert import to_columns, to_rows, travels_as_arrow

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
NAMED = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
NESTED = Types.TUPLE([Types.STRING(), Types.LIST(Types.INT()), Types.MAP(Types.STRING(), Types.INT())])


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (PAIR, [("a", 1), (None, 2), ("c", None)]),
        (NAMED, [Row(name="Ann", age=3), Row(name=None, age=None)]),
        (NESTED, [("a", [1, 2], {"k": 1}), ("b", [], {})]),
    ],
)
def test_a_typed_block_survives_the_trip(type_info: Any, values: list[Any]) -> None:
    packed = to_columns(Rows(list(values), [1] * len(values)), type_info, "operator 'x'")
    assert isinstance(packed, Columns)
    assert to_rows(packed, type_info) == Rows(values, [1] * len(values))


def test_a_value_that_does_not_fit_its_declared_type_is_named() -> None:
    with pytest.raises(PenstockError, match=r"operator 'parse'.*\('b', 'two'\)"):
        to_columns(Rows([("a", 1), ("b", "two")]), PAIR, "operator 'parse'")


def test_only_row_and_tuple_types_that_arrow_can_hold_travel_as_columns() -> None:
    assert travels_as_arrow(PAIR)
    assert travels_as_arrow(NAMED)
    assert not travels_as_arrow(Types.STRING())
    assert not travels_as_arrow(Types.TUPLE([Types.PICKLED_BYTE_ARRAY()]))
    assert not travels_as_arrow(None)


def test_rows_of_which_only_some_have_a_timestamp_stay_rows() -> None:
    block = Rows([("a", 1), ("b", 2)], [1, None])
    assert to_columns(block, PAIR, "operator 'x'") is block
