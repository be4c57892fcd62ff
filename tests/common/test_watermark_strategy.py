from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.common import Duration, TimestampAssigner, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from penstock.common.watermark_strategy import (
    BoundedOutOfOrderness,
    CustomGenerator,
    Monotonous,
    NoWatermarks,
    WatermarkAlignment,
    set_per_record_watermarks,
)
from penstock.errors import JobDefinitionError


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Punctuated(WatermarkGenerator):
    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


@pytest.fixture
def per_record() -> Iterator[None]:
    set_per_record_watermarks(True)
    yield
    set_per_record_watermarks(False)


def test_each_factory_names_its_generator() -> None:
    assert WatermarkStrategy.for_monotonous_timestamps().generator == Monotonous()
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    assert bounded.generator == BoundedOutOfOrderness(2000)
    assert WatermarkStrategy.no_watermarks().generator == NoWatermarks()
    assert WatermarkStrategy.for_generator(Punctuated).generator == CustomGenerator(Punctuated)


def test_every_with_returns_a_new_strategy_and_keeps_what_was_set_before() -> None:
    plain = WatermarkStrategy.for_monotonous_timestamps()
    assigner = Itself()
    full = (
        plain.with_timestamp_assigner(assigner)
        .with_idleness(Duration.of_seconds(5))
        .with_watermark_alignment("group", Duration.of_seconds(20))
    )
    assert plain.timestamp_assigner is None
    assert full.timestamp_assigner is assigner
    assert full.idle_timeout_ms == 5000
    assert full.alignment == WatermarkAlignment(group="group", max_drift_ms=20_000, update_interval_ms=1000)


def test_a_strategy_survives_pickle() -> None:
    strategy = WatermarkStrategy.for_generator(Punctuated).with_idleness(Duration.of_millis(1))
    assert pickle.loads(pickle.dumps(strategy)) == strategy


@pytest.mark.usefixtures("per_record")
def test_the_switch_marks_strategies_created_after_it() -> None:
    assert WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself()).per_record
    assert WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0)).per_record
    assert not WatermarkStrategy.no_watermarks().per_record
    assert not WatermarkStrategy.for_generator(Punctuated).per_record
    set_per_record_watermarks(False)
    assert not WatermarkStrategy.for_monotonous_timestamps().per_record


def test_impossible_settings_are_refused() -> None:
    strategy = WatermarkStrategy.no_watermarks()
    with pytest.raises(JobDefinitionError, match="cannot be negative"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1))
    with pytest.raises(JobDefinitionError, match="at least one millisecond"):
        strategy.with_idleness(Duration.of_nanos(1))
    with pytest.raises(JobDefinitionError, match="not a TimestampAssigner"):
        strategy.with_timestamp_assigner(lambda value, timestamp: timestamp)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="a factory"):
        WatermarkStrategy.for_generator(Punctuated())  # type: ignore[arg-type]
