"""`select` of joins as programs: what is refused while they are built, what the plan says, and that both paths agree in jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import ColumnTimestampAssigner
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.errors import JobDefinitionError

ORDER = Types.ROW_NAMED(["id", "user", "at"], [Types.LONG(), Types.STRING(), Types.LONG()])
PAYMENT = Types.ROW_NAMED(["order", "cents", "at"], [Types.INT(), Types.LONG(), Types.LONG()])
ORDERS = [(number % 13, f"user {number % 5}", number * 37 % 900) for number in range(60)]
PAYMENTS = [(number * 7 % 17, number, number * 53 % 1000) for number in range(80)]
BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ColumnTimestampAssigner("at"))
TUMBLING: Any = TumblingEventTimeWindows(100, 0)
SELECTED: Any = {"left": ["id", "user"], "right": {"cents": "cents", "paid_at": "at"}}


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


def streams(env: StreamExecutionEnvironment, *, typed: bool = True) -> tuple[DataStream, DataStream]:
    """Sorted, so that nobody is late: what is late depends on how the two are read."""
    made = []
    for data, kind in ((ORDERS, ORDER), (PAYMENTS, PAYMENT)):
        ordered: list[Any] = sorted(data, key=lambda record: record[2])
        rows = [Row(**dict(zip(kind.get_field_names(), record, strict=True))) for record in ordered]
        source = env.from_collection(ordered, kind) if typed else env.from_collection(rows)
        made.append(source.assign_timestamps_and_watermarks(BY_TIME))
    return made[0], made[1]


def windowed(streams: tuple[DataStream, DataStream], assigner: Any = TUMBLING) -> Any:
    return streams[0].join(streams[1]).where("id").equal_to("order").window(assigner)


def near(streams: tuple[DataStream, DataStream]) -> Any:
    return (
        streams[0]
        .key_by("id")
        .interval_join(streams[1].key_by("order"))
        .between(Time.milliseconds(-40), Time.milliseconds(70))
    )


def results(stream: DataStream) -> Counter[Any]:
    with stream.execute_and_collect() as collected:
        rows = list(collected)
    assert all(row._fields == ["id", "user", "cents", "paid_at"] for row in rows)
    return Counter(tuple(row) for row in rows)


def pairs(condition: Any) -> Counter[Any]:
    return Counter(
        (id_, user, cents, paid_at)
        for id_, user, at in ORDERS
        for order, cents, paid_at in PAYMENTS
        if order == id_ and condition(at, paid_at)
    )


@pytest.mark.parametrize("typed", [True, False])
def test_a_window_join_gives_the_same_on_columns_and_on_objects(env: Any, typed: bool) -> None:
    joined = windowed(streams(env, typed=typed)).select(**SELECTED)
    assert ("columns: Columnar Join(TumblingEventTimeWindows)" in env.explain()) == typed
    expected = pairs(lambda one, other: one // 100 == other // 100)
    assert expected
    assert results(joined) == expected


@pytest.mark.parametrize("typed", [True, False])
def test_an_interval_join_gives_the_same_on_columns_and_on_objects(env: Any, typed: bool) -> None:
    joined = near(streams(env, typed=typed)).lower_bound_exclusive().upper_bound_exclusive().select(**SELECTED)
    assert ("columns: Columnar Interval Join" in env.explain()) == typed
    assert results(joined) == pairs(lambda one, other: -40 < other - one < 70)


def test_a_join_over_all_time_gives_every_pair(env: Any) -> None:
    left, right = streams(env)
    assert results(left.join(right).where("id").equal_to("order").select(**SELECTED)) == pairs(lambda *_: True)


def test_a_join_may_go_on_as_columns(env: Any) -> None:
    left, right = streams(env)
    joined = left.join(right).where("id").equal_to("order").select(left=["id"], right=["cents"])
    assert str(joined.get_type()) == str(Types.ROW_NAMED(["id", "cents"], [Types.LONG(), Types.LONG()]))
    with joined.select("cents").execute_and_collect() as rows:
        assert sum(1 for _ in rows) == pairs(lambda *_: True).total()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda windows: windows.trigger(CountTrigger.of(1)), "CountTrigger looks at single records"),
        (lambda windows: windows, "EventTimeSessionWindows are not made of panes"),
    ],
)
def test_the_plan_says_why_a_window_join_runs_on_rows(env: Any, change: Any, why: str) -> None:
    assigner = TUMBLING if "Trigger" in why else EventTimeSessionWindows.with_gap(Time.milliseconds(5))
    change(windowed(streams(env), assigner)).select(**SELECTED).print()
    assert f"rows: Join({type(assigner).__name__}), because {why}" in env.explain()


def test_the_plan_says_why_an_interval_join_runs_on_rows(env: Any) -> None:
    left, right = streams(env)
    keyed = left.key_by(lambda order: order.id).interval_join(right.key_by("order"))
    keyed.between(Time.milliseconds(-40), Time.milliseconds(70)).select(**SELECTED).print()
    near(streams(env, typed=False)).select(**SELECTED).print()
    plan = env.explain()
    assert "rows: Interval Join, because a key is a function of a record" in plan
    assert "rows: Interval Join, because the type of the left input is not declared" in plan


def test_a_window_join_of_a_keyed_stream_goes_by_the_keys_of_where(env: Any) -> None:
    left, right = streams(env)
    joined = windowed((left.key_by("user"), right.key_by("cents")), SlidingEventTimeWindows(100, 100, 0))
    assert results(joined.select(**SELECTED)) == pairs(lambda one, other: one // 100 == other // 100)


@pytest.mark.parametrize(
    ("selected", "message"),
    [
        ({"left": ["id", "at"], "right": ["at"]}, r"both streams give a column 'at' .* right=\{'right_at': 'at'\}"),
        ({"left": ["id", "nobody"]}, "no column 'nobody'"),
        ({"right": {"new": "nobody"}}, "no column 'nobody'"),
        ({"left": ["id", "id"]}, "each once"),
        ({"left": "id"}, "left takes names of columns"),
        ({"right": {"new": 1}}, "right takes names of columns"),
        ({}, "the result has no columns"),
    ],
)
def test_columns_that_cannot_be_the_result_are_refused_while_the_program_is_built(
    env: Any, selected: Any, message: str
) -> None:
    left, right = streams(env)
    for joined in (windowed((left, right)), near((left, right)), left.join(right).where("id").equal_to("order")):
        with pytest.raises(JobDefinitionError, match=message):
            joined.select(**selected)


def test_keys_that_cannot_be_compared_are_refused_while_the_program_is_built(env: Any) -> None:
    left, right = streams(env)
    with pytest.raises(JobDefinitionError, match=r"'user' of the left stream is of string and 'order' .* of int32"):
        left.join(right).where("user").equal_to("order").select(left=["id"])
    with pytest.raises(JobDefinitionError, match="name as many columns of each"):
        left.join(right).where(["id", "at"]).equal_to("order").select(left=["id"])


def test_a_join_over_all_time_of_objects_is_refused(env: Any) -> None:
    left, right = streams(env, typed=False)
    with pytest.raises(JobDefinitionError, match="works on columns, but the type of the left input is not declared"):
        left.join(right).where("id").equal_to("order").select(left=["id"])
    left, right = streams(env)
    with pytest.raises(JobDefinitionError, match="works on columns, but a key is a function"):
        left.join(right).where(lambda order: order.id).equal_to("order").select(left=["id"])
    assert not hasattr(left.co_group(right).where("id").equal_to("order"), "select")
