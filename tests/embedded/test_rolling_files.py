"""Whole jobs whose files outlive checkpoints: killed at every point, rescaled, stopped, on a disk and in a store that speaks S3."""

from __future__ import annotations

import ast
import gc
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.restart_strategy import RestartStrategies
from penstock.connectors.files import FileCompactStrategy, FileSink, RollingPolicy, committed_files
from penstock.connectors.files.commit import staging_folder
from penstock.connectors.files.folders import open_folder
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from penstock.driver.description import JobDescription
from penstock.engine.settings import JobSettings
from penstock.graph.partitioner import Hash
from penstock.runtime.embedded.crash import POINTS, CrashPoint
from penstock.testing import BarrierMode, CrashPlan, EmbeddedJob, ScriptedSource
from tests.embedded.jobs import (
    CountOperator,
    Pipeline,
    Verdict,
    key_of,
    master_of,
    memory_storage,
    numbered_script,
    settings,
)
from tests.servers.s3 import S3Server

EPOCHS = 8
SCRIPT = numbered_script(splits=2, per_split=24, epochs=EPOCHS)
RETRY = RestartStrategies.fixed_delay_restart(3, 0)
DIES = [point for point in POINTS if "upload" not in point and point != "during-restore"]
WAYS: dict[str, dict[str, Any]] = {
    "by size": {"rolling_policy": RollingPolicy.default_rolling_policy(part_size=120)},
    "compacted": {"compaction": FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()},
    "by checkpoint": {},
}


def job(base: str, way: str, given: JobSettings | None = None) -> JobDescription:
    return (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .operator(CountOperator(), 2, Hash(key_of))
        .sink(FileSink.text(base, **WAYS[way]), 2)
        .build(given or settings())
    )


