"""Every backend, for suites that hold each of them to the same contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.common.implementations import STATE_BACKENDS
from penstock.state.backend import OperatorState
from penstock.state.backends import MIB, RocksDBSettings, StateSettings, keyspace_factory
from penstock.state.keyspace import Keyspace, Shape
from penstock.state.overlay import MapTable, OverlayTable

# Small on purpose: caches and heads of timers run out within a test.
SMALL = RocksDBSettings(memory_bytes=16 * MIB, cached_objects=3, timer_head=2)


def _keyspace(name: str, max_parallelism: int) -> Keyspace:
    return keyspace_factory(StateSettings(backend=name, rocksdb=SMALL), max_parallelism)()


BACKENDS: dict[str, Callable[[int], Keyspace]] = {name: partial(_keyspace, name) for name in STATE_BACKENDS.names}


def new_state(backend: str, operator: str = "op", max_parallelism: int = 128) -> OperatorState:
    return OperatorState(operator, max_parallelism, BACKENDS[backend](max_parallelism))


def new_table(backend: str, shape: Shape = Shape.KEY) -> OverlayTable:
    base: Any = BACKENDS[backend](128).base("op", "table", shape)
    return MapTable(base) if shape.is_map else OverlayTable(base)
