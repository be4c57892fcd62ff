"""Where working state lives. Settings only; the backends themselves are in `penstock.state`.

Flink's older names (Memory-, Fs-, RocksDBStateBackend) said in one word where state and where checkpoints are kept; they
mean a backend and a checkpoint storage here too.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.common.absent import Explaining, missing_name
from penstock.common.options import CheckpointingOptions, StateBackendOptions
from penstock.errors import ConfigurationError

__all__ = [
    "EmbeddedRocksDBStateBackend",
    "FsStateBackend",
    "HashMapStateBackend",
    "MemoryStateBackend",
    "NamedStateBackend",
    "PredefinedOptions",
    "RocksDBStateBackend",
    "StateBackend",
]


class StateBackend(ABC):
    """The choice of a state backend. Two of one kind with equal settings are equal."""

    @abstractmethod
    def to_settings(self) -> dict[str, str]:
        """The same choice as configuration keys."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __str__(self) -> str:
        settings = ", ".join(f"{name.lstrip('_')}={value!r}" for name, value in vars(self).items() if value)
        return f"{type(self).__name__}({settings})" if settings else type(self).__name__


class HashMapStateBackend(StateBackend):
    """Live objects in the memory of the slot: fastest, and limited by it."""

    def to_settings(self) -> dict[str, str]:
        return {StateBackendOptions.BACKEND.key: "hashmap"}


class PredefinedOptions(Enum):
    """Sets of RocksDB options that Flink knows. They are kept without effect here."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend(Explaining, StateBackend):
    """RocksDB on the local disk of the slot: for state larger than memory. Keys and values are serialized.

    Checkpoints are incremental unless that is turned off. Needs the extra `rocksdb`.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing not in (None, True, False):
            raise TypeError(
                "enable_incremental_checkpointing must be None, True or False, "
                f"not {enable_incremental_checkpointing!r}"
            )
        self._incremental = enable_incremental_checkpointing
        self._db_storage_paths: list[str] = []
        self._predefined = PredefinedOptions.DEFAULT
        self._options_factory: str | None = None
        self._transfer_threads = 4

    def is_incremental_checkpoints_enabled(self) -> bool:
        """False only if the backend was made with `enable_incremental_checkpointing=False`.

        Example:

            EmbeddedRocksDBStateBackend(True).is_incremental_checkpoints_enabled()  # gives True
        """
        return self._incremental is not False

    def set_db_storage_paths(self, *paths: str) -> None:
        """Local folders for the databases, as paths or as `file:` URIs; none means the system's folder for temporary files.

        Example:

            backend = EmbeddedRocksDBStateBackend()
            backend.set_db_storage_paths("/fast-disk/state")
        """
        self._db_storage_paths = [_local(path) for path in paths]

    def get_db_storage_paths(self) -> list[str]:
        """The folders that were set for the databases; empty if the configuration decides.

        Example:

            EmbeddedRocksDBStateBackend().get_db_storage_paths()
        """
        return list(self._db_storage_paths)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Accepted without effect: `state.backend.rocksdb.*` of the configuration sets RocksDB up.

        Example:

            EmbeddedRocksDBStateBackend().set_predefined_options(PredefinedOptions.DEFAULT)
        """
        if not isinstance(options, PredefinedOptions):
            raise TypeError(f"set_predefined_options takes a PredefinedOptions, not {options!r}")
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        """The value of `set_predefined_options`; it has no effect.

        Example:

            EmbeddedRocksDBStateBackend().get_predefined_options()  # gives PredefinedOptions.DEFAULT
        """
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Warns that a factory written in Java is not used.

        Example:

            EmbeddedRocksDBStateBackend().set_options("org.example.MyOptions")
        """
        warnings.warn(
            f"set_options({options_factory_class_name!r}): a factory of RocksDB options in Java is not used; "
            "state.backend.rocksdb.* of the configuration sets RocksDB up",
            stacklevel=2,
        )
        self._options_factory = options_factory_class_name

    def get_options(self) -> str | None:
        """The value of `set_options`; it has no effect.

        Example:

            EmbeddedRocksDBStateBackend().get_options()  # gives None
        """
        return self._options_factory

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Accepted without effect: a checkpoint holds changed entries, not RocksDB's files, and each slot stores its own.

        Example:

            EmbeddedRocksDBStateBackend().set_number_of_transfer_threads(4)
        """
        self._transfer_threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int:
        """The value of `set_number_of_transfer_threads`; it has no effect.

        Example:

            EmbeddedRocksDBStateBackend().get_number_of_transfer_threads()
        """
        return self._transfer_threads

    def to_settings(self) -> dict[str, str]:
        settings = {StateBackendOptions.BACKEND.key: "rocksdb"}
        if self._incremental is not None:
            CheckpointingOptions.INCREMENTAL.set(settings, self._incremental)
        if self._db_storage_paths:
            StateBackendOptions.ROCKSDB_LOCAL_DIRS.set(settings, tuple(self._db_storage_paths))
        return settings


class NamedStateBackend(StateBackend):
    """A backend by the name it is registered under: one of another package (`penstock.common.implementations`)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def to_settings(self) -> dict[str, str]:
        return {StateBackendOptions.BACKEND.key: self._name}


