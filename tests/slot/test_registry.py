"""The driver's side of the slots' connections."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from penstock.checkpoint.upload import SlotLost, UploadEvent
from penstock.errors import SlotError
from penstock.operators.sampling import Place, Sample
from penstock.slot import process
from penstock.slot.client import RegistryAddress, open_slot
from penstock.slot.registry import SlotRegistry
from penstock.slot.wire import Wire
from tests.jobmanager.jobs import eventually
from tests.slot.test_wire import plan


def test_a_slot_that_is_sampled_while_it_registers_is_told_its_job_first_and_whole() -> None:
    job = bytes(64 << 20)  # more than a socket holds: it is being sent until the slot reads
    registry = SlotRegistry("127.0.0.1", job)
    slot = Wire.connect("127.0.0.1", registry.port, registry.token)
    slot.send_message(
        {"op": "register", "slot": 0, "host": "127.0.0.1", "port": 1, "pid": 1, "executor": 1, "name": "a:1"}
    )
    eventually(lambda: registry.slots, "the slot is known")
    seen = Counter({Sample(1, 0, True, (Place("job.f:1", "job"),)): 3})
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(registry.sample, 0.5)
        assert slot.receive_message() == {"job": job}
        message = slot.receive_message()
        assert message["sample"] == 0.5
        slot.send_message({"op": "sampled", "number": message["number"], "slot": 0, "samples": seen})
        assert asked.result(60) == seen
        again = pool.submit(registry.sample, 0.5)
        assert slot.receive_message()["number"] == message["number"] + 1
        slot.close()  # it dies: nobody waits for it
        assert again.result(60) == Counter()
    registry.close()


def register(registry: SlotRegistry, slot: int = 0, *, host: str = "10.77.0.3", port: int = 1, pid: int = 7) -> Wire:
    wire = Wire.connect("127.0.0.1", registry.port, registry.token)
    name = f"worker:{port}:{pid}"
    wire.send_message(
        {"op": "register", "slot": slot, "host": host, "port": port, "pid": pid, "executor": 1, "name": name}
    )
    return wire


def find(relay: Wire, *, unreachable: tuple[str, int, int] | None = None, starter: bool = False) -> dict[str, Any]:
    relay.send_message(
        {"op": "find", "slot": 0, "epoch": 1, "job_attempt": 0, "unreachable": unreachable, "starter": starter}
    )
    return relay.receive_message()


@pytest.fixture
def events() -> list[UploadEvent]:
    return []


@pytest.fixture
def registry(events: list[UploadEvent]) -> Iterator[SlotRegistry]:
    made = SlotRegistry("127.0.0.1", b"job", on_upload=events.append, epoch_timeout_s=60.0)
    made.begin(plan(1))
    yield made
    made.close()


def test_who_found_a_slot_unreachable_may_replace_it_and_nobody_else(
    registry: SlotRegistry, events: list[UploadEvent]
) -> None:
    old = register(registry)
    assert "job" in old.receive_message()
    relay = Wire.connect("127.0.0.1", registry.port, registry.token)
    found = find(relay)
    address = found["host"], found["port"], found["pid"]
    assert address == ("10.77.0.3", 1, 7)
    stranger = register(registry, pid=8)
    assert "served already" in stranger.receive_message()["message"]
    assert find(relay, unreachable=address) == {"start": True}
    new = register(registry, host="10.77.0.4", port=2, pid=8)
    assert new.receive_message() == {"job": b"job"}
    assert find(relay, unreachable=address, starter=True)["host"] == "10.77.0.4"
    with pytest.raises(OSError, match="closed the connection"):  # so that it ends, if it is there after all
        old.receive_message()
    eventually(lambda: events, "uploads of the old one are not awaited any more")
    assert (events, registry.lost) == ([SlotLost(process="worker:1:7")], 1)
    for wire in (old, relay, stranger, new):
        wire.close()


def test_equal_pids_on_two_hosts_are_two_slots(registry: SlotRegistry) -> None:
    slot = register(registry, host="10.77.0.4", port=2, pid=7)
    assert "job" in slot.receive_message()
    relay = Wire.connect("127.0.0.1", registry.port, registry.token)
    assert find(relay, unreachable=("10.77.0.3", 1, 7))["host"] == "10.77.0.4"
    slot.close()
    relay.close()


def test_leave_to_start_a_slot_ends_with_the_relay_that_had_it(registry: SlotRegistry) -> None:
    first, second = (Wire.connect("127.0.0.1", registry.port, registry.token) for _ in range(2))
    assert find(first) == {"start": True}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(find, second)
        first.close()  # its executor is killed, or its host vanishes
        assert waiting.result(60) == {"start": True}
    second.close()


def test_a_slot_that_dies_while_it_is_sent_its_job_is_forgotten() -> None:
    registry = SlotRegistry("127.0.0.1", bytes(64 << 20))  # more than a socket holds
    slot = register(registry)
    eventually(lambda: registry.slots, "the slot is known")
    slot.close()
    eventually(lambda: not registry.slots, "and not any more")
    assert registry.lost == 1
    registry.close()


def test_before_a_restart_slots_that_do_not_answer_are_dropped(registry: SlotRegistry) -> None:
    there, gone = register(registry, 0, pid=1), register(registry, 1, pid=2)
    for wire in (there, gone):
        assert "job" in wire.receive_message()

    def answer() -> None:
        there.send_message({"op": "here", "number": there.receive_message()["ask"]})

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        assert registry.drop_unreachable(timeout_s=3.0) == ["worker:1:2"]
        answered.result(60)
    assert [slot.address.pid for slot in registry.slots] == [1]
    assert registry.lost == 1
    there.close()
    gone.close()


@pytest.mark.parametrize(
    ("slots_on", "executors_on", "dropped"),
    [
        (["a", "a"], 2, True),  # a host was lost, and is back
        (["a", "a", "b", "b"], 3, True),
        (["a", "b"], 2, False),
        (["a", "b"], 5, False),  # more hosts than slots
        (["a", "a"], 1, False),
        ([], 2, False),
    ],
)
def test_crowded_slots_are_spread_again_before_a_restart(
    registry: SlotRegistry, slots_on: list[str], executors_on: int, dropped: bool
) -> None:
    wires = [register(registry, number, host=host, pid=number) for number, host in enumerate(slots_on)]
    for wire in wires:
        assert "job" in wire.receive_message()
    assert registry.spread(executors_on) == dropped
    assert len(registry.slots) == (0 if dropped else len(slots_on))
    assert registry.lost == 0, "nothing went wrong"
    for wire in wires:
        wire.close()


def test_nobody_waits_for_a_slot_longer_than_the_epoch_may_take() -> None:
    registry = SlotRegistry("127.0.0.1", b"job", epoch_timeout_s=2.0)
    registry.begin(plan(1))
    starter = Wire.connect("127.0.0.1", registry.port, registry.token)
    assert find(starter) == {"start": True}  # and never brings it up
    address = RegistryAddress(
        host="127.0.0.1", port=registry.port, token=registry.token, bind="127.0.0.1", epoch_timeout_s=2.0
    )
    with pytest.raises(SlotError, match="slot 0 was not up after 2 s"):
        open_slot(address, 0, 1)
    starter.close()
    registry.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # how the watching thread is ended
def test_a_slot_does_not_end_itself_while_its_executor_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not inside a level run that takes more than an hour, nor after an hour without input."""
    ended: list[object] = []

    def end(slot: object) -> None:
        ended.append(slot)
        raise SystemExit

    monkeypatch.setattr(process, "_end", end)
    monkeypatch.setattr(process, "_WATCH_S", 0.01)
    monkeypatch.setattr(process, "_SILENCE_S", 0.0, raising=False)  # an hour has passed
    slot: Any = SimpleNamespace(last_used=time.monotonic() - 1)
    executor = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    started = psutil.Process(executor.pid).create_time()
    watching = threading.Thread(target=process._watch, args=(slot, executor.pid, started), daemon=True)
    watching.start()
    time.sleep(0.3)
    assert not ended
    executor.communicate()
    watching.join(60)
    assert ended == [slot], "but with it"
