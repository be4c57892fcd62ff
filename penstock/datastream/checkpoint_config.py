"""Settings of checkpointing: how often, how exact, where to, and what becomes of the last one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.common.absent import missing_name
from penstock.common.config_options import ConfigOption
from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, options_of
from penstock.common.time import Duration
from penstock.errors import ConfigurationError

T = TypeVar("T")


class CheckpointingMode(Enum):
    """The guarantee of a job: how often a record may count in state and output after a failure."""

    EXACTLY_ONCE = 0  # barriers are aligned: every record counts once
    AT_LEAST_ONCE = 1  # sinks emit at the end of every epoch: what a recovery reads again, they emit again
    AT_MOST_ONCE = 2  # not Flink's: after a failure nothing is read again, and state starts empty


class ExternalizedCheckpointRetention(Enum):
    """Whether the checkpoints of a cancelled job are kept. Those of a job that failed always are."""

    DELETE_ON_CANCELLATION = 0  # kept only if the job failed
    RETAIN_ON_CANCELLATION = 1  # kept if the job failed or was cancelled; the user removes it
    NO_EXTERNALIZED_CHECKPOINTS = 2  # as DELETE_ON_CANCELLATION


ExternalizedCheckpointCleanup = ExternalizedCheckpointRetention  # its name before Flink 2


class CheckpointStorage(ABC):
    """Settings only. The storage itself is `penstock.checkpoint.storage`."""

    @abstractmethod
    def get_checkpoint_path(self) -> str | None:
        """The folder; None: the configuration says it.

        Example:

            FileSystemCheckpointStorage("/data/checkpoints").get_checkpoint_path()  # gives "/data/checkpoints"
        """

    @abstractmethod
    def to_settings(self) -> dict[str, str]:
        """The same choice as configuration keys."""


class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints in the memory of the driver: for small state, snapshots of up to `max_state_size` bytes. They survive the
    loss of slots and restarts of the job in this driver, and not the driver itself."""

    DEFAULT_MAX_STATE_SIZE: Final = CheckpointingOptions.DRIVER_MAX_STATE_SIZE.default

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        self._path = checkpoint_path
        self._max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if self._max_state_size < 0:
            raise ConfigurationError(f"max_state_size cannot be negative, but is {max_state_size}")

    def get_checkpoint_path(self) -> str | None:
        return self._path

    def get_max_state_size(self) -> int:
        """The largest snapshot in bytes that this storage takes.

        Example:

            JobManagerCheckpointStorage(max_state_size=1_000_000).get_max_state_size()  # gives 1_000_000
        """
        return self._max_state_size

    def get_savepoint_path(self) -> str | None:
        """Always None: savepoints go where they are asked for, or to the environment's default savepoint directory.

        Example:

            JobManagerCheckpointStorage().get_savepoint_path()  # gives None
        """
        return None

    def to_settings(self) -> dict[str, str]:
        return {
            CheckpointingOptions.STORAGE.key: "jobmanager",
            CheckpointingOptions.DRIVER_MAX_STATE_SIZE.key: str(self._max_state_size),
        }

    def __str__(self) -> str:
        return f"JobManagerCheckpointStorage(path={self._path}, max_state_size={self._max_state_size})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Snapshots above `file_state_size_threshold` bytes are files in the folder; smaller ones are in the manifest."""

    MAX_FILE_STATE_THRESHOLD: Final = 1024 * 1024
    _DEFAULT_THRESHOLD: Final = CheckpointingOptions.INLINE_THRESHOLD.default

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
        self._path = checkpoint_path.rstrip("/") or checkpoint_path
        self._threshold, self._write_buffer_size = threshold, write_buffer_size

    def get_checkpoint_path(self) -> str:
        return self._path

    def get_savepoint_path(self) -> str | None:
        """Always None: savepoints go where they are asked for, or to the environment's default savepoint directory.

        Example:

            FileSystemCheckpointStorage("/data/checkpoints").get_savepoint_path()  # gives None
        """
        return None

    def get_min_file_size_threshold(self) -> int:
        """The largest snapshot in bytes that is kept in the manifest instead of a file of its own.

        Example:

            FileSystemCheckpointStorage("/data/checkpoints").get_min_file_size_threshold()
        """
        return self._DEFAULT_THRESHOLD if self._threshold < 0 else self._threshold

    def get_write_buffer_size(self) -> int:
        """At least the threshold. No effect: a snapshot is written in one piece.

        Example:

            FileSystemCheckpointStorage("/data/checkpoints").get_write_buffer_size()
        """
        return max(self._write_buffer_size, self.get_min_file_size_threshold())

    def to_settings(self) -> dict[str, str]:
        settings = {CheckpointingOptions.STORAGE.key: "filesystem", CheckpointingOptions.DIR.key: self._path}
        if self._threshold >= 0:
            CheckpointingOptions.INLINE_THRESHOLD.set(settings, self._threshold)
        return settings

    def __str__(self) -> str:
        return f"FileSystemCheckpointStorage(path={self._path}, threshold={self.get_min_file_size_threshold()})"


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)


