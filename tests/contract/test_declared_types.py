"""A value that is not of its declared type fails the job, whatever the path and the block size; it is never cast."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common import Configuration, Row, Types
from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from penstock.connectors.files import FileSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.aggregates import count
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import PenstockError

NOON = datetime.datetime(2026, 1, 2, 12)

WRONG: list[tuple[TypeInformation, Any, Any, str]] = [  # (declared, a value of it, another value, its Arrow type)
    (Types.LONG(), 4, 2.5, "int64"),
    (Types.LONG(), 4, 4.0, "int64"),
    (Types.LONG(), 4, Decimal("2.5"), "int64"),
    (Types.LONG(), 2**63 - 1, 2**63, "int64"),
    (Types.INT(), 4, 2**31, "int32"),
    (Types.STRING(), "a", b"a", "string"),
    (Types.SQL_DATE(), NOON.date(), NOON, "date32[day]"),
    (Types.SQL_TIMESTAMP(), NOON, NOON.replace(tzinfo=datetime.UTC), "timestamp[us]"),
    (Types.LIST(Types.LONG()), [4], [4, 2.5], "list<item: int64>"),
    (Types.FLOAT(), 0.5, 1e300, "float"),
]


class At(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 1


PATHS: dict[str, Callable[[DataStream], DataStream]] = {
    "chained": lambda s: s.map(lambda v: v),
    "exchanged": lambda s: s.rebalance().map(lambda v: v),
    "keyed": lambda s: s.key_by(lambda v: 1).reduce(lambda a, b: b),
    "expression": lambda s: s.filter(pc.field("n") >= 0),
    "window over columns": lambda s: (
        s.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks().with_timestamp_assigner(At()))
        .key_by("n")
        .window(TumblingEventTimeWindows(10, 0))
        .agg(count=count())
    ),
}


def _run(values: list[Any], declared: TypeInformation, path: str, block_size: int, tuples: bool) -> list[Any]:
    config = {"penstock.runtime": "embedded", "penstock.block.size": str(block_size)}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(config))
    types = [Types.LONG(), declared]
    output_type = Types.TUPLE(types) if tuples else Types.ROW_NAMED(["n", "v"], types)
    names = ("f0", "f1") if tuples else ("n", "v")

    def made(index: int) -> Any:
        return (index, values[index]) if tuples else Row(n=index, v=values[index])

    stream = env.from_collection(list(range(len(values)))).map(made, output_type=output_type)
    if tuples:
        stream = stream.select(*names).map(lambda v: v) if path == "expression" else stream
        path = "exchanged" if path in ("expression", "window over columns") else path
    with PATHS[path](stream).execute_and_collect() as results:
        return list(results)


@pytest.mark.parametrize("block_size", [1, 2, 100])
@pytest.mark.parametrize("path", list(PATHS))
@pytest.mark.parametrize(("declared", "good", "bad", "kind"), WRONG, ids=[f"{w[0]}-{w[2]!r}" for w in WRONG])
def test_a_value_of_another_type_fails_the_job(
    declared: TypeInformation, good: Any, bad: Any, kind: str, path: str, block_size: int
) -> None:
    assert len(_run([good, None, good], declared, path, block_size, False)) == 3
    with pytest.raises(PenstockError) as caught:
        _run([good, None, bad, good], declared, path, block_size, False)
    message = str(caught.value)
    assert "operator 'Map' (" in message
    assert "test_declared_types.py:" in message  # the line of the program that declares the type
    assert f"gave Row(n=2, v={bad!r}): field 'v' is {bad!r}" in message
    assert f"is not exactly a value of {kind}" in message


@pytest.mark.parametrize("path", ["chained", "exchanged", "keyed"])
def test_tuples_are_held_to_their_type_too(path: str) -> None:
    assert _run([4, 5], Types.LONG(), path, 100, True) == [(0, 4), (1, 5)]
    with pytest.raises(PenstockError, match=r"gave \(1, 2\.5\): field 'f1' is 2\.5, a float, .* int64"):
        _run([4, 2.5], Types.LONG(), path, 100, True)


@pytest.mark.parametrize("path", ["chained", "exchanged"])
@pytest.mark.parametrize("bad", [None, 5, Row(n=1), ("too", "many", "fields")])
def test_what_is_no_row_of_the_type_fails_the_job(path: str, bad: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.runtime": "embedded"})
    )
    declared = Types.ROW_NAMED(["n", "v"], [Types.LONG(), Types.LONG()])
    stream = env.from_collection([Row(n=1, v=2), bad]).map(lambda v: v, output_type=declared)
    with pytest.raises(PenstockError, match="declares the type RowTypeInfo"):
        list(PATHS[path](stream).execute_and_collect())


def test_integers_are_taken_where_floats_are_declared_and_come_back_as_floats() -> None:
    found = _run([3, 0.5], Types.DOUBLE(), "exchanged", 100, False)
    assert [row.v for row in found] == [3.0, 0.5]
    with pytest.raises(PenstockError, match=r"field 'v' is 9007199254740993, a int, is not exactly a value of double"):
        _run([2**53 + 1], Types.DOUBLE(), "chained", 100, False)


@pytest.mark.parametrize("record", [(1, 2.5), {"n": 1, "v": 2.5}])
def test_a_file_sink_with_a_schema_casts_nothing(record: Any, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.runtime": "embedded", "penstock.job.dir": str(tmp_path / "job")})
    )
    schema = pa.schema([("n", pa.int64()), ("v", pa.int64())])
    env.from_collection([record]).sink_to(FileSink.parquet(tmp_path / "out", schema))
    with pytest.raises(
        PenstockError, match=r"does not fit the schema .*2\.5, a float, is not exactly a value of int64"
    ):
        env.execute()
