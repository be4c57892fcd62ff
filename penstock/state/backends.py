"""Which backend holds working state, and with which settings.

A backend is a module with a `Keyspace` and a factory of it, named in `penstock.common.implementations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from penstock.common.config_options import setting, settings_of
from penstock.common.implementations import STATE_BACKENDS
from penstock.common.options import StateBackendOptions
from penstock.state.keyspace import Keyspace

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBSettings:
    """`memory_bytes` is for all databases of a process: blocks, indexes and filters that are cached, and write buffers,
    which may take `write_buffer_ratio` of it."""

    memory_bytes: int = setting(StateBackendOptions.ROCKSDB_MEMORY)
    write_buffer_ratio: float = setting(StateBackendOptions.ROCKSDB_WRITE_BUFFER_RATIO)
    # None of them: the system's folder for temporary files.
    local_dirs: tuple[str, ...] = setting(StateBackendOptions.ROCKSDB_LOCAL_DIRS)
    cached_objects: int = setting(StateBackendOptions.ROCKSDB_CACHED_OBJECTS)  # of immutable types, per table
    timer_head: int = setting(StateBackendOptions.ROCKSDB_TIMER_CACHE)  # per operator and time domain
    background_threads: int = setting(StateBackendOptions.ROCKSDB_THREADS)
    compression: str = "lz4"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """The backend of a job, and the settings of those that have some."""

    backend: str = setting(StateBackendOptions.BACKEND)
    rocksdb: RocksDBSettings = field(default_factory=RocksDBSettings)

    @staticmethod
    def of(config: Mapping[str, str]) -> StateSettings:
        """The settings of the state backend in a configuration."""
        rocksdb = RocksDBSettings(**settings_of(RocksDBSettings, config))
        return StateSettings(**settings_of(StateSettings, config), rocksdb=rocksdb)


Folder: TypeAlias = Callable[[], Path | None]
KeyspaceFactory: TypeAlias = Callable[[StateSettings, int, Folder], Callable[[], Keyspace]]


def keyspace_factory(
    settings: StateSettings, max_parallelism: int, folder: Folder = lambda: None
) -> Callable[[], Keyspace]:
    """Makes the keyspace of a subtask. `folder` is asked for when there is something to put in it; None: the system's
    folder for temporary files. The library of a backend is imported only if it was chosen."""
    factory: KeyspaceFactory = STATE_BACKENDS.factory(settings.backend)
    return factory(settings, max_parallelism, folder)
