"""A task of which Spark runs two attempts at once, and the slower one writes late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from examples.cluster.standalone import standalone_cluster
from penstock.connectors.files import committed_files
from tests.spark.speculation_job import KEYS, RECORDS, SLOW

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.timeout(280)
def test_a_speculative_task_and_the_zombie_it_overtook_change_nothing(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster", hosts=("127.0.0.1", "127.0.0.2")) as cluster:
        command = [sys.executable, "-m", "tests.spark.speculation_job", str(tmp_path), cluster.address]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:].decode()

    # Spark's own log says that there were second attempts, and the attempts themselves how they went.
    logs = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    events = [json.loads(line) for path in logs for line in path.read_text().splitlines() if line.startswith("{")]
    started = [event for event in events if event["Event"] == "SparkListenerTaskStart"]
    assert sum(event["Task Info"]["Speculative"] for event in started) >= len(SLOW)
    for (epoch, _), later in SLOW.items():
        assert (tmp_path / f"attempt-{epoch}-0.began").exists()
        assert (tmp_path / f"attempt-{epoch}-1").read_text() == "done"
        zombie = (tmp_path / f"attempt-{epoch}-0").read_text()  # it went on, and did what it could
        assert zombie, "it says how it went"
        if later:
            assert "runs a later attempt or epoch" in zombie, zombie

    expected: list[str] = []
    seen: Counter[int] = Counter()
    for number in range(RECORDS):
        seen[number % KEYS] += 1
        expected.append(f"{number % KEYS},{seen[number % KEYS]}")
    lines = [line for path in committed_files(tmp_path / "out") for line in Path(path).read_text().splitlines()]
    found = [tuple(map(int, line.split(","))) for line in lines]
    assert sorted(number for number, _ in found) == list(range(RECORDS))
    assert Counter(f"{number % KEYS},{nth}" for number, nth in found) == Counter(expected)
