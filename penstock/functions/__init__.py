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
from penstock.functions.base import Function, KeyedStateStore, RuntimeContext
from penstock.functions.batches import MapBatchesFunction
from penstock.functions.broadcast import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from penstock.functions.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from penstock.functions.elementwise import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    NullByteKeySelector,
    Partitioner,
    ReduceFunction,
    ReduceFunctionWrapper,
)
from penstock.functions.joining import CoGroupFunction, JoinFunction, ProcessJoinFunction
from penstock.functions.process import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from penstock.functions.sinks import SinkContext, SinkFunction, TwoPhaseCommitSinkFunction
from penstock.functions.timerservice import TimerService
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
