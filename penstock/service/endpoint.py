"""Asking a driver or a dispatcher: JSON over HTTP, with proofs of a token that is never sent, standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from penstock.common.secrets import nonce
from penstock.driver.control import challenge
from penstock.driver.control.answers import Answer
from penstock.errors import PenstockError

_LONGEST_GREETING = 4096


class UnreachableError(PenstockError):
    """Nobody answers at the address."""


class UnknownServerError(PenstockError):
    """Somebody answers who does not know the token."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that speaks (a part of) the REST interface. Without a token only what is open to everybody is answered."""

    address: str
    token: str | None = field(default=None, repr=False)

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        raw: bytes | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """The answer, whatever its status; UnreachableError if there is none within the time. UnknownServerError, before anything
        is asked, if the other side does not prove that it knows the token."""
        target = path + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": "application/json" if raw is None else "application/octet-stream"}
        data = raw if raw is not None else b"" if body is None else json.dumps(dict(body)).encode()
        parts = urlsplit(self.address)
        # Never through a proxy: drivers are on loopback, and what is asked must not travel further than its address says.
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        try:
            connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
            try:
                prefix = parts.path.rstrip("/")
                if self.token is not None:
                    headers["Authorization"] = self._proof(connection, prefix, self.token, method, target, data)
                connection.request(method, prefix + target, data or None, headers)
                response = connection.getresponse()
                return Answer(response.status, _document(response.read()))
            finally:
                connection.close()
        except (OSError, ValueError, HTTPException) as error:  # HTTPException: it died in the middle of its answer
            raise UnreachableError(
                f"{method} {self.address.rstrip('/')}{target}: no answer ({error}). Is the job or the dispatcher still running "
                "there?"
            ) from error

    def _proof(self, connection: HTTPConnection, prefix: str, token: str, method: str, target: str, data: bytes) -> str:
        mine = nonce()
        connection.request("GET", prefix + challenge.PATH, headers={challenge.HEADER: mine.hex()})
        response = connection.getresponse()
        theirs = challenge.server_is_known(token, mine, _document(response.read(_LONGEST_GREETING)))
        if theirs is None:
            raise UnknownServerError(
                f"what answers at {self.address} (status {response.status}) does not know the token, and was told nothing: it is "
                "another program, or a dispatcher with another token. Give that one's with PENSTOCK_TOKEN or --token-file"
            )
        return challenge.authorization(token, mine, theirs, method, target, data)


def _document(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data or b"{}")
    except ValueError:
        return {"text": data.decode(errors="replace")}
    return content if isinstance(content, dict) else {"items": content}
