"""Where checkpoints go, as PyFlink describes it: an argument of `CheckpointConfig.set_checkpoint_storage`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from penstock.common.absent import missing_name
from penstock.errors import ConfigurationError

__all__ = ["CheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]


class CheckpointStorage(ABC):
    """Settings only. The storage itself is `penstock.checkpoint.storage`."""

    @abstractmethod
    def get_checkpoint_path(self) -> str | None:
        """The folder; None: the configuration says it."""

    @abstractmethod
    def to_settings(self) -> dict[str, str]:
        """The same choice as configuration keys."""


class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints in the memory of the driver: for small state, snapshots of up to `max_state_size` bytes. They survive the
    loss of slots and restarts of the job in this driver, and not the driver itself."""

    DEFAULT_MAX_STATE_SIZE: Final = 5 * 1024 * 1024

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        self._path = checkpoint_path
        self._max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if self._max_state_size < 0:
            raise ConfigurationError(f"max_state_size cannot be negative, but is {max_state_size}")

    def get_checkpoint_path(self) -> str | None:
        return self._path

    def get_max_state_size(self) -> int:
        return self._max_state_size

    def get_savepoint_path(self) -> str | None:
        """None: savepoints go where they are asked for, or to the environment's default savepoint directory."""
        return None

    def to_settings(self) -> dict[str, str]:
        return {
            "execution.checkpointing.storage": "jobmanager",
            "penstock.checkpoint.driver.max-state-size": str(self._max_state_size),
        }

    def __str__(self) -> str:
        return f"JobManagerCheckpointStorage(path={self._path}, max_state_size={self._max_state_size})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Snapshots above `file_state_size_threshold` bytes are files in the folder; smaller ones are in the manifest."""

    MAX_FILE_STATE_THRESHOLD: Final = 1024 * 1024
    _DEFAULT_THRESHOLD: Final = 20 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        if checkpoint_path is None:
            raise ConfigurationError("FileSystemCheckpointStorage needs a checkpoint_path that every slot reaches")
        threshold = -1 if file_state_size_threshold is None else file_state_size_threshold
        if not -1 <= threshold <= self.MAX_FILE_STATE_THRESHOLD:
            raise ConfigurationError(
                f"file_state_size_threshold must be between 0 and {self.MAX_FILE_STATE_THRESHOLD} bytes, or -1 for what is "
                f"configured, but is {threshold}"
            )
        self._path, self._threshold, self._write_buffer_size = checkpoint_path, threshold, write_buffer_size

    def get_checkpoint_path(self) -> str:
        return self._path

    def get_savepoint_path(self) -> str | None:
        """None: savepoints go where they are asked for, or to the environment's default savepoint directory."""
        return None

    def get_min_file_size_threshold(self) -> int:
        return self._DEFAULT_THRESHOLD if self._threshold < 0 else self._threshold

    def get_write_buffer_size(self) -> int:
        """At least the threshold. No effect: a snapshot is written in one piece."""
        return max(self._write_buffer_size, self.get_min_file_size_threshold())

    def to_settings(self) -> dict[str, str]:
        settings = {"execution.checkpointing.storage": "filesystem", "execution.checkpointing.dir": self._path}
        if self._threshold >= 0:
            settings["penstock.checkpoint.inline-threshold"] = str(self._threshold)
        return settings

    def __str__(self) -> str:
        return f"FileSystemCheckpointStorage(path={self._path}, threshold={self.get_min_file_size_threshold()})"


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)
