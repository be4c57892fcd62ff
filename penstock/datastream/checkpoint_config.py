"""Settings of checkpointing."""

from __future__ import annotations

from typing import Final

from penstock.common.time import Duration
from penstock.datastream.checkpoint_storage import CheckpointStorage, FileSystemCheckpointStorage
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from penstock.errors import ConfigurationError

_MINIMAL_MS: Final = 10  # Flink's: shorter ones are taken for a mistake in the unit
_MAX_INT: Final = 2**31 - 1


class CheckpointConfig:
    """How often, how and for how long checkpoints are taken. Times are milliseconds; setters return the object."""

    def __init__(self) -> None:
        self._set: dict[str, str] = {}  # by configuration key, without its prefix
        self._mode = CheckpointingMode.EXACTLY_ONCE
        self._interval = -1
        self._timeout = 600_000
        self._min_pause = 0
        self._max_concurrent = 1
        self._tolerable_failures = 0
        self._retention = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        self._unaligned = False
        self._force_unaligned = False
        self._aligned_timeout = Duration.of_millis(0)
        self._storage: CheckpointStorage | None = None

    def is_checkpointing_enabled(self) -> bool:
        return self._interval > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self._mode

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        self._mode = checkpointing_mode
        self._set["mode"] = checkpointing_mode.name
        return self

    def get_checkpoint_interval(self) -> int:
        """-1 when checkpointing is off."""
        return self._interval

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        self._interval = _at_least("checkpoint interval", checkpoint_interval, _MINIMAL_MS)
        return self

    def get_checkpoint_timeout(self) -> int:
        return self._timeout

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """A checkpoint that is not complete after this long is given up."""
        self._timeout = _at_least("checkpoint timeout", checkpoint_timeout, _MINIMAL_MS)
        self._set["timeout"] = f"{checkpoint_timeout} ms"
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        return self._min_pause

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """The least time between the end of a checkpoint and the start of the next."""
        self._min_pause = _at_least("minimum pause between checkpoints", min_pause_between_checkpoints, 0)
        self._set["min-pause"] = f"{min_pause_between_checkpoints} ms"
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        return self._max_concurrent

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        self._max_concurrent = _at_least("maximum of concurrent checkpoints", max_concurrent_checkpoints, 1)
        self._set["max-concurrent-checkpoints"] = str(max_concurrent_checkpoints)
        return self

    def is_fail_on_checkpointing_errors(self) -> bool:
        return self._tolerable_failures == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """False tolerates any number of failures."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else _MAX_INT)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return self._tolerable_failures

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """How many checkpoints may fail in a row before the job does."""
        self._tolerable_failures = _at_least(
            "number of tolerable checkpoint failures", tolerable_checkpoint_failure_number, 0
        )
        self._set["tolerable-failed-checkpoints"] = str(tolerable_checkpoint_failure_number)
        return self

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        self._retention = retention_mode
        self._set["externalized-checkpoint-retention"] = retention_mode.name
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        return self._retention

    def is_externalized_checkpoints_enabled(self) -> bool:
        return self._retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._unaligned

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Barriers overtake records, which become channel state. Only with EXACTLY_ONCE."""
        self._unaligned = enabled
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        return self.enable_unaligned_checkpoints(False)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        return self._aligned_timeout

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Start aligned, and go on unaligned after this long; zero: unaligned from the start."""
        self._aligned_timeout = alignment_timeout
        return self

    def get_alignment_timeout(self) -> Duration:
        return self.get_aligned_checkpoint_timeout()

    def set_alignment_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._force_unaligned

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        self._force_unaligned = force_unaligned_checkpoints
        return self

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Goes over `execution.checkpointing.dir` and `penstock.checkpoint.inline-threshold`."""
        if not isinstance(storage, CheckpointStorage):
            raise ConfigurationError(f"The checkpoint storage must be a CheckpointStorage, not {storage!r}")
        self._storage = storage
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        return self._storage

    def to_settings(self) -> dict[str, str]:
        """What was set here, as configuration keys; what was not is as configured."""
        settings = {f"execution.checkpointing.{key}": value for key, value in self._set.items()}
        return settings if self._storage is None else {**settings, **self._storage.to_settings()}


def _at_least(what: str, value: int, least: int) -> int:
    if value < least:
        raise ConfigurationError(f"The {what} must be at least {least}, but is {value}")
    return value
