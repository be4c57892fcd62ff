"""Whatever Spark can read as a stream is a columnar source, with its position in our checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.query import StreamingQuery

from penstock.common import Configuration, Duration, RestartStrategies, Time, Types, WatermarkStrategy
from penstock.connectors.files import FileSink, committed_files
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.aggregates import count, sum_
from penstock.datastream.functions import MapFunction
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import ConfigurationError, JobDefinitionError, JobFailedError

pytestmark = pytest.mark.spark

FILES, ROWS = 4, 500


def write_events(folder: Path) -> pa.Table:
    folder.mkdir()
    tables = []
    for number in range(FILES):
        index = np.arange(number * ROWS, (number + 1) * ROWS)
        table = pa.table(
            {
                "user": index % 13,
                "source": [f"file-{number}"] * ROWS,
                "time": index * 10,
                "amount": index % 7,
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet")
        tables.append(table)
    return pa.concat_tables(tables)


def frame(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema("user long, source string, time long, amount long")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def environment(config: Configuration) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    return env


@pytest.mark.parametrize(
    "event_time",
    [
        "time",
        "timestamp_millis(time)",
        "cast(to_utc_timestamp(timestamp_millis(time), current_timezone()) as timestamp_ntz)",
    ],
    ids=["milliseconds", "timestamp", "timestamp without a zone"],
)
def test_a_windowed_aggregate_over_a_spark_stream_is_exact(
    event_time: str, spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    events = write_events(tmp_path / "in")
    env = environment(configuration)
    windows = (
        env.from_spark(
            frame(spark, tmp_path / "in").selectExpr("*", f"{event_time} at"),
            timestamp="at",
            watermark_strategy=WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(100)),
            bounded=True,
        )
        .key_by("user")
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
        .agg(n=count(), total=sum_("amount"))
    )
    with windows.execute_and_collect() as results:
        got = {(row.user, row.window_start): (row.n, row.total) for row in results}
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    for user, time, amount in zip(*(events.column(c).to_pylist() for c in ("user", "time", "amount")), strict=True):
        n, total = expected.get((user, time // 1000 * 1000), (0, 0))
        expected[(user, time // 1000 * 1000)] = n + 1, total + amount
    assert got == expected


_NESTED = (
    "n",
    "map('a', n, 'b', cast(null as long)) facts",
    "named_struct('city', 'Ulm', 'at', timestamp_millis(n)) place",
    "array(named_struct('m', map(n, array(named_struct('x', n))))) deep",
    "timestamp_micros(1700000000123456 + n) instant",
    "cast('2024-02-29 12:30:00' as timestamp_ntz) local",
    "date '2024-02-29' day",
    "cast(n as decimal(9, 2)) price",
    "cast('x' as binary) raw",
)


def _plain(value: Any) -> Any:
    """Rows of PySpark's and of Penstock's, by their fields, deep down; with the classes of all else."""
    if hasattr(value, "asDict") or hasattr(value, "as_dict"):
        fields = value.asDict() if hasattr(value, "asDict") else value.as_dict()
        return {"row": {name: _plain(field) for name, field in fields.items()}}
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return type(value).__name__.replace("bytearray", "bytes"), value


def test_values_are_those_that_pyspark_gives(spark: SparkSession, configuration: Configuration, tmp_path: Path) -> None:
    """Maps are dicts, structs are rows, timestamps are bare; also behind an exchange and as columns again."""
    spark.range(0, 20).selectExpr("id n").selectExpr(*_NESTED).write.parquet(f"{tmp_path}/in")
    table = spark.read.parquet(f"{tmp_path}/in")
    env = environment(configuration)
    rows = env.from_spark(spark.readStream.schema(table.schema).parquet(f"{tmp_path}/in"), bounded=True)
    again = rows.key_by(lambda row: row.n % 3).filter(lambda row: row.place.city == "Ulm" and row.facts["a"] == row.n)
    with again.rebalance().map(lambda row: row).execute_and_collect() as results:
        got = sorted(results, key=lambda row: row.n)
    assert [_plain(row) for row in got] == [_plain(row) for row in table.orderBy("n").collect()]
    assert got[0].instant.tzinfo is None


class Fails(MapFunction):
    """So often at the same record: the second attempt fails before it has a checkpoint of its own."""

    def __init__(self, proof: Path, at: int, times: int) -> None:
        self.proof, self.at, self.times = str(proof), at, times

    def map(self, value: Any) -> Any:
        fired = Path(self.proof).read_text() if Path(self.proof).exists() else ""
        if value.time == self.at and len(fired) < self.times:
            Path(self.proof).write_text(fired + "x")
            raise RuntimeError("on purpose")
        return value.user, value.time


@pytest.fixture
def compacting(spark: SparkSession) -> Iterator[None]:
    """Spark's log of files is compacted at every third entry instead of every tenth."""
    spark.conf.set("spark.sql.streaming.fileSource.log.compactInterval", 3)
    yield
    spark.conf.unset("spark.sql.streaming.fileSource.log.compactInterval")


