"""The state backend as a Configuration names it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.errors import ConfigurationError
from penstock.state.choice import BackendName, StateSettings
from penstock.state.rocksdb_settings import MIB, RocksDBSettings

# Flink's names before 1.13 said in one word where state and where checkpoints are kept; both were hash maps.
_BACKENDS: Final[Mapping[str, BackendName]] = {
    "hashmap": "hashmap",
    "jobmanager": "hashmap",
    "memory": "hashmap",
    "filesystem": "hashmap",
    "rocksdb": "rocksdb",
}
_SIZES: Final = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}
_PREFIX: Final = "state.backend.rocksdb."


def memory_size(key: str, text: str) -> int:
    """`67108864`, `64 mb`, `1g`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2].replace("ib", "b") not in _SIZES:
        raise ConfigurationError(f"{key}: {text!r} is not a size; write for example '256 mb' or '1 gb'")
    return int(float(match[1]) * _SIZES[match[2].replace("ib", "b")])


def state_settings(config: Mapping[str, str]) -> StateSettings:
    return StateSettings(backend=_backend(config), rocksdb=_rocksdb(config))


def _backend(config: Mapping[str, str]) -> BackendName:
    for key in ("state.backend.type", "state.backend"):
        if key in config:
            chosen = _BACKENDS.get(config[key].lower())
            if chosen is None:
                raise ConfigurationError(f"{key}: {config[key]!r} is not known; choose 'hashmap' or 'rocksdb'")
            return chosen
    return "hashmap"


def _rocksdb(config: Mapping[str, str]) -> RocksDBSettings:
    defaults = RocksDBSettings()
    memory_key = f"{_PREFIX}memory.fixed-per-slot"
    memory = memory_size(memory_key, config[memory_key]) if memory_key in config else defaults.memory_bytes
    if memory < 8 * MIB:
        raise ConfigurationError(f"{memory_key}: {memory} bytes are too few for a database; the least is 8 mb")
    ratio_key = f"{_PREFIX}memory.write-buffer-ratio"
    try:
        ratio = float(config.get(ratio_key, defaults.write_buffer_ratio))
    except ValueError:
        ratio = 0.0
    if not 0.0 < ratio <= 0.9:
        raise ConfigurationError(f"{ratio_key}: {config[ratio_key]!r} is not a share between 0 and 0.9")
    return RocksDBSettings(
        memory_bytes=memory,
        write_buffer_ratio=ratio,
        local_dirs=tuple(part for part in re.split(r"[,;:|]", config.get(f"{_PREFIX}localdir", "")) if part),
        cached_objects=_number(config, f"{_PREFIX}cached-objects", defaults.cached_objects),
        timer_head=_number(config, f"{_PREFIX}timer-service.cache-size", defaults.timer_head),
        background_threads=_number(config, f"{_PREFIX}thread.num", defaults.background_threads),
    )


def _number(config: Mapping[str, str], key: str, default: int) -> int:
    text = config.get(key)
    if text is None:
        return default
    if not text.isdigit() or int(text) < 1:
        raise ConfigurationError(f"{key}: {text!r} is not a whole number above 0")
    return int(text)
