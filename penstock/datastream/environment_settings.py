"""Settings of the environment: parallelism, runtime mode, checkpoints, state, restarts, chaining."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Self

from penstock.common.configuration import Configuration, GlobalConfiguration
from penstock.common.execution_config import ExecutionConfig
from penstock.common.known_keys import check
from penstock.common.options import CheckpointingOptions, JobOptions, RestartStrategyOptions, StateBackendOptions
from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.datastream.checkpoint_config import CheckpointConfig, CheckpointingMode
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.datastream.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    NamedStateBackend,
    StateBackend,
)
from penstock.errors import JobDefinitionError


class RuntimeExecutionMode(Enum):
    """Whether a job emits results as they come about or only final ones."""

    STREAMING = 0  # results as they come about
    BATCH = 1  # final results only: all sources must be bounded, time stands still until the end of the input
    AUTOMATIC = 2  # batch if all sources are bounded, else streaming


class TimeCharacteristic(Enum):
    """What a program's time was before Flink 1.12. Event time is given by a WatermarkStrategy, whichever is chosen."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2


class EnvironmentSettings:
    """The settings of a StreamExecutionEnvironment. A setting that is kept without an effect says so."""

    _local_parallelism: ClassVar[int] = 1

    if TYPE_CHECKING:

        def _reset(self) -> None: ...

    def _init_settings(self, configuration: Configuration | None) -> None:
        self._configuration = GlobalConfiguration.load_configuration()  # below what the program says
        if configuration is not None:
            self._configuration.add_all(configuration)
        check(self._configuration.to_dict())
        self._config = ExecutionConfig(self._configuration)
        self._checkpoint_config = CheckpointConfig(self._configuration)
        self._state_backend: StateBackend | None = None  # None: as configured
        self._restart: RestartStrategyConfiguration | None = None
        self._runtime_mode: RuntimeExecutionMode | None = None  # None: as configured
        self._config.set_parallelism(
            JobOptions.PARALLELISM.get(self._configuration) or self.get_default_local_parallelism()
        )
        self._buffer_timeout: int | None = None  # None: as configured
        self._changelog: bool | None = None
        self._time_characteristic = TimeCharacteristic.EventTime
        self._slot_sharing_groups: dict[str, SlotSharingGroup] = {}

    def get_config(self) -> ExecutionConfig:
        """The ExecutionConfig of this environment; what is set on it counts for the next `execute`.

        Example:

            env.get_config().set_auto_watermark_interval(100)
        """
        return self._config

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The CheckpointConfig of this environment; what is set on it counts for the next `execute`.

        Example:

            env.get_checkpoint_config().set_checkpoint_timeout(60_000)
        """
        return self._checkpoint_config

    def configure(self, configuration: Configuration) -> None:
        """Adds to the configuration; as in Flink it goes over what was set in code before. ConfigurationError for a key or a
        value that is not known.

        Example:

            env.configure(Configuration.from_dict({"parallelism.default": "4"}))
            env.get_parallelism()  # gives 4
        """
        given = configuration.to_dict()
        check(given)
        self._config.configure(configuration)
        self._checkpoint_config.configure(configuration)
        if any(key in given for key in StateBackendOptions.BACKEND.keys):
            self._state_backend = None
        if any(key in given for key in RestartStrategyOptions.TYPE.keys):
            self._restart = None
        if any(key in given for key in JobOptions.RUNTIME_MODE.keys):
            self._runtime_mode = None
        if any(key in given for key in JobOptions.BUFFER_TIMEOUT.keys):
            self._buffer_timeout = None

    def get_parallelism(self) -> int:
        """The number of subtasks of operators that do not set their own.

        Example:

            env.get_parallelism()  # gives 1
        """
        in_code = self._config.get_parallelism()
        return in_code if in_code > 0 else self.get_default_local_parallelism()

    def set_parallelism(self, parallelism: int) -> Self:
        """Sets the number of subtasks of operators that do not set their own; at least 1.

        Example:

            env.set_parallelism(4).get_parallelism()  # gives 4
        """
        if parallelism < 1:
            raise JobDefinitionError(f"the parallelism must be at least 1, not {parallelism}")
        self._config.set_parallelism(parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups: as set in code, or else `pipeline.max-parallelism`; -1 if neither says.

        Example:

            env.set_max_parallelism(256).get_max_parallelism()  # gives 256
        """
        return self._config.get_max_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Sets the number of key groups, 1 to 32,768. Goes over `pipeline.max-parallelism`; a restored job must keep
        it.

        Example:

            env.set_max_parallelism(256)
        """
        self._config.set_max_parallelism(max_parallelism)
        return self

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """BATCH: final results only, from bounded sources, without checkpoints. AUTOMATIC: BATCH if all sources are
        bounded. Goes over `execution.runtime-mode` of the configuration.

        Example:

            env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        """
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise JobDefinitionError(f"set_runtime_mode takes a RuntimeExecutionMode, not {execution_mode!r}")
        self._runtime_mode = execution_mode
        return self

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE) -> Self:
        """Takes a checkpoint at the end of the first epoch that is planned at least `interval` milliseconds after the last.

        Example:

            env.enable_checkpointing(1000, CheckpointingMode.EXACTLY_ONCE)
        """
        self._checkpoint_config.set_checkpoint_interval(interval)
        self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """The checkpoint interval in milliseconds; -1 when checkpointing is off.

        Example:

            env.enable_checkpointing(1000).get_checkpoint_interval()  # gives 1000
        """
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode of the CheckpointConfig.

        Example:

            env.get_checkpointing_mode()  # gives CheckpointingMode.EXACTLY_ONCE
        """
        return self._checkpoint_config.get_checkpointing_mode()

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Goes over `state.backend.type`; Flink's older backends also say where checkpoints are kept.

        Example:

            env.set_state_backend(EmbeddedRocksDBStateBackend())
        """
        if not isinstance(state_backend, StateBackend):
            raise JobDefinitionError(
                f"{state_backend!r} is not a state backend: choose HashMapStateBackend() or EmbeddedRocksDBStateBackend()"
            )
        self._state_backend = state_backend
        return self

    def get_state_backend(self) -> StateBackend:
        """The state backend that was set here, or else the configured one.

        Example:

            env.get_state_backend()
        """
        if self._state_backend is not None:
            return self._state_backend
        configured = StateBackendOptions.BACKEND.get(self._configuration)
        match configured:
            case "hashmap":
                return HashMapStateBackend()
            case "rocksdb":
                return EmbeddedRocksDBStateBackend()
            case name:
                return NamedStateBackend(name)

    def set_restart_strategy(self, restart_strategy: RestartStrategyConfiguration) -> Self:
        """Says how often and how soon a failed job starts again. Goes over `restart-strategy.type` of the
        configuration.

        Example:

            env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1000))
        """
        self._restart = restart_strategy
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """The strategy that was set here; the fallback, which is the configuration's, if none was.

        Example:

            env.set_restart_strategy(RestartStrategies.no_restart()).get_restart_strategy()
        """
        return self._restart if self._restart is not None else RestartStrategies.fall_back_restart()

    # ---------------------------------------------------------------- chaining and slots

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> Self:
        """Accepted without effect: a WatermarkStrategy gives event time, and processing time needs nothing.

        Example:

            env.set_stream_time_characteristic(TimeCharacteristic.EventTime)
        """
        self._time_characteristic = characteristic
        return self

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """The value of `set_stream_time_characteristic`; it has no effect.

        Example:

            env.get_stream_time_characteristic()  # gives TimeCharacteristic.EventTime
        """
        return self._time_characteristic

    def disable_operator_chaining(self) -> Self:
        """Every operator becomes a vertex of its own, with an exchange before it: for looking at a job, not for speed.

        Example:

            env.disable_operator_chaining().is_chaining_enabled()  # gives False
        """
        JobOptions.CHAINING.set(self._configuration, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """True unless `disable_operator_chaining` was called or `pipeline.operator-chaining.enabled` is false.

        Example:

            env.is_chaining_enabled()  # gives True
        """
        return JobOptions.CHAINING.get(self._configuration)

    def is_object_reuse_enabled(self) -> bool:
        """Whether operators of one chain may share records: `get_config().enable_object_reuse()`, or as configured.

        Example:

            env.is_object_reuse_enabled()  # gives False
        """
        return self._config.is_object_reuse_enabled()

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """True if operators may share a task although their maximal parallelisms differ, which is the default.

        Example:

            env.is_chaining_of_operators_with_different_max_parallelism_enabled()
        """
        return JobOptions.CHAIN_UNEQUAL.get(self._configuration)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Accepted without effect: slots are Spark's, all groups share them, and nothing is reserved.

        Example:

            env.register_slot_sharing_group(SlotSharingGroup.builder("heavy").build())
        """
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            raise JobDefinitionError(
                f"register_slot_sharing_group takes a SlotSharingGroup, not a {type(slot_sharing_group).__name__}"
            )
        self._slot_sharing_groups[slot_sharing_group.get_name()] = slot_sharing_group
        return self

    @staticmethod
    def get_default_local_parallelism() -> int:
        """The parallelism of new environments that configure none.

        Example:

            env.get_default_local_parallelism()
        """
        return EnvironmentSettings._local_parallelism

    @staticmethod
    def set_default_local_parallelism(parallelism: int) -> None:
        """The parallelism of environments made from now on, unless `parallelism.default` is configured.

        Example:

            env.set_default_local_parallelism(2)
        """
        if parallelism < 1:
            raise JobDefinitionError(f"the default local parallelism must be at least 1, not {parallelism}")
        EnvironmentSettings._local_parallelism = parallelism

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Pipelined: how long records wait for others to travel with; 0: not at all, -1: until a frame is full. Unless it is set
        they wait no longer than the load demands. No effect in epochs.

        Example:

            env.set_buffer_timeout(5).get_buffer_timeout()  # gives 5
        """
        if timeout_millis < -1:
            raise JobDefinitionError(f"the buffer timeout must be -1 or more milliseconds, not {timeout_millis}")
        self._buffer_timeout = timeout_millis
        return self

    def get_buffer_timeout(self) -> int:
        """The value of `set_buffer_timeout`, or else the configured one, or else Flink's default, 100.

        Example:

            env.get_buffer_timeout()
        """
        if self._buffer_timeout is not None:
            return self._buffer_timeout
        configured = JobOptions.BUFFER_TIMEOUT.get(self._configuration)
        return 100 if configured is None else configured

    # ---------------------------------------------------------------- checkpoints

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Another name of `get_checkpointing_mode`.

        Example:

            env.get_checkpointing_consistency_mode()
        """
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """The value of `CheckpointConfig.enable_unaligned_checkpoints`; it has no effect.

        Example:

            env.is_unaligned_checkpoints_enabled()  # gives False
        """
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """The value of `CheckpointConfig.set_force_unaligned_checkpoints`; it has no effect.

        Example:

            env.is_force_unaligned_checkpoints()  # gives False
        """
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accepted without effect: a checkpoint holds what changed since the last one in any case.

        Example:

            env.enable_changelog_state_backend(False)
        """
        self._changelog = enabled
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """The value of `enable_changelog_state_backend`, or None if it was not called; it has no effect.

        Example:

            env.is_changelog_state_backend_enabled()
        """
        return self._changelog

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Sets `execution.checkpointing.savepoint-dir`.

        Example:

            env.set_default_savepoint_directory("/data/savepoints")
        """
        CheckpointingOptions.SAVEPOINT_DIR.set(self._configuration, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """The folder of savepoints that are asked for without one; None if there is none.

        Example:

            env.set_default_savepoint_directory("/data/savepoints").get_default_savepoint_directory()  # gives "/data/savepoints"
        """
        return CheckpointingOptions.SAVEPOINT_DIR.get(self._configuration)

    # ---------------------------------------------------------------- end

    def close(self) -> None:
        """Forget what was built and not yet executed. Jobs that run are not touched.

        Example:

            env.close()
        """
        self._reset()
