"""Who may come in: connections are taken as they come, and handed on once they have proved that they belong to the job.

Those that have not yet are few and soon gone, so that strangers cost no memory and keep nobody out.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

from penstock.runtime.connection.handshake import StrangerError
from penstock.runtime.connection.wire import Wire

_log = logging.getLogger("penstock")

PATIENCE_S = 10.0  # to prove it
MOST_WAITING = 128  # connections that have not proved it yet; as many as the kernel holds back for us
ROOM_AFTER_S = 1.0  # who has waited so long makes room when there are too many: peers of ours need milliseconds
_SAY_AGAIN_S = 60.0
_NO_FILES_S = 0.1


class Door:
    """`serve` gets each connection that has proved itself, on a thread of its own, and closes it."""

    def __init__(self, listener: socket.socket, token: str, serve: Callable[[Wire], None]) -> None:
        self._listener, self._token, self._serve = listener, token, serve
        self._changed = threading.Condition()
        self._waiting: dict[socket.socket, float] = {}  # since when; the oldest first
        self._turned_away, self._said = 0, -_SAY_AGAIN_S

    def keep(self) -> None:
        """Until the listener is closed."""
        while True:
            self._make_room()
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() == -1:
                    return
                time.sleep(_NO_FILES_S)  # too many open files: some will be closed
                continue
            with self._changed:
                self._waiting[sock] = time.monotonic()
            threading.Thread(target=self._admit, args=(sock,), daemon=True).start()

    def _make_room(self) -> None:
        with self._changed:
            while len(self._waiting) >= MOST_WAITING:
                oldest, since = next(iter(self._waiting.items()))
                left = since + ROOM_AFTER_S - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                del self._waiting[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it

    def _admit(self, sock: socket.socket) -> None:
        try:
            wire = Wire.accept(sock, self._token, PATIENCE_S)
        except (OSError, StrangerError) as error:
            self._turn_away(sock, error)
            return
        with self._changed:
            stays = self._waiting.pop(sock, None) is not None
            self._changed.notify_all()
        if stays:
            self._serve(wire)
        else:
            wire.close()

    def _turn_away(self, sock: socket.socket, why: Exception) -> None:
        sock.close()
        with self._changed:
            self._waiting.pop(sock, None)
            self._changed.notify_all()
            self._turned_away += 1
            if time.monotonic() - self._said < _SAY_AGAIN_S:
                return
            self._said, count, self._turned_away = time.monotonic(), self._turned_away, 0
        _log.warning(
            "%d connections were turned away that did not prove to belong to this job, the last: %s", count, why
        )
