"""The entry point of a program: settings, sources, and running the job."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import cloudpickle

from penstock.common.configuration import Configuration
from penstock.common.execution_config import ExecutionConfig
from penstock.common.global_configuration import GlobalConfiguration
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.common.typeinfo import TypeInformation, Types, check_type
from penstock.common.watermark_strategy import WatermarkAlignment, WatermarkStrategy
from penstock.compat.absent import missing_attribute
from penstock.connectors.base import Sink, Source
from penstock.connectors.collection import CollectionSource
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSource
from penstock.connectors.push import PushSource, SocketTextReceiver
from penstock.datastream.cached_data_stream import CachedDataStream
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.data_stream import DataStream
from penstock.datastream.earlier_programs import EarlierPrograms
from penstock.datastream.edges import Edge, Origin
from penstock.datastream.environment_settings import EnvironmentSettings
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.functions import CheckpointedFunction
from penstock.datastream.iterative_stream import OpenIteration, settle
from penstock.datastream.job_client import JobClient
from penstock.datastream.misuse import call_site, check_program
from penstock.datastream.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend, StateBackend
from penstock.errors import ConfigurationError, JobDefinitionError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.explain import explain, plan_json
from penstock.graph.iterations import Iteration
from penstock.graph.job_graph import build_job_graph
from penstock.graph.notebook import Plan
from penstock.graph.partitioner import Forward, Rebalance
from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from penstock.jobmanager.description import JobDescription
from penstock.jobmanager.launch import launch
from penstock.jobmanager.settings import JobSettings
from penstock.jobmanager.state_settings import state_settings
from penstock.operators.base import Operator
from penstock.operators.batch import batch_operator
from penstock.operators.sink import SinkOperator
from penstock.operators.source import SourceOperator
from penstock.protocol.ids import NodeId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class StreamExecutionEnvironment(EnvironmentSettings):
    """A program under construction. `execute` runs what was built since the last one and starts afresh."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = GlobalConfiguration.load_configuration()  # below what the program says
        if configuration is not None:
            self._configuration.add_all(configuration)
        self._config = ExecutionConfig()
        self._checkpoint_config = CheckpointConfig()
        self._state_backend: StateBackend | None = None  # None: as configured
        self._restart: RestartStrategyConfiguration | None = None
        self._runtime_mode: RuntimeExecutionMode | None = None  # None: as configured
        configured = self._configuration.get_string("parallelism.default", str(self.get_default_local_parallelism()))
        self._default_parallelism = int(configured)
        self._init_settings()
        self._ids = itertools.count(1)
        self._earlier = EarlierPrograms()
        self._reset()

    if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

    def _reset(self) -> None:
        self._nodes: dict[NodeId, StreamNode] = {}
        self._edges: list[Edge] = []
        self._spark_frames: dict[NodeId, Any] = {}
        self._bounded_frames: set[NodeId] = set()
        self._side_types: dict[tuple[NodeId, str], TypeInformation] = {}
        self._iterations: list[OpenIteration] = []
        self._caches: list[CachedDataStream] = []

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        return StreamExecutionEnvironment(configuration)

    # ---------------------------------------------------------------- settings

    def get_config(self) -> ExecutionConfig:
        return self._config

    def get_checkpoint_config(self) -> CheckpointConfig:
        return self._checkpoint_config

    def configure(self, configuration: Configuration) -> None:
        self._configuration.add_all(configuration)
        if configuration.contains_key("parallelism.default"):
            self._default_parallelism = int(configuration.get_string("parallelism.default", "1"))

    def get_parallelism(self) -> int:
        return self._default_parallelism

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        if parallelism < 1:
            raise JobDefinitionError(f"the parallelism must be at least 1, not {parallelism}")
        self._default_parallelism = parallelism
        return self

    def get_max_parallelism(self) -> int:
        return self._config.get_max_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        self._config.set_max_parallelism(max_parallelism)
        return self

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """BATCH: final results only, from bounded sources, without checkpoints. AUTOMATIC: BATCH if all sources are
        bounded. Goes over `execution.runtime-mode` of the configuration."""
        if not isinstance(execution_mode, RuntimeExecutionMode):
            raise JobDefinitionError(f"set_runtime_mode takes a RuntimeExecutionMode, not {execution_mode!r}")
        self._runtime_mode = execution_mode
        return self

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    ) -> StreamExecutionEnvironment:
        """A checkpoint at the end of the first epoch that ends `interval` milliseconds after the last one."""
        self._checkpoint_config.set_checkpoint_interval(interval)
        self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self._checkpoint_config.get_checkpointing_mode()

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Goes over `state.backend.type`; Flink's older backends also say where checkpoints are kept."""
        if not isinstance(state_backend, StateBackend):
            raise JobDefinitionError(
                f"{state_backend!r} is not a state backend: choose HashMapStateBackend() or EmbeddedRocksDBStateBackend()"
            )
        self._state_backend = state_backend
        return self

    def get_state_backend(self) -> StateBackend:
        """As set here, or as configured."""
        if self._state_backend is not None:
            return self._state_backend
        configured = state_settings(self._configuration.to_dict()).backend
        return EmbeddedRocksDBStateBackend() if configured == "rocksdb" else HashMapStateBackend()

    def set_restart_strategy(self, restart_strategy: RestartStrategyConfiguration) -> StreamExecutionEnvironment:
        self._restart = restart_strategy
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        return self._restart if self._restart is not None else RestartStrategies.fall_back_restart()

    # ---------------------------------------------------------------- sources

    def from_collection(self, collection: Sequence[Any], type_info: TypeInformation | None = None) -> DataStream:
        """A bounded stream of the given values; not parallel, as in Flink."""
        source = CollectionSource(list(collection), type_info)
        return self._source(
            SourceOperator(source, WatermarkStrategy.no_watermarks()), "Collection Source", 1, type_info
        )._not_parallel()

    def from_sequence(self, start: int, end: int) -> DataStream:
        """The numbers from `start` to `end`, both included: bounded, and read in parallel, so in no particular order."""
        if start > end:
            raise JobDefinitionError(f"from_sequence: the start ({start}) must not be above the end ({end})")
        source = DataGeneratorSource(
            _Sequence(start), end - start + 1, splits=self._default_parallelism, type_info=Types.LONG()
        )
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Sequence Source")

    def read_text_file(self, file_path: str | os.PathLike[str], charset_name: str = "UTF-8") -> DataStream:
        """The lines of a file, or of the files of a folder, as they are now. `FileSource.text` has more options."""
        source = FileSource.text(file_path, charset_name, type_info=Types.STRING())
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Text File Source")

    def socket_text_stream(
        self,
        host: str,
        port: int,
        delimiter: str = "\n",
        max_retry: int = 0,
        *,
        receive_log: str | os.PathLike[str] | None = None,
    ) -> DataStream:
        """Text from a TCP server (Java's socketTextStream; not in PyFlink). Not parallel; timestamps are the time of receipt.

        A socket cannot be asked again. With `receive_log`, a folder of this source's own that every slot can read, a
        record is on disk before the job knows of it and takes effect exactly once; without it, records that wait for
        their epoch are lost when the driver dies or the job goes back to a checkpoint. See docs/howto/sockets.md.
        """
        retained = self._configuration.get_string("execution.checkpointing.num-retained", "1")
        source = PushSource(
            SocketTextReceiver(host, port, delimiter, max_retry),
            receive_log=receive_log,
            retained_checkpoints=int(retained),
        )
        operator = SourceOperator(source, WatermarkStrategy.no_watermarks())
        return self._source(operator, "Socket Stream", 1, Types.STRING())._not_parallel()

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Watermarks are made per split, and the stream's is the minimum over the splits that are not idle."""
        if not isinstance(source, Source):
            raise JobDefinitionError(
                f"from_source takes a Penstock source (a penstock.connectors.base.Source), not {type(source).__name__}; "
                "a streaming DataFrame of Spark's goes to from_spark"
            )
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise JobDefinitionError(
                f"from_source of {source_name!r} takes a WatermarkStrategy, not a {type(watermark_strategy).__name__}; for "
                "processing time only: WatermarkStrategy.no_watermarks()"
            )
        produced = type_info if type_info is not None else source.produced_type
        return self._source(
            SourceOperator(source, watermark_strategy), source_name, self._default_parallelism, produced
        )

    def from_spark(
        self,
        streaming_df: DataFrame,
        *,
        split: str | None = None,
        timestamp: str | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
        bounded: bool = False,
        source_name: str = "Spark Source",
    ) -> DataStream:
        """Anything Spark can read as a stream, as a columnar stream.

        `split` names a column whose values (a Kafka partition, a file name) have watermarks of their own; `timestamp` the
        column with event time (a timestamp, or milliseconds). With `bounded` the source ends at the first
        trigger that finds nothing new.
        """
        from penstock.spark.source import spark_source

        strategy = watermark_strategy or WatermarkStrategy.no_watermarks()
        if strategy.alignment is not None:
            raise JobDefinitionError(
                f"from_spark of {source_name!r}: Spark decides what it reads, so it cannot wait for other sources; leave out "
                "with_watermark_alignment"
            )
        frame, strategy, type_info = spark_source(streaming_df, split, timestamp, strategy, bounded)
        stream = self._source(SourceOperator(None, strategy), source_name, self._default_parallelism, type_info)
        self._spark_frames[stream._origins[0].node.id] = frame
        if bounded:
            self._bounded_frames.add(stream._origins[0].node.id)
        return stream

    def _source(
        self,
        operator: SourceOperator,
        name: str,
        parallelism: int,
        type_info: TypeInformation | None,
    ) -> DataStream:
        node = self._add_node(
            name,
            "source",
            operator,
            parallelism=parallelism,
            output_type=type_info,
            stateful=True,
        )
        return DataStream(self, [Origin(node)], type_info)

    # ---------------------------------------------------------------- building

    def _add_node(
        self,
        name: str,
        kind: str,
        operator: Operator,
        *,
        parallelism: int | None = None,
        output_type: TypeInformation | None = None,
        stateful: bool = False,
        why_rows: str = "",
    ) -> StreamNode:
        location = call_site()
        if output_type is not None:
            check_type(output_type, f"the type of what {name!r} ({location}) emits")
        node = StreamNode(
            id=NodeId(next(self._ids)),
            name=name,
            kind=kind,
            operator=operator,
            parallelism=parallelism or self._default_parallelism,
            output_type=output_type,
            stateful=stateful or any(isinstance(f, CheckpointedFunction) for f in operator.checkpointed_functions()),
            location=location,
            columnar=operator.columnar,
            why_rows=why_rows,
        )
        self._nodes[node.id] = node
        return node

    def _stream_graph(self, job_name: str | None, *, pickled: bool) -> StreamGraph:
        max_parallelism = self._config.get_max_parallelism()
        if max_parallelism < 1:
            widest = max((node.parallelism for node in self._nodes.values()), default=1)
            max_parallelism = max(128, 1 << (widest - 1).bit_length())
        graph = StreamGraph(job_name or "penstock job", max_parallelism)
        batch = self._is_batch()
        if self._caches and not batch:
            raise JobDefinitionError(
                "cache() works in BATCH mode only, where a job has an end: call env.set_runtime_mode(RuntimeExecutionMode.BATCH), "
                "or write the stream to files and read them again"
            )
        for iteration in self._iterations:
            feeding = [self._nodes[e.source] for e in self._edges if iteration.tail and e.target == iteration.tail.id]
            tail = settle(iteration, feeding)
            graph.add_iteration(Iteration(head=iteration.head.id, tail=tail.id, max_wait_ms=iteration.max_wait_ms))
        check_program(self._nodes, self._edges, self._config)
        for node in self._nodes.values():
            chosen = replace(node, operator=batch_operator(node.operator)) if batch else node
            if not self.is_chaining_enabled():
                chosen = replace(chosen, chainable=False)
            graph.add_node(_with_pickled_operator(chosen) if pickled else chosen)
        for edge in self._edges:
            up, down = self._nodes[edge.source], self._nodes[edge.target]
            same = up.parallelism == down.parallelism
            if not self.is_chaining_of_operators_with_different_max_parallelism_enabled():
                graph.nodes[down.id].head |= up.max_parallelism != down.max_parallelism
            graph.add_edge(
                StreamEdge(
                    source=edge.source,
                    target=edge.target,
                    partitioner=edge.partitioner or (Forward() if same else Rebalance()),
                    implicit=edge.partitioner is None,
                    input=edge.input,
                    tag=edge.tag,
                )
            )
        return graph

    def _is_batch(self) -> bool:
        mode = self._runtime_mode
        if mode is None:
            configured = self._configuration.get_string("execution.runtime-mode", "STREAMING").upper()
            if configured not in RuntimeExecutionMode.__members__:
                raise ConfigurationError(
                    f"execution.runtime-mode: {configured!r} is not known; choose STREAMING, BATCH or AUTOMATIC"
                )
            mode = RuntimeExecutionMode[configured]
        if mode is RuntimeExecutionMode.STREAMING:
            return False
        unbounded = [
            node.name
            for node in self._nodes.values()
            if isinstance(node.operator, SourceOperator)
            and not (node.id in self._bounded_frames if node.operator.source is None else node.operator.source.bounded)
        ]
        if unbounded and mode is RuntimeExecutionMode.BATCH:
            raise JobDefinitionError(
                f"the runtime mode is BATCH, but {', '.join(map(repr, unbounded))} never ends: bound the source, or choose "
                "STREAMING or AUTOMATIC"
            )
        if self._iterations and mode is RuntimeExecutionMode.BATCH:
            raise JobDefinitionError(
                "iterations do not run in BATCH mode, where operators wait for the end of their input: a loop would wait for "
                "itself. Choose STREAMING; bounded input ends there too"
            )
        return not unbounded and not self._iterations

    def get_execution_plan(self) -> str:
        """The plan as JSON, in the shape of Flink's."""
        graph = self._stream_graph(None, pickled=False)
        graph.validate()
        return plan_json(graph)

    def explain(self) -> str:
        """The plan for people: levels, chains, exchanges. A notebook shows it as a graph."""
        job = build_job_graph(self._stream_graph(None, pickled=False))
        return Plan(explain(job), job)

    # ---------------------------------------------------------------- running

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the job and wait for its end. Raises what made it fail."""
        return self.execute_async(job_name or "penstock job").get_job_execution_result().result()

    def execute_async(self, job_name: str = "penstock job") -> JobClient:
        """Start the job in the background."""
        job = self._describe(job_name)
        frames = {self._nodes[node].operator_id: frame for node, frame in self._spark_frames.items()}
        configuration = self._effective_configuration()
        caches = self._caches
        for cached in caches:
            cached._remember()
        self._earlier.keep(self)
        self._reset()
        client = launch(job, configuration, frames)
        for cached in caches:
            cached._submitted(client)
        return client

    def _effective_configuration(self) -> dict[str, str]:
        """What was set in code goes over what was configured; PENSTOCK_RUNTIME goes over both."""
        settings = self._configuration.to_dict()
        if self._state_backend is not None:
            settings.update(self._state_backend.to_settings())
        settings.update(self._checkpoint_config.to_settings())
        if self._checkpoint_config.is_checkpointing_enabled():
            settings["execution.checkpointing.interval"] = f"{self._checkpoint_config.get_checkpoint_interval()} ms"
        runtime = os.environ.get("PENSTOCK_RUNTIME")
        if runtime:
            settings["penstock.runtime"] = runtime
        return settings

    def _describe(self, job_name: str | None) -> JobDescription:
        graph = ExecutionGraph(build_job_graph(self._stream_graph(job_name, pickled=True)))
        settings = JobSettings.of(self._effective_configuration())
        if self._restart is not None:
            settings = replace(settings, restart=self._restart)
        if self._is_batch():  # as in Flink: no checkpoints, so a failed job starts again from the beginning
            settings = replace(settings, checkpoint_interval_ms=None)
        sources: dict[str, Source] = {}
        sinks: dict[str, Sink] = {}
        alignments: dict[str, WatermarkAlignment] = {}
        for node in self._nodes.values():
            if isinstance(node.operator, SourceOperator) and node.operator.source is not None:
                sources[node.operator_id] = node.operator.source
                if node.operator.strategy.alignment is not None and not self._is_batch():
                    alignments[node.operator_id] = node.operator.strategy.alignment
            elif isinstance(node.operator, SinkOperator):
                sinks[node.operator_id] = node.operator.sink
        return JobDescription(
            job_id=uuid.uuid4().hex, graph=graph, sources=sources, sinks=sinks, settings=settings,
            alignments=alignments, job_parameters=_text(self._config.get_global_job_parameters()),
        )  # fmt: skip


class _Sequence:
    def __init__(self, start: int) -> None:
        self._start = start

    def __call__(self, index: int) -> int:
        return self._start + index


def _text(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in parameters.items()}


def _with_pickled_operator(node: StreamNode) -> StreamNode:
    """Operators are pickled one by one, so that a function that cannot travel is named at submit time."""
    try:
        data = cloudpickle.dumps(node.operator)
    except Exception as error:
        functions = [type(f).__name__ for f in node.operator.user_functions()]
        raise JobDefinitionError(
            f"operator {node.name!r} (uid {node.operator_id!r}) cannot be sent to the cluster: {type(error).__name__}: {error}. "
            f"Something its function ({', '.join(functions) or 'none'}) refers to cannot be pickled, such as a lock, a socket, "
            "an open file or a SparkSession: create it in open() instead"
        ) from error
    return replace(node, operator=data)
