"""Two hundred random runs with everything at once (`hostile`), and that what should happen in them did."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.embedded.hostile import POINTS, Outcome, hostile_run

pytestmark = pytest.mark.long

RUNS, AT_ONCE = 200, 50


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """Of the runs that have been judged so far."""
    return []


@pytest.mark.parametrize("first", range(0, RUNS, AT_ONCE))
def test_nothing_is_lost_twice_late_or_out_of_order_whatever_happens(
    first: int, outcomes: list[Outcome], tmp_path: Path
) -> None:
    runs = [hostile_run(seed, tmp_path / str(seed)) for seed in range(first, first + AT_ONCE)]
    outcomes += runs
    assert [run for run in runs if not run.exact] == []


def test_what_should_go_wrong_in_these_runs_did(outcomes: list[Outcome]) -> None:
    if len(outcomes) < RUNS:
        pytest.skip("only when all runs are")
    fired = sum((run.faults for run in outcomes), Counter[str]())
    assert {point for point in POINTS if not fired[f"crash at {point}"]} == set()
    asked = ("savepoint", "stop", "rescale", "checkpoint", "cancel", "savepoint and cancel", "left at a savepoint")
    assert {kind: fired[kind] for kind in asked if fired[kind] < 5} == {}
    assert {harm: fired[harm] for harm in ("fail", "answer-lost", "late") if fired[harm] < 20} == {}
    assert sum(1 for run in outcomes if run.faults["declined"]) > 20, "checkpoints were declined and the job went on"