def results(base: str) -> list[Any]:
    """The records of the files, file by file as they were committed, each as the tuple that it was."""
    folder = open_folder(base)
    names = [path.rpartition("/")[2] for path in committed_files(base)]
    return [ast.literal_eval(line) for name in names for line in (folder.read(name) or b"").decode().splitlines()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", DIES)
def test_a_process_that_dies_anywhere_leaves_every_record_in_a_file_once(
    tmp_path: Path, point: CrashPoint, way: str
) -> None:
    base = str(tmp_path / "out") if point != "after-manifest" else f"memory:///{uuid.uuid4().hex}"
    crashes = CrashPlan([(point, 2), (point, 4)])
    description = job(base, way, settings(restart=RETRY))
    EmbeddedJob(description, master_of(description, memory_storage()), crashes=crashes).run()
    assert crashes.fired == [(point, 2), (point, 4)]
    verdict = Verdict(SCRIPT, results(base))
    assert verdict.exact, verdict
    assert open_folder(base).names(staging_folder("sink", description.job_id)) == [], "nothing waits after the end"


# A simulated kill leaves the open file to the garbage collector, as a real one does to the kernel. It is collected here: later
# the warning would fail whichever test runs then.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", [BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED])
@pytest.mark.parametrize("seed", range(12))
def test_random_interleavings_leave_every_record_in_a_file_once(tmp_path: Path, seed: int, mode: BarrierMode) -> None:
    description = job(str(tmp_path), "by size", settings(restart=RETRY))
    crashes = CrashPlan([(DIES[seed % len(DIES)], 1 + seed % 5)])
    EmbeddedJob(
        description,
        master_of(description, memory_storage()),
        schedule="random",
        seed=seed,
        mode=mode,
        max_in_flight=2,
        crashes=crashes,
    ).run()
    gc.collect()
    verdict = Verdict(SCRIPT, results(str(tmp_path)))
    assert verdict.lost == verdict.duplicated == 0, verdict


def test_files_that_go_by_size_are_fewer_than_epochs(tmp_path: Path) -> None:
    counts = {}
    for way in WAYS:
        description = job(str(tmp_path / way), way)
        EmbeddedJob(description, master_of(description, memory_storage())).run()
        counts[way] = len(committed_files(tmp_path / way))
    assert EPOCHS < counts["by checkpoint"] <= 2 * EPOCHS
    assert counts["compacted"] <= EPOCHS // 3 + 1
    assert 2 < counts["by size"] <= EPOCHS


def _environment(job_dir: Path, **more: str) -> StreamExecutionEnvironment:
    config = {
        "penstock.runtime": "embedded",
        "penstock.job.dir": str(job_dir),
        "execution.checkpointing.interval": "0 ms",
        "penstock.epoch.interval": "1 ms",
        "penstock.epoch.max-records": "50",
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(config))


def _until(reached: Callable[[], bool], client: JobClient) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        if client.get_job_status().result().name in ("FAILED", "FINISHED"):
            client.get_job_execution_result().result()
        assert time.monotonic() < deadline, f"not reached: the job is {client.get_job_status().result()}"
        time.sleep(0.01)


def test_what_waits_at_a_savepoint_is_in_a_file_after_the_job_goes_on_elsewhere_at_another_parallelism(
    tmp_path: Path,
) -> None:
    def build(env: StreamExecutionEnvironment, last: int, parallelism: int) -> None:
        env.set_parallelism(2)
        numbers = (
            env.from_sequence(1, last)
            .uid("numbers")
            .set_parallelism(2)
            .key_by(lambda n: n % 8)
            .map(lambda n: n)
            .uid("same")
        )
        policy = RollingPolicy.default_rolling_policy(part_size=1_000_000)
        sink = FileSink.text(tmp_path / "out", rolling_policy=policy)
        numbers.map(str).set_parallelism(parallelism).uid("text").sink_to(sink).set_parallelism(parallelism).uid(
            "files"
        )

    env = _environment(tmp_path / "first")
    build(env, 10_000_000, 2)
    client = env.execute_async("first")
    _until(lambda: any((tmp_path / "out" / "_commits").glob("*.json")), client)
    savepoint = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    assert committed_files(tmp_path / "out") == [], "all of it waits"
    waiting = list((tmp_path / "out" / ".staging").rglob("*.txt"))
    assert waiting
    promised = [int(line) for path in waiting for line in path.read_text().splitlines()]
    assert len(promised) == len(set(promised))

    env = _environment(tmp_path / "second", **{"execution__state-recovery__path": str(savepoint)})
    build(env, 10_000_000, 3)
    client = env.execute_async("second")
    before = len(list((tmp_path / "out" / "_commits").glob("*.json")))
    _until(lambda: len(list((tmp_path / "out" / "_commits").glob("*.json"))) > before + 1, client)
    client.stop_with_savepoint(True, str(tmp_path / "savepoints")).result()
    found = [int(line) for path in committed_files(tmp_path / "out") for line in Path(path).read_text().splitlines()]
    for split in (1, 2):  # each has every second number
        numbers = sorted(number for number in found if number % 2 == split % 2)
        assert numbers == list(range(split, 2 * len(numbers) + split, 2))
    assert set(promised) < set(found)


def test_a_job_that_dies_writes_every_record_once_to_s3(s3: S3Server) -> None:
    base = f"s3://{s3.bucket()}/out"
    description = job(base, "by size", settings(restart=RETRY))
    crashes = CrashPlan([("after-manifest", 2), ("during-sink-commit", 4), ("before-manifest", 6)])
    EmbeddedJob(description, master_of(description, memory_storage()), crashes=crashes).run()
    assert len(crashes.fired) == 3
    verdict = Verdict(SCRIPT, results(base))
    assert verdict.exact, verdict
    assert len(committed_files(base)) <= EPOCHS
    assert open_folder(base).names(staging_folder("sink", description.job_id)) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_second_run_adds_its_files_to_those_of_the_first(tmp_path: Path, way: str) -> None:
    crashes = CrashPlan([("after-manifest", 3)])
    for run in ("first", "second"):
        description = replace(job(str(tmp_path / "out"), way, settings(restart=RETRY)), job_id=run)
        EmbeddedJob(description, master_of(description, memory_storage()), crashes=crashes).run()
        if run == "first":
            first = results(str(tmp_path / "out"))
            before = {path: Path(path).read_bytes() for path in committed_files(tmp_path / "out")}
    assert Verdict(SCRIPT, first).exact
    assert sorted(results(str(tmp_path / "out"))) == sorted(2 * first)
    assert {path: Path(path).read_bytes() for path in before} == before, "files of the first run are as they were"


def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    from penstock.errors import StorageError
    from penstock.records import Rows
    from penstock.testing.contracts import stage

    with pytest.raises(StorageError, match=r"the sink's folder s3://no-such-bucket-here/out.*does not exist"):
        stage(FileSink.text("s3://no-such-bucket-here/out"), 1, [Rows(["a"])])
