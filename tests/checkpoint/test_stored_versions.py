"""Checkpoints and savepoints of every version of the formats are restored: each has a stored sample in `tests/data`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from penstock.checkpoint import manifest_file, savepoint, state_data
from penstock.common import Configuration
from penstock.state import snapshot_file
from penstock.testing import ListSink
from tests.checkpoint.sample_job import RECORDS, build, environment, expected

DATA = Path(__file__).parents[1] / "data"
CHECKPOINT_V1 = DATA / "checkpoint-v1"
SAMPLES = {
    "checkpoint-v1": CHECKPOINT_V1 / "checkpoints/chk-4",
    "savepoint-v2": DATA / "savepoint-v2",
    "savepoint-v3": DATA / "savepoint-v3",
}


def results(sink: str) -> dict[str, list[object]]:
    return {name: sorted(ListSink.results(f"{sink}-{name}")) for name in ("states", "windows", "sessions")}


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> str:
    for name in ("states", "windows", "sessions"):
        ListSink.clear(f"{request.node.name}-{name}")
    return str(request.node.name)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("sample", sorted(SAMPLES))
def test_a_stored_sample_is_restored_and_the_job_goes_on_exactly(
    sample: str, parallelism: int, sink: str, tmp_path: Path
) -> None:
    env = environment(tmp_path / "job", parallelism)
    config = Configuration()
    config.set_string("execution.state-recovery.path", str(SAMPLES[sample]))
    env.configure(config)
    build(env, sink)
    client = env.execute_async("from a sample")
    client.get_job_execution_result().result()
    read = sum(report.records_in for report in client.epoch_reports())
    assert 0 < read < RECORDS, "it went on where the sample ends"
    assert results(sink) == {name: expected(name) for name in ("states", "windows", "sessions")}


def test_a_job_folder_of_version_1_is_gone_on_with(sink: str, tmp_path: Path) -> None:
    """Incremental checkpoints of two versions in one chain."""
    shutil.copytree(CHECKPOINT_V1, tmp_path / "job")
    env = environment(tmp_path / "job")
    build(env, sink)
    env.execute("gone on with")
    assert results(sink) == {name: expected(name) for name in ("states", "windows", "sessions")}


@pytest.mark.parametrize("sample", sorted(SAMPLES))
def test_a_stored_sample_can_be_read_as_data(sample: str) -> None:
    path = str(SAMPLES[sample])
    counts = {entry.key: entry.value for entry in state_data.read(path, "states", "count")}
    assert sorted(counts) == [f"k{key}" for key in range(6)]
    assert {e.key: len(e.value) for e in state_data.read(path, "states", "seen")} == counts
    assert {e.key: sum(e.value.values()) for e in state_data.read(path, "states", "by-parity")} == counts


def test_every_version_that_is_written_or_read_has_a_sample() -> None:
    stored = {savepoint.load(str(path)).format_version for path in SAMPLES.values()}
    assert stored == set(manifest_file.READERS)
    files = [file.read_bytes() for path in DATA.rglob("*.state") for file in [path]]
    versions = {int.from_bytes(data[8:10], "little") for data in files}
    assert versions == set(snapshot_file._READERS)
    assert all(re.fullmatch(r"\w+-v\d+", sample) for sample in SAMPLES)
