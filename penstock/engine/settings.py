"""A job's settings, read once from its configuration through the table of options (`penstock.common.options`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.common.config_options import setting, settings_of
from penstock.common.options import (
    CheckpointingOptions,
    CheckpointMode,
    JobOptions,
    RescaleOptions,
    RestartStrategyOptions,
)
from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.errors import ConfigurationError
from penstock.state.backends import StateSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleSettings:
    """When a job changes its parallelism by itself."""

    least: int
    most: int
    target_ms: int  # what an epoch should take
    up_after: int = setting(RescaleOptions.UP_AFTER)  # epochs in a row that took longer
    down_after: int = setting(RescaleOptions.DOWN_AFTER)  # epochs in a row that took less than `idle` of it
    idle: float = 0.3
    busy: float = 0.5  # of the time all subtasks of the busiest vertex have
    cooldown: int = setting(RescaleOptions.COOLDOWN)  # epochs without a decision: caches fill, the backlog drains

    @staticmethod
    def of(config: Mapping[str, str]) -> AutoscaleSettings | None:
        """The settings of the autoscaler; None if the job keeps its parallelism."""
        if not RescaleOptions.ENABLED.get(config):
            return None
        if CheckpointingOptions.INTERVAL.get(config) is None:
            raise ConfigurationError(
                f"{RescaleOptions.ENABLED}: a job is rescaled through its checkpoints; set {CheckpointingOptions.INTERVAL} "
                "as well"
            )
        least = RescaleOptions.MIN.get(config)
        most = RescaleOptions.MAX.get(config) or max(least, os.cpu_count() or 1)
        if most < least:
            raise ConfigurationError(
                f"{RescaleOptions.MAX} is {most}, which is less than {RescaleOptions.MIN}, which is {least}"
            )
        interval = JobOptions.EPOCH_INTERVAL
        target = RescaleOptions.TARGET.get(config) or interval.get(config) or interval.default
        return AutoscaleSettings(least=least, most=most, target_ms=target, **settings_of(AutoscaleSettings, config))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The configuration of a job, as the driver and the slots know it."""

    runtime: str = setting(JobOptions.RUNTIME)
    unaligned: bool = setting(CheckpointingOptions.UNALIGNED)
    checkpoint_interval_ms: int | None = setting(CheckpointingOptions.INTERVAL)  # None: off; 0: every epoch
    checkpoint_dir: str | None = setting(CheckpointingOptions.DIR)
    job_dir: str | None = setting(CheckpointingOptions.JOB_DIR)  # resume by itself from what is here
    retained: int = setting(CheckpointingOptions.NUM_RETAINED)
    epoch_interval_ms: int = setting(JobOptions.EPOCH_INTERVAL)
    epoch_max_records: int | None = setting(JobOptions.EPOCH_MAX_RECORDS)
    epoch_target_ms: int | None = setting(JobOptions.EPOCH_TARGET)  # None: the size of an epoch is not adapted
    quiet_interval_ms: int = setting(JobOptions.QUIET_INTERVAL)
    epoch_timeout_ms: int = setting(JobOptions.EPOCH_TIMEOUT)
    block_size: int = setting(JobOptions.BLOCK_SIZE)
    record_bytes: int = setting(JobOptions.RECORD_SIZE)  # of the largest that may go through Spark
    watermark_interval_ms: int = setting(JobOptions.WATERMARK_INTERVAL)
    latency_interval_ms: int = setting(JobOptions.LATENCY_INTERVAL)  # 0: no markers
    buffer_timeout_ms: int | None = setting(JobOptions.BUFFER_TIMEOUT)  # None: as load allows
    buffer_timeout_enabled: bool = setting(JobOptions.BUFFER_TIMEOUT_ENABLED)
    flush_gap_ms: int | None = setting(JobOptions.FLUSH_GAP)
    alignment_bytes: int = setting(JobOptions.ALIGNMENT)
    slots_timeout_ms: int | None = setting(JobOptions.SLOTS_TIMEOUT)  # None: it waits as long as it takes
    grant_interval_ms: int | None = setting(JobOptions.GRANT_INTERVAL)
    in_flight_bytes: int = setting(JobOptions.IN_FLIGHT)
    inline_threshold: int = setting(CheckpointingOptions.INLINE_THRESHOLD)
    compact_after: int = setting(CheckpointingOptions.COMPACT_AFTER)
    fall_back_to_older: bool = setting(CheckpointingOptions.FALL_BACK)
    ignore_unclaimed_state: bool = setting(CheckpointingOptions.IGNORE_UNCLAIMED)
    allow_changed_windows: bool = setting(CheckpointingOptions.ALLOW_CHANGED_WINDOWS)
    recovery_path: str | None = setting(CheckpointingOptions.RECOVERY_PATH)  # a savepoint, or another job's checkpoint
    claim: bool = setting(CheckpointingOptions.CLAIM)  # the savepoint becomes the job's own, to delete in the end
    from_local: bool = setting(CheckpointingOptions.FROM_LOCAL)  # restore from copies on the same machine
    local_dir: str | None = setting(CheckpointingOptions.LOCAL_DIR)
    local_bytes: int = setting(CheckpointingOptions.LOCAL_SIZE)
    savepoint_dir: str | None = setting(CheckpointingOptions.SAVEPOINT_DIR)
    mode: CheckpointMode = setting(CheckpointingOptions.MODE)
    delete_on_cancel: bool = setting(CheckpointingOptions.DELETE_ON_CANCEL)
    incremental: bool = setting(CheckpointingOptions.INCREMENTAL)
    snapshot_compression: str | None = setting(CheckpointingOptions.COMPRESSION)
    asynchronous: bool = setting(CheckpointingOptions.ASYNCHRONOUS)  # store large snapshots while the next epoch runs
    checkpoint_timeout_ms: int = setting(CheckpointingOptions.TIMEOUT)
    min_pause_ms: int = setting(CheckpointingOptions.MIN_PAUSE)
    max_concurrent_checkpoints: int = setting(CheckpointingOptions.MAX_CONCURRENT)
    tolerable_checkpoint_failures: int = setting(CheckpointingOptions.TOLERABLE_FAILURES)
    storage: str = setting(CheckpointingOptions.STORAGE)
    driver_max_state_size: int = setting(CheckpointingOptions.DRIVER_MAX_STATE_SIZE)
    state: StateSettings = field(default_factory=StateSettings)
    autoscale: AutoscaleSettings | None = None
    restart: RestartStrategyConfiguration | None = None

    @staticmethod
    def of(config: Mapping[str, str]) -> JobSettings:
        """ConfigurationError for a value that its option does not allow. Keys are not checked: see `known_keys.check`."""
        return JobSettings(
            **settings_of(JobSettings, config),
            state=StateSettings.of(config),
            autoscale=AutoscaleSettings.of(config),
            restart=_restart(config),
        )


def _restart(config: Mapping[str, str]) -> RestartStrategyConfiguration | None:
    options = RestartStrategyOptions
    match options.TYPE.get(config):
        case None:
            return None
        case "fixed-delay":
            return RestartStrategies.fixed_delay_restart(options.ATTEMPTS.get(config), options.FIXED_DELAY.get(config))
        case "failure-rate":
            return RestartStrategies.failure_rate_restart(
                options.MAX_FAILURES.get(config),
                options.FAILURE_INTERVAL.get(config),
                options.FAILURE_DELAY.get(config),
            )
        case "exponential-delay":
            return RestartStrategies.exponential_delay_restart(
                options.INITIAL_BACKOFF.get(config),
                options.MAX_BACKOFF.get(config),
                options.MULTIPLIER.get(config),
                options.RESET_THRESHOLD.get(config),
                options.JITTER.get(config),
            )
        case _:
            return RestartStrategies.no_restart()
