"""Spark's own log: what of it our checkpoints hold, and how it comes back. No Spark is needed for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.manifest import Manifest, SparkPosition
from penstock.checkpoint.storage import LocalStorage
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import CorruptSnapshotError
from penstock.protocol.ids import CheckpointId, Generation
from penstock.runtime.epochs.spark_log import Progress, SparkLog
from tests.checkpoint.permits import commit, subsume

LINES = ("heartbeat", '{"logOffset":6}')


def query(folder: Path, store: CheckpointStore, attempt: str = "1.0") -> SparkLog:
    folder.mkdir()
    return SparkLog(location=folder, store=store, attempt=attempt)


def manifest(epoch: int, offsets: Any) -> Manifest:
    return Manifest(
        job_id="job", job_name="job", checkpoint_id=CheckpointId(epoch), epoch=epoch, generation=Generation(1),
        created_ms=1, processing_time_ms=1, max_parallelism=8, spark=offsets,
    )  # fmt: skip


def write(log: SparkLog, **files: str) -> None:
    for name, content in files.items():
        path = log.location / "sources" / "1" / name.lstrip("_").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def listed(folder: Path) -> dict[str, str]:
    sources = folder / "sources"
    return {str(file.relative_to(sources)): file.read_text() for file in sources.rglob("*") if file.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(LocalStorage(tmp_path / "job"), retained=1)


def test_a_checkpoint_holds_a_sources_log_from_its_last_compaction_on(tmp_path: Path, store: CheckpointStore) -> None:
    log = query(tmp_path / "one", store)
    write(log, _0="a", _1="b", _2_compact="abc", _3="d", _5_compact="abcdef", _6="g")
    (log.location / "sources" / "1" / ".6.crc").write_text("of the filesystem")
    offsets = log.position(Progress(6, LINES, ()))
    write(log, _7="h")  # of a batch that no checkpoint covers
    commit(store, manifest(7, offsets))
    after = query(tmp_path / "two", store, "1.1")
    after.seed(store.latest(), slots=2, sources=1)
    assert listed(after.location) == {"1/5.compact": "abcdef", "1/6": "g"}
    assert (after.location / "offsets" / "6").read_text().endswith('{"logOffset":6}')


def test_what_is_stored_is_not_stored_again_and_goes_with_the_last_checkpoint_that_needs_it(
    tmp_path: Path, store: CheckpointStore
) -> None:
    log = query(tmp_path / "one", store)
    write(log, _0="a", _1="b")
    commit(store, manifest(2, log.position(Progress(1, LINES, ()))))
    write(log, _2_compact="abc")
    commit(store, manifest(3, log.position(Progress(2, LINES, ()))))
    commit(store, manifest(4, log.position(Progress(3, LINES, ()))))
    assert [path.rpartition("/")[0] for path in store.storage.list("checkpoints") if "spark_" in path] == [
        "checkpoints/chk-2",
        "checkpoints/chk-2",
        "checkpoints/chk-3",
    ]
    subsume(store)
    assert [path.rpartition("/")[0] for path in store.storage.list("checkpoints") if "spark_" in path] == [
        "checkpoints/chk-3"
    ]
    after = query(tmp_path / "two", store, "2.0")
    after.seed(store.latest(), slots=2, sources=1)
    assert listed(after.location) == {"1/2.compact": "abc"}


def test_a_damaged_log_is_an_error_that_names_the_file(tmp_path: Path, store: CheckpointStore) -> None:
    log = query(tmp_path / "one", store)
    write(log, _0="a")
    made = manifest(1, log.position(Progress(0, LINES, ())))
    (path,) = store.storage.list("checkpoints")
    store.storage.put(path, b"b")
    with pytest.raises(CorruptSnapshotError, match="spark_"):
        query(tmp_path / "two", store, "1.1").seed(made, slots=2, sources=1)


def test_a_checkpoint_that_names_the_folder_of_its_query_is_still_understood(
    tmp_path: Path, store: CheckpointStore
) -> None:
    old = query(tmp_path / "old", store)
    write(old, _0="a", _1="b")
    before = manifest(2, SparkPosition(location=str(old.location), batch=1, lines=LINES))
    after = query(tmp_path / "new", store, "2.0")
    after.seed(replace(before, epoch=5), slots=2, sources=1)
    assert listed(after.location) == {"1/0": "a", "1/1": "b"}
    assert (after.location / "commits" / "4").exists()
