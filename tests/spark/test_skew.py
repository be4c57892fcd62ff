"""All records of one key, and nearly all of one key: exact, and the slots' memory does not follow the number of records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

pytestmark = pytest.mark.spark

RECORDS = 50_000
EPOCHS = 10
WINDOW_MS = 5_000
HOT = -1
# The second half of the records alone is 50 MB: one copy of each would be seen.
MAY_GROW = 32 << 20


def record(index: int) -> tuple[int, str]:
    return index, "x" * 2000


class Measure(KeyedProcessFunction):
    """Numbers the records of a key; at times says how large the process is."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.process = psutil.Process()

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        if number % 1_000 == 0:
            yield "size", number, self.process.memory_info().rss


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Named(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, *elements


@pytest.mark.parametrize("others", [0, 20], ids=["one key", "every twentieth record has a key of its own"])
def test_one_key_and_a_skewed_key_are_exact_in_bounded_memory(
    others: int, spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    def key(value: tuple[int, str]) -> int:
        return value[0] if others and value[0] % others == 0 else HOT

    configuration.set_string("penstock.epoch.max-records", str(RECORDS // EPOCHS))
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    source = DataGeneratorSource(record, RECORDS, splits=2, timestamp_of=lambda value: value[0])
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
    keyed = env.from_source(source, strategy, "records").key_by(key)
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))).aggregate(Count(), Named())
    with keyed.process(Measure()).union(windows).execute_and_collect() as results:
        found = list(results)

    sizes = {number: size for kind, number, size in found if kind == "size"}
    hot = RECORDS - (RECORDS // others if others else 0)
    assert sorted(sizes) == list(range(1_000, hot + 1, 1_000))
    half = max(size for number, size in sizes.items() if number <= hot // 2)
    assert max(sizes.values()) <= half + MAY_GROW
    expected = Counter((key((index, "")), index - index % WINDOW_MS) for index in range(RECORDS))
    given = [row for row in found if row[0] != "size"]
    assert len(given) == len(expected)
    assert {(user, start): count for user, start, count in given} == expected
    reports = [json.loads(line) for line in (tmp_path / "job" / "epochs.jsonl").read_text().splitlines()]
    assert sum(report["checkpoint"] for report in reports) >= EPOCHS
