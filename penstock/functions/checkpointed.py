"""Functions that take part in checkpoints: with state of their own that belongs to no key, or by being told of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.functions.base import KeyedStateStore

if TYPE_CHECKING:
    from penstock.functions.state import OperatorStateStore


class FunctionInitializationContext(ABC):
    """What a function starts from. Only valid during `initialize_state`; the state it gives is valid on."""

    @abstractmethod
    def is_restored(self) -> bool:
        """False when the function starts from nothing."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """The checkpoint, or the epoch of a retried task, it goes on from; None when it starts from nothing."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore: ...

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """On keyed streams only: its states need a current key when they are used."""


class FunctionSnapshotContext(ABC):
    """The barrier that has come. Only valid during `snapshot_state`."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The number of the epoch that ends. Repeated when the epoch is run again."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """The epoch's processing time, in milliseconds."""


class CheckpointedFunction(ABC):
    """A mix-in for any function (`class Mine(MapFunction, CheckpointedFunction)`) or sink writer with operator state."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Once per instance, before `open`: get the states, and read what they hold if the function is restored."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """At the end of every epoch, whether it is a checkpoint or not, because a task may be run again from there: put
        what lives in attributes into the states. Nothing can be emitted here."""


class CheckpointListener(ABC):
    """A mix-in for any function or sink writer that wants to know when a checkpoint counts.

    Called on the subtask's thread at the start of a later epoch, before its records. A notification may come again, to
    a fresh instance after a failure, and may be left out when a newer checkpoint is complete: whoever acts on one also does
    what earlier ones would have asked for. An exception fails the epoch, not the checkpoint."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is durable, and sinks have committed it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - optional hook
        """The attempt at this checkpoint has failed; the job went back, and will take one of this number again. Left out
        when the driver died."""