@pytest.mark.parametrize("storage", ["filesystem", "jobmanager"])
def test_a_failure_goes_back_to_the_position_of_the_last_checkpoint(
    storage: str, spark: SparkSession, configuration: Configuration, compacting: None, tmp_path: Path
) -> None:
    events = write_events(tmp_path / "in")
    configuration.set_string("execution.checkpointing.storage", storage)
    env = environment(configuration)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    proof = tmp_path / "proof"
    failing = Fails(proof, at=12_000, times=2)
    stream = env.from_spark(frame(spark, tmp_path / "in"), split="source", bounded=True).map(failing)
    with stream.execute_and_collect() as results:
        got = Counter(results)
    assert proof.read_text() == "xx"
    assert got == Counter(zip(events.column("user").to_pylist(), events.column("time").to_pylist(), strict=True))


def test_a_job_folder_that_was_moved_holds_all_that_a_file_source_of_sparks_needs(
    spark: SparkSession, configuration: Configuration, compacting: None, tmp_path: Path
) -> None:
    """The driver ends in the fourth file and its successor finds nothing but the job folder: as on another host."""
    events = write_events(tmp_path / "in")

    def job(config: Configuration) -> StreamExecutionEnvironment:
        env = environment(config)
        env.set_restart_strategy(RestartStrategies.no_restart())
        failing = Fails(tmp_path / "proof", at=17_000, times=1)
        stream = env.from_spark(frame(spark, tmp_path / "in"), bounded=True).uid("in").map(failing).uid("map")
        stream.map(str, Types.STRING()).uid("text").sink_to(FileSink.text(tmp_path / "out")).uid("out")
        return env

    with pytest.raises(JobFailedError, match="on purpose"):
        job(configuration).execute("moved")
    assert (tmp_path / "proof").read_text() == "x"
    (tmp_path / "job").rename(tmp_path / "elsewhere")
    names = [path.name for path in (tmp_path / "elsewhere").rglob("spark_*.state")]
    assert any("compact" in name for name in names), names  # the log has been compacted, and only that is needed
    configuration.set_string("penstock.job.dir", str(tmp_path / "elsewhere"))
    job(configuration).execute("moved")
    lines = [line for path in committed_files(tmp_path / "out") for line in Path(path).read_text().splitlines()]
    rows = zip(events.column("user").to_pylist(), events.column("time").to_pylist(), strict=True)
    assert Counter(lines) == Counter(map(str, rows))
    stored = {path.name for path in (tmp_path / "elsewhere").rglob("spark_*.state")}
    assert len(stored) <= 3 * 3, stored  # retention takes them with their checkpoints


class Queue(DataSource):
    """Files of a folder, one a batch. What is committed is gone, as from a queue."""

    @classmethod
    def name(cls) -> str:
        return "queue"

    def schema(self) -> str:
        return "user long, source string, time long, amount long"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return QueueReader(self.options["folder"])


class QueueReader(SimpleDataSourceStreamReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Any], dict[str, int]]:
        if not self._path(start["next"]).exists():
            return iter(()), start
        return iter(self._rows(start["next"])), {"next": start["next"] + 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:
        return iter([row for number in range(start["next"], end["next"]) for row in self._rows(number)])

    def commit(self, end: dict[str, int]) -> None:
        for number in range(end["next"]):
            self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return Path(self._folder) / f"part-{number}.parquet"

    def _rows(self, number: int) -> list[Any]:
        return [tuple(row.values()) for row in pq.read_table(self._path(number)).to_pylist()]


def forgetting_frame(spark: SparkSession, kind: str, folder: Path) -> DataFrame:
    if kind == "queue":
        spark.dataSource.register(Queue)
        return spark.readStream.format("queue").option("folder", str(folder)).load()
    reader = spark.readStream.schema("user long, source string, time long, amount long").option("maxFilesPerTrigger", 1)
    reader = reader.option("cleanSource", kind).option("sourceArchiveDir", f"{folder}-archive")
    return reader.parquet(str(folder))


class FailsAndCounts(Fails):
    """Says in the proof how many files were left."""

    def __init__(self, proof: Path, at: int, folder: Path) -> None:
        super().__init__(proof, at, 1)
        self.folder = str(folder)

    def map(self, value: Any) -> Any:
        left = len(list(Path(self.folder).glob("part-*.parquet")))
        try:
            return super().map(value)
        except RuntimeError:
            Path(self.proof).write_text(f"{left}")
            raise


@pytest.fixture
def cleaning_at_once(spark: SparkSession) -> Iterator[None]:
    """Spark deletes what was committed before it goes on, not in a thread that may be late: the test looks at what is left."""
    spark.conf.set("spark.sql.streaming.fileSource.cleaner.numThreads", 0)
    yield
    spark.conf.unset("spark.sql.streaming.fileSource.cleaner.numThreads")


@pytest.mark.parametrize("kind", ["delete", "archive", "queue"])
def test_a_source_that_forgets_what_is_committed_is_told_only_what_a_checkpoint_covers(
    kind: str, spark: SparkSession, configuration: Configuration, cleaning_at_once: None, tmp_path: Path
) -> None:
    """Checkpoints are far rarer than epochs. The job fails in the last file, when the source has let go of the first."""
    events = write_events(tmp_path / "in")
    configuration.set_string("execution.checkpointing.interval", "1 h")
    env = environment(configuration)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 10))
    failing = FailsAndCounts(tmp_path / "proof", at=17_000, folder=tmp_path / "in")
    stream = env.from_spark(forgetting_frame(spark, kind, tmp_path / "in"), bounded=True).map(failing)
    with stream.execute_and_collect() as results:
        got = Counter(results)
    assert 1 <= int((tmp_path / "proof").read_text()) < FILES  # the source had forgotten some when the job failed
    assert got == Counter(zip(events.column("user").to_pylist(), events.column("time").to_pylist(), strict=True))


def test_a_batch_that_failed_is_not_committed_however_long_spark_takes_to_stop(
    spark: SparkSession, configuration: Configuration, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark takes a batch whose callback has returned for done: the next one would delete its file."""
    events = write_events(tmp_path / "in")
    stop, slow = StreamingQuery.stop, []

    def stop_late(query: StreamingQuery) -> None:
        slow.append(query)
        sleep(1.5)
        stop(query)

    monkeypatch.setattr(StreamingQuery, "stop", stop_late)
    env = environment(configuration)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 10))
    failing = Fails(tmp_path / "proof", at=12_000, times=1)
    stream = env.from_spark(forgetting_frame(spark, "delete", tmp_path / "in"), bounded=True).map(failing)
    with stream.execute_and_collect() as results:
        got = Counter(results)
    assert (tmp_path / "proof").read_text() == "x"
    assert len(slow) >= 2
    assert got == Counter(zip(events.column("user").to_pylist(), events.column("time").to_pylist(), strict=True))


def test_what_a_recovery_could_not_bring_back_is_refused_at_the_start(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    write_events(tmp_path / "in")
    env = environment(configuration)
    one, other = frame(spark, tmp_path / "in"), frame(spark, tmp_path / "in")
    with pytest.raises(JobDefinitionError, match="over one stream, this one reads 2"):
        env.from_spark(one.unionAll(other))
    for stateful in (one.dropDuplicates(["user"]), one.groupBy("user").count(), one.limit(3)):
        with pytest.raises(JobDefinitionError, match="state of Spark's own"):
            env.from_spark(stateful)
    static = spark.read.parquet(str(tmp_path / "in")).groupBy("user").count()
    env.from_spark(one.join(static, "user"))  # keeps nothing
    unsafe = Configuration()
    unsafe.set_string("penstock.execution.mode", "epochs")
    env = environment(unsafe)
    env.from_spark(forgetting_frame(spark, "delete", tmp_path / "in"), bounded=True).print()
    with pytest.raises(ConfigurationError, match="cleanSource=delete through Spark, which throws away what was read"):
        env.execute()


def test_a_frame_that_is_not_a_stream_and_a_column_that_is_not_there_are_refused(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    write_events(tmp_path / "in")
    env = environment(configuration)
    with pytest.raises(JobDefinitionError, match="not a stream"):
        env.from_spark(spark.read.parquet(str(tmp_path / "in")))
    with pytest.raises(JobDefinitionError, match="'when' is not among"):
        env.from_spark(frame(spark, tmp_path / "in"), timestamp="when")