_MINIMAL_MS: Final = 10  # Flink's: shorter ones are taken for a mistake in the unit
_MAX_INT: Final = 2**31 - 1


class CheckpointConfig:
    """Settings of checkpoints: how often, how exact, where to. Times are milliseconds; setters return the object, getters give
    what was set here, or else what the environment is configured with."""

    def __init__(self, configured: Configuration | None = None) -> None:
        self._configured = Configuration() if configured is None else configured
        self._set: dict[str, str] = {}  # by configuration key
        self._force_unaligned = False
        self._aligned_timeout = Duration.of_millis(0)
        self._storage: CheckpointStorage | None = None

    def is_checkpointing_enabled(self) -> bool:
        """True once an interval was set or configured.

        Example:

            env.get_checkpoint_config().is_checkpointing_enabled()  # gives False
        """
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode as set, or else as the default says: EXACTLY_ONCE.

        Example:

            env.get_checkpoint_config().get_checkpointing_mode()  # gives CheckpointingMode.EXACTLY_ONCE
        """
        return CheckpointingMode[self._get(CheckpointingOptions.MODE)]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Chooses what a failure may do to a record: it counts once, at least once or at most once.

        Example:

            env.get_checkpoint_config().set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        """
        self._set[CheckpointingOptions.MODE.key] = checkpointing_mode.name
        return self

    def get_checkpoint_interval(self) -> int:
        """The milliseconds between two checkpoints; -1 when checkpointing is off.

        Example:

            env.enable_checkpointing(1000).get_checkpoint_config().get_checkpoint_interval()  # gives 1000
        """
        interval = self._get(CheckpointingOptions.INTERVAL)
        return -1 if interval is None else interval

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Turns checkpoints on: one is asked for this many milliseconds after the one before. Less than 10 ms is
        refused.

        Example:

            env.get_checkpoint_config().set_checkpoint_interval(1000)
        """
        return self._number(CheckpointingOptions.INTERVAL, "checkpoint interval", checkpoint_interval, _MINIMAL_MS)

    def get_checkpoint_timeout(self) -> int:
        """The milliseconds after which a checkpoint that is not complete is given up.

        Example:

            env.get_checkpoint_config().get_checkpoint_timeout()  # gives 600_000
        """
        return self._get(CheckpointingOptions.TIMEOUT)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """A checkpoint that is not complete after this long is given up.

        Example:

            env.get_checkpoint_config().set_checkpoint_timeout(60_000)
        """
        return self._number(CheckpointingOptions.TIMEOUT, "checkpoint timeout", checkpoint_timeout, _MINIMAL_MS)

    def get_min_pause_between_checkpoints(self) -> int:
        """The least milliseconds between the end of a checkpoint and the start of the next.

        Example:

            env.get_checkpoint_config().get_min_pause_between_checkpoints()  # gives 0
        """
        return self._get(CheckpointingOptions.MIN_PAUSE)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """The least time between the end of a checkpoint and the start of the next.

        Example:

            env.get_checkpoint_config().set_min_pause_between_checkpoints(500)
        """
        return self._number(
            CheckpointingOptions.MIN_PAUSE, "minimum pause between checkpoints", min_pause_between_checkpoints, 0
        )

    def get_max_concurrent_checkpoints(self) -> int:
        """How many checkpoints may be under way at once.

        Example:

            env.get_checkpoint_config().get_max_concurrent_checkpoints()  # gives 1
        """
        return self._get(CheckpointingOptions.MAX_CONCURRENT)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Lets this many checkpoints be under way at once; at least 1.

        Example:

            env.get_checkpoint_config().set_max_concurrent_checkpoints(1)
        """
        return self._number(
            CheckpointingOptions.MAX_CONCURRENT, "maximum of concurrent checkpoints", max_concurrent_checkpoints, 1
        )

    def is_fail_on_checkpointing_errors(self) -> bool:
        """True if the first checkpoint that fails makes the job fail.

        Example:

            env.get_checkpoint_config().is_fail_on_checkpointing_errors()  # gives True
        """
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Lets the first checkpoint that fails make the job fail; False tolerates any number.

        Example:

            env.get_checkpoint_config().set_fail_on_checkpointing_errors(False)
        """
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else _MAX_INT)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """How many checkpoints may fail in a row before the job does.

        Example:

            env.get_checkpoint_config().get_tolerable_checkpoint_failure_number()  # gives 0
        """
        return self._get(CheckpointingOptions.TOLERABLE_FAILURES)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Lets this many checkpoints fail in a row before the job does.

        Example:

            env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(3)
        """
        return self._number(
            CheckpointingOptions.TOLERABLE_FAILURES,
            "number of tolerable checkpoint failures",
            tolerable_checkpoint_failure_number,
            0,
        )

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Says whether the checkpoints are kept when the job is cancelled.

        Example:

            keep = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
            env.get_checkpoint_config().set_externalized_checkpoint_retention(keep)
        """
        self._set[CheckpointingOptions.DELETE_ON_CANCEL.key] = retention_mode.name
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """The retention as set here, or else as the default says: RETAIN_ON_CANCELLATION.

        Example:

            env.get_checkpoint_config().get_externalized_checkpoint_retention()
        """
        option = CheckpointingOptions.DELETE_ON_CANCEL
        values = self._all()
        name = next((values[key] for key in option.keys if key in values), "RETAIN_ON_CANCELLATION")
        return ExternalizedCheckpointRetention[name.strip().upper()]

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """The name of `set_externalized_checkpoint_retention` before Flink 2.

        Example:

            keep = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
            env.get_checkpoint_config().enable_externalized_checkpoints(keep)
        """
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def set_externalized_checkpoint_cleanup(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """The name of `set_externalized_checkpoint_retention` before Flink 2.

        Example:

            keep = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
            env.get_checkpoint_config().set_externalized_checkpoint_cleanup(keep)
        """
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointRetention:
        """The name of `get_externalized_checkpoint_retention` before Flink 2.

        Example:

            env.get_checkpoint_config().get_externalized_checkpoint_cleanup()
        """
        return self.get_externalized_checkpoint_retention()

    def is_externalized_checkpoints_enabled(self) -> bool:
        """False only after NO_EXTERNALIZED_CHECKPOINTS was set.

        Example:

            env.get_checkpoint_config().is_externalized_checkpoints_enabled()
        """
        return (
            self.get_externalized_checkpoint_retention()
            is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        )

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Whether barriers overtake records; False unless it was set.

        Example:

            env.get_checkpoint_config().is_unaligned_checkpoints_enabled()  # gives False
        """
        return self._get(CheckpointingOptions.UNALIGNED)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Lets barriers overtake records, which become part of the checkpoint: it completes under back pressure. In
        pipelined jobs; epochs align. Savepoints are aligned, as in Flink.

        Example:

            env.get_checkpoint_config().enable_unaligned_checkpoints()
        """
        CheckpointingOptions.UNALIGNED.set(self._set, enabled)
        return self

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Takes `enable_unaligned_checkpoints` back.

        Example:

            env.get_checkpoint_config().disable_unaligned_checkpoints()
        """
        return self.enable_unaligned_checkpoints(False)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """The value of `set_aligned_checkpoint_timeout`; it has no effect.

        Example:

            env.get_checkpoint_config().get_aligned_checkpoint_timeout().to_millis()  # gives 0
        """
        return self._aligned_timeout

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Accepted without effect: barriers that may overtake do so at once.

        Example:

            env.get_checkpoint_config().set_aligned_checkpoint_timeout(Duration.of_seconds(10))
        """
        self._aligned_timeout = alignment_timeout
        return self

    def get_alignment_timeout(self) -> Duration:
        """Flink's older name of `get_aligned_checkpoint_timeout`.

        Example:

            env.get_checkpoint_config().get_alignment_timeout().to_millis()  # gives 0
        """
        return self.get_aligned_checkpoint_timeout()

    def set_alignment_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Accepted without effect: Flink's older name of `set_aligned_checkpoint_timeout`.

        Example:

            env.get_checkpoint_config().set_alignment_timeout(Duration.of_seconds(10))
        """
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def is_force_unaligned_checkpoints(self) -> bool:
        """The value of `set_force_unaligned_checkpoints`; it has no effect.

        Example:

            env.get_checkpoint_config().is_force_unaligned_checkpoints()  # gives False
        """
        return self._force_unaligned

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accepted without effect: loops need no special permission.

        Example:

            env.get_checkpoint_config().set_force_unaligned_checkpoints()
        """
        self._force_unaligned = force_unaligned_checkpoints
        return self

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Goes over `execution.checkpointing.dir` and `penstock.checkpoint.inline-threshold`.

        Example:

            env.get_checkpoint_config().set_checkpoint_storage(FileSystemCheckpointStorage("/data/checkpoints"))
        """
        if not isinstance(storage, CheckpointStorage):
            raise ConfigurationError(f"The checkpoint storage must be a CheckpointStorage, not {storage!r}")
        self._storage = storage
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Writes checkpoints to this folder or URL, as `set_checkpoint_storage(FileSystemCheckpointStorage(path))`
        does.

        Example:

            env.get_checkpoint_config().set_checkpoint_storage_dir("/data/checkpoints")
        """
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """The storage that was set here; None if the configuration decides.

        Example:

            env.get_checkpoint_config().get_checkpoint_storage()
        """
        return self._storage

    def to_settings(self) -> dict[str, str]:
        """The settings that were made here, as configuration keys; all others are as configured."""
        return {**self._set, **({} if self._storage is None else self._storage.to_settings())}

    def configure(self, configuration: Configuration) -> None:
        """Takes over what a configuration says of checkpoints, as `env.configure` does: it goes over what was set here before.

        Example:

            env.get_checkpoint_config().configure(Configuration.from_dict({"execution.checkpointing.interval": "1 s"}))
        """
        given = configuration.to_dict()
        for option in options_of(CheckpointingOptions):
            if any(key in given for key in option.keys):
                self._set.pop(option.key, None)
                if option in (CheckpointingOptions.DIR, CheckpointingOptions.STORAGE):
                    self._storage = None
        self._configured.add_all(configuration)

    def _all(self) -> dict[str, str]:
        return {**self._configured.to_dict(), **self._set}

    def _get(self, option: ConfigOption[T]) -> T:
        return option.get(self._all())

    def _number(self, option: ConfigOption[Any], what: str, value: int, least: int) -> CheckpointConfig:
        if value < least:
            raise ConfigurationError(f"The {what} must be at least {least}, but is {value}")
        option.set(self._set, value)
        return self
