"""Settings of the RocksDB backend: plain data, so that jobs can be described without the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBSettings:
    """`memory_bytes` is for all databases of a process: blocks, indexes and filters that are cached, and write buffers,
    which may take `write_buffer_ratio` of it."""

    memory_bytes: int = 256 * MIB
    write_buffer_ratio: float = 0.5
    local_dirs: tuple[str, ...] = ()  # none: the system's folder for temporary files
    cached_objects: int = 20_000  # decoded values of immutable types, per table
    timer_head: int = 20_000  # timers held in memory, per operator and time domain
    background_threads: int = 2
    compression: str = "lz4"
