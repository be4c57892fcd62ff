"""The keys that a configuration may hold: those of the table of options, Flink's that have no meaning here, and foreign ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from penstock.common.config_options import ConfigOption
from penstock.common.options import SECTIONS, options_of
from penstock.common.secrets import hide_secret
from penstock.errors import ConfigurationError

OPTIONS: Final[Mapping[str, ConfigOption[Any]]] = {
    key: option for section in SECTIONS for option in options_of(section) for key in option.keys
}

_OURS: Final = "penstock."
_SPARK: Final = "spark."

# How alike a key must be to a known one to be taken for it (1: equal). A key of ours is unknown in any case. Of Flink's keys a
# newer release may have one that is much like an older one; so little may differ where nothing depends on it.
_RELATED: Final = 0.75
_MISSPELT: Final = 0.85
_MISSPELT_WITHOUT_MEANING: Final = 0.94


def check(configuration: Mapping[str, str]) -> None:
    """Raises a ConfigurationError for a value that its option does not allow, for an unknown key of Penstock's, and for a key
    that looks like a misspelt one. Flink's other keys, Spark's and those of others have no effect here and pass."""
    for key, text in configuration.items():
        if key in OPTIONS:
            OPTIONS[key].type.read(key, text)
        elif not key.startswith(_SPARK) and key not in flink_keys():
            _check_unknown(key, text)


def perhaps(key: str) -> str | None:
    """The option that somebody may have meant by a key that `check` lets pass: a part of its name, or much like it. None: none."""
    if key in OPTIONS or key in flink_keys() or key.startswith(_SPARK):
        return None
    plain = key.lower().replace("_", "-")
    parts = [option for option in OPTIONS if f".{option}.".find(f".{plain}.") >= 0]
    return parts[0] if len(parts) == 1 else _closest(key, OPTIONS, _RELATED)


@cache
def flink_keys() -> frozenset[str]:
    """Keys of Flink's that have no meaning here."""
    lines = Path(__file__).with_name("flink_keys.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(key for line in lines if not line.startswith("#") for key in line.split())


def _check_unknown(key: str, text: str) -> None:
    ours = key.startswith(_OURS)
    meant = _closest(key, OPTIONS, _RELATED if ours else _MISSPELT)
    if meant is None:  # only in its own namespace: foreign keys may be many, and comparing takes time
        namespace = key.partition(".")[0] + "."
        meant = _closest(
            key, filter(lambda other: other.startswith(namespace), flink_keys()), _MISSPELT_WITHOUT_MEANING
        )
    if meant is None and not ours:
        return
    found = f"Configuration key {key!r} (its value is {hide_secret(key, repr(text))}) is not known"
    if meant is None:
        raise ConfigurationError(f"{found}: docs/reference/configuration.md has all that start with {_OURS!r}")
    expected = f", which takes {OPTIONS[meant].type.allowed()}" if meant in OPTIONS else ""
    raise ConfigurationError(f"{found}: did you mean {meant!r}{expected}?")


def _closest(key: str, known: Iterable[str], at_least: float) -> str | None:
    plain = {other.lower(): other for other in known}
    found = difflib.get_close_matches(key.lower().replace("_", "-"), plain, 1, at_least)
    return plain[found[0]] if found else None
