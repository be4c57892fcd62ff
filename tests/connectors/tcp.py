"""A real TCP server for tests: scripted, one connection after the other, with time-outs everywhere."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType

TIMEOUT_S = 30.0


class Server:
    """Calls `serve(connection, number)` for every connection, in a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket, int], None]) -> None:
        self._serve = serve
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.2)
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listening.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(TIMEOUT_S)
                number, self.connections = self.connections, self.connections + 1
                try:
                    self._serve(connection, number)
                except OSError:
                    continue  # the other side died: that is what some tests do

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join(TIMEOUT_S)
        self._listening.close()


def sends(*texts: str) -> Callable[[socket.socket, int], None]:
    """Sends the n-th text on the n-th connection, and closes it."""

    def serve(connection: socket.socket, number: int) -> None:
        if number < len(texts):
            connection.sendall(texts[number].encode())

    return serve
