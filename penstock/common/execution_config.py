"""Settings of a whole job."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar

from penstock.common.absent import Explaining
from penstock.common.config_options import ConfigOption
from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, JobOptions, options_of
from penstock.errors import ConfigurationError

T = TypeVar("T")

_MAX_KEY_GROUPS: Final = 32768


class ExecutionConfig(Explaining):
    """The settings of a job: parallelism, key groups, object reuse, and the parameters every function can read. Getters give
    what was set here, or else what the environment is configured with."""

    PARALLELISM_DEFAULT: Final = -1  # not set: the environment's default
    PARALLELISM_UNKNOWN: Final = -2  # leave it as it is

    def __init__(self, configured: Configuration | None = None) -> None:
        self._configured = Configuration() if configured is None else configured
        self._set: dict[str, Any] = {}  # by configuration key
        self._parallelism = self.PARALLELISM_DEFAULT
        self._closure_cleaner = True
        self._force_kryo = self._force_avro = False
        self._snapshot_compression = False
        self._task_cancellation_interval = 30_000
        self._task_cancellation_timeout = 180_000

    def configure(self, configuration: Configuration) -> None:
        """Takes over what a configuration says, as `env.configure` does: it goes over what was set here before."""
        given = configuration.to_dict()
        for option in options_of(JobOptions):
            if any(key in given for key in option.keys):
                self._set.pop(option.key, None)
        self._configured.add_all(configuration)
        self.set_parallelism(JobOptions.PARALLELISM.get(configuration) or self.PARALLELISM_UNKNOWN)

    def _get(self, option: ConfigOption[T]) -> T:
        value: T = self._set[option.key] if option.key in self._set else option.get(self._configured)
        return value

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
        return self._get(JobOptions.KEY_GROUPS) or -1

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Fixed for the life of the job's state: a restored job must keep it."""
        if not 0 < max_parallelism <= _MAX_KEY_GROUPS:
            raise ConfigurationError(
                f"Maximum parallelism must be between 1 and {_MAX_KEY_GROUPS}, but is {max_parallelism}"
            )
        self._set[JobOptions.KEY_GROUPS.key] = max_parallelism
        return self

    def get_auto_watermark_interval(self) -> int:
        """The value of `set_auto_watermark_interval`, in milliseconds."""
        return self._get(JobOptions.WATERMARK_INTERVAL)

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Pipelined: how often periodic watermarks are made, in milliseconds; 0: never. In epochs they follow epochs. A negative
        interval is refused."""
        if interval < 0:
            raise ConfigurationError(f"The auto watermark interval cannot be negative, but is {interval}")
        self._set[JobOptions.WATERMARK_INTERVAL.key] = interval
        return self

    def enable_object_reuse(self) -> ExecutionConfig:
        """Where a stream goes to several operators of one chain, they are given the very same objects: what one of them does
        to a record, the next may see. What a function emits or stores is a copy in any case."""
        self._set[JobOptions.OBJECT_REUSE.key] = True
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        """Each operator of a chain that shares its input with others is given copies: the default."""
        self._set[JobOptions.OBJECT_REUSE.key] = False
        return self

    def is_object_reuse_enabled(self) -> bool:
        """True after `enable_object_reuse`, or as configured."""
        return self._get(JobOptions.OBJECT_REUSE)

    def get_global_job_parameters(self) -> dict[str, str]:
        """The parameters as set, or else as configured; a copy."""
        parameters: Mapping[str, str] = self._get(JobOptions.JOB_PARAMETERS)
        return dict(parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Sets the parameters that every function reads with `RuntimeContext.get_job_parameter`; values become
        strings.
        """
        parameters = {key: str(value) for key, value in global_job_parameters_dict.items()}
        self._set[JobOptions.JOB_PARAMETERS.key] = parameters
        return self

    def enable_generic_types(self) -> ExecutionConfig:
        """Streams without a declared type are pickled: the default."""
        self._set[JobOptions.GENERIC_TYPES.key] = True
        return self

    def disable_generic_types(self) -> ExecutionConfig:
        """Refuse, when the job is built, operators whose output type is not declared: their records would be pickled."""
        self._set[JobOptions.GENERIC_TYPES.key] = False
        return self

    def has_generic_types_disabled(self) -> bool:
        """True if operators without a declared output type are refused."""
        return not self._get(JobOptions.GENERIC_TYPES)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """An operator without a uid gets one made of its name and its place in the program: the default."""
        self._set[JobOptions.GENERATED_UIDS.key] = True
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse, when the job is built, operators without a uid of their own: their state would be lost when the program
        changes."""
        self._set[JobOptions.GENERATED_UIDS.key] = False
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """True unless operators without a uid of their own are refused."""
        return self._get(JobOptions.GENERATED_UIDS)

    def is_use_snapshot_compression(self) -> bool:
        """True after `set_use_snapshot_compression(True)`, or as configured."""
        return self._snapshot_compression or CheckpointingOptions.COMPRESSION.get(self._configured) is not None

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
        """The value of `set_latency_tracking_interval`, in milliseconds; 0: off."""
        return self._get(JobOptions.LATENCY_INTERVAL)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Pipelined: sources send a latency marker so often, in milliseconds; 0 or less: none, the default. How long they take to
        every operator is in the REST API and on the page. In epochs there are none: the epoch is the marker."""
        self._set[JobOptions.LATENCY_INTERVAL.key] = max(0, interval)
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

    def enable_force_kryo(self) -> ExecutionConfig:
        """Accepted without effect: declared types travel as Arrow, all others are pickled."""
        self._force_kryo = True
        return self

    def disable_force_kryo(self) -> ExecutionConfig:
        """Accepted without effect: declared types travel as Arrow, all others are pickled."""
        self._force_kryo = False
        return self

    def is_force_kryo_enabled(self) -> bool:
        """The value as set; it has no effect."""
        return self._force_kryo

    def enable_force_avro(self) -> ExecutionConfig:
        """Accepted without effect: declared types travel as Arrow, all others are pickled."""
        self._force_avro = True
        return self

    def disable_force_avro(self) -> ExecutionConfig:
        """Accepted without effect: declared types travel as Arrow, all others are pickled."""
        self._force_avro = False
        return self

    def is_force_avro_enabled(self) -> bool:
        """The value as set; it has no effect."""
        return self._force_avro

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
        return hash((self._parallelism, self.get_max_parallelism(), self.get_auto_watermark_interval()))


class InputDependencyConstraint(Enum):
    """Flink 2 and Penstock both schedule without it: every level runs once all its inputs are there."""

    ANY = 0
    ALL = 1
