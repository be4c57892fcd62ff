"""Every file of a checkpoint, damaged in every way, one by one: a named error or an older checkpoint, never a wrong result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage import open_storage
from penstock.driver.description import JobDescription
from penstock.errors import CorruptSnapshotError, PenstockError
from penstock.runtime.launch import _job_id
from penstock.testing import EmbeddedJob, ListSink, sinks
from tests.embedded.jobs import Verdict, counting_job, master_of, memory_storage, numbered_script, settings

SCRIPT = numbered_script(splits=2, per_split=30, epochs=6)


def describe(sink: str, *, fall_back: bool) -> JobDescription:
    chosen = replace(settings(inline_threshold=0), retained=2, compact_after=2, fall_back_to_older=fall_back)
    return counting_job(SCRIPT, sink, parallelism=(1, 1, 2, 1), job=chosen)


@pytest.fixture(scope="module")
def stopped() -> dict[str, bytes]:
    """A job folder after epoch 4, with two checkpoints that share files, and an epoch planned but not run."""
    storage = memory_storage()
    ListSink.clear("damage-made")
    job = describe("damage-made", fall_back=False)
    runtime = EmbeddedJob(job, master_of(job, storage))
    runtime.master.on_report = lambda report: runtime.cancel() if report.epoch == 4 else None
    runtime.run()
    master = master_of(job, storage)
    master.start()
    master.plan_epoch(5)
    master.close()
    return {path: storage.get(path) for path in storage.list("")}


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 0x10
    return bytes(changed)


def damages(data: bytes) -> dict[str, bytes | None]:
    return {
        "first bit": flipped(data, 0),
        "a third of the way": flipped(data, len(data) // 3),
        "two thirds of the way": flipped(data, 2 * len(data) // 3),
        "last bits": flipped(data, len(data) - 3),
        "half": data[: len(data) // 2],
        "last byte cut off": data[:-1],
        "empty": b"",
        "missing": None,
    }


@pytest.mark.parametrize("fall_back", [False, True])
def test_every_file_damaged_one_by_one(fall_back: bool, stopped: dict[str, bytes]) -> None:
    assert len(stopped) > 15
    kinds = {"checkpoints", "epochs", "generations", "checkpoint-statistics.json"}
    assert {path.split("/")[0] for path in stopped} == kinds
    outcomes: dict[str, list[str]] = {"exact": [], "refused": []}
    for path, data in stopped.items():
        for kind, content in damages(data).items():
            files: dict[str, bytes | None] = {**stopped, path: content}
            outcomes[resume(files, fall_back, f"{path}: {kind}", path)].append(path)
    newest = {path for path in stopped if path.startswith("checkpoints/chk-4/")}
    if fall_back:
        assert newest <= set(outcomes["exact"]), "damage to the newest alone costs nothing but time"
    else:
        assert newest <= set(outcomes["refused"])
        assert not newest & set(outcomes["exact"]) - {
            "checkpoints/chk-4/manifest.json"
        }  # if missing, chk-3 is the newest


def resume(files: dict[str, bytes | None], fall_back: bool, where: str, damaged: str) -> str:
    """Either "exact" or "refused"; anything else fails."""
    sink = "damage-resumed"
    ListSink.clear(sink)
    # What the world has seen already: commits are idempotent by epoch.
    sinks._committed[sink] = {epoch: list(values) for epoch, values in ListSink.by_epoch("damage-made").items()}
    storage = memory_storage()
    for path, data in files.items():
        if data is not None:
            storage.put(path, data)
    job = describe(sink, fall_back=fall_back)
    problem = failure_of(job, storage)
    if problem is None:
        assert Verdict(SCRIPT, ListSink.results(sink)).exact, where
        return "exact"
    named = [problem, problem.__cause__]
    assert any(isinstance(e, CorruptSnapshotError) and damaged in str(e) for e in named), f"{where}: {problem!r}"
    return "refused"


def failure_of(job: JobDescription, storage: Any) -> PenstockError | None:
    try:
        EmbeddedJob(job, master_of(job, storage)).run()
    except PenstockError as error:
        return error
    return None


def test_a_job_folder_that_does_not_say_whose_it_is_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_bytes(b'{"job_id": "1234')
    with pytest.raises(CorruptSnapshotError, match=r"job\.json"):
        _job_id(open_storage(str(tmp_path)), "fresh")
