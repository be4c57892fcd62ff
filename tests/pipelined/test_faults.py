"""Workers killed with SIGKILL, functions that raise, a store that fails: pipelined on Spark, and still exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.checkpoint.object_storage import DriverStorage
from penstock.driver.client import JobClient
from penstock.driver.job_master import JobMaster
from penstock.engine.messages import EpochPlan
from penstock.errors import StorageError
from tests.driver.jobs import eventually
from tests.pipelined.uneven_job import (
    ends,
    hosts_of,
    kill_host,
    pid_of,
    running,
    start,
    verify,
    wait_for_checkpoints,
    wait_until,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

RATE = 4000.0


def attempts(client: JobClient) -> int:
    return int(running(client).master.job_attempt)


@pytest.mark.parametrize("parallelism", [1, 3])  # 2 below
def test_a_source_a_middle_and_a_last_worker_are_killed_one_after_the_other(parallelism: int, tmp_path: Path) -> None:
    client = start(tmp_path, records=12_000, rate=RATE, parallelism=parallelism)
    killed = []
    for level in (0, 1, 2):
        wait_for_checkpoints(client)
        before = attempts(client)
        killed.append(kill_host(client, level))
        wait_until(client, lambda before=before: attempts(client) > before, "the next attempt")
    ends(client, tmp_path)
    assert len(set(killed)) == 3
    assert attempts(client) == 3, "each kill is one failure, not two"
    verify(tmp_path, 12_000)


def test_a_worker_is_killed_while_the_others_restore_what_an_earlier_kill_took(tmp_path: Path) -> None:
    client = start(tmp_path, records=12_000, rate=RATE, parallelism=2)
    wait_for_checkpoints(client)
    kill_host(client, 1)
    wait_until(client, lambda: attempts(client) == 1, "the next attempt")
    kill_host(client, 2)  # as soon as it has enlisted: the job has not gone on yet
    wait_until(client, lambda: attempts(client) == 2, "the attempt after that")
    kill_host(client, 0)
    wait_for_checkpoints(client)
    ends(client, tmp_path)
    assert attempts(client) == 3
    verify(tmp_path, 12_000)


def test_all_workers_are_killed_at_once(tmp_path: Path) -> None:
    client = start(tmp_path, records=12_000, rate=RATE, parallelism=2)
    wait_for_checkpoints(client)
    before = {pid_of(host) for host in hosts_of(client)}
    assert len(before) == 6
    for level, index in ((2, 1), (0, 0), (1, 1), (1, 0), (0, 1), (2, 0)):
        if any(pid_of(h) in before and (h.id.level, h.id.index) == (level, index) for h in hosts_of(client)):
            kill_host(client, level, index)
    ends(client, tmp_path)
    assert attempts(client) >= 1
    verify(tmp_path, 12_000)


def test_a_function_that_raises_at_each_quarter_costs_an_attempt_each_and_no_record(tmp_path: Path) -> None:
    raises = (3_001, 6_000, 9_002)
    client = start(tmp_path, records=12_000, rate=RATE, parallelism=2, raises=raises)
    ends(client, tmp_path)
    assert [(tmp_path / f"raised-{index}").exists() for index in raises] == [True] * 3
    assert attempts(client) == 3
    said = [failure["message"] for failure in client.life_cycle()["exceptions"]]
    assert all(any(f"record {index} is not liked" in text for text in said) for index in raises), said
    verify(tmp_path, 12_000)


def test_a_job_whose_last_checkpoint_is_declined_is_not_finished_without_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed checkpoints are tolerated, but not the last one: it is tried again."""
    refused: list[str] = []
    last: list[int] = []
    put_new, plan_epoch = DriverStorage.put_new, JobMaster.plan_epoch

    def failing(storage: DriverStorage, path: str, data: bytes) -> bool:
        if last and f"chk-{last[0]}/" in path and not refused:
            refused.append(path)
            raise StorageError(f"{path}: the disk is full")
        return put_new(storage, path, data)

    def noting(master: JobMaster, *args: Any, **more: Any) -> EpochPlan | None:
        plan = plan_epoch(master, *args, **more)
        if plan is not None and plan.last:
            last.append(plan.epoch)
        return plan

    monkeypatch.setattr(DriverStorage, "put_new", failing)
    monkeypatch.setattr(JobMaster, "plan_epoch", noting)
    options: dict[str, Any] = {
        "execution.checkpointing.storage": "jobmanager",
        "execution.checkpointing.tolerable-failed-checkpoints": "5",
        "penstock.checkpoint.inline-threshold": "0 b",
    }
    client = start(tmp_path, records=8_000, rate=RATE, parallelism=2, **options)
    ends(client, tmp_path)
    assert len(refused) == 1
    assert len(last) == 2, "one more barrier, in the same attempt or the next"
    verify(tmp_path, 8_000)


def test_a_cancelled_job_ends_soon_and_without_a_failure_though_a_function_hangs(tmp_path: Path) -> None:
    """The function sleeps for an hour; Spark ends its process."""
    client = start(tmp_path, records=200_000, rate=RATE, parallelism=2, hangs_at=3_000)
    hangs = tmp_path / "hangs"
    wait_until(client, lambda: hangs.exists() and hangs.read_text(), "the hang")
    pid = int(hangs.read_text())
    assert pid in [pid_of(host) for host in hosts_of(client)]
    client.cancel().result()  # not in an hour
    assert client.life_cycle()["exceptions"] == []
    eventually(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, f"the end of {pid}"
    )
