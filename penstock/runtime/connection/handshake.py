"""The start of every connection between driver, relay and slot: both sides prove that they know the job's token.

    client                                    server
    "penstock" version, nonce c       ──▶
                                      ◀──     1, nonce s, proof of the server over (port, c, s)
    proof of the client over (port, c, s) ──▶                          from here on frames, and pickles in them

The token is not sent. Until a side has seen the other's proof it unpickles nothing, and reads a number of bytes that it has
chosen itself. The server proves first: a client says nothing of worth to whoever listens on the port of a process that is
gone. The port is the one the client dialled and the server listens on: who passes a connection on from another port to the
real server is found out. (Ports are chosen by the system and cannot be mapped to others; addresses can, so they are not
compared.) A refusal is 0 and a plain text.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time

from penstock.common.secrets import NONCE_BYTES, PROOF_BYTES, Side, nonce, proof, proves
from penstock.errors import SlotError

_GREETING = b"penstock\x02"
_PROOF, _REFUSAL = b"\x01", b"\x00"
_LONGEST_REFUSAL = 300


class StrangerError(SlotError):
    """The other side does not belong to this start of the job."""


def prove_to_server(sock: socket.socket, token: str, timeout_s: float) -> None:
    """The client's part. Raises StrangerError, or OSError if the other side does not answer in time."""
    deadline = time.monotonic() + timeout_s
    host, port = sock.getpeername()[:2]
    mine = nonce()
    sock.sendall(_GREETING + mine)
    kind = _read(sock, 1, deadline)
    if kind == _REFUSAL:
        raise StrangerError(f"{host}:{port} refused the connection: {_refusal(sock, deadline)}")
    if kind != _PROOF:
        raise StrangerError(f"whoever listens at {host}:{port} is not a Penstock peer; it was told nothing")
    theirs, proven = _read(sock, NONCE_BYTES, deadline), _read(sock, PROOF_BYTES, deadline)
    facts = (_port(port), mine, theirs)
    if not proves(proven, token, Side.SERVER, *facts):
        raise StrangerError(
            f"whoever listens at {host}:{port} does not know the token of this start of the job: it is another program, or "
            "belongs to another job or another start of this one. It was told nothing"
        )
    sock.sendall(proof(token, Side.CLIENT, *facts))


def prove_to_client(sock: socket.socket, token: str, timeout_s: float) -> None:
    """The server's part. Raises StrangerError, or OSError if the other side is silent for too long."""
    deadline = time.monotonic() + timeout_s
    if _read(sock, len(_GREETING), deadline) != _GREETING:
        raise _refuse(sock, "this is a process of a Penstock job, and you are not, or not of this version")
    theirs, mine = _read(sock, NONCE_BYTES, deadline), nonce()
    facts = (_port(sock.getsockname()[1]), theirs, mine)
    sock.sendall(_PROOF + mine + proof(token, Side.SERVER, *facts))
    if not proves(_read(sock, PROOF_BYTES, deadline), token, Side.CLIENT, *facts):
        raise _refuse(sock, "you have shown that you do not know the token of this start of the job")


def _port(port: int) -> bytes:
    return struct.pack(">H", port)


def _refuse(sock: socket.socket, why: str) -> StrangerError:
    with contextlib.suppress(OSError):
        sock.sendall(_REFUSAL + why.encode())
    return StrangerError(f"{sock.getsockname()[1]}: {why}")


def _read(sock: socket.socket, size: int, deadline: float) -> bytes:
    """Exactly so many bytes; the time is for all of them, not for each."""
    data = b""
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the other side did not prove in time that it belongs to this job")
        sock.settimeout(left)
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the other side closed the connection before it had proved who it is")
        data += part
    return data


def _refusal(sock: socket.socket, deadline: float) -> str:
    """The beginning of what the other side says, whoever it is, fit to be shown."""
    text = b""
    with contextlib.suppress(OSError):
        while len(text) < _LONGEST_REFUSAL:
            text += _read(sock, 1, deadline)
    return "".join(c if c.isprintable() else "·" for c in text.decode(errors="replace"))
