"""The DataStream API, under the names of `pyflink.datastream`.

Names are loaded on first use: the operators that run in slots need this package's vocabulary (functions, state, windows)
but not the environment, which in turn needs the operators.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.common.absent import missing_name

if TYPE_CHECKING:
    from penstock.datastream.async_data_stream import (
        AsyncDataStream,
    )
    from penstock.datastream.cached_data_stream import (
        CachedDataStream,
    )
    from penstock.datastream.checkpoint_config import (
        CheckpointConfig,
    )
    from penstock.datastream.checkpoint_storage import (
        CheckpointStorage,
        FileSystemCheckpointStorage,
        JobManagerCheckpointStorage,
    )
    from penstock.datastream.checkpointing_mode import (
        CheckpointingMode,
    )
    from penstock.datastream.collector import (
        CloseableIterator,
    )
    from penstock.datastream.connected_streams import (
        BroadcastConnectedStream,
        BroadcastStream,
        ConnectedStreams,
    )
    from penstock.datastream.data_stream import (
        DataStream,
    )
    from penstock.datastream.data_stream_sink import (
        DataStreamSink,
    )
    from penstock.datastream.execution_mode import (
        RuntimeExecutionMode,
    )
    from penstock.datastream.externalized_checkpoint_retention import (
        ExternalizedCheckpointRetention,
    )
    from penstock.datastream.interval_join import (
        IntervalJoin,
        IntervalJoined,
    )
    from penstock.datastream.iterative_stream import (
        ConnectedIterativeStreams,
        IterativeStream,
    )
    from penstock.datastream.joined_streams import (
        CoGroupedStreams,
        JoinedStreams,
    )
    from penstock.datastream.keyed_stream import (
        KeyedStream,
    )
    from penstock.datastream.slot_sharing_group import (
        MemorySize,
        SlotSharingGroup,
    )
    from penstock.datastream.state_backend import (
        EmbeddedRocksDBStateBackend,
        FsStateBackend,
        HashMapStateBackend,
        MemoryStateBackend,
        RocksDBStateBackend,
        StateBackend,
    )
    from penstock.datastream.stream_execution_environment import (
        StreamExecutionEnvironment,
    )
    from penstock.datastream.windowed_stream import (
        AllWindowedStream,
        WindowedStream,
    )
    from penstock.driver.client import (
        JobClient,
    )
    from penstock.functions import (
        AggregateFunction,
        AllWindowFunction,
        AsyncFunction,
        AsyncRetryPredicate,
        AsyncRetryStrategy,
        BroadcastProcessFunction,
        CheckpointedFunction,
        CheckpointListener,
        CoFlatMapFunction,
        CoGroupFunction,
        CoMapFunction,
        CoProcessFunction,
        FilterFunction,
        FlatMapFunction,
        JoinFunction,
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeySelector,
        MapBatchesFunction,
        MapFunction,
        Partitioner,
        ProcessAllWindowFunction,
        ProcessFunction,
        ProcessJoinFunction,
        ProcessWindowFunction,
        ReduceFunction,
        RuntimeContext,
        SinkFunction,
        WindowFunction,
    )
    from penstock.functions.output_tag import (
        OutputTag,
    )
    from penstock.functions.time_domain import (
        TimeDomain,
    )
    from penstock.functions.timerservice import (
        TimerService,
    )
    from penstock.functions.window import (
        CountWindow,
        GlobalWindow,
        MergingWindowAssigner,
        TimeWindow,
        Trigger,
        TriggerResult,
        Window,
        WindowAssigner,
    )

_HOME = {
    "AggregateFunction": "functions",
    "AllWindowFunction": "functions",
    "AllWindowedStream": "windowed_stream",
    "AsyncDataStream": "async_data_stream",
    "AsyncFunction": "functions",
    "AsyncRetryPredicate": "functions",
    "AsyncRetryStrategy": "functions",
    "BroadcastConnectedStream": "connected_streams",
    "BroadcastProcessFunction": "functions",
    "BroadcastStream": "connected_streams",
    "CachedDataStream": "cached_data_stream",
    "CheckpointConfig": "checkpoint_config",
    "CheckpointListener": "functions",
    "CheckpointStorage": "checkpoint_storage",
    "CheckpointedFunction": "functions",
    "CheckpointingMode": "checkpointing_mode",
    "CloseableIterator": "collector",
    "CoFlatMapFunction": "functions",
    "CoGroupFunction": "functions",
    "CoGroupedStreams": "joined_streams",
    "CoMapFunction": "functions",
    "CoProcessFunction": "functions",
    "ConnectedIterativeStreams": "iterative_stream",
    "ConnectedStreams": "connected_streams",
    "CountWindow": "window",
    "DataStream": "data_stream",
    "DataStreamSink": "data_stream_sink",
    "EmbeddedRocksDBStateBackend": "state_backend",
    "ExternalizedCheckpointRetention": "externalized_checkpoint_retention",
    "FileSystemCheckpointStorage": "checkpoint_storage",
    "FilterFunction": "functions",
    "FlatMapFunction": "functions",
    "FsStateBackend": "state_backend",
    "GlobalWindow": "window",
    "HashMapStateBackend": "state_backend",
    "IntervalJoin": "interval_join",
    "IntervalJoined": "interval_join",
    "IterativeStream": "iterative_stream",
    "JobClient": "job_client",
    "JobManagerCheckpointStorage": "checkpoint_storage",
    "JoinFunction": "functions",
    "JoinedStreams": "joined_streams",
    "KeySelector": "functions",
    "KeyedBroadcastProcessFunction": "functions",
    "KeyedCoProcessFunction": "functions",
    "KeyedProcessFunction": "functions",
    "KeyedStream": "keyed_stream",
    "MapBatchesFunction": "functions",
    "MapFunction": "functions",
    "MemorySize": "slot_sharing_group",
    "MemoryStateBackend": "state_backend",
    "MergingWindowAssigner": "window",
    "OutputTag": "output_tag",
    "Partitioner": "functions",
    "ProcessAllWindowFunction": "functions",
    "ProcessFunction": "functions",
    "ProcessJoinFunction": "functions",
    "ProcessWindowFunction": "functions",
    "ReduceFunction": "functions",
    "RocksDBStateBackend": "state_backend",
    "RuntimeContext": "functions",
    "RuntimeExecutionMode": "execution_mode",
    "SinkFunction": "functions",
    "SlotSharingGroup": "slot_sharing_group",
    "StateBackend": "state_backend",
    "StreamExecutionEnvironment": "stream_execution_environment",
    "TimeDomain": "time_domain",
    "TimeWindow": "window",
    "TimerService": "timerservice",
    "Trigger": "window",
    "TriggerResult": "window",
    "Window": "window",
    "WindowAssigner": "window",
    "WindowFunction": "functions",
    "WindowedStream": "windowed_stream",
}

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CachedDataStream",
    "CheckpointConfig",
    "CheckpointListener",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoGroupedStreams",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedIterativeStreams",
    "ConnectedStreams",
    "CountWindow",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "FsStateBackend",
    "GlobalWindow",
    "HashMapStateBackend",
    "IntervalJoin",
    "IntervalJoined",
    "IterativeStream",
    "JobClient",
    "JobManagerCheckpointStorage",
    "JoinFunction",
    "JoinedStreams",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapBatchesFunction",
    "MapFunction",
    "MemorySize",
    "MemoryStateBackend",
    "MergingWindowAssigner",
    "OutputTag",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise missing_name(__name__, name) from None
    return getattr(import_module(f"{__name__}.{home}"), name)
