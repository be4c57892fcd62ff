"""The part of an operator's life that its functions see of checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.functions.base import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
)
from penstock.functions.state import OperatorStateStore

if TYPE_CHECKING:
    from penstock.operators.base import Operator


class _Initialization(FunctionInitializationContext):
    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def is_restored(self) -> bool:
        return self.get_restored_checkpoint_id() is not None

    def get_restored_checkpoint_id(self) -> int | None:
        return self._operator.ctx.restored_checkpoint()

    def get_operator_state_store(self) -> OperatorStateStore:
        from penstock.state.operator_state import SubtaskStateStore

        return SubtaskStateStore(self._operator.ctx.state, self._operator.ctx.name)

    def get_keyed_state_store(self) -> KeyedStateStore:
        return self._operator.runtime_context


@dataclass(frozen=True, slots=True)
class _Snapshot(FunctionSnapshotContext):
    checkpoint_id: int
    timestamp: int

    def get_checkpoint_id(self) -> int:
        return self.checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        return self.timestamp


def initialize_functions(operator: Operator) -> None:
    """Calls `initialize_state` of the operator's functions, before their first record."""
    given = _Initialization(operator)
    _each(operator, CheckpointedFunction, "initialize_state()", lambda function: function.initialize_state(given))


def snapshot_functions(operator: Operator, epoch: int) -> None:
    """Calls `snapshot_state` of the operator's functions, at the end of an epoch."""
    what, given = f"snapshot_state() at the end of epoch {epoch}", _Snapshot(epoch, operator.ctx.processing_time())
    _each(operator, CheckpointedFunction, what, lambda function: function.snapshot_state(given))


def notify_complete(operator: Operator, checkpoint: int) -> None:
    """Calls `notify_checkpoint_complete` of the operator's functions."""
    what = f"notify_checkpoint_complete({checkpoint})"
    _each(operator, CheckpointListener, what, lambda listener: listener.notify_checkpoint_complete(checkpoint))


def notify_aborted(operator: Operator, checkpoint: int) -> None:
    """Calls `notify_checkpoint_aborted` of the operator's functions."""
    what = f"notify_checkpoint_aborted({checkpoint})"
    _each(operator, CheckpointListener, what, lambda listener: listener.notify_checkpoint_aborted(checkpoint))


def _each(operator: Operator, kind: type, what: str, call: Callable[[Any], None]) -> None:
    for function in operator.checkpointed_functions():
        if isinstance(function, kind):
            try:
                call(function)
            except Exception as error:
                operator.fail(error, what, None)
