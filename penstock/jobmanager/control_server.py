"""The driver's control endpoint: loopback, a random token, standard library only, so that every driver can have one."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from penstock.jobmanager.answers import Answer, refuse
from penstock.jobmanager.control import Json

_LARGEST_BODY = 1 << 20
_IDLE_S = 30.0

Handle = Callable[[str, str, dict[str, str], Json], Answer]


class ControlServer:
    """Serves until `close`. The token is in nobody's hands but of those who can read the job's folder."""

    def __init__(self, handle: Handle) -> None:
        self.token = secrets.token_urlsafe(32)
        token = self.token

        class Handler(_Handler):
            pass

        Handler.token, Handler.handle_request = token, staticmethod(handle)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="penstock-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    token: str
    handle_request: Handle
    timeout = _IDLE_S
    protocol_version = "HTTP/1.1"
    server_version = "penstock"
    sys_version = ""

    def _answer(self) -> Answer:
        given = self.headers.get("Authorization", "")
        if not secrets.compare_digest(given.encode("utf-8", "replace"), f"Bearer {self.token}".encode()):
            return refuse(401, "the token is missing or wrong: it is in the job's control.json")
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _LARGEST_BODY:
            return refuse(413, f"a request may have {_LARGEST_BODY} bytes")
        try:
            body: Any = json.loads(self.rfile.read(int(length)) or b"{}")
        except ValueError:
            return refuse(400, "the body is not JSON")
        if not isinstance(body, dict):
            return refuse(400, "the body should be a JSON object")
        url = urlsplit(self.path)
        try:
            return type(self).handle_request(self.command, url.path, dict(parse_qsl(url.query)), body)
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
