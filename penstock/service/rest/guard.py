"""In front of every route: whose requests are heard, and how large they may be.

Everybody needs the token, on loopback too: whoever may submit a program runs code as the dispatcher's owner, and a machine has
other users. Commands prove that they know it (`penstock.driver.control.challenge`); the page, curl and Prometheus send it as
`Authorization: Bearer …`. A page from elsewhere, open in the owner's browser, has no token; its Origin is refused besides.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from penstock.driver.control import challenge
from penstock.driver.control.challenge import Challenge

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 16 << 20
_NO_TOKEN = (
    "the token is missing or wrong: send it as `Authorization: Bearer …`. It is in the file `token` of the dispatcher's home "
    "folder, for its owner only; `penstock ui` opens the page with it"
)
_LINGER_BYTES, _LINGER_S = 64 << 20, 5.0  # what is read of a body that is too large, after the answer


class Guard:
    """Lets through only requests with the token, of a known origin and of a bounded size."""

    def __init__(self, app: App, *, token: str, public: frozenset[str], largest_body: int = LARGEST_BODY) -> None:
        """`public`: paths that anybody may read, because a browser asks for them before it can know a token."""
        self._app, self._bearer, self._public, self._largest = app, f"Bearer {token}".encode(), public, largest_body
        self._challenge = Challenge(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        target = scope["raw_path"].decode("latin-1") + ("?" * bool(scope["query_string"]))
        target += scope["query_string"].decode("latin-1")
        if scope["path"].startswith("/v1/"):  # Flink's clients name a version
            scope = {**scope, "path": scope["path"][3:], "raw_path": None}
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["path"] == challenge.PATH:
            greeting = self._challenge.greet(headers.get(challenge.HEADER.lower(), ""))
            known = (
                (400, {"errors": [f"{challenge.HEADER} should be a nonce"]}) if greeting is None else (200, greeting)
            )
            await _answer(receive, send, *known)
            return
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(receive, send, *refusal)
            return
        expected: bytes | None = None  # what the body hashes to, if the proof is about one
        given = headers.get("authorization", "")
        if scope["path"] not in self._public and not secrets.compare_digest(given.encode("latin-1"), self._bearer):
            expected = self._challenge.admit(given, scope["method"], target)
            if expected is None:
                await _refuse(receive, send, 401, _NO_TOKEN)
                return
        taken, digest = 0, hashlib.sha256()

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
            if expected is not None and message["type"] == "http.request":
                digest.update(message.get("body", b""))
                if not message.get("more_body") and not secrets.compare_digest(digest.digest(), expected):
                    raise HTTPException(401, "the body is not the one that the proof is about")
            return message

        await self._app(scope, limited, lingering)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host", ""):
            return 403, f"requests of pages from {origin} are not answered"
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return 400, "Content-Length is not a number"
        if int(length) > self._largest:
            return 413, f"a request may have {self._largest} bytes"
        return None


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
    await _answer(receive, send, status, {"errors": [message]})


async def _answer(receive: Receive, send: Send, status: int, document: Mapping[str, Any]) -> None:
    body = json.dumps(document).encode()
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
