"""User functions, under the names of `pyflink.datastream.functions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.absent import missing_name
from penstock.functions.asynchronous import (
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from penstock.functions.base import (
    CheckpointedFunction,
    CheckpointListener,
    Function,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
    RuntimeContext,
    TimerService,
)
from penstock.functions.elementwise import (
    AggregateFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    JoinFunction,
    KeySelector,
    MapBatchesFunction,
    MapFunction,
    NullByteKeySelector,
    Partitioner,
    ProcessJoinFunction,
    ReduceFunction,
    ReduceFunctionWrapper,
)
from penstock.functions.process import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from penstock.functions.sinks import SinkContext, SinkFunction, TwoPhaseCommitSinkFunction
from penstock.functions.windowing import (
    AllWindowFunction,
    PassThroughAllWindowFunction,
    PassThroughWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "JoinFunction",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapBatchesFunction",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "PassThroughAllWindowFunction",
    "PassThroughWindowFunction",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "ReduceFunctionWrapper",
    "RuntimeContext",
    "SinkContext",
    "SinkFunction",
    "TimerService",
    "TwoPhaseCommitSinkFunction",
    "WindowFunction",
    "empty_result_predicate",
    "exception_type_predicate",
    "has_exception_predicate",
]


if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name)
