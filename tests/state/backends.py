"""Every backend, for suites that hold each of them to the same contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.state.backend import OperatorState
from penstock.state.backends import MIB, RocksDBSettings
from penstock.state.keyspace import HashMapKeyspace, Keyspace, Shape
from penstock.state.overlay import MapTable, OverlayTable
from penstock.state.rocksdb import RocksDBKeyspace

# Small on purpose: caches and heads of timers run out within a test.
SMALL = RocksDBSettings(memory_bytes=16 * MIB, cached_objects=3, timer_head=2)

BACKENDS: dict[str, Callable[[int], Keyspace]] = {
    "hashmap": lambda max_parallelism: HashMapKeyspace(),
    "rocksdb": lambda max_parallelism: RocksDBKeyspace(max_parallelism, SMALL),
}


def new_state(backend: str, operator: str = "op", max_parallelism: int = 128) -> OperatorState:
    return OperatorState(operator, max_parallelism, BACKENDS[backend](max_parallelism))


def new_table(backend: str, shape: Shape = Shape.KEY) -> OverlayTable:
    base: Any = BACKENDS[backend](128).base("op", "table", shape)
    return MapTable(base) if shape.is_map else OverlayTable(base)
