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
from typing import assert_never

from penstock.checkpoint.storage import Storage
from penstock.engine.messages import EpochPlan
from penstock.engine.sampling import Sample
from penstock.engine.uploads import UploadEvent
from penstock.errors import SlotError
from penstock.protocol.checkpoint_messages import HostLost, Uploaded
from penstock.runtime.connection.door import Door
from penstock.runtime.connection.messages import (
    AreYouThere,
    FindSlot,
    FromRelay,
    FromSlot,
    HostFailed,
    JobGiven,
    JobOver,
    Noted,
    NotNeeded,
    Reachable,
    Refused,
    Register,
    Sampled,
    SlotAddress,
    SlotFound,
    StartFailed,
    StartSlot,
    StillStarting,
    StorageCall,
    TakeSamples,
    ToRelay,
    ToSlot,
)
from penstock.runtime.connection.wire import Wire
from penstock.runtime.epochs.remote_storage import serve_storage

START_TIMEOUT_S = 60.0  # or as long as an epoch may take, if that is less
_STARTER_POLL_S = 0.5
_SAMPLE_GRACE_S = 5.0  # for a busy slot to answer
_REACHED_S = 5.0  # for a slot to say that it is there
_STOP_S = 12.0  # a little longer than a slot takes at most


@dataclass(frozen=True, slots=True, eq=False)
class _Lease:
    """Leave to start a slot's process, given to one relay for as long as its connection lasts."""

    until: float
    instead_of: SlotAddress | None  # the process that the relay could not reach


@dataclass(slots=True)
class RegisteredSlot:
    """A slot process that is connected to the driver."""

    slot: int
    address: SlotAddress
    name: str  # by which acknowledgements name it
    executor: int
    wire: Wire
    sending: threading.Lock = field(default_factory=threading.Lock)  # a wire has one writer at a time

    def send(self, message: ToSlot) -> None:
        """Sends a message to the slot process. Thread-safe."""
        with self.sending:
            self.wire.send_message(message)


