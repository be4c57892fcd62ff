"""Permission is an object that one was given: without it, or with a replaced driver's, nothing is written or deleted.

Rules 3, 4 and 5 of the checkpoint machine. What the type checker refuses already is tried here as a program without one would.
"""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import layout
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.manifest_file import encode
from penstock.checkpoint.ownership import OwnerInfo, Ownership, StartPermit, acquire, renew
from penstock.checkpoint.storage import ObjectStorage, Storage
from penstock.checkpoint.store import CheckpointStore, Committed, Fenced, KeptAll
from penstock.connectors.files import FileSink
from penstock.connectors.files.commit import staging_folder
from penstock.connectors.staging import StagedCommitter, stage
from penstock.driver.plan_log import PlanLog
from penstock.driver.recovery import import_savepoint
from penstock.driver.sink_commits import SinkCommits
from penstock.driver.waiting import LatencyTracker
from penstock.errors import FencedError, ProtocolError
from penstock.functions.connectors import Committer, Sink, SinkWriter, WriterContext
from penstock.protocol.checkpoint_messages import ManifestPermit
from penstock.protocol.ids import CheckpointId, Generation
from penstock.testing import FlakyStorage
from tests.checkpoint.permits import commit, permit_for

PRODUCT = Path(__file__).parents[2] / "penstock"


@pytest.fixture
def store() -> CheckpointStore:
    return CheckpointStore(ObjectStorage(f"memory:///{uuid.uuid4().hex}"), retained=1)


def driver(store: CheckpointStore, pid: int) -> Ownership:
    """One of several on different hosts, of which each takes over from the one before."""
    return acquire(store.storage, OwnerInfo(host=f"host-{pid}", pid=pid, process_start_time=1.0, acquired_ms=0))


def manifest(checkpoint: int, generation: int, **more: Any) -> Manifest:
    return Manifest(
        job_id="j", job_name="n", checkpoint_id=CheckpointId(checkpoint), epoch=checkpoint,
        generation=Generation(generation), created_ms=1, processing_time_ms=1, max_parallelism=8, **more,
    )  # fmt: skip


