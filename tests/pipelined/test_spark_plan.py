"""What we use of Spark below PySpark's API is there, and does what we think: these fail when a new Spark changes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.runtime.pipelined import spark_plan

pytestmark = pytest.mark.spark

PATIENCE_S = 20.0


def test_this_spark_has_what_a_pipelined_job_needs(spark: SparkSession) -> None:
    assert spark_plan.missing(spark) is None


def test_a_row_that_nothing_follows_comes_through_every_exchange(spark: SparkSession, tmp_path: Path) -> None:
    """The JVM closes a batch for Python when it has seen the row behind it. None comes here: each level sends one row and
    then waits for the file that the last level writes when it has that row."""
    arrived, frame = tmp_path / "arrived", b"x" * 24

    def first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _row(0, frame)
        _await(arrived)

    def middle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0).to_pylist():
                if payload is not None:
                    yield _row(0, payload)
                    _await(arrived)

    def last(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column(0).to_pylist():
                if payload is not None:
                    assert payload == frame
                    arrived.write_text(" ".join(thread.name for thread in threading.enumerate()))
        yield from ()

    plan = spark_plan.planned(spark, 1, [first, middle, last])
    errors: list[BaseException] = []

    def run() -> None:
        try:
            spark_plan.run(spark, plan, group="one row", description="one row", properties={})
        except BaseException as error:
            errors.append(error)

    thread: threading.Thread = InheritableThread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert not errors
    assert "MainThread" in arrived.read_text()
    assert "pyspark-pipelined-reader" not in arrived.read_text(), "a row is handed over once more than it need be"


def _row(target: int, payload: bytes) -> pa.RecordBatch:
    return pa.record_batch({"target": pa.array([target], pa.int32()), "payload": pa.array([payload], pa.binary())})


def _await(path: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError("the row has not come through: it waits for one behind it")
        time.sleep(0.01)
