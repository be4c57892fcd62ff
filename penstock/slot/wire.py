"""Frames between driver, relay and slot: a length, a kind, a payload. Every connection starts with the job's token."""

from __future__ import annotations

import contextlib
import hmac
import json
import pickle
import socket
import struct
from enum import IntEnum
from typing import Any

from penstock.errors import PenstockError, SlotError, as_text, from_text
from penstock.slot.liveness import be_patient, watch_peer

_HEADER = struct.Struct("<IB")
_MAX_FRAME = 1 << 30
CONNECT_TIMEOUT_S = 10.0


class Frame(IntEnum):
    HELLO = 1  # token
    MESSAGE = 2  # a pickled dict
    ROWS = 3  # one serialised Arrow record batch of exchange rows
    END = 4
    ERROR = 5  # plain text, as JSON: the name of a PenstockError's class, and its message


class Wire:
    """One connection. Not thread-safe per direction: one reader, one writer."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small frames must not wait for delayed ACKs
        watch_peer(sock)
        self._sock = sock
        self._reader = sock.makefile("rb", buffering=1 << 20)

    @staticmethod
    def connect(host: str, port: int, token: str, timeout: float = CONNECT_TIMEOUT_S) -> Wire:
        sock = socket.create_connection((host, port), timeout=timeout)
        wire = Wire(sock)
        wire.send(Frame.HELLO, token.encode())
        kind, payload = wire.receive()
        if kind is not Frame.HELLO:
            wire.close()
            detail = error_in(payload) if kind is Frame.ERROR else f"it sent {kind.name}"
            raise SlotError(f"connection to {host}:{port} was refused: {detail}")
        return wire

    def accept(self, token: str) -> bool:
        """Server side: check the token before anything else is read or unpickled."""
        kind, payload = self.receive()
        if kind is not Frame.HELLO or not hmac.compare_digest(payload, token.encode()):
            self.send_error(SlotError("wrong token: this slot or driver belongs to another job or another start of it"))
            return False
        self.send(Frame.HELLO, b"")
        return True

    @property
    def local_host(self) -> str:
        return str(self._sock.getsockname()[0])

    def set_timeout(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)

    def be_patient(self) -> None:
        """The other side may take as long as it likes to read; see `liveness.be_patient`."""
        be_patient(self._sock)

    def send(self, kind: Frame, payload: Any = b"") -> None:
        view = memoryview(payload)
        header = _HEADER.pack(view.nbytes, kind)
        if view.nbytes < 1 << 16:
            self._sock.sendall(header + bytes(view))
        else:
            self._sock.sendall(header)
            self._sock.sendall(view)

    def send_message(self, message: dict[str, Any]) -> None:
        self.send(Frame.MESSAGE, pickle.dumps(message, protocol=5))

    def send_error(self, error: Exception) -> None:
        self.send(Frame.ERROR, json.dumps(as_text(error)).encode())

    def receive(self) -> tuple[Frame, bytes]:
        header = self._read(_HEADER.size)
        size, kind = _HEADER.unpack(header)
        if size > _MAX_FRAME:
            raise SlotError(f"a frame of {size} bytes was announced; the largest is {_MAX_FRAME}: not a Penstock peer?")
        return Frame(kind), self._read(size)

    def receive_message(self) -> dict[str, Any]:
        kind, payload = self.receive()
        if kind is Frame.ERROR:
            raise error_in(payload)
        message: dict[str, Any] = pickle.loads(payload)
        return message

    def _read(self, size: int) -> bytes:
        data = self._reader.read(size) if size else b""
        if len(data) != size:
            raise ConnectionResetError("the other side closed the connection")
        return data

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self._sock.close()


def error_in(payload: bytes) -> PenstockError:
    """What an ERROR frame says, as the exception that it names."""
    return from_text(json.loads(payload))
