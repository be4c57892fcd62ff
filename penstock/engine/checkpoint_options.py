"""Options of checkpoints as a Configuration names them: Flink's keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from penstock.engine.durations import duration_ms
from penstock.errors import ConfigurationError

CheckpointMode: TypeAlias = Literal["EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE"]

_PREFIX: Final = "execution.checkpointing."
_MODES: Final[tuple[CheckpointMode, ...]] = ("EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE")
_RETENTIONS: Final = {
    "RETAIN_ON_CANCELLATION": False,
    "DELETE_ON_CANCELLATION": True,
    "NO_EXTERNALIZED_CHECKPOINTS": True,
}


def checkpoint_options(config: Mapping[str, str]) -> dict[str, Any]:
    """The fields of JobSettings that were configured."""
    options: dict[str, Any] = {}
    for key, name in (("timeout", "checkpoint_timeout_ms"), ("min-pause", "min_pause_ms")):
        if _PREFIX + key in config:
            options[name] = duration_ms(_PREFIX + key, config[_PREFIX + key])
    for key, name, least in (
        ("max-concurrent-checkpoints", "max_concurrent_checkpoints", 1),
        ("tolerable-failed-checkpoints", "tolerable_checkpoint_failures", 0),
    ):
        text = config.get(_PREFIX + key)
        if text is not None:
            if not text.isdigit() or int(text) < least:
                raise ConfigurationError(f"{_PREFIX}{key}: {text!r} is not a whole number of at least {least}")
            options[name] = int(text)
    for key in (_PREFIX + "incremental", "state.backend.incremental"):
        if key in config:
            options["incremental"] = _boolean(config, key)
            break
    if _PREFIX + "snapshot-compression" in config:
        options["snapshot_compression"] = "lz4" if _boolean(config, _PREFIX + "snapshot-compression") else None
    if "penstock.checkpoint.asynchronous" in config:
        options["asynchronous"] = _boolean(config, "penstock.checkpoint.asynchronous")
    if _PREFIX + "mode" in config:
        mode = config[_PREFIX + "mode"].upper().replace("-", "_")
        if mode not in _MODES:
            raise ConfigurationError(
                f"{_PREFIX}mode: {config[_PREFIX + 'mode']!r} is not known; choose one of {_MODES}"
            )
        options["mode"] = mode
    key = _PREFIX + "externalized-checkpoint-retention"
    if key in config:
        retention = config[key].upper().replace("-", "_")
        if retention not in _RETENTIONS:
            raise ConfigurationError(f"{key}: {config[key]!r} is not known; choose one of {tuple(_RETENTIONS)}")
        options["delete_on_cancel"] = _RETENTIONS[retention]
    return options


def _boolean(config: Mapping[str, str], key: str) -> bool:
    text = config[key].lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{key}: {config[key]!r} is neither 'true' nor 'false'")
    return text == "true"
