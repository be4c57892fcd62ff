"""Entries as RocksDB keys.

    state id (2) | key group (2) | length (4) + canonical key | [length (4) + canonical namespace] | [canonical map key or piece]
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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.column_keys import key_groups_of_columns
from penstock.state.keys import PLAIN_KEYS, _mix, canonical, restored_key
from penstock.state.keyspace import Shape
from penstock.state.rocksdb_rows import big_endian, column_of, joined, part_bytes
from penstock.state.snapshot_file import StoredColumn

Encode: TypeAlias = Callable[[Any], bytes]
Groups: TypeAlias = npt.NDArray[np.int32]
Parts: TypeAlias = list[StoredColumn]  # values, keys, and what the shape has beside them
EncodeColumns: TypeAlias = Callable[[Groups | None, Parts], tuple[pa.LargeBinaryArray, Groups, Parts]]

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
        case Shape.NAMESPACED | Shape.MAP | Shape.LIST:
            return lambda entry: prefix + grouped(entry[0]) + canonical(entry[1])
        case Shape.NAMESPACED_MAP | Shape.NAMESPACED_LIST:
            return lambda entry: prefix + grouped(entry[0][0]) + _part(entry[0][1]) + canonical(entry[1])
        case Shape.TIMERS:
            return lambda timer: prefix + time_bytes(timer[2]) + grouped(timer[0]) + canonical(timer[1])
        case Shape.BLOCKS:
            return lambda name: prefix + canonical(name)


def group_place(shape: Shape) -> slice:
    """Where the key group is in a key. Blocks have none of their own."""
    start = {Shape.TIMERS: 10, Shape.BLOCKS: 0}.get(shape, 2)
    return slice(start, start + 2)


def column_encoder(shape: Shape, prefix: bytes, max_parallelism: int) -> EncodeColumns:
    """From columns, of a shape that is neither timers nor blocks, to the keys of their rows; with the key groups and the columns
    as they are to be stored. Without key groups they are of this process; with them of a snapshot, which an older release may
    have written, with keys that are stored otherwise today."""

    def encode(groups: Groups | None, parts: Parts) -> tuple[pa.LargeBinaryArray, Groups, Parts]:
        values, keys, *beside = parts
        restored = groups is not None
        if groups is None and keys.encoding in ("int64", "utf8", "binary"):
            groups = key_groups_of_columns([keys.array], max_parallelism)
        forms, keys, known = _canonical_column(keys, max_parallelism, restored=restored)
        if known is not None:
            groups = known
        assert groups is not None
        pieces = [_constant(prefix, len(groups)), big_endian(groups, 2), _length(forms), forms]
        stored = [values, keys]
        nested = shape in (Shape.NAMESPACED_MAP, Shape.NAMESPACED_LIST)
        for number, part in enumerate(beside):
            is_map_key = shape is not Shape.NAMESPACED and number == len(beside) - 1
            forms, part, _ = _canonical_column(part, max_parallelism, restored=restored and is_map_key)
            pieces += [_length(forms), forms] if nested and number == 0 else [forms]
            stored.append(part)
        return joined(*pieces), groups, stored

    return encode


def _canonical_column(
    column: StoredColumn, max_parallelism: int, *, restored: bool
) -> tuple[pa.LargeBinaryArray, StoredColumn, Groups | None]:
    """The canonical form of each entry, the column as it is to be stored, and the key groups if they need not be those that
    the snapshot says. `restored`: keys, which an older release may have kept in another form."""
    match column.encoding:
        case "int64":
            return joined(_constant(b"i", len(column)), part_bytes(column)), column, None
        case "utf8":
            return joined(_constant(b"s", len(column)), part_bytes(column)), column, None
        case "binary":
            return joined(_constant(b"b", len(column)), part_bytes(column)), column, None
    objects, places = column.distinct()
    if restored and not PLAIN_KEYS.issuperset(map(type, objects)):
        objects = list(map(restored_key, objects))
        column = column_of(objects)
        column = column if places is None else column.chosen(places)
    encoded = list(map(canonical, objects))
    forms = pa.array(encoded, pa.large_binary())
    groups = np.fromiter((_mix(zlib.crc32(form)) % max_parallelism for form in encoded), np.int32, len(encoded))
    if places is None:
        return forms, column, groups
    return forms.take(places), column, groups[places.to_numpy(zero_copy_only=False)]


def _constant(data: bytes, count: int) -> pa.LargeBinaryArray:
    return pa.repeat(pa.scalar(data, pa.large_binary()), count)


def _length(forms: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    return big_endian(pc.binary_length(forms).to_numpy(zero_copy_only=False), 4)


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
