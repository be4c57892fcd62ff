"""Which backend holds working state, and with which settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.common.config_options import setting, settings_of
from penstock.common.options import BackendName, StateBackendOptions
from penstock.state.keyspace import HashMapKeyspace, Keyspace
from penstock.state.rocksdb_settings import RocksDBSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """The backend of a job, and the settings of those that have some."""

    backend: BackendName = setting(StateBackendOptions.BACKEND)
    rocksdb: RocksDBSettings = field(default_factory=RocksDBSettings)

    @staticmethod
    def of(config: Mapping[str, str]) -> StateSettings:
        rocksdb = RocksDBSettings(**settings_of(RocksDBSettings, config))
        return StateSettings(**settings_of(StateSettings, config), rocksdb=rocksdb)


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
