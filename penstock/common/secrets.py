"""Two sides that know a token show each other that they do, without saying it.

Each side sends a nonce, and the keyed hash of both nonces. The hash also covers which side speaks and what for, so that a hash
that is sent back, or is taken from another conversation, proves nothing. Tokens are long and random: a hash does not help
to guess one.

What is shown of settings and messages, without the secrets in them: by the name of a key, and by the shape of a value.

Settings end up in logs, in REST, on the page and in bug reports, and so do messages of exceptions. Better one harmless value
too many is hidden than one password shown.

Folders for what a job knows: state, checkpoints, received records. Nobody else's business unless somebody says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import secrets
import stat
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final

NONCE_BYTES = 32
PROOF_BYTES = 32


class Side(Enum):
    """Which end of a connection made a proof, so that one end's cannot be sent back as the other's."""

    CLIENT = b"client"
    SERVER = b"server"


def nonce() -> bytes:
    """Random bytes that are used once."""
    return secrets.token_bytes(NONCE_BYTES)


def proof(token: str, side: Side, *facts: bytes) -> bytes:
    """What only one who knows the token can say of these facts on this side."""
    made = hmac.new(token.encode(), digestmod=hashlib.sha256)
    for part in (b"penstock 2", side.value, *facts):
        made.update(len(part).to_bytes(8, "big") + part)  # lengths: no two lists of facts read alike
    return made.digest()


def proves(given: bytes, token: str, side: Side, *facts: bytes) -> bool:
    """True if `given` is the proof of these facts; takes the same time whatever is wrong."""
    return hmac.compare_digest(given, proof(token, side, *facts))


HIDDEN: Final = "******"

# Flink's list of sensitive keys, and more. Compared without case, and without what stands between words: `account.key`,
# `account-key` and `accountKey` are one.
_SECRET_WORDS: Final = (
    "password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "apikey", "accesskey", "accountkey", "sharedkey",
    "privatekey", "servicekey", "keystorekey", "sslkeypem", "encryptionkey", "jaas", "basicauth", "authparams", "userinfo",
    "httpheaders", "connectionstring", "signature", "azuresas",
)  # fmt: skip

# The same inside a text: `password=…` of a connection string, `"secret": "…"` of JSON, `&sig=…` of a signed URL. Bounds keep a
# long text from taking long.
_NAMES: Final = (
    r"(?:(?:password|passwd|passphrase|secret|token|credential|(?:api|access|account|shared|private)[_.-]?key|signature)[\w.-]{0,60}"
    r"|\bpwd|\bsig)"
)
_VALUE: Final = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s&;,'")}\]]+)"""
_STEMS: Final = ("pass", "secret", "token", "credential", "key", "signature", "pwd", "sig")
# What a text must contain to be worth a look, what is looked for, and what is shown in its place.
_SHAPES: Final = tuple(
    (needles, re.compile(pattern, re.IGNORECASE | re.DOTALL), shown)
    for needles, pattern, shown in (
        (
            ("-----begin",),
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)",
            HIDDEN,
        ),
        (("://",), r"(://[^\s/:@?#'\"]*):[^\s/?#,;'\"]*@", rf"\1:{HIDDEN}@"),  # user:password@host
        (("://",), r"(://)[^\s/:@?#'\"]{20,}@", rf"\1{HIDDEN}@"),  # a user name of that length is a token
        (("authorization",), r"(authorization['\"]?\s*[:=]\s*['\"]?[a-z]+)\s+[^\s'\",]+", rf"\1 {HIDDEN}"),
        (_STEMS, rf"({_NAMES}\s*=\s*){_VALUE}", rf"\1{HIDDEN}"),
        (_STEMS, rf"({_NAMES}['\"]\s*:\s*){_VALUE}", rf"\1{HIDDEN}"),
    )
)


def is_secret(key: str) -> bool:
    """Whether the name says that the value is not for everybody."""
    plain = re.sub(r"[^a-z0-9]", "", key.lower())
    return any(word in plain for word in _SECRET_WORDS)


def hide_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be shown: the values of secrets are starred out."""
    return {key: hide_secret(key, value) for key, value in values.items()}


def hide_secret(key: str, value: str) -> str:
    """A setting's value as it may be shown: starred out if the key or the value's shape says that it is a secret."""
    if is_secret(key) and value.strip().lower() not in ("true", "false", ""):  # switches give nothing away
        return HIDDEN
    return hide_in_text(value)


def hide_in_text(text: str) -> str:
    """A message as it may be shown: passwords inside addresses, connection strings and the like are starred out."""
    lowered = text.lower()
    for needles, pattern, shown in _SHAPES:
        if any(needle in lowered for needle in needles):
            text = pattern.sub(shown, text)
    return text


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone. One that exists keeps its rights; if it is
    open to its group and closed to others, somebody has made it to be shared, and what is made in it is shared alike."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if not missing:
        return
    above = stat.S_IMODE(missing[-1].parent.stat().st_mode)
    rights = 0o700 if above & 0o007 else above & 0o770 | 0o700
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was quicker
            path.mkdir(mode=rights)
