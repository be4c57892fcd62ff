"""A job's settings, read once from its Configuration. Flink's keys where Flink has the setting, `penstock.` otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.engine.checkpoint_options import CheckpointMode, checkpoint_options
from penstock.engine.durations import duration_ms
from penstock.engine.state_settings import memory_size, state_settings
from penstock.errors import ConfigurationError
from penstock.state.choice import StateSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleSettings:
    """When a job changes its parallelism by itself."""

    least: int
    most: int
    target_ms: int  # what an epoch should take
    up_after: int = 5  # epochs in a row that took longer
    down_after: int = 30  # epochs in a row that took less than `idle` of it
    idle: float = 0.3
    busy: float = 0.5  # of the time all subtasks of the busiest vertex have
    cooldown: int = 10  # epochs after a change in which nothing is decided: caches fill, the backlog drains


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    runtime: str = "spark"
    checkpoint_interval_ms: int | None = None  # None: checkpointing is off; 0: every epoch
    checkpoint_dir: str | None = None
    job_dir: str | None = None  # resume by itself from what is here
    retained: int = 1
    epoch_interval_ms: int = 200
    epoch_max_records: int | None = None
    epoch_target_ms: int | None = None  # None: the size of an epoch is not adapted
    quiet_interval_ms: int = 1000
    block_size: int = 10_000
    inline_threshold: int = 20 * 1024
    compact_after: int = 10
    fall_back_to_older: bool = False
    ignore_unclaimed_state: bool = False
    allow_changed_windows: bool = False
    recovery_path: str | None = None  # a savepoint, or a checkpoint of another job folder
    claim: bool = False  # the savepoint becomes the job's own, to delete when it is not needed any more
    savepoint_dir: str | None = None
    autoscale: AutoscaleSettings | None = None
    restart: RestartStrategyConfiguration | None = None
    epoch_timeout_ms: int = 600_000
    mode: CheckpointMode = "EXACTLY_ONCE"
    delete_on_cancel: bool = False
    incremental: bool = True
    snapshot_compression: str | None = None
    asynchronous: bool = True  # store larger snapshots while the next epoch runs
    checkpoint_timeout_ms: int = 600_000
    min_pause_ms: int = 0
    max_concurrent_checkpoints: int = 1
    tolerable_checkpoint_failures: int = 0
    storage: str = "filesystem"  # or "jobmanager": the driver's memory
    driver_max_state_size: int = 5 << 20
    state: StateSettings = field(default_factory=StateSettings)

    @staticmethod
    def of(config: Mapping[str, str]) -> JobSettings:
        def ms(*keys: str) -> int | None:
            for key in keys:
                if key in config:
                    return duration_ms(key, config[key])
            return None

        def number(key: str, default: int, least: int = 1) -> int:
            text = config.get(key)
            if text is None:
                return default
            try:
                value = int(text)
            except ValueError:
                raise ConfigurationError(f"{key}: {text!r} is not a whole number") from None
            if value < least:
                raise ConfigurationError(f"{key}: {value} is too small, the least is {least}")
            return value

        runtime = config.get("penstock.runtime", "spark")
        if runtime not in ("spark", "embedded"):
            raise ConfigurationError(f"penstock.runtime: {runtime!r} is not known; choose 'spark' or 'embedded'")
        storage = config.get(
            "execution.checkpointing.storage", config.get("state.checkpoint-storage", "filesystem")
        ).lower()
        if storage not in ("filesystem", "jobmanager"):
            raise ConfigurationError(
                f"execution.checkpointing.storage: {storage!r} is not known; choose 'filesystem' or 'jobmanager'"
            )
        defaults = JobSettings()
        max_records = config.get("penstock.epoch.max-records")
        epoch_interval = ms("penstock.epoch.interval")
        epoch_target = ms("penstock.epoch.target")
        if epoch_target is not None and epoch_target < 1:
            raise ConfigurationError("penstock.epoch.target: an epoch cannot take 0 ms; write for example '2 s'")
        quiet_interval = ms("penstock.epoch.quiet-interval")
        epoch_timeout = ms("penstock.epoch.timeout")
        return JobSettings(
            runtime=runtime,
            checkpoint_interval_ms=ms("execution.checkpointing.interval"),
            checkpoint_dir=config.get("execution.checkpointing.dir") or config.get("state.checkpoints.dir"),
            job_dir=config.get("penstock.job.dir"),
            retained=number(
                "execution.checkpointing.num-retained", number("state.checkpoints.num-retained", defaults.retained)
            ),
            epoch_interval_ms=defaults.epoch_interval_ms if epoch_interval is None else epoch_interval,
            epoch_max_records=None if max_records is None else number("penstock.epoch.max-records", 1),
            epoch_target_ms=epoch_target,
            quiet_interval_ms=defaults.quiet_interval_ms if quiet_interval is None else quiet_interval,
            epoch_timeout_ms=defaults.epoch_timeout_ms if epoch_timeout is None else epoch_timeout,
            block_size=number("penstock.block.size", defaults.block_size),
            inline_threshold=number("penstock.checkpoint.inline-threshold", defaults.inline_threshold, 0),
            compact_after=number("penstock.checkpoint.compact-after", defaults.compact_after),
            fall_back_to_older=config.get("penstock.checkpoint.fall-back", "false").lower() == "true",
            ignore_unclaimed_state=config.get("execution.state-recovery.ignore-unclaimed-state", "false").lower()
            == "true",
            allow_changed_windows=config.get("execution.state-recovery.allow-changed-windows", "false").lower()
            == "true",
            recovery_path=config.get("execution.state-recovery.path") or config.get("execution.savepoint.path") or None,
            claim=_claim(config),
            savepoint_dir=config.get("execution.checkpointing.savepoint-dir") or config.get("state.savepoints.dir"),
            autoscale=_autoscale(config, number, epoch_interval),
            restart=_restart(config),
            **checkpoint_options(config),
            storage=storage,
            driver_max_state_size=memory_size(
                "penstock.checkpoint.driver.max-state-size",
                config.get("penstock.checkpoint.driver.max-state-size", str(defaults.driver_max_state_size)),
            ),
            state=state_settings(config),
        )


def _autoscale(
    config: Mapping[str, str], number: Callable[..., int], epoch_interval: int | None
) -> AutoscaleSettings | None:
    prefix = "penstock.rescale.auto."
    if config.get(prefix + "enabled", "false").lower() != "true":
        return None
    if config.get("execution.checkpointing.interval") is None:
        raise ConfigurationError(
            f"{prefix}enabled: a job is rescaled through its checkpoints; set execution.checkpointing.interval as well"
        )
    least = number(prefix + "min", 1)
    target = config.get(prefix + "target")
    if target is None:
        target_ms = epoch_interval if epoch_interval else JobSettings().epoch_interval_ms
    else:
        target_ms = max(1, duration_ms(prefix + "target", target))
    return AutoscaleSettings(
        least=least,
        most=number(prefix + "max", max(least, os.cpu_count() or 1), least),
        target_ms=target_ms,
        up_after=number(prefix + "up-after", 5),
        down_after=number(prefix + "down-after", 30),
        cooldown=number(prefix + "cooldown", 10, 0),
    )


def _claim(config: Mapping[str, str]) -> bool:
    mode = config.get("execution.state-recovery.claim-mode", "NO_CLAIM").upper()
    if mode not in ("CLAIM", "NO_CLAIM"):
        raise ConfigurationError(
            f"execution.state-recovery.claim-mode: {mode!r} is not known; choose NO_CLAIM (the savepoint stays as it is) or "
            "CLAIM (the job deletes it when it is not needed any more)"
        )
    return mode == "CLAIM"


def _restart(config: Mapping[str, str]) -> RestartStrategyConfiguration | None:
    kind = config.get("restart-strategy.type", config.get("restart-strategy"))

    def ms(key: str, default: str) -> int:
        return duration_ms(key, config.get(key, default))

    match kind:
        case None:
            return None
        case "none" | "off" | "disable":
            return RestartStrategies.no_restart()
        case "fixed-delay" | "fixeddelay":
            prefix = "restart-strategy.fixed-delay."
            return RestartStrategies.fixed_delay_restart(
                int(config.get(prefix + "attempts", "1")), ms(prefix + "delay", "1 s")
            )
        case "failure-rate" | "failurerate":
            prefix = "restart-strategy.failure-rate."
            return RestartStrategies.failure_rate_restart(
                int(config.get(prefix + "max-failures-per-interval", "1")),
                ms(prefix + "failure-rate-interval", "1 min"),
                ms(prefix + "delay", "1 s"),
            )
        case "exponential-delay" | "exponentialdelay":
            prefix = "restart-strategy.exponential-delay."
            return RestartStrategies.exponential_delay_restart(
                ms(prefix + "initial-backoff", "1 s"),
                ms(prefix + "max-backoff", "1 min"),
                float(config.get(prefix + "backoff-multiplier", "1.5")),
                ms(prefix + "reset-backoff-threshold", "1 h"),
                float(config.get(prefix + "jitter-factor", "0.1")),
            )
    raise ConfigurationError(
        f"restart-strategy.type: {kind!r} is not known; choose none, fixed-delay, failure-rate or exponential-delay"
    )
