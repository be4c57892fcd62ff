"""What receives, and where it puts what it received.

Lines of text from a TCP server, as Flink's socketTextStream reads them.
"""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.connectors.push.receive_log import Received, ReceiveLog, ReceiveLogWriter
from penstock.errors import JobDefinitionError, PenstockError

_MOST_WAITING = 100_000  # records in memory before the sender is made to wait
_MOST_WAITING_BYTES = 64 << 20


class Stopped(PenstockError):
    """Raised in a receiver's thread by `deliver` when the job no longer wants anything."""


class Inbox(ABC):
    """Takes records from a receiver. Called by the receiver's thread only."""

    @property
    @abstractmethod
    def received(self) -> int:
        """How many records were ever delivered, earlier runs of the job included if there is a receive log: for protocols
        in which the sender can be told where to go on."""

    @abstractmethod
    def deliver(self, records: Sequence[bytes]) -> None:
        """Returns when the records are durable (with a receive log) or taken over (without one): only then may they be
        acknowledged to the sender. May block while the job is behind; raises when the job has ended."""


class Receiver(ABC):
    """Talks to the sender. Instances travel pickled with the source; connections are made in `run`."""

    @abstractmethod
    def run(self, inbox: Inbox, stopped: threading.Event) -> None:
        """Receive until `stopped` is set, and look at it at least every second. Runs on the driver, in a thread of its own,
        anew whenever the job is restarted. Returning before `stopped` says that the stream has ended for good; raising
        fails the job."""


class LoggedInbox(Inbox):
    """Writes records to the receive log before they may be acknowledged."""

    def __init__(self, log: ReceiveLog, clock: Callable[[], int]) -> None:
        self._writer: ReceiveLogWriter = log.writer()
        self._clock = clock

    @property
    def received(self) -> int:
        return self._writer.next

    def deliver(self, records: Sequence[bytes]) -> None:
        if records:
            self._writer.append(records, self._clock())

    def ended(self) -> None:
        """Writes that the sender has ended the stream."""
        self._writer.end()

    def close(self) -> None:
        """Closes the log, so that another process can receive into it."""
        self._writer.close()


class MemoryInbox(Inbox):
    """Bounded: a sender that is faster than the job is made to wait by its own protocol."""

    def __init__(self, received: int, clock: Callable[[], int], stopped: threading.Event) -> None:
        self._received, self._clock, self._stopped = received, clock, stopped
        self._waiting: deque[Received] = deque()
        self._bytes = 0
        self._last_ms = 0
        self._changed = threading.Condition()

    @property
    def received(self) -> int:
        return self._received

    def deliver(self, records: Sequence[bytes]) -> None:
        with self._changed:
            while len(self._waiting) >= _MOST_WAITING or self._bytes >= _MOST_WAITING_BYTES:
                if self._stopped.is_set():
                    raise Stopped("the job has ended")
                self._changed.wait(0.2)
            self._last_ms = max(self._last_ms, self._clock())
            for data in records:
                self._waiting.append(Received(number=self._received, received_ms=self._last_ms, data=data))
                self._received += 1
                self._bytes += len(data)

    def take(self, most: int | None) -> list[Received]:
        """Removes and gives up to `most` records, all if None; senders that wait for room go on."""
        with self._changed:
            count = len(self._waiting) if most is None else min(most, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(count)]
            self._bytes -= sum(len(record.data) for record in taken)
            self._changed.notify_all()
            return taken

    def ended(self) -> None:
        """Nobody but this process needs to know."""

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class Receiving:
    """A receiver at work in its thread."""

    def __init__(self, receiver: Receiver, inbox: LoggedInbox | MemoryInbox, stopped: threading.Event) -> None:
        self._receiver, self.inbox, self._stopped = receiver, inbox, stopped
        self._error: BaseException | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="penstock-receiver", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._receiver.run(self.inbox, self._stopped)
            if not self._stopped.is_set():
                self.inbox.ended()
                self._ended = True
        except Stopped:
            pass
        except BaseException as error:  # kept for the job's own thread, which asks
            self._error = error

    def check(self) -> bool:
        """Whether the stream has ended. Raises what the receiver raised."""
        if self._error is not None and not self._stopped.is_set():
            raise self._error
        return self._ended

    def stop(self) -> None:
        """Tells the receiver to stop, waits up to 5 seconds for its thread, and closes the inbox."""
        self._stopped.set()
        self._thread.join(timeout=5)
        self.inbox.close()


_CONNECT_TIMEOUT_S: Final = 10.0
_RETRY_DELAY_S: Final = 0.5
_CHUNK: Final = 64 * 1024


class SocketTextReceiver(Receiver):
    """Connects to a server and takes what is between delimiters. The rest before the server's clean end of the
    connection is a record, too; what a reset or a lost connection cuts off is not. With "\\n" as delimiter a "\\r" before it
    is dropped.

    When the server closes the connection, or cannot be reached, it is tried again `max_retry` times (less than 0: for ever),
    half a second apart; each connection starts the count anew. After that a closed connection is the end of the stream,
    and one that was never made or broke fails the job.
    """

    def __init__(self, host: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> None:
        if not 0 < port < 65536:
            raise JobDefinitionError(f"socket_text_stream: {port} is not a port; it must be between 1 and 65535")
        if not delimiter:
            raise JobDefinitionError("socket_text_stream: the delimiter must not be empty")
        self._address = (host, port)
        self._delimiter = delimiter.encode()
        self._max_retry = max_retry

    def run(self, inbox: Inbox, stopped: threading.Event) -> None:
        failures = 0
        while not stopped.is_set():
            error: OSError | None = None
            try:
                with socket.create_connection(self._address, timeout=_CONNECT_TIMEOUT_S) as connection:
                    failures = 0
                    self._receive(connection, inbox, stopped)
            except OSError as caught:
                error = caught
            failures += 1
            if stopped.is_set():
                return
            if 0 <= self._max_retry < failures:
                if error is None:
                    return
                host, port = self._address
                raise PenstockError(
                    f"socket_text_stream: the connection to {host}:{port} failed ({error}) and {self._max_retry} retries are "
                    "used up: start the server first, or give a larger max_retry (-1: for ever)"
                ) from error
            stopped.wait(_RETRY_DELAY_S)

    def _receive(self, connection: socket.socket, inbox: Inbox, stopped: threading.Event) -> None:
        connection.settimeout(0.2)
        rest = b""
        while not stopped.is_set():
            try:
                chunk = connection.recv(_CHUNK)
            except TimeoutError as error:
                if error.errno is not None:  # the kernel has given the peer up, and says so only once
                    raise
                continue
            if not chunk:
                if rest:
                    inbox.deliver([rest])
                return
            *records, rest = (rest + chunk).split(self._delimiter)
            inbox.deliver([self._without_return(record) for record in records])

    def _without_return(self, record: bytes) -> bytes:
        return record.removesuffix(b"\r") if self._delimiter == b"\n" else record
