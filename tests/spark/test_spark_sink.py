"""SparkSink: what Spark writes in batch, once for every checkpoint."""

from __future__ import annotations

import datetime
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.storage import LocalStorage
from penstock.common import Configuration
from penstock.connectors.base import Committer, WriterContext
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import BadRecordError, CommitRefusedError, ConfigurationError, PenstockError
from penstock.records import Columns, Rows
from penstock.spark.sink import SparkSink

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms"))])
NOON = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


def staged(sink: SparkSink, folder: Path, epoch: int, values: list[Any]) -> tuple[Committer, list[Any]]:
    storage = LocalStorage(folder / "job")
    writer = sink.create_writer(WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1, storage=storage))
    writer.begin_epoch(epoch, "a")
    writer.write(Rows(values))
    committer = sink.create_committer("out")
    committer.open(storage)
    return committer, writer.prepare_commit()


def test_a_job_writes_parquet_with_files_for_each_epoch_and_no_column_of_its_own(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    configuration.set_string("penstock.epoch.max-records", "40")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    numbers = env.from_sequence(0, 99).map(lambda n: (n, None))
    numbers.sink_to(SparkSink.parquet(f"file://{tmp_path}/out", schema=SCHEMA)).uid("out")
    env.execute("to parquet")
    table = spark.read.parquet(f"file://{tmp_path}/out")
    assert table.columns == SCHEMA.names
    assert sorted(row["n"] for row in table.collect()) == list(range(100))
    assert len({path.name.split("-")[1] for path in (tmp_path / "out").glob("epoch-*.parquet")}) >= 3
    assert [path.name for path in (tmp_path / "out" / "_penstock").iterdir() if path.is_dir()] == []


def test_an_epoch_of_partitioned_parquet_that_is_run_again_with_other_rows_takes_the_place_of_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = SparkSink.parquet(f"file://{tmp_path}/out", schema=SCHEMA, partition_by=["n"])
    committer, first = staged(sink, tmp_path, 1, [(1, None), (2, None), (3, None)])
    committer.commit(1, first)
    _, again = staged(sink, tmp_path, 1, [(3, None), (4, None)])
    committer.commit(1, again)
    table = spark.read.parquet(f"file://{tmp_path}/out")
    assert sorted(table.columns) == sorted(SCHEMA.names)
    assert sorted(row["n"] for row in table.collect()) == [3, 4]
    other, third = sink.create_committer("other"), staged(sink, tmp_path, 1, [(5, None)])[1]
    other.open(LocalStorage(tmp_path / "job"))
    other.commit(1, third)
    assert spark.read.parquet(f"file://{tmp_path}/out").count() == 3, (
        "another sink's epoch of that number is another one"
    )


def test_a_folder_that_an_earlier_version_laid_out_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out" / "penstock_epoch=1").mkdir(parents=True)
    committer, output = staged(SparkSink.parquet(f"file://{tmp_path}/out", schema=SCHEMA), tmp_path, 1, [(1, None)])
    with pytest.raises(PenstockError, match="give the sink another path"):
        committer.commit(1, output)


LARGE = [(n * 7919 % 100_003, NOON.replace(tzinfo=None) + datetime.timedelta(seconds=n)) for n in range(20_000)]


def committer_of(sink: SparkSink, folder: Path) -> Committer:
    """As the driver that takes the job over has it."""
    committer = sink.create_committer("out")
    committer.open(LocalStorage(folder / "job"))
    return committer


def staged_files(folder: Path) -> list[str]:
    return [path for path in LocalStorage(folder / "job").list("staged") if "-done-" not in path]


def test_a_write_that_is_repeated_replaces_the_epoch_whether_it_went_through_a_file_or_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = SparkSink.parquet(f"file://{tmp_path}/out", schema=SCHEMA)
    small = [(n, NOON.replace(tzinfo=None)) for n in range(3)]
    committer, one = staged(sink, tmp_path, 1, small)
    _, two = staged(sink, tmp_path, 1, LARGE)
    assert [output.path is None for output in (*one, *two)] == [True, False]
    with pytest.MonkeyPatch.context() as patch:  # the driver dies between the write and the note that it was done
        patch.setattr(LocalStorage, "put", _dies)
        with pytest.raises(_Died):
            committer.commit(1, [*one, *two])
    assert spark.read.parquet(f"file://{tmp_path}/out").count() == 20_003
    assert len(staged_files(tmp_path)) == 1
    committer_of(sink, tmp_path).commit(1, [*one, *two])
    frame = spark.read.parquet(f"file://{tmp_path}/out")
    assert frame.count() == 20_003
    assert dict(frame.dtypes)["at"] == "timestamp"
    noon = int(NOON.timestamp())
    assert frame.selectExpr("min(unix_timestamp(at))").collect()[0][0] == noon
    assert staged_files(tmp_path) == []


class _Died(BaseException):
    pass


def _dies(*arguments: Any) -> None:
    raise _Died


@pytest.mark.parametrize("kind", ["parquet", "json", "foreach_epoch"])
def test_a_commit_that_was_done_is_recognised_when_its_staged_files_are_gone(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    out, calls = f"file://{tmp_path}/out", []

    def write(frame: DataFrame, epoch: int) -> None:
        calls.append(epoch)
        frame.write.mode("append").parquet(out)

    sink = {
        "parquet": SparkSink.parquet(out, schema=SCHEMA),
        "json": SparkSink.format("json", path=out, schema=SCHEMA),
        "foreach_epoch": SparkSink.foreach_epoch(write, schema=SCHEMA),
    }[kind]
    committer, first = staged(sink, tmp_path, 1, LARGE)
    committer.commit(1, first)
    _, second = staged(sink, tmp_path, 2, LARGE)
    committer.commit(2, second)
    assert first[0].path is not None
    assert staged_files(tmp_path) == []  # they are gone
    # A driver that died after its commit, and one that goes back to the checkpoint before.
    for epoch, committables in ((2, second), (1, first)):
        committer_of(sink, tmp_path).commit(epoch, committables)
    # A job in a folder of its own that starts from this one's checkpoint.
    other = sink.create_committer("out")
    other.open(LocalStorage(tmp_path / "another"))
    other.commit(2, second)
    rows = spark.read.json(out) if kind == "json" else spark.read.parquet(out)
    assert rows.count() == 40_000
    assert calls == ([1, 2] if kind == "foreach_epoch" else [])
    # An epoch that was run again is another one, although it has the same number.
    _, again = staged(sink, tmp_path, 2, LARGE[:15_000])
    committer_of(sink, tmp_path).commit(2, again)
    expected = 35_000 if kind == "parquet" else 55_000
    assert (spark.read.json(out) if kind == "json" else spark.read.parquet(out)).count() == expected


def test_output_that_is_gone_and_was_not_committed_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    committer, output = staged(SparkSink.parquet(f"file://{tmp_path}/out", schema=SCHEMA), tmp_path, 1, LARGE)
    LocalStorage(tmp_path / "job").delete(str(output[0].path))
    with pytest.raises(PenstockError, match="could not write epoch 1"):
        committer.commit(1, output)


def test_foreach_epoch_gives_the_function_each_epochs_rows_and_number(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[tuple[int, list[int]]] = []

    def write(frame: DataFrame, epoch: int) -> None:
        seen.append((epoch, sorted(row["n"] for row in frame.collect())))

    committer, output = staged(SparkSink.foreach_epoch(write, schema=SCHEMA), tmp_path, 4, [(2, None), (1, None)])
    committer.commit(4, output)
    committer.commit(5, [])
    assert seen == [(4, [1, 2])]


def test_other_formats_append_and_what_spark_refuses_names_the_sink(spark: SparkSession, tmp_path: Path) -> None:
    sink = SparkSink.format("json", path=f"file://{tmp_path}/out", schema=SCHEMA)
    committer, output = staged(sink, tmp_path, 1, [(1, None)])
    with pytest.MonkeyPatch.context() as patch:  # the driver dies between the write and the note that it was done
        patch.setattr(LocalStorage, "put", _dies)
        with pytest.raises(_Died):
            committer.commit(1, output)
    committer.commit(1, output)  # at least once, and it says so
    committer.commit(1, output)  # but what is known to be there is not repeated
    assert spark.read.json(f"file://{tmp_path}/out").count() == 2
    refused, output = staged(SparkSink.format("no-such-format", path="x", schema=SCHEMA), tmp_path, 1, [(1, None)])
    with pytest.raises(PenstockError, match=r"SparkSink\(no-such-format\) out: Spark could not write epoch 1"):
        refused.commit(1, output)


def test_what_spark_refuses_again_and_again_ends_the_job_until_it_is_mended(
    spark: SparkSession, tmp_path: Path
) -> None:
    def write(frame: DataFrame, epoch: int) -> None:
        frame.select("n", "at" if mended else "no_such_column").write.json(f"file://{tmp_path}/out")

    mended = False
    committer, output = staged(SparkSink.foreach_epoch(write, schema=SCHEMA), tmp_path, 1, [(1, None)])
    for expected in (PenstockError, PenstockError, CommitRefusedError):
        with pytest.raises(expected, match=r"(?s)no_such_column.*mend the table") as caught:
            committer.commit(1, output)
        assert type(caught.value) is expected
    mended = True
    committer.commit(1, output)
    assert spark.read.json(f"file://{tmp_path}/out").count() == 1


def test_values_that_do_not_fit_and_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecordError, match=r"SparkSink\(parquet\) out: .*'one'"):
        staged(SparkSink.parquet("x", schema=SCHEMA), tmp_path, 1, [("one", None)])
    with pytest.raises(BadRecordError, match="give the sink schema"):
        staged(SparkSink.parquet("x"), tmp_path, 1, [(1, None)])
    with pytest.raises(ConfigurationError, match="either a path or a table"):
        SparkSink.delta()
    with pytest.raises(ConfigurationError, match="append or overwrite"):
        SparkSink.format("json", path="x", mode="ignore")
    with pytest.raises(ConfigurationError, match="needs the option txnAppId itself"):
        SparkSink.delta("x", options={"txnAppId": "mine"})
    with pytest.raises(ConfigurationError, match="no table is given"):
        SparkSink.iceberg("")
    with pytest.raises(ConfigurationError, match=r"partition_by names \['day'\], the schema has only \['n', "):
        SparkSink.parquet("x", schema=SCHEMA, partition_by=["n", "day"])
    with pytest.raises(ConfigurationError, match="takes a list of names"):
        SparkSink.parquet("x", schema=SCHEMA, partition_by="n")
    with pytest.raises(ConfigurationError, match="schema takes a Schema, not"):
        SparkSink.parquet("x", schema={"n": "int"})
    with pytest.raises(ConfigurationError, match="takes a function"):
        SparkSink.foreach_epoch(None)  # type: ignore[arg-type]


def test_a_columnar_stream_brings_its_own_schema(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "job")
    context = WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1, storage=storage)
    writer = SparkSink.parquet("x").create_writer(context)
    writer.begin_epoch(1, "a")
    writer.write(Columns(pa.record_batch({"at": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ns"))})))
    (output,) = writer.prepare_commit()
    assert pq.read_table(io.BytesIO(output.data)).schema.field("at").type == pa.timestamp("us", "UTC")
