"""What is shown of settings and messages, without the secrets in them: by the name of a key, and by the shape of a value.

Settings end up in logs, in REST, on the page and in bug reports, and so do messages of exceptions. Better one harmless value
too many is hidden than one password shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

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
    """Settings for eyes."""
    return {key: hide_secret(key, value) for key, value in values.items()}


def hide_secret(key: str, value: str) -> str:
    if is_secret(key) and value.strip().lower() not in ("true", "false", ""):  # switches give nothing away
        return HIDDEN
    return hide_in_text(value)


def hide_in_text(text: str) -> str:
    """A message for eyes: passwords inside addresses, connection strings and the like are starred out."""
    lowered = text.lower()
    for needles, pattern, shown in _SHAPES:
        if any(needle in lowered for needle in needles):
            text = pattern.sub(shown, text)
    return text
