"""Columnar streams as programs: what is refused while they are built, what the plan says, and what types follow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common import Duration, Row, Types, WatermarkStrategy
from penstock.common.watermark_strategy import ColumnTimestampAssigner
from penstock.datastream import DataStream, MapBatchesFunction, StreamExecutionEnvironment
from penstock.datastream.aggregates import count, max_, mean, min_, sum_
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.errors import JobDefinitionError, JobFailedError

PAYMENT = Types.ROW_NAMED(["user", "amount", "at"], [Types.STRING(), Types.INT(), Types.LONG()])
DATA = [("ann", 3, 1000), ("bob", 1, 2000), ("ann", 4, 3000), ("ann", 5, 9000)]
BY_COLUMN = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ColumnTimestampAssigner("at"))
BY_NOBODY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ColumnTimestampAssigner("nobody"))
TUMBLING: Any = TumblingEventTimeWindows(5000, 0)


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


def typed(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection(DATA, PAYMENT)


def untyped(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([Row(user=user, amount=amount, at=at) for user, amount, at in DATA])


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as results:
        return list(results)


# -------------------------------------------------------------------- programs


@pytest.mark.parametrize("source", [typed, untyped])
def test_a_chain_of_column_verbs_gives_the_same_whether_the_type_is_declared_or_not(env: Any, source: Any) -> None:
    stream = (
        source(env)
        .assign_timestamps_and_watermarks(BY_COLUMN)
        .filter(pc.field("amount") > 1)
        .with_column("cents", pc.field("amount") * 100)
        .select("user", "cents")
        .key_by("user")
        .window(TUMBLING)
        .agg(n=count(), cents=sum_("cents"), most=max_("cents"), least=min_("cents"), mean=mean("cents"))
    )
    assert sorted(map(tuple, collected(stream))) == [
        ("ann", 0, 5000, 2, 700, 400, 300, 350.0),
        ("ann", 5000, 10000, 1, 500, 500, 500, 500.0),
    ]


def test_a_chain_may_mix_functions_over_rows_and_over_columns(env: StreamExecutionEnvironment) -> None:
    def cents(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"user": batch["user"], "cents": pc.multiply(batch["amount"], 100).cast(pa.int64())})

    stream = (
        typed(env.set_parallelism(1))
        .map(lambda row: (row[0].upper(), row[1], row[2]), output_type=PAYMENT)  # rows
        .map_batches(cents, Types.ROW_NAMED(["user", "cents"], [Types.STRING(), Types.LONG()]))  # columns
        .filter(lambda row: row.user == "ANN")  # rows again
        .key_by("user")
        .reduce(lambda a, b: Row(user=a.user, cents=a.cents + b.cents))
        .filter(pc.field("cents") > 300)
    )
    assert [row.cents for row in collected(stream)] == [700, 1200]


@pytest.mark.parametrize("key", [("user", "at"), (["user", "at"],)])
@pytest.mark.parametrize("source", [typed, untyped])
def test_keys_of_several_columns_are_given_one_by_one_or_as_a_list(env: Any, source: Any, key: Any) -> None:
    stream = source(env).assign_timestamps_and_watermarks(BY_COLUMN).key_by(*key).window(TUMBLING).agg(n=count())
    assert sorted(tuple(row)[:2] for row in collected(stream)) == sorted((user, at) for user, _, at in DATA)


def test_columns_of_a_tuple_are_f0_f1_also_when_its_records_are_rows(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("ann", 1), ("bob", 2), ("ann", 3)], Types.TUPLE([Types.STRING(), Types.INT()]))
    assert sorted(collected(pairs.key_by("f0").reduce(lambda a, b: (a[0], a[1] + b[1])))) == [
        ("ann", 1),
        ("ann", 4),
        ("bob", 2),
    ]
    pairs = env.from_collection([("ann", 1), ("bob", 2)], Types.TUPLE([Types.STRING(), Types.INT()]))
    projected = pairs.filter(pc.field("f1") > 1).project(1, 0, 1)
    assert str(projected.get_type()) == "TupleTypeInfo(Integer, String, Integer)"
    assert collected(projected) == [(2, "bob", 2)]


@pytest.mark.parametrize("lateness", [0, 1])
def test_sessions_have_the_same_columns_over_columns_and_row_by_row(
    lateness: int, env: StreamExecutionEnvironment
) -> None:
    stream = typed(env).assign_timestamps_and_watermarks(BY_COLUMN).key_by("user")
    sessions = stream.window(EventTimeSessionWindows(4000)).allowed_lateness(lateness)
    windows = sessions.agg(n=count(), total=sum_("amount"), mean=mean("amount"))
    assert windows._node.columnar is (lateness == 0)
    assert sorted(map(tuple, collected(windows))) == [
        ("ann", 1000, 7000, 2, 7, 3.5),
        ("ann", 9000, 13000, 1, 5, 5.0),
        ("bob", 2000, 6000, 1, 1, 1.0),
    ]


def test_sessions_of_a_union_are_of_both_streams(env: StreamExecutionEnvironment) -> None:
    later = typed(env).with_column("at", pc.field("at") + 4000)
    both = (
        typed(env)
        .union(later)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(60)).with_timestamp_assigner(
                ColumnTimestampAssigner("at")
            )
        )
    )
    windows = both.key_by("user").window(EventTimeSessionWindows(4000)).agg(n=count(), total=sum_("amount"))
    assert windows._node.columnar
    assert sorted(map(tuple, collected(windows))) == [("ann", 1000, 17_000, 6, 24), ("bob", 2000, 10_000, 2, 2)]


def test_aggregates_with_an_evictor_are_over_what_it_left(env: StreamExecutionEnvironment) -> None:
    windows = typed(env).assign_timestamps_and_watermarks(BY_COLUMN).key_by("user").window(TUMBLING)
    stream = windows.evictor(CountEvictor.of(1)).agg(total=sum_("amount"))
    assert sorted(map(tuple, collected(stream))) == [("ann", 0, 5000, 4), ("ann", 5000, 10000, 5), ("bob", 0, 5000, 1)]


# -------------------------------------------------------------------- types


def test_types_follow_the_columns(env: StreamExecutionEnvironment) -> None:
    stream = typed(env).select("at", "amount").with_column("half", pc.field("amount").cast(pa.float64()) / 2)
    assert str(stream.get_type()) == "RowTypeInfo(at: Long, amount: Integer, half: Double)"
    result = (
        typed(env)
        .key_by("user")
        .window(TUMBLING)
        .agg(n=count(), total=sum_("amount"), low=min_("amount"), mean=mean("amount"))
    )
    assert str(result.get_type()) == (
        "RowTypeInfo(user: String, window_start: Long, window_end: Long, n: Long, total: Long, low: Integer, mean: Double)"
    )
    assert typed(env).filter(pc.field("amount") > 3).get_type() == PAYMENT
    schema = pa.schema([("x", pa.float64())])
    assert str(typed(env).map_batches(lambda batch: batch, schema).get_type()) == "RowTypeInfo(x: Double)"


# -------------------------------------------------------------------- the plan


def test_the_plan_says_which_operators_work_on_columns(env: StreamExecutionEnvironment) -> None:
    stream = typed(env).assign_timestamps_and_watermarks(BY_COLUMN).select("user", "amount").map(tuple, PAYMENT)
    stream.key_by("user").window(TUMBLING).agg(n=count()).filter(pc.field("n") > 1).print()
    lines = [line.strip() for line in env.explain().splitlines()]
    assert "columns: Timestamps/Watermarks, Select" in lines
    assert "columns: Columnar Window(TumblingEventTimeWindows), Filter Columns" in lines
    assert not any(line.startswith("rows:") for line in lines)
    plan = {node["type"]: node["columnar"] for node in json.loads(env.get_execution_plan())["nodes"]}
    assert plan["Select"] == 1
    assert plan["Map"] == 0


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda s: s.key_by("user").window(EventTimeSessionWindows(5)).allowed_lateness(1),
            "sessions with an allowed lateness fire again for single records",
        ),
        (
            lambda s: s.key_by("user").window(ProcessingTimeSessionWindows(5)),
            "ProcessingTimeSessionWindows are neither made of panes nor sessions with one gap for all",
        ),
        (
            lambda s: s.key_by("user").window(EventTimeSessionWindows(2**63)),
            "its gap is longer than time",
        ),
        (lambda s: s.key_by("user").window(TUMBLING).trigger(CountTrigger(3)), "CountTrigger looks at single records"),
        (lambda s: s.key_by("user").window(TUMBLING).evictor(CountEvictor.of(3)), "an evictor looks at single records"),
        (lambda s: s.map(lambda r: r).key_by("user").window(TUMBLING), "the type of its input is not declared"),
        (
            lambda s: (
                s.map(tuple, Types.ROW_NAMED(["user", "x"], [Types.STRING(), Types.BIG_INT()]))
                .key_by("user")
                .window(TUMBLING)
            ),
            "RowTypeInfo(user: String, x: BigInteger) has no columns",
        ),
    ],
)
def test_a_window_that_falls_back_to_rows_says_why_in_the_plan(env: Any, build: Any, reason: str) -> None:
    build(typed(env).assign_timestamps_and_watermarks(BY_COLUMN)).agg(n=count()).print()
    assert any(
        line.strip().startswith("rows: Window(") and line.endswith(f"because {reason}")
        for line in env.explain().splitlines()
    )


@pytest.mark.parametrize(
    "assigner",
    [TUMBLING, SlidingEventTimeWindows(10, 5, 0), CumulativeEventTimeWindows(10, 5)],
    ids=lambda assigner: type(assigner).__name__,
)
def test_windows_of_panes_are_columnar_with_their_own_trigger(env: Any, assigner: Any) -> None:
    stream = typed(env).assign_timestamps_and_watermarks(BY_COLUMN).key_by("user")
    stream.window(assigner).trigger(EventTimeTrigger()).agg(n=count()).print()
    assert f"columns: Columnar Window({type(assigner).__name__})" in env.explain()


# -------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda s: s.key_by("nobody"),
            r"key_by: the stream has no column 'nobody'; its columns are \['user', 'amount', 'at'\]",
        ),
        (lambda s: s.assign_timestamps_and_watermarks(BY_NOBODY), r"assign_timestamps.*no column 'nobody'"),
        (lambda s: s.select("user", "nobody"), r"select: the stream has no column 'nobody'"),
        (lambda s: s.select(), r"select takes the names of columns"),
        (lambda s: s.select("user", "user"), r"a column can be in the result once"),
        (lambda s: s.filter(pc.field("nobody") > 1), r"filter: .*nobody.* does not fit the columns.*user: string"),
        (lambda s: s.filter(pc.field("user") > 1), r"does not fit the columns"),
        (lambda s: s.filter(pc.field("amount") + 1), r"is true, but it is of type int32"),
        (lambda s: s.with_column("x", pc.field("nobody")), r"with_column: .*nobody.* does not fit"),
        (lambda s: s.with_column("x", 3), r"a pyarrow.compute Expression, not 3"),
        (lambda s: s.map_batches(3, pa.schema([("x", pa.int64())])), r"map_batches takes a function"),
        (lambda s: s.map_batches(MapBatchesFunction, pa.schema([("x", pa.int64())])), r"map_batches takes a function"),
        (lambda s: s.map_batches(len, Types.LONG()), r"map_batches declares the columns"),
        (lambda s: s.map_batches(len, pa.schema([])), r"map_batches declares the columns"),
        (
            lambda s: s.map(len).map_batches(len, pa.schema([("x", pa.int64())])),
            r"this stream is of Python objects: declare",
        ),
        (lambda s: s.key_by("user").window(TUMBLING).agg(n=sum_("nobody")), r"agg: the stream has no column 'nobody'"),
        (lambda s: s.key_by("user").window(TUMBLING).agg(), r"at least one aggregate"),
        (lambda s: s.key_by("user").window(TUMBLING).agg(user=count()), r"several columns named \['user'\]"),
        (lambda s: s.key_by("user").window(TUMBLING).agg(n=3), r"must be count\(\)"),
        (lambda s: s.key_by(len).window(TUMBLING).agg(n=count()), r"key_by column names"),
        (lambda s: s.key_by("user").window(GlobalWindows()).agg(n=count()), r"those of GlobalWindows have none"),
    ],
)
def test_misuse_is_refused_while_the_program_is_built(env: Any, build: Any, message: str) -> None:
    with pytest.raises(JobDefinitionError, match=message):
        build(typed(env))


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.key_by("nobody").reduce(max),
        lambda s: s.assign_timestamps_and_watermarks(BY_NOBODY),
        lambda s: s.select("nobody"),
    ],
)
def test_an_unknown_column_of_a_stream_without_a_type_fails_by_name(env: Any, build: Any) -> None:
    with pytest.raises(JobFailedError, match="no column 'nobody'"):
        collected(build(untyped(env)))
