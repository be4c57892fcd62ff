"""Checkpoint storage on a server that speaks S3, and what becomes of its faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from penstock.checkpoint import layout, object_storage
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.object_storage import ObjectStorage
from penstock.checkpoint.ownership import OwnerInfo, acquire
from penstock.checkpoint.storage import FileMissingError, Storage
from penstock.checkpoint.store import AlreadyCommitted, CheckpointStore, Committed, Fenced
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import StorageError
from penstock.protocol.ids import CheckpointId, Generation
from tests.checkpoint.permits import permit_for
from tests.servers.s3 import S3Server


@pytest.fixture
def url(s3: S3Server) -> str:
    return f"s3://{s3.bucket()}/job"


def _manifest(checkpoint: int, generation: int) -> Manifest:
    return Manifest(
        job_id="j",
        job_name="job",
        checkpoint_id=CheckpointId(checkpoint),
        epoch=checkpoint,
        generation=Generation(generation),
        created_ms=1000,
        processing_time_ms=1000,
        max_parallelism=128,
    )


def _impatient(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setitem(object_storage.RETRY, "retry_timeout", timedelta(seconds=seconds))
    monkeypatch.setitem(object_storage.RETRY, "backoff", {"init_backoff": timedelta(milliseconds=10)})


def test_of_two_drivers_that_commit_one_checkpoint_one_does_and_the_other_is_fenced(url: str) -> None:
    drivers = [CheckpointStore(ObjectStorage(url), retained=1) for _ in range(2)]
    for pid, driver in enumerate(drivers, start=1):
        acquire(driver.storage, OwnerInfo(host=f"host-{pid}", pid=pid, process_start_time=1.0, acquired_ms=0))
    drivers[0].storage.delete(layout.generation(Generation(2)))  # the first has not seen its successor yet
    start = threading.Barrier(2)

    def commit(generation: int) -> object:
        start.wait(timeout=30)
        made = _manifest(7, generation)
        return drivers[generation - 1].commit(made, permit_for(made))

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(commit, (1, 2)))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Committed", "Fenced"]
    winner = next(number for number, outcome in enumerate(outcomes, start=1) if isinstance(outcome, Committed))
    assert drivers[0].load(7).generation == winner
    loser = next(outcome for outcome in outcomes if isinstance(outcome, Fenced))
    assert loser.by_generation == winner


def test_a_commit_whose_answer_is_lost_is_repeated_and_recognised_as_ours(s3: S3Server, url: str) -> None:
    store = CheckpointStore(ObjectStorage(url), retained=1)
    s3.fail(1, methods=["PUT"], lose=True)
    outcome = store.commit(_manifest(1, 1), permit_for(_manifest(1, 1)))
    assert s3.heal() == 0
    assert isinstance(outcome, AlreadyCommitted)
    assert store.completed() == [1]


def test_more_files_than_one_answer_lists_are_all_listed(s3: S3Server, url: str) -> None:
    s3.fill(url.split("/")[2], "job/checkpoints/chk-1/", 2345)
    listed = ObjectStorage(url).list("checkpoints")
    assert len(listed) == 2345
    assert listed == sorted(listed)
    assert sum(request.startswith("GET") for request in s3.requests()[-3:]) == 3  # it took three answers


@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 503}, {"lose": True}])
def test_a_server_that_fails_for_a_moment_is_asked_again(s3: S3Server, url: str, fault: dict[str, object]) -> None:
    storage = ObjectStorage(url)
    for operation in (
        lambda: storage.put("a", b"1"),
        lambda: storage.get("a"),
        lambda: storage.list(""),
        lambda: storage.put_new("b", b"1"),
        lambda: storage.delete("b"),
    ):
        s3.fail(2, **fault)
        operation()
        assert s3.heal() == 0
    assert storage.list("") == ["a"]


def test_a_slow_server_is_waited_for(s3: S3Server, url: str) -> None:
    s3.fail(1, delay_s=1.5)
    storage = ObjectStorage(url)
    storage.put("a", b"1")
    assert storage.get("a") == b"1"


def test_a_server_that_stays_away_is_given_up_with_its_address_and_what_to_do(
    s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _impatient(monkeypatch, 0.5)
    storage = ObjectStorage(url)
    s3.fail(1000, status=503)
    before = time.monotonic()
    with pytest.raises(StorageError, match=r"cannot write a in checkpoint storage s3://.*503"):
        storage.put("a", b"1")
    assert time.monotonic() - before < 20
    s3.heal()
    storage.put("a", b"1")


def test_an_endpoint_where_nobody_listens_is_named(s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _impatient(monkeypatch, 0.5)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1.*AWS_ENDPOINT_URL"):
        ObjectStorage(url).put("a", b"1")


def test_a_request_that_takes_too_long_says_what_gives_it_more_time(
    s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _impatient(monkeypatch, 0.5)
    monkeypatch.setenv("AWS_TIMEOUT", "300ms")
    s3.fail(1000, delay_s=1.0)
    with pytest.raises(StorageError, match=r"AWS_TIMEOUT"):
        ObjectStorage(url).put("a", b"1")


def test_an_endpoint_without_encryption_must_be_allowed(
    s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(StorageError, match="AWS_ALLOW_HTTP=true"):
        ObjectStorage(url).put("a", b"1")


def test_a_missing_bucket_is_said_to_be_missing_whatever_is_asked(s3: S3Server) -> None:
    storage: Storage = ObjectStorage("s3://penstock-nowhere/job")
    operations: list[Callable[[], object]] = [
        lambda: storage.put("a", b""),
        lambda: storage.put_new("a", b""),
        lambda: storage.get("a"),
        lambda: storage.list("a"),
    ]
    for operation in operations:
        with pytest.raises(
            StorageError, match=r"s3://penstock-nowhere/job.*bucket or container does not exist"
        ) as raised:
            operation()
        assert not isinstance(raised.value, FileMissingError)


def test_missing_credentials_are_named_and_not_the_service_that_had_none() -> None:
    refused = OSError("Error performing PUT http://169.254.169.254/latest/api/token: 403 Forbidden")
    assert "AWS_ACCESS_KEY_ID" in object_storage._advice(refused)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong key", r"cannot create job\.json in checkpoint storage s3://.*credentials"),
        ("no bucket", r"cannot create job\.json in checkpoint storage s3://.*bucket or container does not exist"),
        ("no conditions", "ignores conditional writes"),
    ],
)
def test_a_job_whose_folder_cannot_be_used_does_not_start(
    s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    match fault:
        case "wrong key":
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
        case "no bucket":
            url = "s3://penstock-nowhere/job"
        case "no conditions":
            s3.fail(1000, careless=True)
    config = Configuration.from_dict({"penstock.runtime": "embedded", "penstock.job.dir": url})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.enable_checkpointing(10)
    seen: list[int] = []
    env.from_collection([1, 2]).map(seen.append).print()
    with pytest.raises(StorageError, match=said):
        env.execute("unstarted")
    assert seen == []
