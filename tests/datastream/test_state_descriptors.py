from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock.common import Duration, Time, Types
from penstock.datastream.functions import AggregateFunction, ReduceFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.errors import ConfigurationError


class Largest(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return max(value1, value2)


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def test_descriptors_carry_name_and_type_of_the_whole_state() -> None:
    assert ValueStateDescriptor("v", Types.INT()).type_info == Types.INT()
    assert ListStateDescriptor("l", Types.INT()).type_info == Types.LIST(Types.INT())
    assert MapStateDescriptor("m", Types.STRING(), Types.INT()).type_info == Types.MAP(Types.STRING(), Types.INT())
    assert ValueStateDescriptor("v", Types.INT()).get_name() == "v"


def test_reducing_state_takes_a_function_object_or_a_plain_function() -> None:
    assert ReducingStateDescriptor("r", Largest(), Types.INT()).get_reduce_function().reduce(1, 2) == 2
    assert ReducingStateDescriptor("r", lambda a, b: a + b, Types.INT()).get_reduce_function().reduce(1, 2) == 3
    with pytest.raises(TypeError, match="Reducing state 'r' needs"):
        ReducingStateDescriptor("r", 5, Types.INT())  # type: ignore[arg-type]


def test_aggregating_state_needs_an_aggregate_function() -> None:
    assert isinstance(AggregatingStateDescriptor("a", Mean(), Types.INT()).get_agg_function(), Mean)
    with pytest.raises(TypeError, match="Aggregating state 'a' needs"):
        AggregatingStateDescriptor("a", max, Types.INT())  # type: ignore[arg-type]


def test_time_to_live_is_off_until_enabled() -> None:
    assert ValueStateDescriptor("v", Types.INT()).ttl_config is None
    disabled = StateTtlConfig.new_builder(Time.hours(1)).set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    not_expiring = ValueStateDescriptor("v", Types.INT())
    not_expiring.enable_time_to_live(disabled)
    assert not_expiring.ttl_config is None
    descriptor = ValueStateDescriptor("v", Types.INT())
    config = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
    descriptor.enable_time_to_live(config)
    assert descriptor.ttl_config is config
    restored = pickle.loads(pickle.dumps(descriptor)).ttl_config
    assert restored.get_ttl() == Time.hours(1)
    assert restored.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite


def test_the_default_time_to_live_is_renewed_by_writes_hides_expired_values_and_cleans_up() -> None:
    config = StateTtlConfig.new_builder(Time.seconds(1)).build()
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    assert config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    cleanup = config.get_cleanup_strategies()
    assert cleanup.is_cleanup_in_background()
    assert not cleanup.in_full_snapshot()
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert incremental is not None
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (5, False)
    compaction = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction is not None
    assert compaction.get_periodic_compaction_time() == Duration.of_days(30)


def test_without_background_clean_up_only_the_chosen_strategies_remain() -> None:
    builder = StateTtlConfig.new_builder(Time.seconds(1)).disable_cleanup_in_background()
    none = builder.build().get_cleanup_strategies()
    assert none.get_incremental_cleanup_strategy() is None
    assert none.get_rocksdb_compact_filter_cleanup_strategy() is None
    some = builder.cleanup_full_snapshot().cleanup_incrementally(9, True).build().get_cleanup_strategies()
    assert some.in_full_snapshot()
    chosen = some.get_incremental_cleanup_strategy()
    assert chosen is not None
    assert chosen.get_cleanup_size() == 9
    assert not none.in_full_snapshot(), "a built configuration must not change with its builder"


def test_a_time_to_live_must_be_positive() -> None:
    with pytest.raises(ConfigurationError, match="must be positive"):
        StateTtlConfig.new_builder(Time(0)).build()