class SlotRegistry:
    """The driver's end of all connections: knows the slot processes of a job, hands out the plan, and notices who is
    lost.
    """

    def __init__(
        self,
        bind: str,
        job: bytes,
        storage: Storage | None = None,
        on_upload: Callable[[UploadEvent], None] = lambda event: None,
        epoch_timeout_s: float = 600.0,
    ) -> None:
        """`storage`: checkpoints that are kept in this process, for slots to reach through here. `on_upload` hears, on
        threads of the registry, of snapshots that slots have stored, and of slots that are lost."""
        self._storage = storage
        self._on_upload = on_upload
        self.token = secrets.token_hex(16)
        self._job = job
        self._lock = threading.Condition()
        self._slots: dict[int, RegisteredSlot] = {}
        self._starting: dict[int, _Lease] = {}
        self._start_timeout_s = min(START_TIMEOUT_S, epoch_timeout_s)
        self._running: tuple[int, int] | None = None  # the fence of the epoch that runs
        self._plan = b""
        self._failure: HostFailed | None = None
        self.on_failure: Callable[[HostFailed], None] = lambda failure: (
            None
        )  # the first of an epoch, on a thread of its own
        self._closed = False
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[SlotAddress, Sampled | Reachable]] = {}  # by the number of a question under way
        self.lost = 0  # slot processes that went away while the job ran
        self.started = 0
        self._server = socket.create_server((bind, 0), backlog=128)
        self.host, self.port = self._server.getsockname()[:2]
        door = Door(self._server, self.token, self._serve)
        threading.Thread(target=door.keep, name="penstock-registry", daemon=True).start()

    # ---------------------------------------------------------------- for the driver

    def begin(self, plan: EpochPlan) -> None:
        """From now on relays are given this plan, and those of other epochs are refused."""
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
                slot.send(JobGiven(job=job))
            except OSError:  # it is dying: its successor gets the new job when it registers
                slot.wire.close()

    def sample(self, seconds: float) -> Counter[Sample]:
        """Where all slots spend their time, looked at for so long. What a slot that dies meanwhile has seen is missing."""
        _, answers = self._ask(lambda number: TakeSamples(number=number, seconds=seconds), seconds + _SAMPLE_GRACE_S)
        return sum((answer.samples for answer in answers.values() if isinstance(answer, Sampled)), Counter())

    def drop_unreachable(self, timeout_s: float = _REACHED_S) -> list[str]:
        """Before the job starts again: slots that do not answer would hold it up, and have nothing that it needs. Their names."""
        asked, answers = self._ask(lambda number: AreYouThere(number=number), timeout_s)
        with self._lock:
            silent = [s for s in asked if s.address not in answers and self._slots.get(s.slot) is s]
            self.lost += len(silent)
        self._drop(silent)
        return [slot.name for slot in silent]

    def _ask(
        self, question: Callable[[int], ToSlot], timeout_s: float
    ) -> tuple[list[RegisteredSlot], dict[SlotAddress, Sampled | Reachable]]:
        """All slots; who was asked, and the answers of those that gave one in time."""
        number = next(self._numbers)
        answers: dict[SlotAddress, Sampled | Reachable] = {}
        with self._lock:
            self._answers[number] = answers
            asked = list(self._slots.values())
        for slot in asked:
            with contextlib.suppress(OSError):
                slot.send(question(number))
        with self._lock:
            self._lock.wait_for(
                lambda: all(s.address in answers or self._slots.get(s.slot) is not s for s in asked), timeout=timeout_s
            )
            del self._answers[number]
        return asked, answers

    def spread(self, hosts: int) -> bool:
        """Before the job starts again, on executors of so many hosts: if slots are crowded on fewer, as after the loss of a host
        that is back, all of them end. Every task restores its state anyway, and new slots come up where Spark runs their
        first tasks, which is everywhere. Whether it was so."""
        slots = self.slots
        crowded = len({slot.address.host for slot in slots}) < min(hosts, len(slots))
        if crowded:
            self._drop(slots)
        return crowded

    def _drop(self, slots: list[RegisteredSlot]) -> None:
        """They end when their connection does; nobody is sent to them from now on."""
        with self._lock:
            for slot in slots:
                if self._slots.get(slot.slot) is slot:
                    del self._slots[slot.slot]
            self._lock.notify_all()
        for slot in slots:
            slot.wire.close()

    @property
    def failure(self) -> HostFailed | None:
        """The failure of a slot in this epoch; None if there was none."""
        with self._lock:
            return self._failure

    @property
    def slots(self) -> list[RegisteredSlot]:
        """The slot processes that are connected, by number."""
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
                slot.send(JobOver(completed=completed))
        with self._lock:
            self._lock.wait_for(lambda: not self._slots, timeout=_STOP_S)
            self._slots.clear()
        for slot in slots:
            slot.wire.close()
        self._server.close()

    # ---------------------------------------------------------------- connections

    def _serve(self, wire: Wire) -> None:
        wire.set_timeout(self._start_timeout_s + 30)
        granted: list[_Lease] = []
        try:
            while True:
                message: FromRelay | StorageCall | Register = wire.receive_message()
                match message:
                    case FindSlot():
                        wire.send_message(self._find(message, granted))
                    case StorageCall():
                        wire.send_message(serve_storage(self._storage, message))
                    case StartFailed(slot=slot):
                        with self._lock:
                            self._starting.pop(slot, None)
                            self._lock.notify_all()
                        wire.send_message(Noted())
                    case Register():
                        self._registered(wire, message)
                        return
                    case _:
                        assert_never(message)
        except (OSError, EOFError):
            return
        except SlotError as error:  # it is of another version
            with contextlib.suppress(OSError):
                wire.send_error(error)
        finally:
            wire.close()
            self._give_back(granted)

    def _give_back(self, granted: list[_Lease]) -> None:
        """The relay is gone, perhaps with its host: another may start the slot."""
        with self._lock:
            self._starting = {slot: lease for slot, lease in self._starting.items() if lease not in granted}
            self._lock.notify_all()

    def _find(self, wanted: FindSlot, granted: list[_Lease]) -> ToRelay:
        """Where slot i is; or leave to start it; or why the task should not run at all."""
        slot, attempt, epoch = wanted.slot, wanted.job_attempt, wanted.epoch
        deadline = time.monotonic() + self._start_timeout_s
        with self._lock:
            while True:
                if self._closed or self._running != (attempt, epoch):
                    return Refused(reason=f"epoch {epoch} of attempt {attempt} is not running any more ({self._now()})")
                if self._failure is not None:
                    return Refused(reason=f"epoch {epoch} has failed already: {self._failure.message}")
                known = self._slots.get(slot)
                if known is not None and known.address != wanted.unreachable:
                    return SlotFound(address=known.address, plan=self._plan)
                now = time.monotonic()
                if wanted.starter:
                    if self._lock.wait(timeout=_STARTER_POLL_S):
                        continue
                    return StillStarting()
                lease = self._starting.get(slot)
                if lease is None or lease.until < now:
                    self._starting[slot] = _Lease(now + self._start_timeout_s, wanted.unreachable)
                    granted.append(self._starting[slot])
                    return StartSlot()
                if not self._lock.wait(timeout=max(0.0, deadline - now)):
                    return Refused(reason=f"slot {slot} was not up after {self._start_timeout_s:.0f} s")

    def _now(self) -> str:
        return "none is" if self._running is None else f"epoch {self._running[1]} of attempt {self._running[0]} is"

    def _registered(self, wire: Wire, slot: Register) -> None:
        """A slot's own connection: hand it the job, then listen until it is gone."""
        entry = RegisteredSlot(slot.slot, slot.address, slot.name, slot.executor, wire)
        with entry.sending:  # the job is the first it is told
            with self._lock:
                served = self._slots.get(entry.slot)
                if self._closed or (served is not None and not self._may_replace(served)):
                    reason = "the job is over" if self._closed else "the slot is served already"
                    wire.send_message(NotNeeded(reason=reason))
                    return
                self._slots[entry.slot] = entry
                self._starting.pop(entry.slot, None)
                self.started += 1
                self.lost += served is not None
                self._lock.notify_all()
            if served is not None:
                served.wire.close()  # if it is there after all, it ends
            told = self._tell(entry, JobGiven(job=self._job))
        try:
            while told:
                self._heard(entry, wire.receive_message())
        except (OSError, EOFError, ValueError, SlotError):
            pass
        finally:
            with self._lock:
                if self._slots.get(entry.slot) is entry:
                    del self._slots[entry.slot]
                    if not self._closed:
                        self.lost += 1
                self._lock.notify_all()
            self._on_upload(HostLost(process=entry.name))

    def _may_replace(self, served: RegisteredSlot) -> bool:
        """Who starts a process for the slot could not reach the one that serves it."""
        lease = self._starting.get(served.slot)
        return lease is not None and lease.instead_of == served.address

    @staticmethod
    def _tell(entry: RegisteredSlot, message: ToSlot) -> bool:
        try:
            entry.wire.send_message(message)
            entry.wire.set_timeout(None)
        except OSError:  # it is gone already
            return False
        return True

    def _heard(self, entry: RegisteredSlot, report: FromSlot) -> None:
        match report:
            case Uploaded():
                self._on_upload(report)
            case Sampled() | Reachable():
                with self._lock:
                    if (answers := self._answers.get(report.number)) is not None:
                        answers[entry.address] = report
                        self._lock.notify_all()
            case HostFailed():
                self._failed(report)
            case _:
                assert_never(report)

    def fail(self, plan: EpochPlan, message: str) -> bool:
        """The driver itself gives an epoch up: drop its slots, whatever they are doing. False: it has ended meanwhile."""
        attempt, epoch = plan.fence
        failed = self._failed(
            HostFailed(job_attempt=attempt, epoch=epoch, slot=-1, type="PenstockError", message=message, traceback="")
        )
        if failed:
            self._drop(self.slots)
        return failed

    def _failed(self, failure: HostFailed) -> bool:
        """Whether this is an error of the epoch that runs, and not of one that ended or of an earlier attempt at it."""
        with self._lock:
            current = self._running == (failure.job_attempt, failure.epoch)
            first = current and self._failure is None
            if first:
                self._failure = failure
                self._lock.notify_all()
        if first:
            threading.Thread(target=self.on_failure, args=(failure,), daemon=True).start()
        return current
