"""Settings of the RocksDB backend: plain data, so that jobs can be described without the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.common.config_options import setting
from penstock.common.options import StateBackendOptions

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
