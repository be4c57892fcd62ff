"""Steps of operators that gather, asked for by tests."""

from __future__ import annotations

from penstock.operators.gathering import GatheringOperator
from penstock.testing.harness import OperatorHarness


def work_off(harness: OperatorHarness) -> None:
    """The harness's operator works on all that it has gathered."""
    assert isinstance(harness.operator, GatheringOperator)
    harness.operator.work_off()
