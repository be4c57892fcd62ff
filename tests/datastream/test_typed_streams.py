"""A type checker knows what a stream carries: `make check` reads this file, and a wrong annotation fails there.

At run time `assert_type` does nothing; the job only shows that the annotations tell the truth.
"""

from __future__ import annotations

from typing import Any, assert_type

import pytest

from penstock.common import Time, Types
from penstock.datastream import DataStream, KeyedStream, StreamExecutionEnvironment, WindowedStream
from penstock.datastream.window import TumblingProcessingTimeWindows


def length(word: str) -> int:
    return len(word)


def test_types_flow_through_the_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment()
    lines = env.from_collection(["to be", "or not to be"])
    assert_type(lines, DataStream[str])
    words = lines.flat_map(lambda line: line.split())
    assert_type(words, DataStream[str])
    long = words.rebalance().filter(lambda word: len(word) > 1).union(words.filter(lambda word: len(word) > 2))
    assert_type(long, DataStream[str])
    lengths = long.map(length)
    assert_type(lengths, DataStream[int])
    keyed = lengths.key_by(lambda n: str(n))
    assert_type(keyed, KeyedStream[int, str])
    sums = keyed.reduce(lambda a, b: a + b)
    assert_type(sums, DataStream[int])
    assert_type(sums.execute_and_collect(limit=1), list[int])
    with words.map(length).key_by(lambda n: n).reduce(lambda a, b: a + b).execute_and_collect() as results:
        found = list(results)
    assert_type(found, list[int])
    assert sorted(found) == [2, 3, 4, 6, 8, 10]


def test_windows_know_their_records_and_keys() -> None:
    numbers = StreamExecutionEnvironment.get_execution_environment().from_sequence(1, 9)
    assert_type(numbers, DataStream[int])
    windows = numbers.key_by(lambda n: n % 2 == 0).window(TumblingProcessingTimeWindows.of(Time.seconds(1)))
    assert_type(windows, WindowedStream[int, bool])
    assert_type(windows.reduce(lambda a, b: a + b), DataStream[int])


def test_a_declared_type_decides_what_records_are_so_the_checker_takes_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A function gives a tuple where a row is declared: behind an exchange there are rows."""
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment()
    named = Types.ROW_NAMED(["word"], [Types.STRING()])
    rows = env.from_collection(["to"]).map(lambda word: (word,), named)
    assert_type(rows, DataStream[Any])
    with rows.rebalance().map(lambda row: row["word"]).execute_and_collect() as results:
        assert list(results) == ["to"]
    assert_type(env.from_collection([("be",)], named), DataStream[Any])


def test_a_stream_without_a_parameter_is_one_of_anything() -> None:
    def total(stream: DataStream) -> DataStream:
        return stream.key_by(lambda record: record.key).reduce(lambda a, b: a)

    assert_type(total(StreamExecutionEnvironment.get_execution_environment().from_collection([])), DataStream[Any])
