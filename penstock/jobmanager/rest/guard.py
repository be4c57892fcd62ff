"""In front of every route: whose requests are heard, and how large they may be.

A server on loopback needs no token, but a page of somebody else's, open in a browser on this machine, can send requests to
it. So the Host must be one of ours (else a foreign name was made to point here), and an Origin must be the Host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 16 << 20
_LINGER_BYTES, _LINGER_S = 64 << 20, 5.0  # what is read of a body that is too large, after the answer
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class Guard:
    def __init__(
        self, app: App, *, token: str | None, public: frozenset[str], largest_body: int = LARGEST_BODY
    ) -> None:
        """`public`: paths that anybody may read, because a browser asks for them before it can know a token."""
        self._app, self._token, self._public, self._largest = app, token, public, largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith("/v1/"):  # Flink's clients name a version
            scope = {**scope, "path": scope["path"][3:], "raw_path": None}
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(receive, send, *refusal)
            return
        taken = 0

        async def lingering(message: MutableMapping[str, Any]) -> None:
            if taken > self._largest and message["type"] == "http.response.body" and not message.get("more_body"):
                await _answer_and_linger(receive, send, message)
            else:
                await send(message)

        async def limited() -> MutableMapping[str, Any]:
            """A body may be sent in pieces, without a length: it is counted as it comes."""
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._largest:
                raise HTTPException(413, f"a request may have {self._largest} bytes", {"Connection": "close"})
            return message

        await self._app(scope, limited, lingering)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._token is None and _name(host) not in _LOOPBACK:
            return 403, f"this server is for its own machine, and {host!r} is not a name of it: start it with a token"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, f"requests of pages from {origin} are not answered"
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return 400, "Content-Length is not a number"
        if int(length) > self._largest:
            return 413, f"a request may have {self._largest} bytes"
        if self._token is not None and scope["path"] not in self._public:
            given = headers.get("authorization", "")
            if not secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                return 401, "the token is missing or wrong: send it as `Authorization: Bearer …`"
        return None


def _name(host: str) -> str:
    """Without the port."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


async def _answer_and_linger(receive: Receive, send: Send, message: MutableMapping[str, Any]) -> None:
    """The last part of an answer to a body that is still coming. To close a connection with unread bytes resets it, and a
    client that is still sending may then lose the answer: so the rest is read and dropped, up to a limit."""
    await send({**message, "more_body": True})
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while dropped < _LINGER_BYTES:
                received = await receive()
                dropped += len(received.get("body", b""))
                if received["type"] == "http.disconnect" or not received.get("more_body"):
                    break
    await send({"type": "http.response.body", "body": b""})


async def _refuse(receive: Receive, send: Send, status: int, message: str) -> None:
    body = json.dumps({"errors": [message]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    last = {"type": "http.response.body", "body": body}
    if status == 413:
        await _answer_and_linger(receive, send, last)
    else:
        await send(last)
