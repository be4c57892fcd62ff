"""Frames between driver, relay and slot: a length, a kind, a payload. Every connection starts with a handshake."""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import struct
from enum import IntEnum
from typing import Any

from penstock.errors import PenstockError, SlotError, as_text, from_text
from penstock.runtime.connection.handshake import prove_to_client, prove_to_server
from penstock.runtime.connection.liveness import be_patient, watch_peer
from penstock.runtime.connection.messages import VERSION

_HEADER = struct.Struct("<IB")
_MAX_FRAME = 1 << 30
CONNECT_TIMEOUT_S = 10.0


class Frame(IntEnum):
    """The kinds of frames on a connection."""

    MESSAGE = 2  # a pickled dataclass of `messages`, with their version
    ROWS = 3  # one serialised Arrow record batch of exchange rows
    END = 4
    ERROR = 5  # plain text, as JSON: the name of a PenstockError's class, and its message


def _too_large(size: int, kind: int) -> str:
    return (
        f"{size} bytes in one frame ({Frame(kind).name}), and {_MAX_FRAME} is the most: make records smaller, fewer to a block "
        "(penstock.block.size), or, if it is the job itself, load large objects in open() instead of sending them with it"
    )


class Wire:
    """One connection, after the handshake. Not thread-safe per direction: one reader, one writer."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small frames must not wait for delayed ACKs
        watch_peer(sock)
        self._sock = sock
        self._reader = sock.makefile("rb", buffering=1 << 20)

    @staticmethod
    def connect(host: str, port: int, token: str, timeout: float = CONNECT_TIMEOUT_S) -> Wire:
        """A connection on which both sides have proved that they know the token. StrangerError: the other side does not."""
        sock = socket.create_connection((host, port), timeout=timeout)
        try:
            prove_to_server(sock, token, timeout)
            sock.settimeout(timeout)
            return Wire(sock)
        except BaseException:
            sock.close()
            raise

    @staticmethod
    def accept(sock: socket.socket, token: str, timeout: float = CONNECT_TIMEOUT_S) -> Wire:
        """The server's side of `connect`. Raises like it; the socket is the caller's to close then."""
        prove_to_client(sock, token, timeout)
        sock.settimeout(None)
        return Wire(sock)

    @property
    def local_host(self) -> str:
        """The address by which this side is reached."""
        return str(self._sock.getsockname()[0])

    def set_timeout(self, seconds: float | None) -> None:
        """How long a read or write may wait; None: for ever."""
        self._sock.settimeout(seconds)

    def be_patient(self) -> None:
        """The other side may take as long as it likes to read; see `liveness.be_patient`."""
        be_patient(self._sock)

    def send(self, kind: Frame, payload: Any = b"") -> None:
        """Sends a frame; SlotError for one that is too large."""
        view = memoryview(payload)
        if view.nbytes > _MAX_FRAME:
            raise SlotError(_too_large(view.nbytes, kind))
        header = _HEADER.pack(view.nbytes, kind)
        if view.nbytes < 1 << 16:
            self._sock.sendall(header + bytes(view))
        else:
            self._sock.sendall(header)
            self._sock.sendall(view)

    def send_message(self, message: Any) -> None:
        """Sends a dataclass of `messages`, with their version."""
        self.send_encoded(encoded(message))

    def send_encoded(self, message: bytes) -> None:
        """Sends what `encoded` gave: a message for many is encoded once."""
        self.send(Frame.MESSAGE, message)

    def send_error(self, error: Exception) -> None:
        """Sends an error by its class and message."""
        self.send(Frame.ERROR, json.dumps(as_text(error)).encode())

    def receive(self) -> tuple[Frame, bytes]:
        """Waits for a frame; SlotError for one that is too large."""
        header = self._read(_HEADER.size)
        size, kind = _HEADER.unpack(header)
        if size > _MAX_FRAME:
            raise SlotError(_too_large(size, kind))
        return Frame(kind), self._read(size)

    def receive_message(self) -> Any:
        """One of `messages`; which, the caller matches."""
        kind, payload = self.receive()
        if kind is Frame.ERROR:
            raise error_in(payload)
        version, message = pickle.loads(payload)
        if version != VERSION:
            raise SlotError(
                f"a message of version {version} came, and this process speaks version {VERSION}: driver and executors have "
                "different versions of Penstock"
            )
        return message

    def _read(self, size: int) -> bytes:
        data = self._reader.read(size) if size else b""
        if len(data) != size:
            raise ConnectionResetError("the other side closed the connection")
        return data

    def close(self) -> None:
        """Ends the connection; the other side hears of it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self._sock.close()


def encoded(message: Any) -> bytes:
    """A dataclass of `messages`, with their version."""
    return pickle.dumps((VERSION, message), protocol=5)


def error_in(payload: bytes) -> PenstockError:
    """The exception that an ERROR frame names."""
    return from_text(json.loads(payload))
