"""The DataStream API, under the names of `pyflink.datastream`.

Names are loaded on first use: the operators that run in slots need this package's vocabulary (functions, state, windows)
but not the environment, which in turn needs the operators.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.datastream.checkpoint_config import CheckpointConfig
    from penstock.datastream.checkpointing_mode import CheckpointingMode
    from penstock.datastream.collector import CloseableIterator
    from penstock.datastream.data_stream import DataStream, DataStreamSink, KeyedStream
    from penstock.datastream.execution_mode import RuntimeExecutionMode
    from penstock.datastream.functions import (
        AggregateFunction,
        FilterFunction,
        FlatMapFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        Partitioner,
        ProcessFunction,
        ProcessWindowFunction,
        ReduceFunction,
        RuntimeContext,
        WindowFunction,
    )
    from penstock.datastream.job_client import JobClient
    from penstock.datastream.output_tag import OutputTag
    from penstock.datastream.state_backend import HashMapStateBackend
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.time_domain import TimeDomain
    from penstock.datastream.timerservice import TimerService
    from penstock.datastream.windowed_stream import AllWindowedStream, WindowedStream

_HOME = {
    "AggregateFunction": "functions",
    "AllWindowedStream": "windowed_stream",
    "CheckpointConfig": "checkpoint_config",
    "CheckpointingMode": "checkpointing_mode",
    "CloseableIterator": "collector",
    "DataStream": "data_stream",
    "DataStreamSink": "data_stream",
    "FilterFunction": "functions",
    "FlatMapFunction": "functions",
    "HashMapStateBackend": "state_backend",
    "JobClient": "job_client",
    "KeySelector": "functions",
    "KeyedProcessFunction": "functions",
    "KeyedStream": "data_stream",
    "MapFunction": "functions",
    "OutputTag": "output_tag",
    "Partitioner": "functions",
    "ProcessFunction": "functions",
    "ProcessWindowFunction": "functions",
    "ReduceFunction": "functions",
    "RuntimeContext": "functions",
    "RuntimeExecutionMode": "execution_mode",
    "StreamExecutionEnvironment": "stream_execution_environment",
    "TimeDomain": "time_domain",
    "TimerService": "timerservice",
    "WindowFunction": "functions",
    "WindowedStream": "windowed_stream",
}

__all__ = [
    "AggregateFunction",
    "AllWindowedStream",
    "CheckpointConfig",
    "CheckpointingMode",
    "CloseableIterator",
    "DataStream",
    "DataStreamSink",
    "FilterFunction",
    "FlatMapFunction",
    "HashMapStateBackend",
    "JobClient",
    "KeySelector",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "OutputTag",
    "Partitioner",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimerService",
    "WindowFunction",
    "WindowedStream",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(f"{__name__}.{home}"), name)
