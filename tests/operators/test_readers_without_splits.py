"""A subtask of a source that has no split does not hold event time where none can come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSource
from penstock.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.records.convert import to_rows


def environment(parallelism: int, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict(
        {"penstock.runtime": "embedded", "parallelism.default": str(parallelism), **settings}
    )
    return StreamExecutionEnvironment.get_execution_environment(configuration)


class Watermark(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield ctx.timer_service().current_watermark()


def by_value(stream: DataStream) -> DataStream:
    return stream.key_by(lambda value: value % 3).process(Watermark())


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


BY_VALUE = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByValue())


def seen(stream: DataStream) -> int:
    """The largest watermark below the end that a record found."""
    return max(int(value) for value in by_value(stream).execute_and_collect())


@pytest.mark.parametrize("splits", [1, 2])
def test_a_bounded_generator_with_fewer_splits_than_subtasks_lets_event_time_pass(splits: int) -> None:
    env = environment(4, **{"penstock.epoch.max-records": "10"})
    source = DataGeneratorSource(lambda index: index, 100, splits=splits, type_info=Types.LONG())
    assert seen(env.from_source(source, BY_VALUE, "numbers")) > 50


def test_fewer_files_than_subtasks_let_event_time_pass(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("".join(f"{n}\n" for n in range(2000)))
    env = environment(3, **{"penstock.epoch.max-records": "100"})
    source = FileSource.text(str(tmp_path / "numbers.txt"), max_bytes_per_epoch=500)
    assert seen(env.from_source(source, BY_VALUE, "files").map(int)) > 1000


def test_a_generator_has_a_split_for_every_subtask() -> None:
    env = environment(2)
    stream = env.from_source(DataGeneratorSource(lambda index: index, 10), WatermarkStrategy.no_watermarks(), "numbers")
    stream.set_parallelism(5)
    stream.print()
    env._stream_graph(None, pickled=False)
    enumerator = stream._node.operator.source.create_enumerator()
    plan = enumerator.plan(now_ms=0, max_records=None)
    assert [split.split for split in plan.ranges] == [f"{n}/5" for n in range(5)]
    assert sorted(environment(3).from_sequence(1, 20).execute_and_collect()) == list(range(1, 21))


def test_a_generator_that_goes_on_keeps_the_splits_of_its_checkpoint() -> None:
    source = DataGeneratorSource(lambda index: index, 10)
    before = source.for_parallelism(2).create_enumerator()
    first = before.plan(now_ms=0, max_records=4)
    after = source.for_parallelism(5)
    enumerator = after.create_enumerator()
    enumerator.restore(first.state)
    rest = enumerator.plan(now_ms=0, max_records=None)
    values = [
        value
        for part, reader in ((first, source.for_parallelism(2).create_reader()), (rest, after.create_reader()))
        for split in part.ranges
        for block in reader.read(split, 100)
        for value in to_rows(block).values
    ]
    assert sorted(values) == list(range(10))


def test_windows_of_a_bounded_source_fire_before_its_end() -> None:
    env = environment(2, **{"penstock.epoch.max-records": "10"})
    source = DataGeneratorSource(lambda index: index, 100, splits=1, type_info=Types.LONG())
    stamped = env.from_source(source, BY_VALUE, "numbers")
    windows = stamped.key_by(lambda _: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    counts = windows.reduce(lambda one, other: max(one, other))
    assert list(counts.execute_and_collect()) == list(range(9, 100, 10))
