"""Snapshots are stored while later epochs run: progress with a blocked store, declined checkpoints, output that waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.checkpoint.manifest import FileState
from penstock.checkpoint.restore import contents_for
from penstock.checkpoint.storage import Storage
from penstock.common.restart_strategy import RestartStrategies
from penstock.driver.job_master import JobMaster
from penstock.engine.messages import TaskAck
from penstock.engine.settings import JobSettings
from penstock.engine.uploads import UploadInbox
from penstock.errors import JobFailedError
from penstock.graph.partitioner import Hash
from penstock.protocol.chains import Chains
from penstock.protocol.checkpoint_messages import Uploaded
from penstock.protocol.ids import TaskId, VertexId
from penstock.protocol.input_facts import Lineage
from penstock.state.backends import StateSettings
from penstock.testing import CrashPlan, EmbeddedJob, FlakyStorage, ListSink, ScriptedSource, StorageFault
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

SCRIPT = numbered_script(splits=2, per_split=40, epochs=12)


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> Any:
    name = request.node.name
    ListSink.clear(name)
    yield name
    ListSink.clear(name)


def run(sink: str, storage: Storage, watch: Callable[[JobMaster], None] = lambda m: None, **more: Any) -> EmbeddedJob:
    """In real time, so that snapshots are stored by threads; each is larger than what an acknowledgement carries."""
    job_settings: JobSettings = replace(
        settings(restart=RestartStrategies.no_restart(), inline_threshold=0), epoch_interval_ms=1, **more
    )
    job = (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .operator(CountOperator(), 2, Hash(key_of))
        .sink(ListSink(sink))
        .build(job_settings)
    )
    master = JobMaster(job, storage)
    watch(master)
    runtime = EmbeddedJob(job, master)
    runtime.run()
    return runtime


class BlockedStore:
    """State files of checkpoint 1 are stored only when it is let go."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.blocked = threading.Event()

    def __call__(self) -> None:
        self.blocked.set()
        assert self.released.wait(30), "nobody let the store go"


def test_epochs_go_on_while_a_snapshot_cannot_be_stored_and_output_waits_for_its_checkpoint(sink: str) -> None:
    gate = BlockedStore()
    faults = [StorageFault(operation="put_new", call=1, kind="slow", path_contains=".state")]
    storage = FlakyStorage(memory_storage(), faults, on_slow=gate)
    seen: list[tuple[int, int]] = []

    def watch(master: JobMaster) -> None:
        def on_report(report: Any) -> None:
            seen.append((report.epoch, len(ListSink.results(sink))))
            if report.epoch == 8:
                assert gate.blocked.is_set()
                gate.released.set()

        master.on_report = on_report

    runtime = run(sink, storage, watch)
    assert storage.fired == faults
    before = [visible for epoch, visible in seen if epoch < 8]
    assert before == [0] * 7, "eight epochs ran, and nothing became visible before checkpoint 1 was complete"
    assert Verdict(SCRIPT, ListSink.results(sink)).exact
    assert ListSink.commits(sink)[0] == 1
    assert runtime.master.finished


def test_a_checkpoint_whose_snapshot_was_not_stored_is_covered_by_the_next(sink: str) -> None:
    faults = [StorageFault(operation="put_new", call=3, path_contains=".state")]
    storage = FlakyStorage(memory_storage(), faults)
    run(sink, storage, tolerable_checkpoint_failures=1)
    assert storage.fired == faults
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_the_state_of_a_declined_checkpoint_is_in_the_next_one(sink: str) -> None:
    inner = memory_storage()
    faults = [StorageFault(operation="put_new", call=6, path_contains=".state")]
    run(sink, FlakyStorage(inner, faults), tolerable_checkpoint_failures=1)
    counted = ListSink.results(sink)
    # A job that resumes the finished one restores what the last checkpoint holds: all counts.
    again = JobMaster(
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .operator(CountOperator(), 2, Hash(key_of))
        .sink(ListSink(sink))
        .build(settings()),
        inner,
    )
    again.start()
    manifest = again.restored
    assert manifest is not None
    assert again.store is not None
    counts: dict[str, int] = {}
    for subtask in range(2):
        (vertex,) = {t.vertex for t in manifest.tasks if "operator" in t.vertex}
        for contents in contents_for(
            manifest,
            state_id=vertex,
            operators=[vertex],
            subtask=subtask,
            parallelism=2,
            lineage=Lineage(fingerprint="of another graph", sources=frozenset()),
            read=again.store.read_state,
        ):
            for table in contents.tables:
                if table.name == "count":
                    counts.update(zip(table.keys, table.values, strict=True))
    again.close()
    expected: dict[str, int] = {}
    for key, count, *_ in counted:
        expected[key] = max(count, expected.get(key, 0))
    assert counts == expected


