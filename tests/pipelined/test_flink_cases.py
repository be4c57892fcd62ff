"""Real Flink's recorded answers are our answers, pipelined on Spark: every case of tests/data/flink_cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.compat.flink_cases import NAMES, FlinkCases, flink_cases

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cases(spark: SparkSession) -> Iterator[FlinkCases]:
    with flink_cases() as found:
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_flink_gave_the_same_answer(cases: FlinkCases, name: str) -> None:
    cases.compare(name, "pipelined")
