"""The status of `make test` is that of both halves."""

from __future__ import annotations

import pytest

from tests.parts import _worse


@pytest.mark.parametrize(
    ("one", "other", "both"), [(0, 0, 0), (0, 1, 1), (1, 0, 1), (-9, 0, 1), (0, -9, 1), (2, 5, 1), (5, 0, 0), (5, 5, 5)]
)
def test_a_half_that_fails_or_dies_fails_the_whole_and_an_empty_one_does_not(one: int, other: int, both: int) -> None:
    assert _worse(one, other) == both
