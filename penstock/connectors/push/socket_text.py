"""Lines of text from a TCP server, as Flink's socketTextStream reads them."""

from __future__ import annotations

import socket
import threading
from typing import Final

from penstock.connectors.push.receiver import Inbox, Receiver
from penstock.errors import JobDefinitionError, PenstockError

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
