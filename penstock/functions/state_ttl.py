"""Time to live: when a state entry expires, and who removes it. Users import it from `penstock.functions.state`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeAlias

from penstock.common.time import Duration, Interval
from penstock.errors import ConfigurationError


class StateTtlConfig:
    """The time to live of a value, a list element or a map entry, each on its own, in processing time. Immutable."""

    class UpdateType(Enum):
        """The accesses that start an entry's life anew."""

        Disabled = 0  # entries do not expire
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether an expired entry that is still there can be read."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """The clock of times to live."""

        ProcessingTime = 0

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: Interval,
        cleanup_strategies: CleanupStrategies,
    ) -> None:
        if ttl.to_milliseconds() <= 0:
            raise ConfigurationError(f"A state's time to live must be positive, but is {ttl}")
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = ttl
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Interval) -> StateTtlConfig.Builder:
        """Starts a configuration with this time to live.

        Example:

            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build())
        """
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> StateTtlConfig.UpdateType:
        """Which accesses renew the time to live."""
        return self._update_type

    def get_state_visibility(self) -> StateTtlConfig.StateVisibility:
        """Whether a value that has expired and is not yet removed can be read."""
        return self._state_visibility

    def get_ttl(self) -> Interval:
        """The time to live."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> StateTtlConfig.TtlTimeCharacteristic:
        """The clock: always processing time."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """False if the update type is Disabled: nothing expires."""
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> StateTtlConfig.CleanupStrategies:
        """The ways in which expired values are removed."""
        return self._cleanup_strategies

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig<update_type={self._update_type}, state_visibility={self._state_visibility}, "
            f"ttl_time_characteristic={self._ttl_time_characteristic}, ttl={self._ttl}>"
        )

    class Builder:
        """Starts with: updated on create and write, expired entries never returned, clean-up in the background."""

        def __init__(self, ttl: Interval) -> None:
            self._ttl = ttl
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[
                StateTtlConfig.CleanupStrategies.Strategies, StateTtlConfig.CleanupStrategies.CleanupStrategy
            ] = {}

        def set_ttl(self, ttl: Interval) -> StateTtlConfig.Builder:
            """Sets the time to live."""
            self._ttl = ttl
            return self

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """Says which accesses renew the time to live; Disabled turns expiry off."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """A write renews the time to live: the default."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """A read renews the time to live, too."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> StateTtlConfig.Builder:
            """Says whether expired values that are not yet removed can be read."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Expired values can be read until they are removed."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Expired values cannot be read: the default."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Sets the clock; there is only processing time."""
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Counts in processing time: the default."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired entries out of full snapshots."""
            kinds = StateTtlConfig.CleanupStrategies
            self._strategies[kinds.Strategies.FULL_STATE_SCAN_SNAPSHOT] = kinds.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Accepted without effect: expired entries are removed when read and at full snapshots."""
            kinds = StateTtlConfig.CleanupStrategies
            self._strategies[kinds.Strategies.INCREMENTAL_CLEANUP] = kinds.IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int, periodic_compaction_time: Duration | None = None
        ) -> StateTtlConfig.Builder:
            """Accepted without effect: expired entries are removed when read and at full snapshots."""
            kinds = StateTtlConfig.CleanupStrategies
            self._strategies[kinds.Strategies.ROCKSDB_COMPACTION_FILTER] = kinds.RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic_compaction_time
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """No clean-up but the one asked for explicitly."""
            self._is_cleanup_in_background = False
            return self

        def build(self) -> StateTtlConfig:
            """The configuration, which cannot be changed any more."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(dict(self._strategies), self._is_cleanup_in_background),
            )

    class CleanupStrategies:
        """The ways to remove expired entries that nobody reads."""

        class Strategies(Enum):
            """Flink's names of the ways to remove expired entries."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy:
            """Settings of one strategy."""

        class EmptyCleanupStrategy(CleanupStrategy):
            """A strategy without settings."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            """Settings of Flink's; here they have no effect: expired entries are removed when read and at full snapshots."""

            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = cleanup_size
                self._run_cleanup_for_every_record = run_cleanup_for_every_record

            def get_cleanup_size(self) -> int:
                """How many entries are looked at."""
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                """True if entries are looked at for each record, too."""
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """Settings of Flink's; here they have no effect: expired entries are removed when read and at full snapshots."""

            def __init__(
                self, query_time_after_num_entries: int, periodic_compaction_time: Duration | None = None
            ) -> None:
                self._query_time_after_num_entries = query_time_after_num_entries
                self._periodic_compaction_time = periodic_compaction_time or Duration.of_days(30)

            def get_query_time_after_num_entries(self) -> int:
                """After how many entries the clock is looked at again."""
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Duration:
                """How long a file may stay before it is rewritten."""
                return self._periodic_compaction_time

        EMPTY_STRATEGY: Final = EmptyCleanupStrategy()

        def __init__(
            self,
            strategies: Mapping[Strategies, CleanupStrategy],
            is_cleanup_in_background: bool,
        ) -> None:
            self._strategies = dict(strategies)
            self._is_cleanup_in_background = is_cleanup_in_background

        def is_cleanup_in_background(self) -> bool:
            """False after `disable_cleanup_in_background`."""
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            """True after `cleanup_full_snapshot`."""
            return _Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
            """The one asked for; else, in the background, 5 entries on each access; else None."""
            chosen = self._strategies.get(_Strategies.INCREMENTAL_CLEANUP)
            if isinstance(chosen, _Incremental):
                return chosen
            return _Incremental(5, False) if self._is_cleanup_in_background else None

        def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
            """The one asked for; else, in the background, with a look at the clock every 1000 entries; else None."""
            chosen = self._strategies.get(_Strategies.ROCKSDB_COMPACTION_FILTER)
            if isinstance(chosen, _CompactFilter):
                return chosen
            return _CompactFilter(1000) if self._is_cleanup_in_background else None


_Strategies: TypeAlias = StateTtlConfig.CleanupStrategies.Strategies
_Incremental: TypeAlias = StateTtlConfig.CleanupStrategies.IncrementalCleanupStrategy
_CompactFilter: TypeAlias = StateTtlConfig.CleanupStrategies.RocksdbCompactFilterCleanupStrategy
