"""Entries as RocksDB keys.

    state id (2) | key group (2) | length (4) + canonical key | [length (4) + canonical namespace] | [canonical map key]
    state id (2) | timestamp (8, ascending) | key group (2) | length (4) + canonical key | canonical namespace    timers
    state id (2) | canonical name                                                                     pane blocks

Canonical encodings are equal for equal keys but cannot be read back, so an entry is also stored beside its value. The
state id comes first: a scan over one state is one range, in order of key groups. Timers are ordered by time over all
key groups, because that is the only way they are ever listed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.state.keys import _mix, canonical
from penstock.state.keyspace import Shape

Encode: TypeAlias = Callable[[Any], bytes]

_BIAS = 1 << 63


def encoder(shape: Shape, prefix: bytes, max_parallelism: int) -> Encode:
    """From an entry of a table of this shape to its key."""

    def grouped(key: Any) -> bytes:
        encoded = canonical(key)
        group = _mix(zlib.crc32(encoded)) % max_parallelism
        return group.to_bytes(2, "big") + len(encoded).to_bytes(4, "big") + encoded

    match shape:
        case Shape.KEY:
            return lambda key: prefix + grouped(key)
        case Shape.NAMESPACED | Shape.MAP:
            return lambda entry: prefix + grouped(entry[0]) + canonical(entry[1])
        case Shape.NAMESPACED_MAP:
            return lambda entry: prefix + grouped(entry[0][0]) + _part(entry[0][1]) + canonical(entry[1])
        case Shape.TIMERS:
            return lambda timer: prefix + time_bytes(timer[2]) + grouped(timer[0]) + canonical(timer[1])
        case Shape.BLOCKS:
            return lambda name: prefix + canonical(name)


def map_prefix(shape: Shape, prefix: bytes, max_parallelism: int) -> Encode:
    """From a key or (key, namespace) to what all keys of its map begin with."""
    if shape is Shape.MAP:
        return encoder(Shape.KEY, prefix, max_parallelism)
    keyed = encoder(Shape.KEY, prefix, max_parallelism)
    return lambda entry: keyed(entry[0]) + _part(entry[1])


def time_bytes(timestamp: int) -> bytes:
    """A timestamp as bytes that sort as it does."""
    return (timestamp + _BIAS).to_bytes(8, "big")


def after(prefix: bytes) -> bytes:
    """The smallest key above all that begin with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])


def _part(value: Any) -> bytes:
    encoded = canonical(value)
    return len(encoded).to_bytes(4, "big") + encoded
