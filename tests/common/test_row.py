from __future__ import annotations

import copy
import pickle

import pytest

from penstock.common import Row, RowKind


def test_named_fields_are_read_by_position_attribute_and_key() -> None:
    row = Row(name="Alice", age=11)
    assert (row[0], row.age, row["name"], row[-1]) == ("Alice", 11, "Alice", 11)
    assert "name" in row
    assert "Alice" not in row
    assert "Alice" in Row("Alice")


def test_a_row_without_names_makes_rows_with_names() -> None:
    person = Row("name", "age")
    assert repr(person) == "<Row('name', 'age')>"
    assert repr(person("Alice", 11)) == "Row(name='Alice', age=11)"
    with pytest.raises(ValueError, match="names 2 fields but got 3 values"):
        person(1, 2, 3)


def test_equality_compares_values_by_name_and_needs_the_same_kind() -> None:
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert Row(a=1, b=2) != Row(a=2, b=1)
    assert Row(1, 2) != Row(a=1, b=2)
    assert Row(1, 2) != (1, 2)
    assert Row(1) != Row.of_kind(RowKind.DELETE, 1)


def test_equal_rows_have_equal_hashes_whatever_the_order_of_their_fields() -> None:
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))
    assert len({Row("x", 1), Row("x", 1), Row("x", 2)}) == 2
    with pytest.raises(TypeError):
        hash(Row([1]))


@pytest.mark.parametrize("row", [Row(1, "a"), Row(a=1, b=Row(c=2)), Row.of_kind(RowKind.UPDATE_AFTER, x=1)])
def test_rows_survive_pickle_and_copy(row: Row) -> None:
    for other in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert other == row
        assert other.get_row_kind() is row.get_row_kind()
        assert repr(other) == repr(row)


def test_fields_are_set_by_position_or_key_but_not_as_attributes() -> None:
    row = Row(a=1, b=2)
    row[0] = 10
    row["b"] = 20
    assert list(row) == [10, 20]
    with pytest.raises(AttributeError):
        setattr(row, "a", 5)  # noqa: B010 - the assignment the type checker would refuse
    with pytest.raises(ValueError):
        row["missing"]
    with pytest.raises(AttributeError):
        _ = row.missing


def test_as_dict_can_reach_into_nested_rows() -> None:
    row = Row(key=1, value=Row(name="a"), more=[Row(x=1)])
    assert row.as_dict() == {"key": 1, "value": Row(name="a"), "more": [Row(x=1)]}
    assert row.as_dict(True) == {"key": 1, "value": {"name": "a"}, "more": [{"x": 1}]}
    with pytest.raises(TypeError, match="no field names"):
        Row(1).as_dict()


def test_row_kinds_have_short_names() -> None:
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_positional_and_named_values_cannot_be_mixed() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)


def test_a_name_that_one_row_has_is_read_from_no_other() -> None:
    assert (Row(first=1, price=2).price, Row(price=3, first=1).price) == (2, 3)
    for other in (Row(1, 2), Row(cost=2)):
        assert not hasattr(other, "price")
        with pytest.raises(AttributeError, match=r"^price$"):
            _ = other.price
    renamed = Row(price=1)
    renamed.set_field_names(["cost"])
    assert renamed.cost == 1
    assert not hasattr(renamed, "price")
    with pytest.raises(AttributeError):
        setattr(Row(price=1), "price", 5)  # noqa: B010 - the assignment the type checker would refuse


def test_a_field_that_is_called_like_a_method_is_read_by_key() -> None:
    row = Row(as_dict=1, keys=2)
    assert row.as_dict() == {"as_dict": 1, "keys": 2}
    assert (row["as_dict"], row.keys) == (1, 2)


def test_names_without_end_do_not_stay() -> None:
    assert [getattr(Row(**{f"name{number}": number}), f"name{number}") for number in range(3_000)] == list(range(3_000))
    assert len([name for name in vars(Row) if name.startswith("name")]) <= 1_000
