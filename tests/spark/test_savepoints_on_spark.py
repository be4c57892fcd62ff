"""A savepoint taken on Spark resumes on the embedded runtime and back, at another parallelism each time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.checkpoint import savepoint, state_data
from penstock.common import Configuration
from penstock.connectors.files import FileSink, committed_files
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from tests.chaos.job import build
from tests.chaos.verify import verify
from tests.embedded.jobs import configured

pytestmark = pytest.mark.spark

RECORDS, SPLITS = 10_000, 3


def start(folder: Path, runtime: str, job: str, parallelism: int, path: str | None) -> JobClient:
    """It does not end before the file `may-end` is there."""
    more = {
        "penstock.runtime": runtime,
        "penstock.epoch.interval": "10 ms",
        "penstock.epoch.max-records": "1000",
        "penstock.checkpoint.inline-threshold": "1000",
    }
    config = configured(folder / job, more, path=path)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    build(env, folder, RECORDS, None, SPLITS, lasting=True)
    return env.execute_async(f"saved on {runtime}")


def stop(client: JobClient, folder: Path, name: str) -> str:
    path = client.stop_with_savepoint(False, str(folder / "savepoints")).result()
    client.get_job_execution_result().result()
    assert not savepoint.load(path).finished, "the job had come to its end before it was asked to stop"
    moved = folder / "moved" / name
    shutil.move(path.removeprefix("file://"), moved)
    return str(moved)


def test_from_spark_to_embedded_and_back(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    first = stop(start(tmp_path, "epochs", "one", 2, None), tmp_path, "one")
    counts = state_data.read(first, "running", "count").to_spark(spark)
    assert {field.name for field in counts.schema} == {"key_group", "key", "value"}
    assert counts.count() > 0
    second = stop(start(tmp_path, "embedded", "two", 3, first), tmp_path, "two")
    epochs = [int(savepoint.load(path).epoch) for path in (first, second)]
    assert epochs[0] < epochs[1], "the embedded runtime went on from what Spark had done"
    (tmp_path / "may-end").touch()
    client = start(tmp_path, "epochs", "three", 1, second)
    client.get_job_execution_result().result()
    assert verify(tmp_path, RECORDS, SPLITS)["records"] == RECORDS


def lines(folder: Path, first: int, count: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(first, first + count):
        (folder / f"{number}.txt").write_text(f"{number}\n")


def test_positions_of_sparks_own_sources_are_in_the_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    lines(tmp_path / "in", 0, 3)

    def run(job: str, path: str | None, *, bounded: bool) -> JobClient:
        config = Configuration()
        config.set_string("penstock.execution.mode", "epochs")
        config.set_string("penstock.job.dir", str(tmp_path / job))
        config.set_string("execution.checkpointing.interval", "0 ms")
        config.set_string("penstock.epoch.interval", "10 ms")
        if path is not None:
            config.set_string("execution.state-recovery.path", path)
        env = StreamExecutionEnvironment.get_execution_environment(config)
        frame = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(str(tmp_path / "in"))
        stream = env.from_spark(frame, bounded=bounded).uid("texts")
        stream.map(lambda row: str(row[0])).sink_to(FileSink.text(str(tmp_path / "out"))).uid("out")
        return env.execute_async("texts")

    client = run("one", None, bounded=False)
    path = client.stop_with_savepoint(False, str(tmp_path)).result()
    client.get_job_execution_result().result()
    shutil.move(path.removeprefix("file://"), tmp_path / "moved")
    shutil.rmtree(tmp_path / "one")
    lines(tmp_path / "in", 3, 2)
    run("two", str(tmp_path / "moved"), bounded=True).get_job_execution_result().result()
    found = [line for file in committed_files(str(tmp_path / "out")) for line in Path(file).read_text().splitlines()]
    assert sorted(found) == [str(number) for number in range(5)]
