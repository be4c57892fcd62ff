"""Savepoints are whole or absent, stand alone, and carry a job into another folder, parallelism or program."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import savepoint
from penstock.checkpoint.storage import Storage, open_storage
from penstock.common import Configuration
from penstock.common.restart_strategy import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from penstock.driver.description import JobDescription
from penstock.driver.requests import JobEndedError, SavepointRequest
from penstock.errors import ConfigurationError, CorruptSnapshotError, PenstockError, StorageError
from penstock.testing import CrashPlan, EmbeddedJob, ListSink
from tests.chaos.job import build
from tests.chaos.verify import verify
from tests.embedded.jobs import Verdict, counting_job, master_of, memory_storage, numbered_script, settings

RECORDS, SPLITS = 12_000, 3
SCRIPT = numbered_script(splits=2, per_split=40, epochs=8)


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> str:
    name = f"savepoints-{request.node.name}"
    ListSink.clear(name)
    return name


def start(folder: Path, job: str, parallelism: int, **more: str) -> JobClient:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(folder / job))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "1 ms")
    config.set_string("penstock.epoch.max-records", "1000")
    for key, value in more.items():
        config.set_string(key.replace("__", ".").replace("_", "-"), value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    build(env, folder, RECORDS, None, SPLITS)
    return env.execute_async("saved")


def at_epoch(runtime: EmbeddedJob, epoch: int, action: Callable[[], Any]) -> None:
    """Between epoch `epoch` and the next; once."""
    done: list[int] = []

    def on_report(report: Any) -> None:
        if report.epoch == epoch and not done:
            done.append(epoch)
            action()

    runtime.master.on_report = on_report


def run_to_savepoint(
    job: JobDescription, storage: Storage | None, request: SavepointRequest, *, at: int = 3, **options: Any
) -> EmbeddedJob:
    runtime = EmbeddedJob(job, master_of(job, storage), **options)
    at_epoch(runtime, at, lambda: runtime.master.requests.savepoint(request))
    runtime.run()
    return runtime


def resumed(job: JobDescription, path: str, **changes: Any) -> EmbeddedJob:
    job = replace(job, settings=replace(job.settings, recovery_path=path, **changes))
    return EmbeddedJob(job, master_of(job, memory_storage()))


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_stopped_with_a_savepoint_goes_on_elsewhere_and_is_exact(drain: bool, sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink)
    request = SavepointRequest(directory=str(tmp_path), stop=True, drain=drain)
    runtime = run_to_savepoint(job, memory_storage(), request)
    assert runtime.master.epoch == 4, "it stopped with the epoch after the request"
    assert request.answer.result(0).startswith(f"{tmp_path.as_uri()}/savepoint-")
    before = len(ListSink.results(sink))
    again = resumed(job, request.answer.result(0))
    again.run()
    if drain:  # a drained job has come to its end
        assert len(ListSink.results(sink)) == before
        assert again.master.finished
    else:
        assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_savepoint_of_a_running_job_changes_nothing_for_it(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink)
    request = SavepointRequest(directory=str(tmp_path))
    run_to_savepoint(job, memory_storage(), request)
    assert savepoint.load(request.answer.result(0)).epoch == 4
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_savepoint_can_be_taken_without_checkpoints(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink, job=settings(checkpoint_interval_ms=None))
    request = SavepointRequest(directory=str(tmp_path), stop=True)
    run_to_savepoint(job, None, request)
    resumed(counting_job(SCRIPT, sink), request.answer.result(0)).run()
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_savepoint_stands_alone_wherever_it_is_moved_to(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink, job=settings(inline_threshold=0))
    request = SavepointRequest(directory=str(tmp_path / "here"), stop=True)
    folder = tmp_path / "job"
    run_to_savepoint(job, open_storage(str(folder)), request)
    made = Path(request.answer.result(0).removeprefix("file://"))
    assert str(folder) not in (made / "manifest.json").read_text()
    shutil.move(made, tmp_path / "there")
    shutil.rmtree(folder)
    resumed(job, str(tmp_path / "there")).run()
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


@pytest.mark.parametrize("chain", [[1, 2], [2, 1], [3, 7], [7, 3]])
def test_windows_and_timers_in_flight_move_to_another_parallelism(chain: list[int], tmp_path: Path) -> None:
    first = start(tmp_path, "first", chain[0], penstock__checkpoint__inline_threshold="0")
    path = first.stop_with_savepoint(False, str(tmp_path / "saved")).result()
    first.get_job_execution_result().result()
    assert first.get_job_status().result().name == "FINISHED"
    assert not savepoint.load(path).finished, "the job had come to its end before it was asked to stop"
    second = start(tmp_path, "second", chain[1], execution__state_recovery__path=path)
    second.get_job_execution_result().result()
    assert second.epoch_reports()[0].restored_tasks > 0
    assert verify(tmp_path, RECORDS, SPLITS)["records"] == RECORDS


def test_resumed_in_its_old_folder_a_job_uses_no_epoch_number_twice(sink: str, tmp_path: Path) -> None:
    storage = memory_storage()
    job = counting_job(SCRIPT, sink)
    request = SavepointRequest(directory=str(tmp_path))
    runtime = run_to_savepoint(job, storage, request)
    last = runtime.master.epoch
    ListSink.clear(sink)
    job = replace(job, settings=replace(job.settings, recovery_path=request.answer.result(0)))
    again = EmbeddedJob(job, master_of(job, storage))
    again.run()
    assert min(ListSink.by_epoch(sink)) > last
    replayed = {(key, split, number) for key, _, split, number in ListSink.results(sink)}
    assert 0 < len(replayed) < 80, "it went on from the savepoint, not from the end and not from the beginning"


def test_a_driver_that_dies_after_resuming_goes_on_from_its_own_checkpoints(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink)
    request = SavepointRequest(directory=str(tmp_path), stop=True)
    run_to_savepoint(job, memory_storage(), request)
    job = replace(job, settings=replace(job.settings, recovery_path=request.answer.result(0)))
    crashes = CrashPlan([("after-manifest", 2), ("before-manifest", 4)])
    again = EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes)
    again.run()
    assert len(crashes.fired) == 2
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_claimed_savepoint_goes_when_no_checkpoint_needs_it_any_more(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink, job=settings(inline_threshold=0))
    request = SavepointRequest(directory=str(tmp_path), stop=True)
    run_to_savepoint(job, memory_storage(), request)
    made = Path(request.answer.result(0).removeprefix("file://"))
    kept = tmp_path / "copy"
    shutil.copytree(made, kept)
    resumed(job, str(kept)).run()
    assert (kept / "manifest.json").exists(), "not claimed: not touched"
    ListSink.clear(sink)
    resumed(job, str(made), claim=True).run()
    assert not made.exists()


def test_a_checkpoint_of_another_folder_can_be_resumed_but_not_claimed(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink, job=settings(inline_threshold=0))
    runtime = EmbeddedJob(job, master_of(job, open_storage(str(tmp_path / "job"))))
    at_epoch(runtime, 3, runtime.cancel)
    runtime.run()
    path = str(tmp_path / "job/checkpoints/chk-3")
    with pytest.raises(ConfigurationError, match="NO_CLAIM"):
        resumed(job, path, claim=True).run()
    resumed(job, path).run()
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize(
    ("point", "occurrence", "whole"),
    [
        ("before-snapshot", 32, False),
        ("after-snapshot", 34, False),
        ("before-manifest", 4, False),
        ("after-manifest", 4, False),
        ("during-sink-commit", 4, False),
        ("before-savepoint", 1, False),
        ("after-savepoint", 1, True),
        ("after-commit", 4, True),
    ],
)
def test_a_crash_leaves_a_savepoint_whole_or_absent(
    point: Any, occurrence: int, whole: bool, stop: bool, sink: str, tmp_path: Path
) -> None:
    job = counting_job(SCRIPT, sink, job=settings(inline_threshold=0))
    request = SavepointRequest(directory=str(tmp_path), stop=stop)
    crashes = CrashPlan([(point, occurrence)])
    runtime = EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes)
    at_epoch(runtime, 3, lambda: runtime.master.requests.savepoint(request))
    runtime.run()
    assert crashes.fired == [(point, occurrence)]
    manifests = list(tmp_path.glob("*/manifest.json"))
    if whole:
        (manifest,) = manifests
        assert savepoint.load(manifest.parent.as_uri()).epoch == 4
        if stop:  # it goes on, so nobody may be told to go on from the savepoint
            with pytest.raises(PenstockError, match="the job did not stop"):
                request.answer.result(0)
        else:
            assert request.answer.result(0) == manifest.parent.as_uri()
    else:
        assert manifests == []
        assert isinstance(request.answer.exception(0), PenstockError)
        assert list(tmp_path.rglob("*.state")) == [], "what it left behind was cleared away"
    # Whichever way, the new process finds the job's own checkpoint and goes on to the end.
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


@pytest.mark.parametrize("drain", [False, True])
def test_a_savepoint_folder_that_fails_costs_the_savepoint_and_not_the_job(
    drain: bool, sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def full(folder: str, name: str, data: bytes, inline_threshold: int) -> Any:
        calls.append(name)
        raise StorageError(f"cannot write {name}: no space left on device")

    monkeypatch.setattr(savepoint, "store_state", full)
    restart = RestartStrategies.fixed_delay_restart(1, 10)
    job = counting_job(SCRIPT, sink, job=settings(restart=restart))
    request = SavepointRequest(directory=str(tmp_path), stop=True, drain=drain)
    runtime = run_to_savepoint(job, memory_storage(), request)
    assert calls, "the fault did not fire"
    error = request.answer.exception(0)
    assert isinstance(error, PenstockError)
    assert drain or "no space left" in str(error)
    assert runtime.failures == (1 if drain else 0)  # drained and not saved: back to before the drain
    assert list(tmp_path.glob("*/manifest.json")) == []
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_directory_that_cannot_be_made_is_the_askers_error(sink: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    job = counting_job(SCRIPT, sink)
    request = SavepointRequest(directory=str(tmp_path / "file"), stop=True)
    run_to_savepoint(job, memory_storage(), request)
    with pytest.raises(StorageError, match="checkpoint folder"):
        request.answer.result(0)
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_request_after_the_end_is_refused(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink)
    runtime = EmbeddedJob(job, master_of(job, memory_storage()))
    runtime.run()
    future: Future[str] = runtime.master.requests.savepoint(SavepointRequest(directory=str(tmp_path)))
    with pytest.raises(JobEndedError, match="the job has ended"):
        future.result(0)


def test_without_any_directory_the_question_is_answered_with_what_to_set(sink: str) -> None:
    job = counting_job(SCRIPT, sink, job=settings(checkpoint_interval_ms=None))
    request = SavepointRequest(directory=None)
    run_to_savepoint(job, None, request)
    with pytest.raises(ConfigurationError, match=r"execution\.checkpointing\.savepoint-dir"):
        request.answer.result(0)


# ---------------------------------------------------------------- dispose and bad paths


def test_dispose_deletes_savepoints_and_nothing_else(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink, job=settings(inline_threshold=0))
    request = SavepointRequest(directory=str(tmp_path))
    run_to_savepoint(job, open_storage(str(tmp_path / "job")), request)
    path = request.answer.result(0)
    savepoint.dispose(path)
    assert not list(tmp_path.glob("savepoint-*/*"))
    savepoint.dispose(path)  # again: it is gone, as asked
    for folder in (tmp_path / "job/checkpoints").iterdir():  # with a manifest, and those that only lend it their files
        before = sorted(folder.iterdir())
        with pytest.raises(StorageError, match=r"not a savepoint|left as it is"):
            savepoint.dispose(str(folder))
        assert sorted(folder.iterdir()) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep")
    with pytest.raises(StorageError, match="left as it is"):
        savepoint.dispose(str(tmp_path / "mine"))
    assert (tmp_path / "mine/notes.txt").exists()


def test_a_path_without_a_savepoint_is_refused_with_what_to_give(sink: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptSnapshotError, match=r"no manifest\.json"):
        resumed(counting_job(SCRIPT, sink), str(tmp_path)).run()


def test_a_damaged_savepoint_names_the_file(sink: str, tmp_path: Path) -> None:
    job = counting_job(SCRIPT, sink, job=settings(inline_threshold=0))
    request = SavepointRequest(directory=str(tmp_path), stop=True)
    run_to_savepoint(job, memory_storage(), request)
    file = sorted(tmp_path.rglob("*.state"))[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(PenstockError, match=file.name):
        resumed(job, request.answer.result(0)).run()


def test_resuming_needs_checkpointing(tmp_path: Path) -> None:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("execution.state-recovery.path", str(tmp_path))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match="checkpointing is off"):
        env.execute()
