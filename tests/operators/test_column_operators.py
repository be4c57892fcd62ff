"""Select, filter, with_column and map_batches: on columns whole blocks at a time, on rows the same answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common import Row, Types
from penstock.datastream.functions import MapBatchesFunction, RuntimeContext
from penstock.errors import PenstockError, UserFunctionError
from penstock.operators.base import Operator
from penstock.operators.column_operators import (
    FilterColumnsOperator,
    MapBatchesOperator,
    SelectOperator,
    WithColumnOperator,
)
from penstock.records import Block, Columns, Rows
from penstock.testing.harness import OperatorHarness

NAMED = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.LONG()])
DATA = [("ann", 3), ("bob", None), ("cid", 5)]
TIMES = [10, 20, 30]


@dataclass
class Payment:
    user: str
    amount: int | None


class PaymentTuple(NamedTuple):
    user: str
    amount: int | None


def columns(stamped: bool = True) -> Columns:
    users, amounts = zip(*DATA, strict=True)
    batch = pa.record_batch({"user": pa.array(users), "amount": pa.array(amounts, pa.int64())})
    return Columns(batch, np.array(TIMES) if stamped else None)


def objects(make: Callable[[Any, Any], Any]) -> Rows:
    return Rows([make(user, amount) for user, amount in DATA], list(TIMES))


# name → (a block of the same three records, its declared type)
BLOCKS: dict[str, tuple[Block, Any]] = {
    "columns": (columns(), None),
    "typed columns": (columns(), NAMED),
    "typed tuples": (objects(lambda user, amount: (user, amount)), NAMED),
    "typed rows": (objects(lambda user, amount: Row(user=user, amount=amount)), NAMED),
    "rows": (objects(lambda user, amount: Row(user=user, amount=amount)), None),
    "dicts": (objects(lambda user, amount: {"user": user, "amount": amount}), None),
    "dataclasses": (objects(Payment), None),
    "named tuples": (objects(PaymentTuple), None),
}
every_kind = pytest.mark.parametrize("kind", list(BLOCKS))


def run(operator: Operator, block: Block) -> OperatorHarness:
    return OperatorHarness(operator).push_block(block)


@every_kind
def test_a_filter_keeps_rows_for_which_the_expression_is_true_and_drops_nulls(kind: str) -> None:
    block, declared = BLOCKS[kind]
    harness = run(FilterColumnsOperator(pc.field("amount") > 3, declared), block)
    ((value, stamp),) = harness.records()
    assert (getattr(value, "user", None) or value[0 if isinstance(value, tuple) else "user"], stamp) == ("cid", 30)
    if isinstance(block, Columns):
        assert isinstance(harness.output.blocks[0], Columns)
    else:
        assert value is block.values[2]
    assert (harness.metrics.records_in, harness.metrics.records_out) == (3, 1)


@every_kind
def test_select_gives_named_rows_of_the_chosen_columns_in_their_order(kind: str) -> None:
    block, declared = BLOCKS[kind]
    positions = None if declared is None else (1, 0)
    harness = run(SelectOperator(("amount", "user"), ("amount", "user"), positions), block)
    expected = [(Row(amount=amount, user=user), time) for (user, amount), time in zip(DATA, TIMES, strict=True)]
    assert harness.records() == expected
    assert isinstance(harness.output.blocks[0], Columns) is isinstance(block, Columns)


@every_kind
def test_a_computed_column_is_added_at_the_end_or_takes_the_place_of_its_name(kind: str) -> None:
    block, declared = BLOCKS[kind]
    added = run(WithColumnOperator("double", pc.field("amount") * 2, declared), block)
    assert added.values() == [
        Row(user=user, amount=amount, double=None if amount is None else 2 * amount) for user, amount in DATA
    ]
    replaced = run(WithColumnOperator("user", pc.utf8_upper(pc.field("user")), declared), block)
    assert replaced.records() == [
        (Row(user=user.upper(), amount=amount), time) for (user, amount), time in zip(DATA, TIMES, strict=True)
    ]


def test_fields_of_a_record_without_names_are_f0_f1() -> None:
    block = Rows([("ann", 3), ("bob", 5)])
    assert run(FilterColumnsOperator(pc.field("f1") > 3), block).values() == [("bob", 5)]
    assert run(SelectOperator(("f1",), ("f1",)), block).values() == [Row(f1=3), Row(f1=5)]


def test_records_of_which_only_some_have_a_timestamp_are_filtered_as_well() -> None:
    block = Rows([("ann", 3), ("bob", 5)], [None, 7])
    assert run(FilterColumnsOperator(pc.field("amount") > 3, NAMED), block).records() == [(("bob", 5), 7)]


def test_an_expression_over_objects_that_arrow_cannot_hold_sees_the_other_columns() -> None:
    block = Rows([{"x": 1, "thing": object()}, {"x": 2, "thing": object()}])
    assert [value["x"] for value in run(FilterColumnsOperator(pc.field("x") > 1), block).values()] == [2]
    with pytest.raises(UserFunctionError, match=r"over the columns \['x'\].*thing"):
        run(FilterColumnsOperator(pc.field("thing").is_valid()), block)


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    with pytest.raises(
        UserFunctionError, match=r"(?s)nobody.*over the columns \['user', 'amount'\] of operator 'Filter"
    ):
        run(FilterColumnsOperator(pc.field("nobody") > 3), columns())
    with pytest.raises(PenstockError, match=r"column 'nobody' is not in the stream.*\['user', 'amount'\]"):
        run(SelectOperator(("nobody",), ("nobody",)), columns())
    with pytest.raises(PenstockError, match=r"has no column 'nobody'"):
        run(SelectOperator(("nobody",), ("nobody",)), Rows([{"user": 1}]))


def test_a_filter_by_something_else_than_truth_is_refused() -> None:
    with pytest.raises(PenstockError, match="is of type int64"):
        run(FilterColumnsOperator(pc.field("amount") + 1), columns())


# -------------------------------------------------------------------- map_batches

DOUBLED = pa.schema([("user", pa.string()), ("double", pa.int64())])


def doubled(batch: pa.RecordBatch) -> Any:
    return pa.table({"user": batch["user"], "double": pc.multiply(batch["amount"], 2)})


def mapped(function: Any, schema: pa.Schema = DOUBLED, declared: Any = None) -> Operator:
    return MapBatchesOperator(function, declared, schema)


def test_a_result_of_as_many_rows_keeps_the_timestamps() -> None:
    harness = run(mapped(doubled), columns())
    (block,) = harness.output.blocks
    assert isinstance(block, Columns)
    assert block.batch.to_pydict() == {"user": ["ann", "bob", "cid"], "double": [6, None, 10]}
    assert block.timestamps is not None
    assert block.timestamps.tolist() == TIMES
    assert (harness.metrics.records_in, harness.metrics.records_out) == (3, 3)


def test_rows_of_a_declared_type_become_a_batch_and_others_are_refused() -> None:
    assert run(mapped(doubled, declared=NAMED), Rows([("ann", 3)], [5])).records() == [(Row(user="ann", double=6), 5)]
    with pytest.raises(PenstockError, match="works on columns but was given rows"):
        run(mapped(doubled), Rows([("ann", 3)]))


class Valid(MapBatchesFunction):
    """Drops rows without an amount, and moves the others by a second; counts calls to open."""

    opened = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened += 1

    def map_batch(self, batch: pa.RecordBatch, timestamps: pa.Int64Array | None) -> Any:
        assert self.opened == 1
        assert timestamps is not None
        keep = batch["amount"].is_valid()
        return doubled(batch).filter(keep), pc.add(timestamps.filter(keep), 1000)


def test_a_function_may_give_other_rows_with_timestamps_of_their_own() -> None:
    assert run(mapped(Valid()), columns()).records() == [
        (Row(user="ann", double=6), 1010),
        (Row(user="cid", double=10), 1030),
    ]


@pytest.mark.parametrize(
    "made",
    [
        [1010, 1020],
        np.array([1010, 1020]),
        pa.array([1010, 1020]),
        pa.chunked_array([[1010], [1020]]),
        pa.array([1_010_900, 1_020_900], pa.timestamp("us")),
    ],
    ids=lambda made: type(made).__name__,
)
def test_timestamps_are_milliseconds_or_arrow_timestamps_rounded_down(made: Any) -> None:
    harness = run(mapped(lambda batch: (doubled(batch).slice(0, 2), made)), columns())
    assert [stamp for _, stamp in harness.records()] == [1010, 1020]


def test_none_and_empty_results_are_nothing() -> None:
    assert run(mapped(lambda batch: None), columns()).output.blocks == []
    assert run(mapped(lambda batch: (doubled(batch).slice(0, 0), [])), columns()).output.blocks == []


def test_columns_may_come_in_any_order_and_leave_in_the_declared_one() -> None:
    harness = run(mapped(lambda batch: doubled(batch).select(["double", "user"])), columns())
    assert harness.output.blocks[0].batch.schema.names == ["user", "double"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: doubled(batch).slice(0, 2), r"made 2 rows of 3 and did not say.*timestamps"),
        (lambda batch: (doubled(batch), [1, 2]), r"timestamps that map_batches .* are 2, but its batch has 3 rows"),
        (lambda batch: (doubled(batch), [1, 2, None]), r"row 2 of this block has no event time"),
        (lambda batch: (doubled(batch), ["a", "b", "c"]), r"are not milliseconds"),
        (lambda batch: (doubled(batch), pa.array([1.5, 2.5, 3.5])), r"but is double"),
        (lambda batch: [1], r"must return a pyarrow RecordBatch or Table.*returned a list"),
        (
            lambda batch: batch,
            r"operator 'MapBatchesOperator' \(uid 'operator-under-test'\) declares the columns user: string, double: int64, "
            r"but returned user: string, amount: int64",
        ),
        (
            lambda batch: doubled(batch).cast(pa.schema([("user", pa.string()), ("double", pa.int32())])),
            r"double: int64, but returned user: string, double: int32",
        ),
        (lambda batch: 1 / 0, r"map_batches on 3 rows of user: string, amount: int64 of operator .*ZeroDivisionError"),
    ],
)
def test_a_wrong_result_is_an_error_that_says_what_was_expected_and_what_came(function: Any, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        run(mapped(function), columns())


def test_without_timestamps_the_number_of_rows_may_change() -> None:
    harness = run(mapped(lambda batch: doubled(batch).slice(0, 2)), columns(stamped=False))
    assert harness.records() == [(Row(user="ann", double=6), None), (Row(user="bob", double=None), None)]
