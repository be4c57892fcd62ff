"""The driver's end of the connections to all task hosts of a pipelined job."""

from __future__ import annotations

import contextlib
import itertools
import queue
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.checkpoint.storage import Storage
from penstock.engine.sampling import Sample
from penstock.engine.uploads import UploadEvent
from penstock.errors import SlotError
from penstock.protocol.checkpoint_messages import HostLost, Uploaded
from penstock.runtime.connection.door import Door
from penstock.runtime.connection.messages import Sampled, StorageCall, TakeSamples
from penstock.runtime.connection.wire import Wire, encoded
from penstock.runtime.epochs.remote_storage import serve_storage
from penstock.runtime.pipelined.messages import Enlist, FromHost, HostId, NotWanted, StartHost, ToHost

_SAMPLE_GRACE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGone:
    """The connection to a host has ended."""

    name: str


@dataclass(slots=True)
class EnlistedHost:
    """A host that is connected. `send` may be called from any thread."""

    id: HostId
    name: str
    wire: Wire
    sending: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: bytes) -> None:
        """Sends an encoded message; one that cannot be sent is not an error here: that the host is gone is heard as `HostGone`."""
        with contextlib.suppress(OSError), self.sending:
            self.wire.send_encoded(message)


Heard: TypeAlias = tuple[HostId, FromHost | HostGone]


class Hosts:
    """Hosts come with every attempt and go with it. What they say waits in `inbox` for the driver's thread."""

    def __init__(
        self, bind: str, storage: Storage | None, on_upload: Callable[[UploadEvent], None] = lambda event: None
    ) -> None:
        """`on_upload` hears of stored snapshots at once, in the connection's thread: the driver's may be waiting for them."""
        self._storage, self._on_upload = storage, on_upload
        self.token = secrets.token_hex(16)
        self.inbox: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._attempt: int | None = None
        self._start: StartHost | None = None
        self._hosts: dict[HostId, EnlistedHost] = {}
        self._early: dict[HostId, list[ToHost]] = {}  # for hosts that have not come yet
        self._numbers = itertools.count(1)
        self._samples: dict[int, list[Sampled]] = {}
        self._server = socket.create_server((bind, 0), backlog=128)
        self.host, self.port = self._server.getsockname()[:2]
        door = Door(self._server, self.token, self._serve)
        threading.Thread(target=door.keep, name="penstock-hosts", daemon=True).start()

    # ---------------------------------------------------------------- for the driver

    def begin(self, attempt: int, start: StartHost) -> None:
        """From now on hosts of this attempt are started so, and others are sent away."""
        with self._lock:
            self._attempt, self._start = attempt, start
            self._early.clear()
            self.inbox = queue.SimpleQueue()

    def end(self) -> None:
        """The attempt is over: hosts that are still there end when their connection does."""
        with self._lock:
            self._attempt, hosts = None, list(self._hosts.values())
            self._hosts.clear()
            self._lock.notify_all()
        for host in hosts:
            host.wire.close()

    def tell(self, message: ToHost) -> None:
        """To all hosts."""
        data = encoded(message)  # once: for each of hundreds of hosts it would cost the driver as much again
        for host in self.all:
            host.send(data)

    def tell_one(self, host: HostId, message: ToHost) -> None:
        """To one host; to one that has not come yet, when it does: those that came first may have records for it."""
        with self._lock:
            found = self._hosts.get(host)
            if found is None:
                self._early.setdefault(host, []).append(message)
        if found is not None:
            found.send(encoded(message))

    @property
    def all(self) -> list[EnlistedHost]:
        """The hosts that are connected."""
        with self._lock:
            return list(self._hosts.values())

    def sample(self, seconds: float) -> Counter[Sample]:
        """Where all hosts spend their time, looked at for so long. What one that dies meanwhile has seen is missing."""
        number = next(self._numbers)
        answers: list[Sampled] = []
        with self._lock:
            self._samples[number] = answers
        asked = len(self.all)
        self.tell(TakeSamples(number=number, seconds=seconds))
        with self._lock:
            self._lock.wait_for(
                lambda: len(answers) >= asked or self._attempt is None, timeout=seconds + _SAMPLE_GRACE_S
            )
            del self._samples[number]
        return sum((answer.samples for answer in answers), Counter())

    def close(self) -> None:
        """No host can come any more."""
        self.end()
        self._server.close()

    # ---------------------------------------------------------------- connections

    def _serve(self, wire: Wire) -> None:
        wire.set_timeout(60.0)
        try:
            message: Enlist | StorageCall = wire.receive_message()
            if isinstance(message, StorageCall):
                wire.send_message(serve_storage(self._storage, message))
            else:
                self._enlisted(wire, message)
        except (OSError, EOFError):
            pass
        except SlotError as error:  # it is of another version
            with contextlib.suppress(OSError):
                wire.send_error(error)
        finally:
            wire.close()

    def _enlisted(self, wire: Wire, enlist: Enlist) -> None:
        host = EnlistedHost(enlist.host, enlist.name, wire)
        with host.sending:  # that it may start is the first it is told
            with self._lock:
                start, inbox = self._start, self.inbox
                wanted = self._attempt == enlist.job_attempt and enlist.host not in self._hosts
                if wanted:
                    self._hosts[enlist.host] = host
                    early = self._early.pop(enlist.host, [])
            if not wanted or start is None:
                wire.send_message(NotWanted(reason=f"attempt {enlist.job_attempt} is over, or has this host already"))
                return
            wire.send_message(start)
            for message in early:
                wire.send_message(message)
            wire.set_timeout(None)
        try:
            while True:
                self._heard(inbox, host.id, wire.receive_message())
        except (OSError, EOFError, ValueError, SlotError):
            pass
        finally:
            with self._lock:
                if self._hosts.get(host.id) is host:
                    del self._hosts[host.id]
                self._lock.notify_all()
            self._on_upload(HostLost(process=host.name))  # what it had not stored yet is not waited for
            inbox.put((host.id, HostGone(name=host.name)))

    def _heard(self, inbox: queue.SimpleQueue[Heard], host: HostId, message: FromHost) -> None:
        if isinstance(message, Sampled):
            with self._lock:
                if (answers := self._samples.get(message.number)) is not None:
                    answers.append(message)
                    self._lock.notify_all()
            return
        if isinstance(message, Uploaded):
            self._on_upload(message)
        inbox.put((host, message))
