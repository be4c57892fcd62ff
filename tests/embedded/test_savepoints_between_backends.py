"""A savepoint knows no state backend: hashmap to rocksdb and back, at another parallelism each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint import savepoint
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from penstock.testing import ListSink
from tests.chaos.job import build
from tests.chaos.verify import verify
from tests.checkpoint import sample_job
from tests.embedded.jobs import configured

RECORDS, SPLITS = 12_000, 3


def start(folder: Path, job: str, backend: str, parallelism: int, path: str | None) -> JobClient:
    more = {"penstock.epoch.max-records": "1000", "state.backend.type": backend, "restart-strategy.type": "none"}
    config = configured(folder / job, more, path=path)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    build(env, folder, RECORDS, None, SPLITS)
    return env.execute_async(f"on {backend}")


@pytest.mark.parametrize("backends", [("hashmap", "rocksdb", "hashmap"), ("rocksdb", "hashmap", "rocksdb")])
def test_a_savepoint_moves_between_state_backends(backends: tuple[str, str, str], tmp_path: Path) -> None:
    path: str | None = None
    for number, backend in enumerate(backends[:-1]):
        client = start(tmp_path, f"job-{number}", backend, number + 1, path)
        path = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
        assert not savepoint.load(path).finished, "the job had come to its end before it was asked to stop"
    client = start(tmp_path, "last", backends[-1], 3, path)
    client.get_job_execution_result().result()
    assert verify(tmp_path, RECORDS, SPLITS)["records"] == RECORDS


def test_every_kind_of_state_moves_to_rocksdb_and_is_whole(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    sink = request.node.name
    names = ("states", "windows", "sessions")
    for name in names:
        ListSink.clear(f"{sink}-{name}")
    sample = Path(__file__).parents[1] / "data/savepoint-v2"
    config = Configuration()
    config.set_string("state.backend.type", "rocksdb")
    config.set_string("restart-strategy.type", "none")
    config.set_string("execution.state-recovery.path", str(sample))
    env = sample_job.environment(tmp_path / "job", 3)
    env.configure(config)
    sample_job.build(env, sink)
    env.execute("on rocksdb")
    found = {name: sorted(ListSink.results(f"{sink}-{name}")) for name in names}
    assert found == {name: sample_job.expected(name) for name in names}