class MemoryStateBackend(HashMapStateBackend):
    """Flink's older name for: state on the heap, checkpoints in the memory of the driver."""

    DEFAULT_MAX_STATE_SIZE = CheckpointingOptions.DRIVER_MAX_STATE_SIZE.default

    def __init__(
        self,
        checkpoint_path: str | None = None,
        savepoint_path: str | None = None,
        max_state_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """Snapshots are always asynchronous where that helps: the last argument has no effect."""
        self._max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        self._savepoint_path = savepoint_path
        self._checkpoint_path = checkpoint_path

    def get_max_state_size(self) -> int:
        """The largest snapshot in bytes that a checkpoint takes.

        Example:

            MemoryStateBackend().get_max_state_size()
        """
        return self._max_state_size

    def to_settings(self) -> dict[str, str]:
        return {
            **super().to_settings(),
            **_savepoints(self._savepoint_path),
            CheckpointingOptions.STORAGE.key: "jobmanager",
            CheckpointingOptions.DRIVER_MAX_STATE_SIZE.key: str(self._max_state_size),
        }


class FsStateBackend(HashMapStateBackend):
    """Flink's older name for: state on the heap, checkpoints in a folder."""

    def __init__(
        self,
        checkpoint_directory_uri: str | None = None,
        default_savepoint_directory_uri: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        using_asynchronous_snapshots: bool | None = None,
    ) -> None:
        """The last two arguments have no effect: files are written whole, and asynchronously where that helps."""
        if checkpoint_directory_uri is None:
            raise ConfigurationError("FsStateBackend needs the folder for checkpoints: checkpoint_directory_uri")
        self._checkpoint_path = checkpoint_directory_uri
        self._savepoint_path = default_savepoint_directory_uri
        self._threshold = file_state_size_threshold

    def get_checkpoint_path(self) -> str:
        """The folder of the checkpoints.

        Example:

            FsStateBackend("file:///data/checkpoints").get_checkpoint_path()  # gives "file:///data/checkpoints"
        """
        return self._checkpoint_path

    def to_settings(self) -> dict[str, str]:
        settings = {**super().to_settings(), **_savepoints(self._savepoint_path), **_folder(self._checkpoint_path)}
        if self._threshold is not None:
            CheckpointingOptions.INLINE_THRESHOLD.set(settings, self._threshold)
        return settings


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """Flink's older name for: state in RocksDB, checkpoints in a folder."""

    def __init__(
        self,
        checkpoint_data_uri: str | None = None,
        enable_incremental_checkpointing: bool | None = None,
        checkpoint_stream_backend: Any = None,
    ) -> None:
        super().__init__(enable_incremental_checkpointing)
        if checkpoint_data_uri is None and not isinstance(checkpoint_stream_backend, StateBackend):
            raise ConfigurationError("RocksDBStateBackend needs the folder for checkpoints: checkpoint_data_uri")
        self._checkpoint_path = checkpoint_data_uri
        self._checkpoint_backend: StateBackend | None = checkpoint_stream_backend

    def to_settings(self) -> dict[str, str]:
        storage = (
            self._checkpoint_backend.to_settings()
            if self._checkpoint_backend is not None
            else _folder(str(self._checkpoint_path))
        )
        return {**storage, **super().to_settings()}


def _local(path: str) -> str:
    return urlsplit(path).path.rstrip("/") if path.startswith("file:") else path


def _folder(path: str) -> dict[str, str]:
    return {CheckpointingOptions.STORAGE.key: "filesystem", CheckpointingOptions.DIR.key: path}


def _savepoints(path: str | None) -> dict[str, str]:
    return {} if path is None else {CheckpointingOptions.SAVEPOINT_DIR.key: path}


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)
