"""Which backend holds working state, and with which settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from penstock.state.keyspace import HashMapKeyspace, Keyspace
from penstock.state.rocksdb_settings import RocksDBSettings

BackendName: TypeAlias = Literal["hashmap", "rocksdb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    backend: BackendName = "hashmap"
    rocksdb: RocksDBSettings = field(default_factory=RocksDBSettings)


def keyspace_factory(
    settings: StateSettings, max_parallelism: int, folder: Callable[[], Path | None] = lambda: None
) -> Callable[[], Keyspace]:
    """Makes the keyspace of a subtask. `folder` is asked for when there is something to put in it; None: the system's
    folder for temporary files. The library of a backend is imported only if it was chosen."""
    if settings.backend == "hashmap":
        return HashMapKeyspace
    from penstock.state.rocksdb import RocksDBKeyspace, library

    library()
    return lambda: RocksDBKeyspace(max_parallelism, settings.rocksdb, folder)
