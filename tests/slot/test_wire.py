"""Frames between driver, relay and slot, and what the driver says in them."""

from __future__ import annotations

import socket
import threading

import pytest

from penstock.errors import SlotError
from penstock.jobmanager.epoch import EpochPlan
from penstock.slot.client import RegistryAddress, open_slot
from penstock.slot.registry import SlotRegistry
from penstock.slot.wire import Frame, Wire


@pytest.fixture
def registry() -> object:
    made = SlotRegistry("127.0.0.1", b"job")
    yield made
    made.close()


def plan(epoch: int) -> EpochPlan:
    return EpochPlan(
        epoch=epoch, checkpoint=True, processing_time=0, sources={}, accepted={}, chain_lengths={},
        base_checkpoint=None, restorable=True,
    )  # fmt: skip


def test_a_task_of_an_epoch_that_is_over_gets_no_slot(registry: SlotRegistry) -> None:
    registry.begin(plan(7))
    address = RegistryAddress(host="127.0.0.1", port=registry.port, token=registry.token, bind="127.0.0.1")
    with pytest.raises(SlotError, match="epoch 6 of attempt 0 is not running any more"):
        open_slot(address, 0, 6)


def test_a_slot_that_closes_its_connection_is_forgotten_and_counted(registry: SlotRegistry) -> None:
    wire = Wire.connect("127.0.0.1", registry.port, registry.token)
    wire.send_message(
        {"op": "register", "slot": 0, "host": "127.0.0.1", "port": 1, "pid": 4711, "executor": 1, "name": "a:1:1"}
    )
    assert wire.receive_message()["job"] == b"job"
    assert [slot.address.pid for slot in registry.slots] == [4711]
    wire.close()
    with registry._lock:
        registry._lock.wait_for(lambda: registry.lost == 1, timeout=60)
    assert registry.slots == []
    assert registry.lost == 1


def test_a_second_process_for_a_slot_is_turned_away(registry: SlotRegistry) -> None:
    register = {"op": "register", "slot": 0, "host": "127.0.0.1", "port": 1, "pid": 1, "executor": 1, "name": "a:1:1"}
    first = Wire.connect("127.0.0.1", registry.port, registry.token)
    first.send_message(register)
    assert "job" in first.receive_message()
    second = Wire.connect("127.0.0.1", registry.port, registry.token)
    second.send_message({**register, "pid": 2})
    assert "served already" in second.receive_message()["message"]
    first.close()
    second.close()


def test_a_failed_epoch_is_refused_to_later_tasks_with_the_reason(registry: SlotRegistry) -> None:
    registry.begin(plan(3))
    registry._failed(
        {"job_attempt": 0, "epoch": 3, "slot": 0, "type": "UserFunctionError", "message": "map raised", "traceback": ""}
    )
    address = RegistryAddress(host="127.0.0.1", port=registry.port, token=registry.token, bind="127.0.0.1")
    with pytest.raises(SlotError, match="map raised"):
        open_slot(address, 1, 3)
    registry.begin(plan(4))
    assert registry.failure is None


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        left = socket.create_connection(listening.getsockname())
        return left, listening.accept()[0]


def test_frames_survive_any_size() -> None:
    left, right = tcp_pair()
    sender, receiver = Wire(left), Wire(right)
    payload = bytes(range(256)) * 4096

    def send_all() -> None:
        for part in (b"", b"x", payload):
            sender.send(Frame.ROWS, part)

    thread = threading.Thread(target=send_all)
    thread.start()
    assert [receiver.receive() for _ in range(3)] == [(Frame.ROWS, b""), (Frame.ROWS, b"x"), (Frame.ROWS, payload)]
    thread.join()
    sender.close()
    receiver.close()
