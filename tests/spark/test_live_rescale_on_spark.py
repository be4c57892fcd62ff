"""A job on Spark changes its parallelism while it runs: same driver, same job, slots that are still needed stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from tests.chaos.job import build
from tests.chaos.verify import verify

pytestmark = pytest.mark.spark

RECORDS, SPLITS = 12_000, 3


def start(configuration: Configuration, folder: Path) -> JobClient:
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    build(env, folder, RECORDS, None, SPLITS, lasting=True)
    return env.execute_async("live")


def test_live_2_to_5_to_3_under_load_and_then_under_another_driver_is_exact(
    configuration: Configuration, tmp_path: Path
) -> None:
    configuration.set_string("penstock.epoch.max-records", "1000")
    client = start(configuration, tmp_path)
    results = [client.rescale(5).result(), client.rescale(3).result()]
    client.trigger_checkpoint().result()
    client.cancel().result()
    (tmp_path / "may-end").touch()
    successor = start(configuration, tmp_path)
    successor.get_job_execution_result().result()
    assert [(result.before, result.after) for result in results] == [(2, 5), (5, 3)]
    reports = client.epoch_reports()
    widths = [max(vertex["parallelism"] for vertex in report.vertices) for report in reports]
    assert sorted(set(widths), key=widths.index) == [2, 5, 3]
    slots = {width: set(reports[widths.index(width)].slots) for width in (2, 5, 3)}
    assert {vertex["parallelism"] for report in successor.epoch_reports() for vertex in report.vertices} == {3}
    assert slots[2] < slots[5], "the processes of slots 0 and 1 stay"
    assert slots[3] < slots[5], "of five slots two end and three stay"
    assert verify(tmp_path, RECORDS, SPLITS)["records"] == RECORDS
    print("pauses:", [round(result.pause_ms) for result in results], "ms")