# ---------------------------------------------------------------- who gives permits


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Ownership, {"storage": None, "generation": 1, "owner": None}),
        (StartPermit, {"checkpoint": 1, "ownership": None}),
        (
            ManifestPermit,
            {"epoch": 1, "planned": None, "acks": {}, "chains": {}, "committables": {}, "finished": False, "size": 0},
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_nobody_makes_a_permit_for_himself(kind: type, fields: Mapping[str, Any]) -> None:
    with pytest.raises(TypeError, match="seal"):
        kind(**fields)
    with pytest.raises(ProtocolError):
        kind(**fields, seal=object())


def test_only_those_who_may_give_permits_can() -> None:
    """Who has a seal can make the permits it is for."""
    found = {
        str(file.relative_to(PRODUCT.parent))
        for file in PRODUCT.rglob("*.py")
        if re.search(r"\bSEAL\b", file.read_text())
    }
    assert found == {
        "penstock/checkpoint/ownership.py",
        "penstock/checkpoint/store.py",
        "penstock/protocol/checkpoints.py",
        "penstock/protocol/checkpoint_messages.py",
    }


# ---------------------------------------------------------------- rule 5: a manifest


def test_a_manifest_is_not_written_without_a_permit(store: CheckpointStore) -> None:
    with pytest.raises(TypeError):
        store.commit(manifest(1, 1))  # type: ignore[call-arg]
    for instead in (None, True, driver(store, 1)):
        with pytest.raises(ProtocolError, match="checkpoint 1 of generation 1 was to be written without permission"):
            store.commit(manifest(1, 1), instead)  # type: ignore[arg-type]
    assert store.completed() == []


def test_a_permit_is_for_one_checkpoint_and_its_output(store: CheckpointStore) -> None:
    driver(store, 1)
    made = manifest(2, 1, committables={"sink": b"x"})
    for other in (
        manifest(3, 1, committables={"sink": b"x"}),
        manifest(2, 1),
        manifest(2, 1, committables={"s": b"x"}),
    ):
        with pytest.raises(ProtocolError, match="is for another one"):
            store.commit(made, permit_for(other))
    assert store.completed() == []
    assert store.commit(made, permit_for(made)) == Committed(checkpoint_id=CheckpointId(2))


def test_who_has_started_may_only_go_on_from_what_is_behind_and_promises_nothing(store: CheckpointStore) -> None:
    start = store.begin(driver(store, 1), CheckpointId(4))
    for made in (manifest(4, 1), manifest(5, 2), manifest(5, 1, committables={"sink": b"x"})):
        with pytest.raises(ProtocolError, match="is for another one"):
            store.commit(made, start)
    assert store.commit(manifest(5, 1), start) == Committed(checkpoint_id=CheckpointId(5))


def test_a_driver_that_was_replaced_commits_nothing(store: CheckpointStore) -> None:
    start = store.begin(driver(store, 1), None)
    store.begin(driver(store, 2), None)
    refused = Fenced(checkpoint_id=CheckpointId(1), by_generation=Generation(2))
    assert store.commit(manifest(1, 1), start) == commit(store, manifest(1, 1)) == refused
    assert store.completed() == []


# ---------------------------------------------------------------- rule 3: what an earlier generation left


class _Discards(Sink, Committer):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def create_writer(self, context: WriterContext) -> SinkWriter:
        raise NotImplementedError

    def create_committer(self, sink_id: str) -> Committer:
        return self

    def take_over(self) -> None:
        self.calls.append("take_over")

    def commit(self, epoch: int, committables: object) -> None:
        self.calls.append("commit")

    def discard_after(self, epoch: int) -> None:
        self.calls.append(f"discard_after {epoch}")


def sinks(sink: _Discards, storage: Storage | None = None) -> SinkCommits:
    return SinkCommits(
        {"sink": sink}, storage, reach=lambda point, epoch: None, timeout_ms=1, now_ms=lambda: 0,
        latency=LatencyTracker.__new__(LatencyTracker),
    )  # fmt: skip


def test_a_start_is_in_the_folder_before_the_permit_is_there(store: CheckpointStore) -> None:
    first = driver(store, 1)
    start = store.begin(first, CheckpointId(3))
    noted = layout.generation_starts(store.storage.list(layout.GENERATIONS))
    assert noted[start.generation].checkpoint == start.checkpoint == 3
    assert store.begin(first, CheckpointId(7)).checkpoint == 3, "the first counts"


def test_a_driver_that_was_replaced_is_not_permitted_to_start(store: CheckpointStore) -> None:
    first = driver(store, 1)
    driver(store, 2)
    with pytest.raises(FencedError, match="replaced by 2"):
        store.begin(first, None)


def test_nothing_staged_is_discarded_without_a_start(store: CheckpointStore) -> None:
    sink = _Discards()
    with pytest.raises(TypeError):
        sinks(sink).recover(None, 3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        sinks(sink).recover(None, 3, None)  # type: ignore[arg-type]
    later = store.begin(driver(store, 1), CheckpointId(5))
    with pytest.raises(ProtocolError, match="behind epoch 3"):
        sinks(sink).recover(None, 3, later)
    assert sink.calls == []
    sinks(sink).recover(None, 5, later)
    assert sink.calls == ["take_over", "discard_after 5"]


def test_a_driver_that_was_replaced_discards_nothing_staged(store: CheckpointStore) -> None:
    sink = _Discards()
    start = store.begin(driver(store, 1), None)
    driver(store, 2)
    with pytest.raises(FencedError, match="replaced by 2"):
        sinks(sink).recover(None, 0, start)
    assert sink.calls == []


class _Stages(_Discards):
    def create_committer(self, sink_id: str) -> Committer:
        return _NoTarget(sink_id)


class _NoTarget(StagedCommitter):
    def commit_staged(self, epoch: int, name: str, staged: object) -> None:
        raise NotImplementedError


def test_a_driver_that_is_replaced_before_it_looks_for_what_is_staged_discards_nothing(store: CheckpointStore) -> None:
    """It was the newest when it asked. What it finds afterwards is its successor's, who may have promised it."""

    class Paused(FlakyStorage):
        def list(self, prefix: str) -> list[str]:
            driver(store, 2)
            stage(bytes(20_000), store.storage, job_id="j", sink_id="sink", epoch=1, subtask=0)
            return super().list(prefix)

    start = store.begin(driver(store, 1), None)
    with pytest.raises(FencedError, match="replaced by 2"):
        sinks(_Stages(), Paused(store.storage, ())).recover(None, 0, start)
    assert len(store.storage.list("staged")) == 1


def test_a_driver_that_is_replaced_before_it_looks_for_staged_files_discards_none(tmp_path: Path) -> None:
    committer = FileSink.text(tmp_path).create_committer("sink")
    staged = tmp_path / staging_folder("sink", "") / "00000001-0-x"
    staged.parent.mkdir(parents=True)
    staged.write_text("promised")

    def replaced() -> None:
        raise FencedError("replaced")

    committer.still_mine = replaced  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        committer.discard_after(0)
    assert staged.exists()
    FileSink.text(tmp_path).create_committer("sink").discard_after(0)
    assert not staged.exists()


def test_manifests_of_older_drivers_that_appear_one_after_the_other_all_give_way(store: CheckpointStore) -> None:
    """Two drivers have died while their manifest was on its way; the second appears when the first has been deleted."""

    class Late(FlakyStorage):
        def delete(self, path: str) -> None:
            super().delete(path)
            if not late:
                late.append(path)
                store.storage.put(path, encode(manifest(3, 1)))

    late: list[str] = []
    for pid in (1, 2):
        store.begin(driver(store, pid), None)
    store.storage.put(layout.checkpoint_manifest(3), encode(manifest(3, 2)))
    third = CheckpointStore(Late(store.storage, ()), retained=1)
    third.begin(driver(store, 3), None)
    assert isinstance(commit(third, manifest(3, 3)), Committed)
    assert late
    assert store.load(3).generation == 3


def test_a_savepoint_becomes_no_checkpoint_without_a_start(store: CheckpointStore, tmp_path: Path) -> None:
    source: dict[str, Any] = {
        "own": None, "job_id": "j", "claim": True, "now_ms": 1, "committers": {}, "check": lambda manifest: None,
    }  # fmt: skip
    made = savepoint_in(tmp_path)
    with pytest.raises(TypeError):
        import_savepoint(made, store, **source)
    with pytest.raises(AttributeError):
        import_savepoint(made, store, None, **source)  # type: ignore[arg-type]
    start = store.begin(driver(store, 1), None)
    driver(store, 2)
    with pytest.raises(FencedError, match="generation 2 owns"):
        import_savepoint(made, store, start, **source)
    assert store.completed() == []
    third = store.begin(driver(store, 3), None)
    assert import_savepoint(made, store, third, **source).claimed_savepoint == made
    assert store.completed() == [6]


def savepoint_in(folder: Path) -> str:
    from penstock.checkpoint import savepoint
    from penstock.checkpoint.storage import LocalStorage

    savepoint.complete(LocalStorage(folder / "sp"), dataclasses.replace(manifest(6, 1), kind="savepoint"))
    return str(folder / "sp")


# ---------------------------------------------------------------- rule 4: what drivers share


def three_checkpoints(store: CheckpointStore) -> StartPermit:
    start = store.begin(driver(store, 1), None)
    for number in (1, 2, 3):
        commit(store, manifest(number, 1))
    return start


DELETIONS: dict[str, Callable[[CheckpointStore, Any], object]] = {
    "subsume": lambda store, start: store.subsume(start),
    "discard_all": lambda store, start: store.discard_all(start),
}


@pytest.mark.parametrize("delete", DELETIONS.values(), ids=DELETIONS)
def test_no_checkpoint_is_deleted_without_a_start_or_by_a_driver_that_was_replaced(
    store: CheckpointStore, delete: Callable[[CheckpointStore, Any], object]
) -> None:
    start = three_checkpoints(store)
    before = store.storage.list("checkpoints")
    with pytest.raises(AttributeError):
        delete(store, None)
    successor = driver(store, 2)
    refused = KeptAll(reason="generation 2 has replaced 1: the checkpoints are its")
    assert delete(store, start) == refused
    assert store.storage.list("checkpoints") == before
    renewed = renew(successor)
    delete(store, store.begin(renewed, CheckpointId(3)))
    commit(store, manifest(4, 3))
    delete(store, store.begin(renewed, CheckpointId(3)))
    assert store.completed() in ([4], [])


def test_no_checkpoint_is_set_aside_by_a_driver_that_was_replaced(store: CheckpointStore) -> None:
    three_checkpoints(store)
    second = driver(store, 2)
    driver(store, 3)
    with pytest.raises(TypeError):
        store.set_aside(CheckpointId(3))  # type: ignore[call-arg]
    with pytest.raises(FencedError, match="replaced by 3"):
        store.set_aside(CheckpointId(3), second)
    assert store.completed() == [1, 2, 3]


def test_no_plan_is_deleted_by_a_driver_that_was_replaced(store: CheckpointStore) -> None:
    start = store.begin(driver(store, 1), None)
    plans = PlanLog(store.storage, start)
    store.storage.put(layout.epoch_plan(1), b"{}")
    driver(store, 2)
    with pytest.raises(FencedError, match="replaced by 2"):
        plans.load(0)  # it follows nothing, and would go
    assert store.storage.exists(layout.epoch_plan(1))
    with pytest.raises(FencedError, match="replaced by 2"):
        plans.forget(1)
    assert store.storage.exists(layout.epoch_plan(1))


def test_a_job_without_a_folder_has_nobody_to_ask() -> None:
    start = StartPermit.without_folder()
    start.check()
    assert (start.generation, start.checkpoint) == (0, 0)
