"""Settings of the environment that programs written for PyFlink make, beyond parallelism and checkpointing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from penstock.common.configuration import Configuration
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.errors import JobDefinitionError

_SAVEPOINTS = "execution.checkpointing.savepoint-dir"
_CHAINING = "pipeline.operator-chaining.enabled"
_CHAIN_UNEQUAL = "pipeline.operator-chaining.chain-operators-with-different-max-parallelism"


class EnvironmentSettings:
    """What `StreamExecutionEnvironment` inherits. What is kept here without an effect says so."""

    _local_parallelism: ClassVar[int] = 1
    _configuration: Configuration
    _checkpoint_config: CheckpointConfig

    if TYPE_CHECKING:

        def _reset(self) -> None: ...

    def _init_settings(self) -> None:
        self._buffer_timeout = 100
        self._changelog: bool | None = None
        self._slot_sharing_groups: dict[str, SlotSharingGroup] = {}

    # ---------------------------------------------------------------- chaining and slots

    def disable_operator_chaining(self) -> Self:
        """Every operator becomes a vertex of its own, with an exchange before it: for looking at a job, not for speed."""
        self._configuration.set_string(_CHAINING, "false")
        return self

    def is_chaining_enabled(self) -> bool:
        return self._configuration.get_string(_CHAINING, "true").lower() == "true"

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        return self._configuration.get_string(_CHAIN_UNEQUAL, "true").lower() == "true"

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Makes a group known. Its resources are not reserved: slots are Spark's, and all groups share them."""
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            raise JobDefinitionError(
                f"register_slot_sharing_group takes a SlotSharingGroup, not a {type(slot_sharing_group).__name__}"
            )
        self._slot_sharing_groups[slot_sharing_group.get_name()] = slot_sharing_group
        return self

    @staticmethod
    def get_default_local_parallelism() -> int:
        return EnvironmentSettings._local_parallelism

    @staticmethod
    def set_default_local_parallelism(parallelism: int) -> None:
        """The parallelism of environments made from now on, unless `parallelism.default` is configured."""
        if parallelism < 1:
            raise JobDefinitionError(f"the default local parallelism must be at least 1, not {parallelism}")
        EnvironmentSettings._local_parallelism = parallelism

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accepted without effect: records travel in blocks, and all of an epoch's are sent before it ends."""
        if timeout_millis < -1:
            raise JobDefinitionError(f"the buffer timeout must be -1 or more milliseconds, not {timeout_millis}")
        self._buffer_timeout = timeout_millis
        return self

    def get_buffer_timeout(self) -> int:
        return self._buffer_timeout

    # ---------------------------------------------------------------- checkpoints

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accepted without effect: a checkpoint holds what changed since the last one in any case."""
        self._changelog = enabled
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        return self._changelog

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Sets `execution.checkpointing.savepoint-dir`."""
        self._configuration.set_string(_SAVEPOINTS, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        return self._configuration.get_string(_SAVEPOINTS, "") or None

    # ---------------------------------------------------------------- end

    def close(self) -> None:
        """Forget what was built and not yet executed. Jobs that run are not touched."""
        self._reset()