def test_more_failures_than_are_tolerated_fail_the_job_with_the_reason(sink: str) -> None:
    faults = [StorageFault(operation="put_new", call=call, path_contains=".state") for call in range(1, 40)]
    with pytest.raises(JobFailedError, match=r"tolerable-failed-checkpoints is 2.*simulated"):
        run(sink, FlakyStorage(memory_storage(), faults), tolerable_checkpoint_failures=2)


def test_a_checkpoint_that_takes_too_long_is_declined_and_its_late_snapshot_ignored(sink: str) -> None:
    gate = BlockedStore()
    faults = [StorageFault(operation="put_new", call=1, kind="slow", path_contains=".state")]
    declined: list[int] = []

    def watch(master: JobMaster) -> None:
        def on_report(report: Any) -> None:
            if master.restored is not None:  # a later checkpoint is complete although the first still hangs
                declined.append(int(master.restored.checkpoint_id))
                gate.released.set()

        master.on_report = on_report

    run(
        sink,
        FlakyStorage(memory_storage(), faults, on_slow=gate),
        watch,
        tolerable_checkpoint_failures=5,
        checkpoint_timeout_ms=1000,
    )
    assert declined
    assert declined[0] > 1
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_state_in_rocksdb_is_snapshotted_in_parts_and_restored_from_them(
    sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engine.task._PART_ENTRIES", 2)
    job = (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .operator(CountOperator(), 1, Hash(key_of))
        .sink(ListSink(sink))
        .build(replace(settings(), incremental=False, state=StateSettings(backend="rocksdb")))
    )
    storage = memory_storage()
    parts: list[int] = []
    crashes = CrashPlan([("process", 25), ("process", 50)])
    runtime = EmbeddedJob(job, master_of(job, storage), crashes=crashes)

    def on_report(report: Any) -> None:
        manifest = runtime.master.restored
        assert manifest is not None
        parts.append(max(len(task.handles) for task in manifest.tasks))

    runtime.master.on_report = on_report
    runtime.run()
    assert len(crashes.fired) == 2
    assert max(parts) >= 3, "five keys in parts of two, and the delta"
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


# ---------------------------------------------------------------- bookkeeping


def stored() -> Uploaded:
    return Uploaded(task=TaskId(VertexId(0), 0), epoch=3, attempt="a", size=5)


def test_the_inbox_gives_what_has_come_and_waits_only_if_nothing_has() -> None:
    inbox = UploadInbox()
    inbox.put(stored())
    started = time.monotonic()
    assert inbox.take(30) == [stored()]
    assert time.monotonic() - started < 10
    assert inbox.take() == []


def test_a_full_snapshot_is_asked_for_when_deltas_have_grown_as_large_as_the_state() -> None:
    chains, task = Chains(compact_after=2), TaskId(VertexId(0), 0)

    def add(size: int, *, full: bool) -> int:
        ack = TaskAck(task=task, epoch=1, attempt="a", full=full)
        chains.extend({task: ack}, {task: (FileState(path="p", size=size, crc32=0),)})
        return chains.lengths([task])[task]

    assert chains.lengths([task])[task] == 0
    assert add(1000, full=True) == 1
    assert [add(100, full=False) for _ in range(9)] == list(range(2, 11))
    assert add(100, full=False) == 0, "ten deltas of a tenth each"
    assert add(1000, full=True) == 1
    chains.keep({task: TaskAck(task=task, epoch=2, attempt="a", full=False)}, {})
    assert chains.lengths([task])[task] == 0, "a lost delta: nothing can be built on the chain"
