"""How a command, the dispatcher and a driver prove over HTTP that they know a token, without sending it.

    client                                            server
    GET /auth, Penstock-Nonce: c              ──▶
                                              ◀──     {"nonce": s, "proof": of the server over (c, s)}
    any request, Authorization: Penstock c.s.d.p ──▶  d: hash of the body; p: proof of the client over (c, s, method, target, d)

The client goes on only if the server's proof is right: whoever listens on the port of a process that is gone gets nothing. A proof
is good for one request, that very one, and for half a minute. The server keeps nothing of a nonce before it is used: a
flood of greetings takes no memory and pushes nobody out.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
import threading
import time
from collections.abc import Callable

from penstock.common.secrets import NONCE_BYTES, Side, proof, proves

PATH = "/auth"
HEADER = "Penstock-Nonce"
SCHEME = "Penstock"
_HTTP = b"http"
_GOOD_FOR_S = 30.0
_STAMP = struct.Struct(">d")


def server_is_known(token: str, mine: bytes, answer: object) -> bytes | None:
    """The server's nonce, if its answer to a greeting proves that it knows the token."""
    if not isinstance(answer, dict):
        return None
    theirs, proven = _bytes(answer.get("nonce")), _bytes(answer.get("proof"))
    known = theirs is not None and proven is not None and proves(proven, token, Side.SERVER, _HTTP, mine, theirs)
    return theirs if known else None


def authorization(token: str, mine: bytes, theirs: bytes, method: str, target: str, body: bytes) -> str:
    """The header for one request. `target`: path and query as the server will see them."""
    digest = hashlib.sha256(body).digest()
    proven = proof(token, Side.CLIENT, _HTTP, mine, theirs, method.encode(), target.encode(), digest)
    return f"{SCHEME} {'.'.join(part.hex() for part in (mine, theirs, digest, proven))}"


class Challenge:
    """The server's side. Safe to use from several threads."""

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._token, self._clock = token, clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._used: dict[bytes, float] = {}

    def greet(self, nonce: str) -> dict[str, str] | None:
        """The answer to a greeting; None if it is none."""
        theirs = _bytes(nonce)
        if theirs is None or len(theirs) != NONCE_BYTES:
            return None
        mine = self._nonce(_STAMP.pack(self._clock()), theirs)
        return {"nonce": mine.hex(), "proof": proof(self._token, Side.SERVER, _HTTP, theirs, mine).hex()}

    def admit(self, given: str, method: str, target: str) -> bytes | None:
        """What the body of this request must hash to, if its header proves that the client knows the token; once only."""
        scheme, _, text = given.partition(" ")
        parts = [_bytes(part) for part in text.split(".")]
        if scheme != SCHEME or len(parts) != 4 or None in parts:
            return None
        theirs, mine, digest, proven = (part or b"" for part in parts)
        facts = (_HTTP, theirs, mine, method.encode(), target.encode("utf-8", "replace"), digest)
        if not proves(proven, self._token, Side.CLIENT, *facts):
            return None
        if not hmac.compare_digest(mine, self._nonce(mine[: _STAMP.size].ljust(_STAMP.size), theirs)):
            return None
        (made,) = _STAMP.unpack(mine[: _STAMP.size])
        now = self._clock()
        with self._lock:
            for old in [nonce for nonce, at in self._used.items() if now - at > _GOOD_FOR_S]:
                del self._used[old]
            if now - made > _GOOD_FOR_S or mine in self._used:
                return None
            self._used[mine] = made
        return digest

    def _nonce(self, stamp: bytes, theirs: bytes) -> bytes:
        """One of ours can be told from others by its contents: when it was made, and for whom."""
        return stamp + hmac.digest(self._key, stamp + theirs, "sha256")[: NONCE_BYTES - _STAMP.size]


def _bytes(text: object) -> bytes | None:
    try:
        return bytes.fromhex(text) if isinstance(text, str) and text.isascii() else None
    except ValueError:
        return None
