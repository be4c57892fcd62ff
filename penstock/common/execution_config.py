"""Settings of a whole job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import ConfigurationError

_MAX_KEY_GROUPS: Final = 32768


class ExecutionConfig:
    """Parallelism, watermark interval, object reuse and the parameters every function can read."""

    PARALLELISM_DEFAULT: Final = -1  # not set: the environment's default
    PARALLELISM_UNKNOWN: Final = -2  # leave it as it is

    def __init__(self) -> None:
        self._parallelism = self.PARALLELISM_DEFAULT
        self._max_parallelism = -1
        self._auto_watermark_interval = 200
        self._object_reuse = False
        self._global_job_parameters: dict[str, str] = {}

    def get_parallelism(self) -> int:
        return self._parallelism

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        if parallelism != self.PARALLELISM_UNKNOWN:
            if parallelism < 1 and parallelism != self.PARALLELISM_DEFAULT:
                raise ConfigurationError(
                    f"Parallelism must be at least 1, or {self.PARALLELISM_DEFAULT} for the default, "
                    f"but is {parallelism}"
                )
            self._parallelism = parallelism
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups, -1 when not set."""
        return self._max_parallelism

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Fixed for the life of the job's state: a restored job must keep it."""
        if not 0 < max_parallelism <= _MAX_KEY_GROUPS:
            raise ConfigurationError(
                f"Maximum parallelism must be between 1 and {_MAX_KEY_GROUPS}, but is {max_parallelism}"
            )
        self._max_parallelism = max_parallelism
        return self

    def get_auto_watermark_interval(self) -> int:
        return self._auto_watermark_interval

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Milliseconds between periodic watermarks; 0 turns them off."""
        if interval < 0:
            raise ConfigurationError(f"The auto watermark interval cannot be negative, but is {interval}")
        self._auto_watermark_interval = interval
        return self

    def enable_object_reuse(self) -> ExecutionConfig:
        """Chained functions may be given the very object the one before returned."""
        self._object_reuse = True
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        self._object_reuse = False
        return self

    def is_object_reuse_enabled(self) -> bool:
        return self._object_reuse

    def get_global_job_parameters(self) -> dict[str, str]:
        return dict(self._global_job_parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """What `RuntimeContext.get_job_parameter` finds; values become strings."""
        self._global_job_parameters = {key: str(value) for key, value in global_job_parameters_dict.items()}
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._parallelism, self._max_parallelism, self._auto_watermark_interval, self._object_reuse))
