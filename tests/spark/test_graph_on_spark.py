"""A wide DAG is one Spark job an epoch, and its answer depends on nothing but its input."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.files import FileSink, committed_files
from penstock.connectors.program import CollectionSource
from penstock.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.datastream.state import ValueStateDescriptor

pytestmark = pytest.mark.spark

ODD = OutputTag("odd")
CUTS = [100, 250, 400]


class Split(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        if value % 2:
            yield ODD, value
        else:
            yield value


class Number(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = (self.seen.value() or 0) + 1
        self.seen.update(number)
        yield f"{ctx.get_current_key()}:{number}:{value}"


def numbers(env: StreamExecutionEnvironment, first: int, name: str) -> DataStream:
    source = CollectionSource(list(range(first, first + 500)), epochs=CUTS)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name)


def build(env: StreamExecutionEnvironment, folder: Path) -> None:
    """Two sources, a union, a side output, two exchanges in sequence, three sinks."""
    both = numbers(env, 0, "left").union(numbers(env, 1000, "right"))
    split = both.process(Split()).uid("split")
    numbered = split.key_by(lambda n: n % 7).process(Number()).uid("by-seven")
    again = numbered.key_by(lambda text: text.split(":")[0]).process(Number()).uid("by-text")
    numbered.sink_to(FileSink.text(str(folder / "numbered"))).uid("sink-numbered")
    again.sink_to(FileSink.text(str(folder / "again"))).uid("sink-again")
    split.get_side_output(ODD).map(str).sink_to(FileSink.text(str(folder / "odd"))).uid("sink-odd")


def run(config: Configuration, folder: Path, parallelism: int, **settings: str) -> Any:
    for key, value in settings.items():
        config.set_string(key.replace("__", "."), value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    build(env, folder)
    client = env.execute_async("dag")
    client.get_job_execution_result().result()
    return client


def contents(folder: Path) -> dict[str, list[str]]:
    return {
        name: [line for file in committed_files(str(folder / name)) for line in Path(file).read_text().splitlines()]
        for name in ("numbered", "again", "odd")
    }


def files(folder: Path) -> dict[str, bytes]:
    """By name, without what tells the files of one job from those of another."""
    return {
        re.sub(r"-[0-9a-f]{8}(?=\.)", "", str(Path(file).relative_to(folder))): Path(file).read_bytes()
        for name in ("numbered", "again", "odd")
        for file in committed_files(str(folder / name))
    }


def test_a_dag_is_one_spark_job_an_epoch_and_no_operator_sees_a_record_twice(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    jobs_before = _highest_job_id(spark)
    client = run(configuration, tmp_path, 2)
    reports = client.epoch_reports()
    assert _highest_job_id(spark) - jobs_before - 1 == len(reports), f"{len(reports)} epochs; {before=}"
    seen: Counter[str] = Counter()
    for report in reports:
        for vertex in report.vertices:
            for operator, counts in vertex["operators"].items():
                seen[operator] += counts["records_in"]
    assert seen["split"] == 1000
    assert seen["by-seven"] == 500
    assert seen["by-text"] == 500
    assert (seen["sink-numbered"], seen["sink-again"], seen["sink-odd"]) == (500, 500, 500)


def _highest_job_id(spark: SparkSession) -> int:
    """Job ids only go up: run a marker job and read its id."""
    context = spark.sparkContext
    context.setJobGroup("marker", "marker")
    context.parallelize([1], 1).count()
    return max(context.statusTracker().getJobIdsForGroup("marker"))


def test_block_size_and_runtime_do_not_change_a_byte(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    outputs = []
    for runtime, block in (("spark", "1"), ("spark", "10000"), ("embedded", "1"), ("embedded", "10000")):
        folder = tmp_path / f"{runtime}-{block}"
        config = Configuration(configuration)
        run(
            config,
            folder,
            2,
            penstock__runtime=runtime,
            penstock__block__size=block,
            penstock__job__dir=str(folder / "job"),
        )
        outputs.append(files(folder))
    assert len(outputs[0]) >= 3 * len(CUTS)
    assert all(output == outputs[0] for output in outputs[1:])


@pytest.mark.parametrize("parallelism", [1, 7])
def test_parallelism_does_not_change_the_result(
    spark: SparkSession, configuration: Configuration, tmp_path: Path, parallelism: int
) -> None:
    """Two sources into one key: only their order against each other may differ. Of the runtime nothing depends: see above."""
    reference = tmp_path / "two"
    run(
        Configuration(configuration),
        reference,
        2,
        penstock__runtime="embedded",
        penstock__job__dir=str(tmp_path / "job-two"),
    )
    run(configuration, tmp_path / "other", parallelism)
    expected, got = contents(reference), contents(tmp_path / "other")
    assert sorted(got["odd"]) == sorted(expected["odd"])
    for name in ("numbered", "again"):
        assert sorted(line.split(":")[-1] for line in got[name]) == sorted(
            line.split(":")[-1] for line in expected[name]
        )
        assert Counter(line.rsplit(":", 1)[0] for line in got[name]) == Counter(
            line.rsplit(":", 1)[0] for line in expected[name]
        )
