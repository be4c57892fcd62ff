"""SparkSink to formats whose jars come from Maven Central."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.spark.sink import SparkSink
from penstock.spark.sink_writes import Commit, delta_options
from tests.servers.fixtures import unavailable
from tests.servers.jars import ServerUnavailable, cache_folder, fetch
from tests.servers.postgres import PostgresServer
from tests.spark.table_job import expected
from tests.spark.test_spark_sink import SCHEMA, staged

HERE = Path(__file__).parent
_SPARK = ".".join(pyspark.__version__.split(".")[:2])
_ROOT = HERE.parents[1]


def jars(name: str) -> list[Path]:
    try:
        return fetch(HERE / f"{name}.lock", cache_folder(f"spark-{name}"))
    except ServerUnavailable as error:
        unavailable(error)
        raise


def format_jars(name: str) -> str:
    """A format's jars reach into Spark's inner classes, which change with its minor version: there is a lock file for each."""
    if not (HERE / f"{name}-{_SPARK}.lock").exists():
        pytest.skip(f"there is no {name} for Spark {_SPARK} on Maven Central yet")
    return ",".join(map(str, jars(f"{name}-{_SPARK}")))


def program(module: str, *words: str) -> str:
    """What a program prints, in a Spark of its own: these formats are part of a session from its start."""
    command = [sys.executable, "-m", f"tests.spark.{module}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=_environment(), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT)}


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
    printed = program("format_job", name, format_jars(name), str(tmp_path))
    assert json.loads(printed.splitlines()[-1]) == {
        "an epoch": 1,
        "the same again": 1,
        "the next": 11,
        "again, after a crash": 11,
        "an epoch of the same number with other rows": 111,
        "and that again": 111,
    }


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_job_from_a_table_to_a_table_whose_driver_is_killed_goes_on_and_is_exact(name: str, tmp_path: Path) -> None:
    """`from_spark` and SparkSink of the format. The driver gets SIGKILL when the second table has some epochs; the next one
    goes on from the job folder."""
    words = (name, format_jars(name), str(tmp_path))
    program("table_job", *words, "fill")
    log = "totals/_delta_log/*.json" if name == "delta" else "lake/db/totals/metadata/snap-*.avro"
    command = [sys.executable, "-m", "tests.spark.table_job", *words, "run"]
    with (tmp_path / "driver.log").open("w") as output:
        driver = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=_environment())
        until = time.monotonic() + 120
        while len(list(tmp_path.glob(log))) < 3 and driver.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        killed = driver.poll() is None
        driver.kill()
        driver.wait()
    assert killed, (tmp_path / "driver.log").read_text()[-3000:]
    before = json.loads(program("table_job", *words, "look").splitlines()[-1])
    assert 0 < len(before) < len(expected()), "it was killed in the middle"
    program("table_job", *words, "run")
    assert json.loads(program("table_job", *words, "look").splitlines()[-1]) == expected()


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
