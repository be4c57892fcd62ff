"""`make quick` and `make test` in halves: nothing is left out, and what fails in either half fails the whole."""

from __future__ import annotations

import pytest

from tests.conftest import _PARTS
from tests.parts import HALVES, _worse


def test_the_halves_of_make_test_are_all_parts_and_those_of_make_quick_need_nothing() -> None:
    assert sorted(part for half in HALVES["test"] for part in half) == sorted(_PARTS)
    assert sorted(part for half in HALVES["quick"] for part in half) == ["embedded", "plain"]


@pytest.mark.parametrize(
    ("one", "other", "both"), [(0, 0, 0), (0, 1, 1), (1, 0, 1), (-9, 0, 1), (0, -9, 1), (2, 5, 1), (5, 0, 0), (5, 5, 5)]
)
def test_a_half_that_fails_or_dies_fails_the_whole_and_an_empty_one_does_not(one: int, other: int, both: int) -> None:
    assert _worse(one, other) == both
