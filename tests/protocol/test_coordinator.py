from __future__ import annotations

import pytest

from penstock.errors import ProtocolError
from penstock.protocol.coordinator import Acknowledged, CheckpointCoordinator, CompletedEpoch, Duplicate, Unknown
from penstock.protocol.ids import TaskId, VertexId

A, B = TaskId(VertexId(0), 0), TaskId(VertexId(1), 0)


@pytest.fixture
def coordinator() -> CheckpointCoordinator[str]:
    return CheckpointCoordinator([A, B])


def test_an_epoch_is_complete_when_every_task_has_acknowledged(coordinator: CheckpointCoordinator[str]) -> None:
    coordinator.begin(1, checkpoint=True)
    assert coordinator.acknowledge(1, A, "a") == [Acknowledged()]
    assert coordinator.missing(1) == [B]
    assert coordinator.acknowledge(1, B, "b") == [Acknowledged(), CompletedEpoch(1, True, {A: "a", B: "b"})]
    assert coordinator.completed == 1
    assert coordinator.pending == ()


def test_a_second_acknowledgement_of_a_task_is_a_duplicate_and_the_first_counts(
    coordinator: CheckpointCoordinator[str],
) -> None:
    coordinator.begin(1, checkpoint=False)
    coordinator.acknowledge(1, A, "first")
    assert coordinator.acknowledge(1, A, "second") == [Duplicate()]
    assert coordinator.acknowledge(1, B, "b")[-1] == CompletedEpoch(1, False, {A: "first", B: "b"})


def test_an_acknowledgement_of_no_pending_epoch_or_no_known_task_is_unknown(
    coordinator: CheckpointCoordinator[str],
) -> None:
    coordinator.begin(1, checkpoint=True)
    assert coordinator.acknowledge(2, A, "early") == [Unknown()]
    assert coordinator.acknowledge(1, TaskId(VertexId(9), 0), "stranger") == [Unknown()]
    coordinator.acknowledge(1, A, "a")
    coordinator.acknowledge(1, B, "b")
    assert coordinator.acknowledge(1, A, "late") == [Unknown()]


def test_a_later_epoch_is_held_back_until_the_earlier_one_is_complete(coordinator: CheckpointCoordinator[str]) -> None:
    coordinator.begin(1, checkpoint=True)
    coordinator.begin(3, checkpoint=False)
    assert coordinator.pending == (1, 3)
    coordinator.acknowledge(3, A, "a3")
    assert coordinator.acknowledge(3, B, "b3") == [Acknowledged()], "complete, but epoch 1 is not"
    coordinator.acknowledge(1, B, "b1")
    assert coordinator.acknowledge(1, A, "a1") == [
        Acknowledged(),
        CompletedEpoch(1, True, {B: "b1", A: "a1"}),
        CompletedEpoch(3, False, {A: "a3", B: "b3"}),
    ]
    assert coordinator.completed == 3


def test_epochs_only_go_forward(coordinator: CheckpointCoordinator[str]) -> None:
    coordinator.begin(2, checkpoint=True)
    for epoch in (2, 1):
        with pytest.raises(ProtocolError, match=f"epoch {epoch} was begun after epoch 2"):
            coordinator.begin(epoch, checkpoint=True)


def test_an_aborted_epoch_takes_the_later_ones_with_it(coordinator: CheckpointCoordinator[str]) -> None:
    for epoch in (1, 2, 3):
        coordinator.begin(epoch, checkpoint=True)
    coordinator.abort(2)
    assert coordinator.pending == (1,)
    assert coordinator.acknowledge(2, A, "a") == [Unknown()]
    assert coordinator.acknowledge(3, A, "a") == [Unknown()]
    assert coordinator.acknowledge(1, A, "a") == [Acknowledged()]


def test_after_a_reset_the_epochs_are_run_again(coordinator: CheckpointCoordinator[str]) -> None:
    for epoch in (1, 2):
        coordinator.begin(epoch, checkpoint=True)
    coordinator.acknowledge(1, A, "before")
    coordinator.reset(0)
    assert coordinator.pending == ()
    assert coordinator.acknowledge(1, B, "of the old attempt") == [Unknown()]
    coordinator.begin(1, checkpoint=True)
    coordinator.acknowledge(1, B, "b")
    assert coordinator.acknowledge(1, A, "a")[-1] == CompletedEpoch(1, True, {B: "b", A: "a"})
