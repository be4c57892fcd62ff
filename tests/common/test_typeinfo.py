from __future__ import annotations

import datetime
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, RowKind, TypeInformation, Types
from penstock.common.typeinfo import RowTypeInfo
from penstock.errors import PenstockError

# Arrow text is UTF-8, which has no lone surrogates.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_NAIVE = st.datetimes(min_value=datetime.datetime(1700, 1, 1), max_value=datetime.datetime(2200, 1, 1))
_LEAVES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.STRING(), _TEXT),
    (Types.BOOLEAN(), st.booleans()),
    (Types.BYTE(), st.integers(-(2**7), 2**7 - 1)),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.FLOAT(), st.floats(width=32, allow_nan=False)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), _NAIVE),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
]


def _nest(
    children: st.SearchStrategy[tuple[TypeInformation, st.SearchStrategy[Any]]],
) -> st.SearchStrategy[tuple[TypeInformation, st.SearchStrategy[Any]]]:
    def row(fields: list[tuple[TypeInformation, st.SearchStrategy[Any]]]) -> Any:
        names = [f"n{index}" for index in range(len(fields))]
        values = st.tuples(*(values for _, values in fields)).map(lambda row: Row(**dict(zip(names, row, strict=True))))
        return Types.ROW_NAMED(names, [type_info for type_info, _ in fields]), values

    fields = st.lists(children, min_size=1, max_size=3)
    return st.one_of(
        children.map(lambda child: (Types.LIST(child[0]), st.lists(st.none() | child[1], max_size=3))),
        children.map(lambda child: (Types.MAP(Types.STRING(), child[0]), st.dictionaries(_TEXT, child[1], max_size=3))),
        fields.map(lambda fs: (Types.TUPLE([t for t, _ in fs]), st.tuples(*(values for _, values in fs)))),
        fields.map(row),
    )


_TYPED_VALUES = st.recursive(st.sampled_from(_LEAVES), _nest, max_leaves=5).flatmap(
    lambda typed: st.tuples(st.just(typed[0]), st.none() | typed[1])
)


def _through_arrow(type_info: TypeInformation, value: Any) -> Any:
    array = pa.array([type_info.to_internal_type(value)], type_info.to_arrow())
    return type_info.from_internal_type(array.to_pylist()[0])


@pytest.mark.parametrize("leaf", _LEAVES, ids=lambda leaf: str(leaf[0]))
@given(data=st.data())
def test_a_value_without_parts_comes_back_equal_from_arrow(
    leaf: tuple[TypeInformation, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    type_info, values = leaf
    value = data.draw(values)
    assert _through_arrow(type_info, value) == value
    assert not type_info.need_conversion() or type_info == Types.SQL_TIMESTAMP()


@given(_TYPED_VALUES)
def test_a_nested_value_comes_back_equal_from_arrow(typed: tuple[TypeInformation, Any]) -> None:
    type_info, value = typed
    assert _through_arrow(type_info, value) == value


@pytest.mark.parametrize(
    "type_info",
    [
        Types.PICKLED_BYTE_ARRAY(),
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.INSTANT(),
        Types.LIST(Types.PICKLED_BYTE_ARRAY()),
        Types.MAP(Types.STRING(), Types.BIG_INT()),
        Types.TUPLE([Types.INT(), Types.BIG_DEC()]),
        Types.ROW([Types.TUPLE([Types.PICKLED_BYTE_ARRAY()])]),
    ],
)
def test_a_type_with_a_part_that_must_be_pickled_has_no_arrow_type(type_info: TypeInformation) -> None:
    assert type_info.to_arrow() is None


def test_types_are_equal_and_hashable_by_structure() -> None:
    def build() -> list[TypeInformation]:
        element = Types.TUPLE([Types.STRING(), Types.MAP(Types.INT(), Types.LIST(Types.DOUBLE()))])
        return [
            element,
            Types.ROW([Types.STRING()]),
            Types.TUPLE([Types.STRING()]),
            Types.LIST(element),
            Types.BASIC_ARRAY(Types.INT()),
            Types.PRIMITIVE_ARRAY(Types.INT()),
            Types.OBJECT_ARRAY(Types.INT()),
            Types.INT(),
            Types.LONG(),
            Types.SQL_DATE(),
            Types.PICKLED_BYTE_ARRAY(),
        ]

    assert build() == build()
    assert len(set(build() + build())) == len(build())
    assert pickle.loads(pickle.dumps(build())) == build()


def test_the_names_of_row_fields_are_not_part_of_equality() -> None:
    assert Types.ROW_NAMED(["a"], [Types.INT()]) == Types.ROW([Types.INT()])


def test_reprs_read_like_flinks() -> None:
    assert repr(Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])) == "RowTypeInfo(a: Integer, b: String)"
    assert repr(Types.ROW([Types.INT()])) == "RowTypeInfo(Integer)"
    assert repr(Types.TUPLE([Types.LONG(), Types.LIST(Types.CHAR())])) == "TupleTypeInfo(Long, ListTypeInfo<Char>)"
    assert repr(Types.MAP(Types.INT(), Types.SQL_DATE())) == "MapTypeInfo<Integer, DateTypeInfo>"
    assert repr(Types.PICKLED_BYTE_ARRAY()) == "PickledByteArrayTypeInfo"


def test_a_row_type_matches_fields_by_name_and_accepts_tuples_dicts_and_objects() -> None:
    class Point:
        def __init__(self) -> None:
            self.y, self.x = 2, 1

    type_info = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])
    for record in (Row(y=2, x=1), Row(1, 2), (1, 2), [1, 2], {"y": 2, "x": 1}, Point()):
        assert type_info.to_internal_type(record) == {"x": 1, "y": 2}
    assert type_info.get_field_index("y") == 1
    assert RowTypeInfo([Types.INT()]).get_field_names() == ["f0"]


def test_records_that_do_not_fit_the_declared_type_are_named() -> None:
    pair = Types.TUPLE([Types.INT(), Types.INT()])
    with pytest.raises(PenstockError, match=r"has 3 fields but its declared type TupleTypeInfo.* has 2: \(1, 2, 3\)"):
        pair.to_internal_type((1, 2, 3))
    with pytest.raises(ValueError, match="5 is not a tuple"):
        pair.to_internal_type(5)
    with pytest.raises(PenstockError, match=r"is a -D row"):
        Types.ROW([Types.INT()]).to_internal_type(Row.of_kind(RowKind.DELETE, 1))


def test_a_row_type_needs_as_many_different_names_as_types() -> None:
    with pytest.raises(ValueError, match="1 types but the names"):
        Types.ROW_NAMED(["a", "b"], [Types.INT()])
    with pytest.raises(ValueError, match="must differ"):
        Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])
