"""Durations as configurations write them."""

from __future__ import annotations

import re

from penstock.errors import ConfigurationError

_UNITS = {"ms": 1, "s": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(key: str, text: str) -> int:
    """`250`, `250 ms`, `1 s`, `5 min`, `2 h`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    unit = match.group(2) if match else ""
    aliases = {"": "ms", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "minutes": "min", "minute": "min"}
    unit = aliases.get(unit, unit)
    if match is None or unit not in _UNITS:
        raise ConfigurationError(f"{key}: {text!r} is not a duration; write for example '500 ms', '10 s' or '5 min'")
    return int(float(match.group(1)) * _UNITS[unit])
