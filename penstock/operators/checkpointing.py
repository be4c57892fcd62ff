"""The part of an operator's life that its functions see of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    for function in operator.checkpointed_functions():
        if isinstance(function, CheckpointedFunction):
            try:
                function.initialize_state(_Initialization(operator))
            except Exception as error:
                operator.fail(error, "initialize_state()", None)


def snapshot_functions(operator: Operator, epoch: int) -> None:
    for function in operator.checkpointed_functions():
        if isinstance(function, CheckpointedFunction):
            try:
                function.snapshot_state(_Snapshot(epoch, operator.ctx.processing_time()))
            except Exception as error:
                operator.fail(error, f"snapshot_state() at the end of epoch {epoch}", None)


def notify_complete(operator: Operator, checkpoint: int) -> None:
    for function in operator.checkpointed_functions():
        if isinstance(function, CheckpointListener):
            try:
                function.notify_checkpoint_complete(checkpoint)
            except Exception as error:
                operator.fail(error, f"notify_checkpoint_complete({checkpoint})", None)


def notify_aborted(operator: Operator, checkpoint: int) -> None:
    for function in operator.checkpointed_functions():
        if isinstance(function, CheckpointListener):
            try:
                function.notify_checkpoint_aborted(checkpoint)
            except Exception as error:
                operator.fail(error, f"notify_checkpoint_aborted({checkpoint})", None)
