"""A job that goes back runs the same epoch again: what its earlier attempt still says or asks is not meant for the later one."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.checkpoint.storage import Storage
from penstock.engine.messages import EpochPlan, TaskAck
from penstock.errors import SlotError
from penstock.runtime.connection.messages import HostFailed, JobGiven, Register, Sampled, SlotAddress
from penstock.runtime.connection.wire import Wire
from penstock.runtime.epochs.client import RegistryAddress, open_slot
from penstock.runtime.epochs.registry import SlotRegistry
from tests.driver.jobs import eventually
from tests.embedded.jobs import master_of
from tests.runtime.test_errors_cross import job_of, planned, slot_of, storage

__all__ = ["storage"]


def plan(epoch: int, job_attempt: int) -> EpochPlan:
    return EpochPlan(
        epoch=epoch, checkpoint=True, processing_time=0, sources={}, accepted={}, chain_lengths={},
        base_checkpoint=None, restorable=True, job_attempt=job_attempt,
    )  # fmt: skip


def error_of(job_attempt: int, epoch: int) -> HostFailed:
    return HostFailed(
        job_attempt=job_attempt,
        epoch=epoch,
        slot=0,
        type="UserFunctionError",
        message=f"map raised in attempt {job_attempt}",
        traceback="",
    )


@pytest.fixture
def registry() -> Iterator[SlotRegistry]:
    made = SlotRegistry("127.0.0.1", b"job")
    yield made
    made.close()


def slot_in(registry: SlotRegistry, pid: int = 1) -> Wire:
    wire = Wire.connect("127.0.0.1", registry.port, registry.token)
    wire.send_message(Register(slot=0, address=SlotAddress("127.0.0.1", 1, pid), name=f"a:1:{pid}", executor=1))
    assert wire.receive_message() == JobGiven(job=b"job")
    return wire


def test_an_error_of_an_earlier_attempt_does_not_fail_the_later_one(registry: SlotRegistry) -> None:
    registry.begin(plan(5, job_attempt=0))
    slot = slot_in(registry)
    registry.end()
    registry.begin(plan(5, job_attempt=1))
    heard = registry._answers[0] = {}
    slot.send_message(error_of(0, 5))  # it was on its way when the job went back
    slot.send_message(Sampled(number=0, slot=0, samples=Counter()))  # and has been read by now
    eventually(lambda: heard, "what came after it was heard")
    assert registry.failure is None
    slot.send_message(error_of(1, 5))
    failure = eventually(lambda: registry.failure, "an error of its own fails it")
    assert failure.message == "map raised in attempt 1"
    slot.close()


def test_a_relay_of_an_earlier_attempt_gets_no_slot(registry: SlotRegistry) -> None:
    registry.begin(plan(5, job_attempt=1))
    slot = slot_in(registry)
    address = RegistryAddress(
        host="127.0.0.1", port=registry.port, token=registry.token, bind="127.0.0.1", job_attempt=0
    )
    with pytest.raises(SlotError, match=r"epoch 5 of attempt 0 is not running any more \(epoch 5 of attempt 1 is\)"):
        open_slot(address, 0, 5)
    slot.close()


def test_an_epoch_given_up_late_takes_no_slots_from_the_attempt_after_it(registry: SlotRegistry) -> None:
    registry.begin(plan(5, job_attempt=1))
    slot = slot_in(registry)
    assert not registry.fail(plan(5, job_attempt=0), "it took too long")
    assert registry.failure is None
    assert [registered.address.pid for registered in registry.slots] == [1]
    assert registry.fail(plan(5, job_attempt=1), "it took too long")
    eventually(lambda: not registry.slots, "its own slots are dropped")
    slot.close()


def test_a_slot_refuses_a_relay_of_an_earlier_attempt_and_goes_on_with_the_later_one(
    storage: Storage,
) -> None:
    job = job_of()
    with slot_of(job, storage) as (registry, relay):
        master, _ = planned(job, storage, registry)
        early = pickle.loads(registry._plan)
        master.recover()
        later = master.plan_epoch(5)
        assert later is not None
        assert later.fence > early.fence
        assert relay(pickle.dumps(later), 0)
        with pytest.raises(SlotError, match="runs a later attempt"):
            relay(pickle.dumps(early), 0)
        assert relay(pickle.dumps(later), 0), "a retry of the later one is served"


def test_an_acknowledgement_of_an_earlier_attempt_is_not_counted(
    storage: Storage,
) -> None:
    job = job_of()
    master = master_of(job, storage)
    master.start()
    assert master.plan_epoch(5) is not None
    late = [
        TaskAck(task=task, epoch=5, attempt="late", job_attempt=master.job_attempt, committables={"x": ["stale"]})
        for task in job.graph.tasks()
    ]
    master.recover()
    assert master.plan_epoch(5) is not None
    assert [report for ack in late for report in master.acknowledge(ack)] == []
    assert master.epoch == 4
    mine = [replace(ack, job_attempt=master.job_attempt, attempt="mine", committables={}) for ack in late[1:]]
    for ack in mine:
        assert master.acknowledge(ack) == []
    assert master._checkpoints.machine.missing(5) == [late[0].task], "the late one of that task does not stand for it"
    master.close()
