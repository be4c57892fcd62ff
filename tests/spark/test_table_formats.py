"""SparkSink to formats whose jars come from Maven Central."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.spark.sink import SparkSink
from penstock.spark.sink_writes import Commit, delta_options
from tests.servers.fixtures import unavailable
from tests.servers.jars import ServerUnavailable, cache_folder, fetch
from tests.servers.postgres import PostgresServer
from tests.spark.test_spark_sink import SCHEMA, staged

HERE = Path(__file__).parent
_BUILT_FOR = (
    "4.1"  # the jars of the lock files; they reach into Spark's inner classes, which change with its minor version
)


def jars(name: str) -> list[Path]:
    try:
        return fetch(HERE / f"{name}.lock", cache_folder(f"spark-{name}"))
    except ServerUnavailable as error:
        unavailable(error)
        raise


@pytest.mark.spark
@pytest.mark.postgres
def test_jdbc_appends_and_repeats_an_epoch_that_is_committed_again(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    (driver,) = jars("jdbc")
    spark.sql(f"add jar '{driver}'")
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres?user={postgres.superuser}"
    options = {"url": url, "dbtable": "from_spark", "driver": "org.postgresql.Driver"}
    sink = SparkSink.format("jdbc", options=options, schema=SCHEMA)
    committer, output = staged(sink, tmp_path, 1, [(1, None), (2, None)])
    committer.commit(1, output)
    assert postgres.sql("select n from from_spark order by n") == [(1,), (2,)]
    committer.commit(1, output)
    assert postgres.sql("select count(*) from from_spark") == [(2,)], "the job folder notes that it is written"
    notes = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert notes
    for note in notes:  # a driver that dies between the write and its note
        note.unlink()
    committer.commit(1, output)
    assert postgres.sql("select count(*) from from_spark") == [(4,)], "at least once, as the how-to says"
    postgres.sql("drop table from_spark")


@pytest.mark.spark
@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_table_format_has_each_epoch_once(name: str, tmp_path: Path) -> None:
    if not pyspark.__version__.startswith(_BUILT_FOR):
        pytest.skip(
            f"there is no {name} for Spark {pyspark.__version__} on Maven Central yet, and the newest fails in it"
        )
    command = [sys.executable, "-m", "tests.spark.format_job", name, ",".join(map(str, jars(name))), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "an epoch": 1,
        "the same again": 1,
        "the next": 11,
        "again, after a crash": 11,
        "an epoch of the same number with other rows": 111,
        "and that again": 111,
    }


def test_an_append_to_delta_is_named_and_one_that_was_run_again_is_not_taken_for_the_old_one() -> None:
    def commit(epoch: int, name: str) -> Commit:
        return Commit(sink="job-out", epoch=epoch, name=name)

    history: list[str | None] = [None, "by hand", "[1]", '{"penstock": {"sink": "other", "epoch": 9, "commit": "b"}}']
    one = delta_options(commit(1, "a"), history)
    assert one is not None
    assert (one["txnAppId"], one["txnVersion"]) == ("penstock-job-out", "1")
    history.append(one["userMetadata"])
    assert delta_options(commit(1, "a"), history) is None
    two = delta_options(commit(2, "b"), history)
    assert two is not None, "another sink's commit of that name"
    assert two["txnAppId"] == "penstock-job-out"
    again = delta_options(commit(1, "c"), history)
    assert again is not None
    assert (again["txnAppId"], again["txnVersion"]) == ("penstock-job-out-c", "1")
