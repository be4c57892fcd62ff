"""Whether the host at the other end of a connection is still there.

A host that loses its power or its cable closes nothing: without a word from us TCP waits for it for a quarter of an hour
with something to send, and for ever with nothing. So every connection between driver, relays and slots is watched by the
kernel, which answers for a process however busy that is.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from penstock.runtime.connection.wire import Wire

GONE_S: Final = 15.0  # silence of a host, not of a process, after which it counts as gone
_PROBES: Final = 5


def is_loopback(host: str) -> bool:
    """True if an address (not a name) is this machine's own loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def watch_peer(sock: socket.socket, gone_s: float = GONE_S) -> None:
    """Reading from or writing to a peer whose host says nothing for so long is an error, whether or not anything is under
    way: keepalive asks when nothing is, the user time-out counts when something is."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return  # a Unix socket's other end is on this host
    idle = max(1, int(gone_s / 3))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", idle),
        ("TCP_KEEPINTVL", max(1, int((gone_s - idle) / _PROBES))),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", int(gone_s * 1000)),
    ):
        if hasattr(socket, name):  # not every system has all four
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def be_patient(sock: socket.socket) -> None:
    """The peer may leave what we send unread for as long as it likes: it is busy, and that is back pressure. Linux's user
    time-out does not tell this from a peer that is gone, and keepalive does not ask while something waits to be sent: who
    calls this needs a `Pulse` beside the connection, or nobody who waits for it."""
    if sock.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


class Pulses:
    """One connection to each process that carries nothing, so that keepalive always works on it. When it ends, the connections
    watched with it are closed. One for all work of this process with that one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[tuple[str, int], WeakSet[Wire]] = {}

    def watch(self, wire: Wire, host: str, port: int, connect: Callable[[], Wire]) -> None:
        """Close `wire` when the process at host and port, or its host, goes away. `connect` makes the connection that carries
        nothing, if there is none yet."""
        with self._lock:
            watched = self._watched.get((host, port))
            if watched is None:
                pulse = connect()
                pulse.set_timeout(None)
                watched = self._watched[host, port] = WeakSet()
                threading.Thread(
                    target=self._follow, args=((host, port), pulse), name="penstock-pulse", daemon=True
                ).start()
            watched.add(wire)

    def _follow(self, key: tuple[str, int], pulse: Wire) -> None:
        with contextlib.suppress(Exception):
            pulse.receive()  # nothing ever comes but the end
        with self._lock:
            watched = list(self._watched.pop(key))
        pulse.close()
        for wire in watched:  # those that have done their work are closed already
            wire.close()
