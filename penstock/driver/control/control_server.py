"""The driver's control endpoint: loopback, a random token that both sides prove to know, standard library only, so that every
driver can have one."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from penstock.driver.control import challenge
from penstock.driver.control.answers import Answer, refuse
from penstock.driver.control.challenge import Challenge
from penstock.driver.control.control import Json

_LARGEST_BODY = 1 << 20
_IDLE_S = 30.0
_MOST_WAITING = 64  # connections that have proved nothing

Answering = Callable[[str, str, dict[str, str], Json], Answer]


class ControlServer:
    """Serves until `close`. The token is in nobody's hands but of those who can read the job's folder."""

    def __init__(self, handle: Answering) -> None:
        self.token = secrets.token_urlsafe(32)
        self._server = _Server(self.token, handle)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="penstock-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Serves no more, and lets go of the port."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Has few connections that have proved nothing: when there are too many, the oldest makes room."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, token: str, handle: Answering) -> None:
        self.challenge, self.handle = Challenge(token), handle
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._waiting[request] = None
            oldest = next(iter(self._waiting))
            if len(self._waiting) > _MOST_WAITING:
                del self._waiting[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
        super().process_request(request, client_address)

    def no_longer_waits(self, request: socket.socket) -> None:
        with self._lock:
            self._waiting.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        self.no_longer_waits(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked is gone; a driver's output belongs to the program."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _IDLE_S
    protocol_version = "HTTP/1.1"
    server_version = "penstock"
    sys_version = ""
    disable_nagle_algorithm = True

    def _answer(self) -> Answer:
        if self.path == challenge.PATH:
            greeting = self.server.challenge.greet(self.headers.get(challenge.HEADER, ""))
            return (
                refuse(400, f"{challenge.HEADER} should be a nonce") if greeting is None else Answer(200, {**greeting})
            )
        expected = self.server.challenge.admit(self.headers.get("Authorization", ""), self.command, self.path)
        if expected is None:
            return refuse(
                401, "no proof of the token that is in the job's control.json: use `penstock`, or the dispatcher"
            )
        self.server.no_longer_waits(self.connection)
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _LARGEST_BODY:
            return refuse(413, f"a request may have {_LARGEST_BODY} bytes")
        content = self.rfile.read(int(length))
        if not hmac.compare_digest(hashlib.sha256(content).digest(), expected):
            return refuse(401, "the body is not the one that the proof is about")
        try:
            body: Any = json.loads(content or b"{}")
        except ValueError:
            return refuse(400, "the body is not JSON")
        if not isinstance(body, dict):
            return refuse(400, "the body should be a JSON object")
        url = urlsplit(self.path)
        try:
            return self.server.handle(self.command, url.path, dict(parse_qsl(url.query)), body)
        except Exception as error:  # the caller must hear of it; the job must not
            return refuse(500, f"{type(error).__name__}: {error}")

    def _serve(self) -> None:
        answer = self._answer()
        data = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if answer.status in (401, 413):  # a body that was not read would be taken for the next request
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """A driver's output belongs to the program."""
