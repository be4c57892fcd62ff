"""The driver's side of the slots: who serves which slot, what the current epoch is, and what went wrong.

One registry a job. Relays ask it for a slot's address and the epoch's plan; if there is none, one relay gets the
lease to start it while the others wait. Slots register here and keep the connection open.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.storage import CheckpointStorage
from penstock.checkpoint.upload import SlotLost, UploadEvent
from penstock.errors import FailedTask
from penstock.jobmanager.epoch import EpochPlan
from penstock.operators.sampling import Sample
from penstock.slot.door import Door
from penstock.slot.remote_storage import serve_storage
from penstock.slot.wire import Frame, Wire

START_TIMEOUT_S = 60.0
_STARTER_POLL_S = 0.5
_SAMPLE_GRACE_S = 5.0  # for a busy slot to answer
_STOP_S = 12.0  # a little longer than a slot takes at most


@dataclass(slots=True)
class RegisteredSlot:
    slot: int
    host: str
    port: int
    pid: int
    executor: int
    wire: Wire
    sending: threading.Lock = field(default_factory=threading.Lock)  # a wire has one writer at a time

    def send(self, message: dict[str, Any]) -> None:
        with self.sending:
            self.wire.send_message(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFailure:
    """What a slot reported: `type` and `message` are the error's, as it crosses (`penstock.errors.as_text`)."""

    epoch: int
    slot: int
    type: str
    message: str
    traceback: str
    task: FailedTask | None = None


