"""Settings of a whole job."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from penstock.common.absent import Explaining
from penstock.errors import ConfigurationError

_MAX_KEY_GROUPS: Final = 32768


class ExecutionConfig(Explaining):
    """The settings of a job: parallelism, key groups, object reuse, and the parameters every function can read."""

    PARALLELISM_DEFAULT: Final = -1  # not set: the environment's default
    PARALLELISM_UNKNOWN: Final = -2  # leave it as it is

    def __init__(self) -> None:
        self._parallelism = self.PARALLELISM_DEFAULT
        self._max_parallelism = -1
        self._auto_watermark_interval = 200
        self._object_reuse = False
        self._global_job_parameters: dict[str, str] = {}
        self._closure_cleaner = True
        self._generic_types = True
        self._auto_generated_uids = True
        self._snapshot_compression = False
        self._latency_tracking_interval = 0
        self._task_cancellation_interval = 30_000
        self._task_cancellation_timeout = 180_000

    def get_parallelism(self) -> int:
        """The number of subtasks of operators that do not set their own; PARALLELISM_DEFAULT if not set."""
        return self._parallelism

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Sets the number of subtasks of operators that do not set their own, as `env.set_parallelism` does.
        PARALLELISM_UNKNOWN leaves it as it is.
        """
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
        """The value of `set_auto_watermark_interval`, in milliseconds."""
        return self._auto_watermark_interval

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Pipelined: how often periodic watermarks are made, in milliseconds; 0: never. In epochs they follow epochs. A negative
        interval is refused."""
        if interval < 0:
            raise ConfigurationError(f"The auto watermark interval cannot be negative, but is {interval}")
        self._auto_watermark_interval = interval
        return self

    def enable_object_reuse(self) -> ExecutionConfig:
        """Where a stream goes to several operators of one chain, they are given the very same objects: what one of them does
        to a record, the next may see. What a function emits or stores is a copy in any case."""
        self._object_reuse = True
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        """Each operator of a chain that shares its input with others is given copies: the default."""
        self._object_reuse = False
        return self

    def is_object_reuse_enabled(self) -> bool:
        """True after `enable_object_reuse`."""
        return self._object_reuse

    def get_global_job_parameters(self) -> dict[str, str]:
        """The parameters as set; a copy."""
        return dict(self._global_job_parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Sets the parameters that every function reads with `RuntimeContext.get_job_parameter`; values become
        strings.
        """
        self._global_job_parameters = {key: str(value) for key, value in global_job_parameters_dict.items()}
        return self

    def enable_generic_types(self) -> ExecutionConfig:
        """Streams without a declared type are pickled: the default."""
        self._generic_types = True
        return self

    def disable_generic_types(self) -> ExecutionConfig:
        """Refuse, when the job is built, operators whose output type is not declared: their records would be pickled."""
        self._generic_types = False
        return self

    def has_generic_types_disabled(self) -> bool:
        """True if operators without a declared output type are refused."""
        return not self._generic_types

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """An operator without a uid gets one made of its name and its place in the program: the default."""
        self._auto_generated_uids = True
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse, when the job is built, operators without a uid of their own: their state would be lost when the program
        changes."""
        self._auto_generated_uids = False
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """True unless operators without a uid of their own are refused."""
        return self._auto_generated_uids

    def is_use_snapshot_compression(self) -> bool:
        """The value of `set_use_snapshot_compression`."""
        return self._snapshot_compression

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """True compresses snapshots (LZ4); False leaves it to `execution.checkpointing.snapshot-compression`."""
        self._snapshot_compression = use_snapshot_compression
        return self

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted without effect: cloudpickle takes only what a function refers to."""
        self._closure_cleaner = True
        return self

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted without effect: cloudpickle takes only what a function refers to."""
        self._closure_cleaner = False
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        """The value as set; it has no effect."""
        return self._closure_cleaner

    def get_latency_tracking_interval(self) -> int:
        """The value of `set_latency_tracking_interval`; it has no effect."""
        return self._latency_tracking_interval

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Accepted without effect: latency from every source to every sink is measured for each epoch."""
        self._latency_tracking_interval = interval
        return self

    def get_task_cancellation_interval(self) -> int:
        """The value of `set_task_cancellation_interval`; it has no effect."""
        return self._task_cancellation_interval

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Accepted without effect: a job is cancelled between two epochs."""
        self._task_cancellation_interval = interval
        return self

    def get_task_cancellation_timeout(self) -> int:
        """The value of `set_task_cancellation_timeout`; it has no effect."""
        return self._task_cancellation_timeout

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Accepted without effect: `penstock.epoch.timeout` bounds what a cancelled job waits for."""
        if timeout < 0:
            raise ConfigurationError(f"The task cancellation timeout cannot be negative, but is {timeout}")
        self._task_cancellation_timeout = timeout
        return self

    def disable_force_kryo(self) -> ExecutionConfig:
        """Does nothing: Java's serializers, which it would turn off, are not here."""
        return self

    def is_force_kryo_enabled(self) -> bool:
        """Always False: there are none of Java's serializers here."""
        return False

    def disable_force_avro(self) -> ExecutionConfig:
        """Does nothing: Java's serializers, which it would turn off, are not here."""
        return self

    def is_force_avro_enabled(self) -> bool:
        """Always False: there are none of Java's serializers here."""
        return False

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Always empty: there are none of Java's serializers here."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Always empty: there are none of Java's serializers here."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Always empty: there are none of Java's serializers here."""
        return []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._parallelism, self._max_parallelism, self._auto_watermark_interval, self._object_reuse))


class InputDependencyConstraint(Enum):
    """Flink 2 and Penstock both schedule without it: every level runs once all its inputs are there."""

    ANY = 0
    ALL = 1
