"""print() shows records of a declared type as Flink's Java does."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

from penstock.common import Configuration, Row, TypeInformation, Types
from penstock.common.java_text import java_text
from penstock.connectors import DiscardingSink
from penstock.datastream import StreamExecutionEnvironment


@pytest.mark.parametrize(
    ("value", "declared", "text"),
    [
        (Row("a", None, True), Types.ROW([Types.STRING(), Types.INT(), Types.BOOLEAN()]), "+I[a, null, true]"),
        (("a", 1), Types.TUPLE([Types.STRING(), Types.INT()]), "(a,1)"),
        ([1, 2], Types.LIST(Types.INT()), "[1, 2]"),
        ({"k": (1,)}, Types.MAP(Types.STRING(), Types.TUPLE([Types.INT()])), "{k=(1)}"),
        (b"\x01\xff", Types.PRIMITIVE_ARRAY(Types.BYTE()), "[1, -1]"),
        (1.0, Types.DOUBLE(), "1.0"),
        (100.0, Types.DOUBLE(), "100.0"),
        (1e10, Types.DOUBLE(), "1.0E10"),
        (-1.25e-5, Types.DOUBLE(), "-1.25E-5"),
        (float("nan"), Types.DOUBLE(), "NaN"),
        (0.10000000149011612, Types.FLOAT(), "0.1"),
        (decimal.Decimal("1000000000000000000.05"), Types.BIG_DEC(), "1000000000000000000.05"),
        (datetime.datetime(2020, 4, 15, 8, 2, 6, 235000), Types.SQL_TIMESTAMP(), "2020-04-15 08:02:06.235"),
        (datetime.time(12, 0, 0, 123000), Types.SQL_TIME(), "12:00:00"),
        (datetime.date(2014, 9, 13), Types.SQL_DATE(), "2014-09-13"),
        (("a", True), Types.PICKLED_BYTE_ARRAY(), "('a', True)"),
        (("a", True), None, "('a', True)"),
    ],
    ids=str,
)
def test_a_value_is_shown_as_java_shows_it(value: Any, declared: TypeInformation | None, text: str) -> None:
    assert java_text(value, declared) == text


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.runtime": "embedded"})
    )


def test_a_printed_stream_has_flinks_lines(capsys: pytest.CaptureFixture[str]) -> None:
    env = environment()
    pairs = env.from_collection([("a", 1)], Types.ROW([Types.STRING(), Types.INT()]))
    pairs.print()
    pairs.map(lambda row: (row.f0, row.f1)).print("pairs")
    env.execute()
    assert sorted(capsys.readouterr().out.splitlines()) == ["+I[a, 1]", "pairs> ('a', 1)"]


def test_a_discarding_sink_takes_everything() -> None:
    env = environment()
    env.from_sequence(1, 100).sink_to(DiscardingSink())
    env.from_collection(["a"]).add_sink(DiscardingSink())
    env.execute()
