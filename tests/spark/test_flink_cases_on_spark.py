"""Real Flink's recorded answers on Spark. The semantics are tested on the embedded runtime, which runs the same operators; here is
what Spark has a part in: exchanges between subtasks, more inputs than one, state and timers in slot processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.compat.flink_cases import NAMES, FlinkCases, flink_cases

OF_EACH_KIND = {
    "batch_event_time",  # sorted by time, no watermark before the end
    "broadcast_keyed_timer",
    "broadcast_parallel",
    "cascaded_windows",  # an exchange behind an exchange
    "co_process_shared_state",
    "parallel_keyed_windows",
    "partition_custom",
    "repartition_multiset",  # every way to exchange
    "session_late_merge",
    "side_outputs_many",
    "timers_order_past",
    "watermark_min_union",
}


@pytest.fixture(scope="module")
def cases() -> Iterator[FlinkCases]:
    with flink_cases() as made:
        yield made


@pytest.mark.parametrize(
    "name", [name if name in OF_EACH_KIND else pytest.param(name, marks=pytest.mark.nightly) for name in NAMES]
)
def test_flinks_answer_is_ours_on_spark(name: str, spark: SparkSession, cases: FlinkCases) -> None:
    cases.compare(name, "epochs")
