"""Commands, dispatcher and drivers prove over HTTP that they know a token, and never send it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.common.secrets import nonce
from penstock.driver.control import challenge
from penstock.driver.control.answers import Answer
from penstock.driver.control.challenge import Challenge
from penstock.driver.control.control_server import ControlServer
from penstock.service.endpoint import Endpoint, UnknownServerError

TOKEN = "the-token-of-this-test"
Reply = Callable[[str, dict[str, str]], tuple[int, Any]]


@contextmanager
def impostor(reply: Reply) -> Iterator[tuple[str, list[str]]]:
    """Somebody who took the port of a driver or a dispatcher that is gone: its address, and all that it hears."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            heard.append(f"{self.requestline}\n{self.headers}\n{body!r}")
            status, document = reply(self.path, dict(self.headers))
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PATCH = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _reflects(path: str, headers: dict[str, str]) -> tuple[int, Any]:
    given = headers.get(challenge.HEADER, "")
    return 200, {"nonce": given, "proof": given}


@pytest.mark.parametrize(
    "reply",
    [
        lambda path, headers: (200, {}),
        lambda path, headers: (200, {"nonce": "00" * 32, "proof": "00" * 32}),
        lambda path, headers: (200, {"nonce": 1, "proof": "é"}),
        lambda path, headers: (200, ["no", "object"]),
        lambda path, headers: (401, {"errors": ["your token, please"]}),
        _reflects,
    ],
)
def test_an_impostor_hears_neither_token_nor_request(reply: Reply) -> None:
    with impostor(reply) as (address, heard):
        with pytest.raises(UnknownServerError, match="does not know the token"):
            Endpoint(address, TOKEN).ask("POST", "/jobs", body={"entry": "secret.py"})
        assert len(heard) == 1
        assert TOKEN not in heard[0]
        assert "secret.py" not in heard[0]


def test_an_impostor_that_passes_requests_on_can_neither_change_nor_repeat_them() -> None:
    done: list[tuple[str, str, Any]] = []

    def handle(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        done.append((method, path, body))
        return Answer(200, {"path": path})

    real = ControlServer(handle)
    endpoint = Endpoint(real.address, real.token)
    assert endpoint.ask("POST", "/a", {"x": "ü&1"}, {"n": 1}).body == {"path": "/a"}
    host, port = real.address.removeprefix("http://").split(":")

    def said(method: str, target: str, header: str, body: bytes) -> int:
        connection = HTTPConnection(host, int(port), timeout=10)
        connection.request(method, target, body, {"Authorization": header})
        status = connection.getresponse().status
        connection.close()
        return status

    def proof_of(method: str, target: str, body: bytes) -> str:
        mine = nonce()
        connection = HTTPConnection(host, int(port), timeout=10)
        connection.request("GET", challenge.PATH, headers={challenge.HEADER: mine.hex()})
        theirs = challenge.server_is_known(real.token, mine, json.loads(connection.getresponse().read()))
        connection.close()
        assert theirs is not None
        return challenge.authorization(real.token, mine, theirs, method, target, body)

    good = proof_of("PATCH", "/a", b"{}")
    assert said("PATCH", "/b", good, b"{}") == 401
    assert said("POST", "/a", good, b"{}") == 401
    assert said("PATCH", "/a", good.replace("Penstock", "Bearer"), b"{}") == 401
    assert said("PATCH", "/a", f"Bearer {real.token}", b"{}") == 401
    assert len(done) == 1
    assert said("PATCH", "/a", good, b"{}") == 200
    assert said("PATCH", "/a", good, b"{}") == 401, "a proof is good for one request"
    assert said("PATCH", "/a", proof_of("PATCH", "/a", b"{}"), b'{"other": 1}') == 401
    assert done[1:] == [("PATCH", "/a", {})]
    real.close()


def test_proofs_get_old_and_only_nonces_of_this_server_count() -> None:
    now = [100.0]
    server, other = Challenge(TOKEN, lambda: now[0]), Challenge(TOKEN, lambda: now[0])

    def header(by: Challenge) -> str:
        mine = nonce()
        theirs = challenge.server_is_known(TOKEN, mine, by.greet(mine.hex()))
        assert theirs is not None
        return challenge.authorization(TOKEN, mine, theirs, "GET", "/", b"")

    old = header(server)
    now[0] += 29
    assert server.admit(header(server), "GET", "/") is not None
    assert server.admit(header(other), "GET", "/") is None
    now[0] += 2
    assert server.admit(old, "GET", "/") is None
    assert server.admit(header(server), "GET", "/") is not None
    assert len(server._used) == 2
    for nonsense in ("", "Penstock", "Penstock a.b.c.d", "Penstock ....", "Penstock 00.00.00.00", "Penstock é.é.é.é"):
        assert server.admit(nonsense, "GET", "/") is None
    assert server.greet("00") is None


def test_silent_connections_to_a_driver_are_few_and_keep_nobody_out() -> None:
    real = ControlServer(lambda method, path, query, body: Answer(200, {}))
    port = int(real.address.rpartition(":")[2])
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(200)]
    assert Endpoint(real.address, real.token).ask("GET", "/").status == 200
    closed = 0
    for connection in silent[:100]:
        assert connection.recv(1) == b""  # made room
        closed += 1
    assert closed == 100
    assert threading.active_count() - before < 150  # 64 who wait, and threads that have not ended yet
    for connection in silent:
        connection.close()
    real.close()
