"""The process of `S3Server`: moto's S3, in memory, behind a gate that checks the access key and can be told to fail.

`POST /_faults` with a JSON object sets what happens to the next requests:
  times     how many requests are concerned
  methods   of which kinds (all if missing)
  status    answer with this status instead of doing it
  delay_s   wait before doing it
  lose      do it, then cut the connection without an answer
  careless  do it as a store would that does not know conditions
`GET /_requests` lists what was asked, `POST /_fill` creates many objects at once.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from moto.backends import get_backend
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import run_simple

Environ = dict[str, Any]
Start = Any  # of WSGI

_DENIED = (
    "<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id you provided does not exist in our records."
    "</Message></Error>"
)


class Gate:
    def __init__(self, key: str) -> None:
        self._key = key
        self._s3 = create_backend_app("s3")
        self._lock = threading.Lock()
        self._faults: dict[str, Any] = {"times": 0}
        self._requests: list[str] = []

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/_"):
            return self._control(path, environ, start)
        method = environ["REQUEST_METHOD"]
        fault = self._next_fault(method)
        self._requests.append(f"{method} {path}")
        if f"Credential={self._key}/" not in environ.get("HTTP_AUTHORIZATION", ""):
            return _answer(start, 403, _DENIED.encode())
        if "status" in fault:
            return _answer(start, fault["status"], b"<Error><Code>Injected</Code></Error>")
        if fault.get("careless"):
            environ.pop("HTTP_IF_NONE_MATCH", None)
        time.sleep(fault.get("delay_s", 0.0))
        # The service decides about If-None-Match and writes in one step; moto in two, which others must not get between.
        with self._lock:
            answer: Start = _ignored if fault.get("lose") else start
            result: list[bytes] = list(self._s3(environ, answer))
        if fault.get("lose"):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return result

    def _next_fault(self, method: str) -> dict[str, Any]:
        with self._lock:
            if self._faults["times"] <= 0 or method not in self._faults.get("methods", [method]):
                return {}
            self._faults["times"] -= 1
            return self._faults

    def _control(self, path: str, environ: Environ, start: Start) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        content = json.loads(body) if body else {}
        with self._lock:
            if path == "/_faults":
                self._faults = content
            if path == "/_fill":
                store = get_backend("s3")["123456789012"]["aws"]
                for number in range(content["count"]):
                    store.put_object(content["bucket"], f"{content['prefix']}{number:05d}", b"x")
            return _answer(start, 200, json.dumps({"requests": self._requests, "left": self._faults["times"]}).encode())


def _answer(start: Start, status: int, body: bytes) -> list[bytes]:
    start(f"{status} .", [("Content-Length", str(len(body))), ("Content-Type", "application/xml")])
    return [body]


def _ignored(*args: Any) -> None:
    return None


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), Gate(sys.argv[2]), threaded=True)
