"""An error of a slot reaches relay and driver with its class: what waiting does not mend must not be waited for."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint.storage import Storage
from penstock.connectors.kafka.client import KafkaSetupError
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.engine.host import HostJob
from penstock.errors import (
    ConfigurationError,
    CorruptSnapshotError,
    PenstockError,
    as_text,
    from_text,
)
from penstock.runtime.connection.messages import JobGiven, Register, RunLevel, SlotAddress
from penstock.runtime.connection.wire import Wire
from penstock.runtime.epochs.client import SlotStream
from penstock.runtime.epochs.job import _Attempt
from penstock.runtime.epochs.registry import SlotRegistry
from penstock.runtime.epochs.slot import SlotProcess
from penstock.testing import EmbeddedJob, ListSink
from tests.driver.jobs import eventually
from tests.embedded.jobs import counting_job, master_of, memory_storage, numbered_script, settings


def job_of() -> JobDescription:
    script = numbered_script(splits=2, per_split=30, epochs=6)
    return counting_job(script, "errors-cross", parallelism=(1, 1, 1, 1), job=settings(inline_threshold=0))


@pytest.fixture
def storage() -> Storage:
    """A job folder after epoch 4."""
    ListSink.clear("errors-cross")
    storage = memory_storage()
    job = job_of()
    runtime = EmbeddedJob(job, master_of(job, storage))
    runtime.master.on_report = lambda report: runtime.cancel() if report.epoch == 4 else None
    runtime.run()
    return storage


@contextmanager
def slot_of(job: JobDescription, storage: Storage) -> Iterator[tuple[SlotRegistry, Any]]:
    """The registry of a job, and one real slot with its connections, in this process."""
    registry = SlotRegistry("127.0.0.1", b"", None)
    driver = Wire.connect("127.0.0.1", registry.port, registry.token)
    driver.send_message(Register(slot=0, address=SlotAddress("127.0.0.1", 1, 1), name="a:1", executor=1))
    assert driver.receive_message() == JobGiven(job=b"")
    slot_job = HostJob(
        job_id=job.job_id, graph=job.graph, settings=job.settings, storage_url=storage.url, job_parameters={}
    )
    slot = SlotProcess(0, driver, slot_job, storage)
    listener = socket.create_server(("127.0.0.1", 0))

    def relay(plan: Any, level: int) -> list[Any]:
        thread = threading.Thread(
            target=lambda: slot.serve(Wire.accept(listener.accept()[0], registry.token)), daemon=True
        )
        thread.start()
        wire = Wire.connect("127.0.0.1", listener.getsockname()[1], registry.token)
        try:
            return list(SlotStream(wire, RunLevel(plan=plan, level=level, attempt="0"), iter([])).results())
        finally:
            thread.join(10)

    try:
        yield registry, relay
    finally:
        listener.close()
        driver.close()
        registry.close()


def planned(job: JobDescription, storage: Storage, registry: SlotRegistry) -> tuple[JobMaster, bytes]:
    master = master_of(job, storage)
    master.start()
    plan = master.plan_epoch(5)
    assert plan is not None
    registry.begin(plan)
    return master, registry._plan


def damage(storage: Storage) -> list[str]:
    """Every state file loses its last byte."""
    damaged = [path for path in storage.list("checkpoints") if "manifest" not in path]
    for path in damaged:
        storage.put(path, storage.get(path)[:-1])
    return damaged


def as_the_driver_sees_it(registry: SlotRegistry) -> BaseException:
    eventually(lambda: registry.failure, "the driver has heard")
    attempt = _Attempt.__new__(_Attempt)
    attempt._registry = registry
    return attempt._explain(RuntimeError("Spark's wrapping"))


def test_a_slot_that_refuses_says_why_to_a_relay_that_is_still_sending() -> None:
    """The zombie of a speculative task has rows to send when the slot refuses it and closes the connection."""
    token = "a" * 32
    closed = threading.Event()
    asked_for = []

    def slot() -> None:
        wire = Wire.accept(listener.accept()[0], token)
        wire.receive_message()
        wire.send_error(CorruptSnapshotError("runs a later attempt"))
        wire.close()
        closed.set()

    def rows() -> Iterator[pa.RecordBatch]:
        assert closed.wait(60)
        for number in range(100):
            asked_for.append(number)
            yield pa.RecordBatch.from_pydict({"row": [b"x" * 100_000]})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=slot, daemon=True).start()
        stream = SlotStream(
            Wire.connect("127.0.0.1", listener.getsockname()[1], token),
            RunLevel(level=1, attempt="0", plan=b""),
            rows(),
        )
        stream._sender.join(10)
        assert 0 < len(asked_for) < 100, "it could not send them all"
        with pytest.raises(CorruptSnapshotError, match="runs a later attempt"):
            list(stream.results())


def test_a_damaged_state_file_is_a_corrupt_snapshot_to_relay_and_driver(storage: Storage) -> None:
    assert damage(storage)
    job = job_of()
    with slot_of(job, storage) as (registry, relay):
        _, plan = planned(job, storage, registry)
        with pytest.raises(CorruptSnapshotError, match=r"memory:///.*/chk-\d/.*bytes instead of"):
            relay(plan, 2)
        error = as_the_driver_sees_it(registry)
        assert type(error) is CorruptSnapshotError
        assert "bytes instead of" in str(error)
        assert "read_state" in "".join(error.__notes__)  # the slot's own traceback


def test_a_slot_that_has_no_more_files_says_so_and_is_not_taken_for_a_lost_connection(
    storage: Storage,
) -> None:
    job = job_of()
    fired = []

    def get(path: str) -> bytes:
        fired.append(path)
        raise OSError(errno.EMFILE, "Too many open files", path)

    broken: Any = SimpleNamespace(url=storage.url, get=get)
    with slot_of(job, broken) as (registry, relay):
        _, plan = planned(job, storage, registry)
        with pytest.raises(PenstockError, match=r"OSError.*Too many open files"):
            relay(plan, 2)
        assert "Too many open files" in str(as_the_driver_sees_it(registry))
    assert fired


def test_a_job_over_a_damaged_checkpoint_ends_at_once_with_its_own_error(storage: Storage) -> None:
    assert damage(storage)
    job = job_of()
    runtime = EmbeddedJob(job, master_of(job, storage))
    failures: list[BaseException] = []
    runtime.on_failure = failures.append
    with pytest.raises(CorruptSnapshotError, match="bytes instead of"):
        runtime.run()
    assert [type(error) for error in failures] == [CorruptSnapshotError]
    assert runtime.failures == 0, "no restart strategy is asked"


def test_only_names_of_a_closed_table_become_classes() -> None:
    assert as_text(KafkaSetupError("no broker")) == {"type": "ConfigurationError", "message": "no broker"}
    assert type(from_text(as_text(KafkaSetupError("no broker")))) is ConfigurationError
    assert as_text(KeyError("x")) == {"type": "PenstockError", "message": "KeyError: 'x'"}
    unknown = from_text({"type": "SystemExit", "message": "0"})
    assert type(unknown) is PenstockError
