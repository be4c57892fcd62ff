"""A TCP proxy in front of a server that does something when a client says a certain word."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

When = Literal["before", "after"]


class Proxy:
    """When a client's message holds `word` for the `nth` time: with "before" it is not passed on and `action` runs, with "after"
    the server has answered first. Then both connections are cut, so that the client knows nothing. `fired` is the proof."""

    def __init__(self, port: int, word: bytes, nth: int, when: When, action: Callable[[], None] = lambda: None) -> None:
        self._target, self._word, self._nth, self._when, self._action = port, word, nth, when, action
        self._seen = 0
        self.fired = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._target), 5) as server:
            server.settimeout(60)
            client.settimeout(60)
            cut = threading.Event()
            back = threading.Thread(target=self._back, args=(server, client, cut), daemon=True)
            back.start()
            while data := client.recv(1 << 16):
                if self._word in data:
                    self._seen += 1
                if self._word in data and self._seen == self._nth:
                    cut.set()  # whatever the server answers is for us
                    if self._when == "after":
                        server.sendall(data)
                        back.join(30)
                    with contextlib.suppress(OSError):
                        server.shutdown(socket.SHUT_RDWR)  # or the server would wait on, with its locks
                    self._action()
                    self.fired += 1
                    return
                server.sendall(data)

    def _back(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if cut.is_set():
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)  # the server has gone


@contextmanager
def proxy(port: int, word: bytes, nth: int, when: When, action: Callable[[], None] = lambda: None) -> Iterator[Proxy]:
    made = Proxy(port, word, nth, when, action)
    try:
        yield made
    finally:
        made.close()
