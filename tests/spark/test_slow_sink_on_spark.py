"""A sink that becomes slow on Spark: named, with the line it waits in; sources get less until it is fast again.

`make slow-sink` is the long version: minutes, of slow writes and of slow commits, with memory, the time of epochs and throughput.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.admission import FIRST_RECORDS
from penstock.driver.control.home import JobHome
from penstock.service.dispatcher import Dispatcher
from penstock.service.rest.app import create_app
from tests.chaos.slow_sink import SINK, check_output, innermost, make_slow
from tests.chaos.slow_sink_job import build
from tests.driver.jobs import eventually
from tests.service.served import served

pytestmark = pytest.mark.spark


def test_a_slow_sink_is_named_sources_get_less_until_it_is_fast_again_and_nothing_is_lost(
    configuration: Configuration, tmp_path: Path
) -> None:
    configuration.set_string("penstock.job.home", str(tmp_path / "home"))
    configuration.set_string("penstock.epoch.target", "500 ms")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    build(env, tmp_path, rate=5_000)
    client = env.execute_async("slow sink")
    dispatcher = Dispatcher(JobHome(tmp_path / "home"))
    try:
        with served(create_app(dispatcher, token="t"), "t") as rest:
            eventually(lambda: len(client.epoch_reports()) > 3, "epochs")
            job = f"/jobs/{client.get_job_id()}"
            sink = next(vertex["id"] for vertex in rest.get(job).json()["vertices"] if vertex["name"] == SINK)

            make_slow(tmp_path / "slow", {"write_s": 0.001})  # 2,000 a second where 5,000 come
            eventually(lambda: rest.get(job).json()["bottleneck"] == sink, "the sink is named")

            def in_the_slow_line() -> bool:
                root = rest.get(f"{job}/vertices/{sink}/flamegraph").json()["root"]
                return root is not None and innermost(root, ".wait:") > root["hitCount"] / 2

            eventually(in_the_slow_line, "the flame graph shows where it waits")

            def admitted() -> int:
                return client.epoch_reports()[-1].admitted or 0

            eventually(lambda: 0 < admitted() < FIRST_RECORDS / 2, "sources get less")
            slowly = admitted()
            (tmp_path / "slow").unlink()
            eventually(lambda: admitted() > 2 * slowly, "sources get more again")
            client.stop_with_savepoint(True).result()
    finally:
        dispatcher.close()
        client.cancel()
    journal = (tmp_path / "job" / "epochs.jsonl").read_text().splitlines()
    read = sum(json.loads(line)["records_in"] for line in journal)
    assert read > FIRST_RECORDS
    assert check_output(tmp_path / "output", read) is None
