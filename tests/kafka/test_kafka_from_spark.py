"""Spark's Kafka connector is one more stream for `from_spark`: its positions are in our checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.connectors.files import committed_files
from tests.kafka.from_spark_job import WINDOW_MS
from tests.servers.fixtures import unavailable
from tests.servers.jars import ServerUnavailable, cache_folder, fetch
from tests.servers.topics import Topics

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
RECORDS, PARTITIONS, START_MS = 3000, 2, 1_000_000


def test_a_driver_that_dies_after_a_manifest_goes_on_where_sparks_connector_was(topics: Topics, tmp_path: Path) -> None:
    try:
        jars = fetch(ROOT / "benchmarks" / "kafka" / "spark.lock", cache_folder("spark-kafka"))
    except ServerUnavailable as error:
        unavailable(error)
        raise
    topic = topics.create(PARTITIONS)
    for partition in range(PARTITIONS):
        numbers = range(partition, RECORDS, PARTITIONS)
        values = (str(number).encode() for number in numbers)
        topics.write(topic, values, partition=partition, timestamps=[START_MS + number for number in numbers])
    places = [str(tmp_path), topics.servers, topic, ",".join(map(str, jars))]
    command = [sys.executable, "-m", "tests.kafka.from_spark_job", *places]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    proof = tmp_path / "fired"
    fault = {"PENSTOCK_FAULT": "after-manifest:3", "PENSTOCK_FAULT_ONCE": str(proof)}
    killed = subprocess.run(command, cwd=ROOT, env=environment | fault, capture_output=True, timeout=240, check=False)
    assert killed.returncode == -9, killed.stderr[-3000:].decode()
    assert proof.read_text().startswith("after-manifest")
    resumed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=240, check=False)
    assert resumed.returncode == 0, resumed.stderr[-3000:].decode()

    expected: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number in range(RECORDS):
        at = START_MS + number
        expected[(number % 7, at - at % WINDOW_MS)].append(number)
    rows = [row for file in committed_files(str(tmp_path / "out")) for row in pq.read_table(file).to_pylist()]
    found = {(row["user"], row["window_start"]): (row["n"], row["total"]) for row in rows}
    assert len(rows) == len(found)
    assert found == {window: (len(numbers), sum(numbers)) for window, numbers in expected.items()}
