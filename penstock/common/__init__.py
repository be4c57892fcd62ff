"""Types, time, watermark strategies and configuration, under the names of `pyflink.common`."""

from __future__ import annotations

from typing import Any

from penstock.common.absent import missing_name
from penstock.common.config_options import ConfigOption, ConfigOptions
from penstock.common.configuration import Configuration
from penstock.common.execution_config import ExecutionConfig, InputDependencyConstraint
from penstock.common.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
    TypeSerializer,
)
from penstock.common.time import Duration, Instant, Time
from penstock.common.typeinfo import TypeInformation, Types
from penstock.common.types import Row, RowKind
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkOutput, WatermarkStrategy

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "InputDependencyConstraint",
    "Instant",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)