class SlotRegistry:
    def __init__(
        self,
        bind: str,
        job: bytes,
        storage: CheckpointStorage | None = None,
        on_upload: Callable[[UploadEvent], None] = lambda event: None,
    ) -> None:
        """`storage`: checkpoints that are kept in this process, for slots to reach through here. `on_upload` hears, on
        threads of the registry, of snapshots that slots have stored, and of slots that are lost."""
        self._storage = storage
        self._on_upload = on_upload
        self.token = secrets.token_hex(16)
        self._job = job
        self._lock = threading.Condition()
        self._slots: dict[int, RegisteredSlot] = {}
        self._starting: dict[int, float] = {}  # slot → when its lease ends
        self._running: tuple[int, int] | None = None  # the fence of the epoch that runs
        self._plan = b""
        self._failure: SlotFailure | None = None
        self._closed = False
        self._sampling = threading.Lock()  # one at a time
        self._numbers = itertools.count(1)
        self._sampled: tuple[int, dict[int, Counter[Sample]]] = (0, {})  # number of the request; answers by slot
        self.lost = 0  # slot processes that went away while the job ran
        self.started = 0
        self._server = socket.create_server((bind, 0), backlog=128)
        self.host, self.port = self._server.getsockname()[:2]
        door = Door(self._server, self.token, self._serve)
        threading.Thread(target=door.keep, name="penstock-registry", daemon=True).start()

    # ---------------------------------------------------------------- for the driver

    def begin(self, plan: EpochPlan) -> None:
        with self._lock:
            self._running, self._plan, self._failure = plan.fence, pickle.dumps(plan, protocol=5), None

    def end(self) -> None:
        """No task of the epoch may start any more: a late, zombie task is refused."""
        with self._lock:
            self._running = None

    def change_job(self, job: bytes, slots: int) -> None:
        """The job runs in `slots` slots now. Between two epochs: slots that stay get the new job, the others end."""
        with self._lock:
            self._job = job
            surplus = [self._slots.pop(number) for number in list(self._slots) if number >= slots]
            staying = list(self._slots.values())
        for slot in surplus:
            slot.wire.close()
        for slot in staying:
            try:
                slot.send({"job": job})
            except OSError:  # it is dying: its successor gets the new job when it registers
                slot.wire.close()

    def sample(self, seconds: float) -> Counter[Sample]:
        """Where all slots spend their time, looked at for so long. What a slot that dies meanwhile has seen is missing."""
        with self._sampling:
            number = next(self._numbers)
            with self._lock:
                self._sampled = (number, {})
                asked = list(self._slots.values())
            for slot in asked:
                with contextlib.suppress(OSError):  # it is dying
                    slot.send({"sample": seconds, "number": number})
            with self._lock:
                answers = self._sampled[1]
                self._lock.wait_for(
                    lambda: all(slot.slot in answers or self._slots.get(slot.slot) is not slot for slot in asked),
                    timeout=seconds + _SAMPLE_GRACE_S,
                )
                return sum(answers.values(), Counter())

    @property
    def failure(self) -> SlotFailure | None:
        with self._lock:
            return self._failure

    @property
    def slots(self) -> list[RegisteredSlot]:
        with self._lock:
            return sorted(self._slots.values(), key=lambda s: s.slot)

    def close(self, completed: int | None = None) -> None:
        """Tell every slot to end, and wait a while for their functions to close. `completed`, the last checkpoint of a job
        that ended well, is told to its listeners: there is no later epoch to do that."""
        with self._lock:
            self._closed = True
            slots = list(self._slots.values())
            self._lock.notify_all()
        for slot in slots:
            with contextlib.suppress(OSError):  # died already
                slot.send({"op": "stop", "completed": completed})
        with self._lock:
            self._lock.wait_for(lambda: not self._slots, timeout=_STOP_S)
            self._slots.clear()
        for slot in slots:
            slot.wire.close()
        self._server.close()

    # ---------------------------------------------------------------- connections

    def _serve(self, wire: Wire) -> None:
        wire.set_timeout(START_TIMEOUT_S + 30)
        try:
            while True:
                message = wire.receive_message()
                match message["op"]:
                    case "find":
                        wire.send_message(self._find(message))
                    case "storage":
                        wire.send_message(serve_storage(self._storage, message))
                    case "start-failed":
                        with self._lock:
                            self._starting.pop(message["slot"], None)
                            self._lock.notify_all()
                        wire.send_message({})
                    case "register":
                        self._registered(wire, message)
                        return
        except (OSError, EOFError):
            return
        finally:
            wire.close()

    def _find(self, message: dict[str, Any]) -> dict[str, Any]:
        """Where slot i is; or leave to start it; or why the task should not run at all."""
        slot, attempt, epoch = message["slot"], message["job_attempt"], message["epoch"]
        avoid = message.get("unreachable")
        deadline = time.monotonic() + START_TIMEOUT_S
        with self._lock:
            while True:
                if self._closed or self._running != (attempt, epoch):
                    return {"refused": f"epoch {epoch} of attempt {attempt} is not running any more ({self._now()})"}
                if self._failure is not None:
                    return {"refused": f"epoch {epoch} has failed already: {self._failure.message}"}
                known = self._slots.get(slot)
                if known is not None and known.pid != avoid:
                    return {"host": known.host, "port": known.port, "pid": known.pid, "plan": self._plan}
                now = time.monotonic()
                if message.get("starter"):
                    if self._lock.wait(timeout=_STARTER_POLL_S):
                        continue
                    return {"wait": True}
                if self._starting.get(slot, 0.0) < now:
                    self._starting[slot] = now + START_TIMEOUT_S
                    return {"start": True}
                if not self._lock.wait(timeout=max(0.0, deadline - now)):
                    return {"refused": f"slot {slot} was not up after {START_TIMEOUT_S:.0f} s"}

    def _now(self) -> str:
        return "none is" if self._running is None else f"epoch {self._running[1]} of attempt {self._running[0]} is"

    def _registered(self, wire: Wire, message: dict[str, Any]) -> None:
        """A slot's own connection: hand it the job, then listen until it is gone."""
        entry = RegisteredSlot(
            message["slot"], message["host"], message["port"], message["pid"], message["executor"], wire
        )
        with entry.sending:  # the job is the first it is told
            with self._lock:
                if self._closed or entry.slot in self._slots:
                    wire.send_message({"message": "the job is over" if self._closed else "the slot is served already"})
                    return
                self._slots[entry.slot] = entry
                self._starting.pop(entry.slot, None)
                self.started += 1
                self._lock.notify_all()
            wire.send_message({"job": self._job})
        try:
            wire.set_timeout(None)
            while True:
                kind, payload = wire.receive()
                if kind is Frame.MESSAGE:
                    report = pickle.loads(payload)
                    if report["op"] == "uploaded":
                        self._on_upload(report["report"])
                    elif report["op"] == "sampled":
                        self._heard_samples(report)
                    else:
                        self._failed(report)
        except (OSError, EOFError, ValueError):
            pass
        finally:
            with self._lock:
                if self._slots.get(entry.slot) is entry:
                    del self._slots[entry.slot]
                    if not self._closed:
                        self.lost += 1
                self._lock.notify_all()
            self._on_upload(SlotLost(process=str(message.get("name"))))

    def _heard_samples(self, report: dict[str, Any]) -> None:
        with self._lock:
            number, answers = self._sampled
            if report["number"] == number:  # else it comes too late
                answers[report["slot"]] = report["samples"]
                self._lock.notify_all()

    def fail(self, plan: EpochPlan, message: str) -> bool:
        """The driver itself gives an epoch up: drop its slots, whatever they are doing. False: it has ended meanwhile."""
        attempt, epoch = plan.fence
        failed = self._failed(
            {
                "job_attempt": attempt, "epoch": epoch, "slot": -1,
                "type": "PenstockError", "message": message, "traceback": "",
            }
        )  # fmt: skip
        for slot in self.slots if failed else ():
            slot.wire.close()
        return failed

    def _failed(self, report: dict[str, Any]) -> bool:
        """Whether this is an error of the epoch that runs, and not of one that ended or of an earlier attempt at it."""
        with self._lock:
            current = self._running == (report["job_attempt"], report["epoch"])
            if current and self._failure is None:
                self._failure = SlotFailure(
                    epoch=report["epoch"],
                    slot=report["slot"],
                    type=report["type"],
                    message=report["message"],
                    traceback=report["traceback"],
                    task=report.get("task"),
                )
                self._lock.notify_all()
            return current
