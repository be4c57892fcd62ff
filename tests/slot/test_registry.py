"""The driver's side of the slots' connections."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from penstock.operators.sampling import Place, Sample
from penstock.slot.registry import SlotRegistry
from penstock.slot.wire import Wire
from tests.jobmanager.jobs import eventually


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
        assert asked.result(10) == seen
        again = pool.submit(registry.sample, 0.5)
        assert slot.receive_message()["number"] == message["number"] + 1
        slot.close()  # it dies: nobody waits for it
        assert again.result(10) == Counter()
    registry.close()
