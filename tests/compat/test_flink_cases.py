"""Real Flink's recorded answers are our answers: every case of tests/data/flink_cases on the embedded runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.flink_cases import FOLDER, NAMES, FlinkCases, flink_cases

RECORDED = 43


@pytest.fixture(scope="module")
def cases() -> Iterator[FlinkCases]:
    with flink_cases() as made:
        yield made


def test_the_recorded_cases_are_here_each_with_its_answer() -> None:
    """A folder that is missing or half copied would otherwise be an empty list of cases, and pass."""
    assert sorted(path.stem for path in (FOLDER / "expected").glob("*.json")) == NAMES
    assert len(NAMES) == RECORDED


@pytest.mark.parametrize("name", NAMES)
def test_flinks_answer_is_ours(name: str, cases: FlinkCases) -> None:
    cases.compare(name, "embedded")
