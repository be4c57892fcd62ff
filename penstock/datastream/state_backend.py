"""Where working state lives. Settings only; the backends themselves are in `penstock.state`."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Any

from penstock.compat.absent import missing_name

__all__ = ["HashMapStateBackend", "StateBackend"]


class StateBackend(ABC):  # noqa: B024 - a choice between its kinds, which differ in settings only
    """The choice of a state backend."""


class HashMapStateBackend(StateBackend):
    """Live objects in the memory of the slot: fastest, and limited by it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashMapStateBackend)

    def __hash__(self) -> int:
        return hash(HashMapStateBackend)

    def __str__(self) -> str:
        return "HashMapStateBackend"


class EmbeddedRocksDBStateBackend(StateBackend):
    """RocksDB on the local disk of the slot: for state larger than memory. Keys and values are serialized."""

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing not in (None, True, False):
            raise TypeError(
                "enable_incremental_checkpointing must be None, True or False, "
                f"not {enable_incremental_checkpointing!r}"
            )
        self._incremental = enable_incremental_checkpointing
        self._db_storage_paths: list[str] = []

    def is_incremental_checkpoints_enabled(self) -> bool:
        return bool(self._incremental)

    def set_db_storage_paths(self, *paths: str) -> None:
        """Local folders for the databases; none means the slot's own temporary folder."""
        self._db_storage_paths = list(paths)

    def get_db_storage_paths(self) -> list[str]:
        return list(self._db_storage_paths)

    def __str__(self) -> str:
        return f"EmbeddedRocksDBStateBackend(incremental={self._incremental}, paths={self._db_storage_paths})"


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)
