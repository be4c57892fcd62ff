"""Values of a declared type, converted a block at a time, are what they are one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, TypeInformation, Types
from penstock.errors import PenstockError
from penstock.records.typed import Typed

NAMED = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])

TYPES = [
    Types.BYTE(),
    Types.LONG(),
    Types.FLOAT(),
    Types.STRING(),
    NAMED,
    Types.TUPLE([Types.LONG(), Types.FLOAT()]),
    Types.LIST(Types.FLOAT()),
    Types.LIST(NAMED),
    Types.PRIMITIVE_ARRAY(Types.LONG()),
    Types.MAP(Types.STRING(), Types.FLOAT()),
    Types.MAP(Types.LONG(), Types.LIST(Types.LONG())),
    Types.ROW([Types.LIST(Types.LONG()), Types.MAP(Types.STRING(), NAMED)]),
]

_numbers = st.sampled_from([0, -1, 127, 128, 2**53 + 1, 2**63 - 1, 2**63, np.int64(3), np.uint64(2**63)])
_floats = st.sampled_from([0.1, 0.5, -0.0, 1e300, 3.4028235e38, 3.5e38, math.inf, -math.inf, math.nan])
_texts = st.sampled_from(["", "a", "ä", "\ud800"])
_leaves = st.one_of(_numbers, _floats, _texts, st.none(), st.booleans())


def _named(values: list[Any]) -> Row:
    row = Row(*values)
    row.set_field_names(["n", "s"])
    return row


_any = st.recursive(
    _leaves,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.lists(parts, max_size=3).map(_named),
        st.dictionaries(st.sampled_from(["a", "b", 1]), parts, max_size=3),
    ),
    max_leaves=5,
)


def _fitting(kind: TypeInformation) -> st.SearchStrategy[Any]:
    """Mostly values that fit, in some of the shapes that are taken."""
    if kind == NAMED:
        fields = st.tuples(st.one_of(st.integers(-9, 9), st.none()), st.one_of(_texts, st.none()))
        return st.one_of(fields, fields.map(list), fields.map(list).map(_named))
    simple: dict[str, st.SearchStrategy[Any]] = {
        repr(Types.BYTE()): st.integers(-128, 127),
        repr(Types.LONG()): st.one_of(st.integers(-9, 9), _numbers),
        repr(Types.FLOAT()): _floats,
        repr(Types.STRING()): _texts,
        repr(Types.TUPLE([Types.LONG(), Types.FLOAT()])): st.tuples(st.integers(-9, 9), _floats),
        repr(Types.LIST(Types.FLOAT())): st.lists(st.one_of(_floats, st.none()), max_size=3),
        repr(Types.LIST(NAMED)): st.lists(st.tuples(st.integers(-9, 9), _texts), max_size=3),
        repr(Types.PRIMITIVE_ARRAY(Types.LONG())): st.one_of(
            st.lists(st.integers(-9, 9), max_size=3), st.lists(st.integers(-9, 9), max_size=3).map(np.array)
        ),
        repr(Types.MAP(Types.STRING(), Types.FLOAT())): st.dictionaries(_texts, _floats, max_size=3),
        repr(Types.MAP(Types.LONG(), Types.LIST(Types.LONG()))): st.dictionaries(
            st.integers(-9, 9), st.lists(st.integers(-9, 9), max_size=2).map(tuple), max_size=3
        ),
    }
    return simple.get(repr(kind), _any)


def _one(typed: Typed, value: Any) -> Any:
    """(whether it fits, what it becomes or why it does not)"""
    try:
        return True, repr(typed.one(value))
    except PenstockError as error:
        return False, str(error)


@given(
    st.sampled_from(TYPES).flatmap(lambda k: st.tuples(st.just(k), st.lists(st.one_of(_fitting(k), _any), max_size=6)))
)
def test_a_block_is_converted_as_its_values_are_one_by_one(block: tuple[TypeInformation, list[Any]]) -> None:
    kind, values = block
    typed = Typed(kind, "here")
    alone = [_one(typed, value) for value in values]
    refused = {why for fits, why in alone if not fits}
    if refused:
        with pytest.raises(PenstockError) as caught:
            typed.values(values)
        assert str(caught.value) in refused
    else:
        assert list(map(repr, typed.values(values))) == [made for _, made in alone]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Types.LONG(), [1, 2]),
        (Types.FLOAT(), [0.5, 2.0]),
        (NAMED, [_named([1, "a"]), _named([None, "b"])]),
        (Types.TUPLE([Types.LIST(Types.LONG())]), [([1],), ([],)]),
        (Types.MAP(Types.STRING(), Types.LIST(Types.FLOAT())), [{"a": [0.5]}, {}]),
    ],
    ids=str,
)
def test_values_that_are_as_their_type_says_are_not_made_again(kind: TypeInformation, values: list[Any]) -> None:
    assert Typed(kind, "here").values(values) is values


@pytest.mark.parametrize("values", [[1], [1, "a", "more"]])
def test_a_row_with_the_right_names_and_more_or_fewer_values_is_refused(values: list[Any]) -> None:
    row = _named(values)
    with pytest.raises(PenstockError, match=f"it has {len(values)} fields and not 2"):
        Typed(NAMED, "here").values([_named([1, "a"]), row])


def test_it_is_the_list_with_the_wrong_element_that_is_named() -> None:
    rows = [(1, [1, 2]), (2, None), (3, []), (4, [3, "x"]), (5, [4])]
    kind = Types.ROW([Types.LONG(), Types.LIST(Types.LONG())])
    with pytest.raises(PenstockError, match=r"gave \(4, \[3, 'x'\]\): field 'f1' is \[3, 'x'\], a list, .*'x', a str"):
        Typed(kind, "here").values(rows)


def test_kinds_of_rows_that_do_not_travel_as_columns_stay() -> None:
    from penstock.common.types import RowKind

    kind = Types.ROW_NAMED(["n", "s"], [Types.FLOAT(), Types.PICKLED_BYTE_ARRAY()])
    (found,) = Typed(kind, "here").values([Row.of_kind(RowKind.DELETE, n=0.1, s=1)])
    assert found == Row.of_kind(RowKind.DELETE, n=float(np.float32(0.1)), s=1)
