"""Asking a driver or a dispatcher: JSON over HTTP with a token, standard library only."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from penstock.errors import PenstockError
from penstock.jobmanager.answers import Answer


class UnreachableError(PenstockError):
    """Nobody answers at the address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that speaks (a part of) the REST interface."""

    address: str
    token: str | None = None

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
        """The answer, whatever its status; UnreachableError if there is none within the time."""
        url = f"{self.address.rstrip('/')}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": "application/json" if raw is None else "application/octet-stream"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = raw if raw is not None else None if body is None else json.dumps(dict(body)).encode()
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        try:
            # No proxy: drivers are on loopback, and a token must not travel further than its address says.
            with _DIRECT.open(request, timeout=timeout_s) as response:
                return Answer(response.status, _document(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _document(error.read()))
        except (OSError, ValueError, HTTPException) as error:  # HTTPException: it died in the middle of its answer
            reason = getattr(error, "reason", None) or error
            raise UnreachableError(
                f"{method} {url}: no answer ({reason}). Is the job or the dispatcher still running there?"
            ) from error


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _document(data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data or b"{}")
    except ValueError:
        return {"text": data.decode(errors="replace")}
    return content if isinstance(content, dict) else {"items": content}
