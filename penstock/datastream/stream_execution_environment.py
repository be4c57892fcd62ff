"""The entry point of a program: settings, sources, and running the job."""

from __future__ import annotations

import itertools
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

import cloudpickle

from penstock.common.absent import Explaining
from penstock.common.configuration import Configuration
from penstock.common.job import JobExecutionResult
from penstock.common.options import CheckpointingOptions, JobOptions
from penstock.common.typeinfo import TypeInformation, check_type
from penstock.common.watermark_strategy import NoWatermarks, WatermarkAlignment
from penstock.datastream.cached_data_stream import CachedDataStream
from penstock.datastream.data_stream import DataStream
from penstock.datastream.environment_settings import EnvironmentSettings, RuntimeExecutionMode
from penstock.datastream.environment_sources import EnvironmentSources
from penstock.datastream.iterative_stream import OpenIteration, settle
from penstock.datastream.program import (
    EarlierPrograms,
    LeftBehind,
    Origin,
    ProgramEdge,
    call_site,
    captured,
    check_program,
)
from penstock.datastream.python_dependencies import PythonDependencies
from penstock.driver.client import JobClient
from penstock.driver.description import JobDescription
from penstock.engine.settings import JobSettings
from penstock.errors import JobDefinitionError
from penstock.functions import CheckpointedFunction
from penstock.functions.connectors import Sink, Source
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.explain import Plan, explain, plan_json
from penstock.graph.iterations import Iteration
from penstock.graph.job_graph import JobGraph, build_job_graph
from penstock.graph.partitioner import Forward, Rebalance
from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from penstock.operators.base import Operator
from penstock.operators.batch import batch_operator
from penstock.operators.simple import SinkOperator
from penstock.operators.source import SourceOperator
from penstock.operators.watermarks import WatermarkOperator
from penstock.protocol.ids import NodeId
from penstock.runtime.launch import launch, tell_errors_briefly


class StreamExecutionEnvironment(Explaining, EnvironmentSettings, EnvironmentSources, PythonDependencies):
    """A program under construction. `execute` runs what was built since the last one and starts afresh.

    Example:

        config = Configuration.from_dict({"penstock.job.dir": "/data/jobs/orders", "execution.checkpointing.interval": "1 s"})
        env = StreamExecutionEnvironment.get_execution_environment(config)
        env.set_parallelism(4)
        env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").uid("orders").map(parse).sink_to(sink).uid("out")
        env.execute("orders")
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        tell_errors_briefly()  # settings and streams are refused before there is a job
        self._init_settings(configuration)
        self._ids = itertools.count(1)
        self._earlier = EarlierPrograms()
        self._reset()

    def __reduce__(self) -> tuple[type[LeftBehind], tuple[str]]:
        return LeftBehind, (type(self).__name__,)

    def _reset(self) -> None:
        self._nodes: dict[NodeId, StreamNode] = {}
        self._edges: list[ProgramEdge] = []
        self._spark_frames: dict[NodeId, Any] = {}
        self._bounded_frames: set[NodeId] = set()
        self._side_types: dict[tuple[NodeId, str], TypeInformation] = {}
        self._iterations: list[OpenIteration] = []
        self._caches: list[CachedDataStream] = []

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """A new environment with `configuration` and, below it, what the command that runs this program configured.

        Example:

            env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"parallelism.default": "2"}))
        """
        return StreamExecutionEnvironment(configuration)

    # ---------------------------------------------------------------- building

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
        operator = captured(operator, f"operator {name!r}")
        node = StreamNode(
            id=NodeId(next(self._ids)),
            name=name,
            kind=kind,
            operator=operator,
            parallelism=parallelism or self.get_parallelism(),
            output_type=output_type,
            stateful=stateful or any(isinstance(f, CheckpointedFunction) for f in operator.checkpointed_functions()),
            location=location,
            columnar=operator.columnar,
            why_rows=why_rows,
        )
        self._nodes[node.id] = node
        return node

    def _stream_graph(self, job_name: str | None, *, pickled: bool) -> StreamGraph:
        max_parallelism = self.get_max_parallelism()
        if max_parallelism < 1:
            widest = max((node.parallelism for node in self._nodes.values()), default=1)
            max_parallelism = max(128, 1 << (widest - 1).bit_length())
        graph = StreamGraph(job_name or "penstock job", max_parallelism, object_reuse=self.is_object_reuse_enabled())
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
            if isinstance(node.operator, SourceOperator) and node.operator.source is not None:
                node.operator.source = node.operator.source.for_parallelism(node.parallelism)
            operator = batch_operator(node.operator) if batch else node.operator
            chosen = replace(node, operator=operator, reads=(operator.reads_of(0), operator.reads_of(1)))
            if not self.is_chaining_enabled():
                chosen = replace(chosen, chainable=False)
            graph.add_node(replace(chosen, operator=cloudpickle.dumps(chosen.operator)) if pickled else chosen)
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
        mode = self._runtime_mode or RuntimeExecutionMode[JobOptions.RUNTIME_MODE.get(self._configuration)]
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
        """The plan as JSON, in the shape of Flink's.

        Example:

            words.map(len).print()
            plan = json.loads(env.get_execution_plan())
            [node["type"] for node in plan["nodes"]]
        """
        graph = self._stream_graph(None, pickled=False)
        graph.validate()
        return plan_json(graph)

    def explain(self) -> str:
        """The plan for people: levels, chains, exchanges. A notebook shows it as a graph.

        Example:

            words.map(len).print()
            print(env.explain())
        """
        job = build_job_graph(self._stream_graph(None, pickled=False))
        return Plan(explain(job, self._execution(job)), job)

    def _execution(self, job: JobGraph) -> str:
        """How the job would be run, as far as it is known before there is a Spark."""
        settings = self._effective_configuration()
        mode, slots = JobOptions.RUNTIME.get(settings), job.levels * job.slots
        if mode != "auto":
            return f"runs {mode}: {JobOptions.RUNTIME} says so"
        if self._spark_frames:
            return "runs in epochs: from_spark streams are read in micro-batches"
        if CheckpointingOptions.MODE.get(settings) == "AT_MOST_ONCE":
            return "runs in epochs: AT_MOST_ONCE logs what is read before it is read"
        if (older := _older_spark()) is not None:
            return f"runs in epochs: Spark {older} cannot stream between stages; 4.3 or later can"
        return f"runs pipelined if {slots} task slots of Spark are free, else in epochs"

    # ---------------------------------------------------------------- running

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the job and wait for its end. Raises what made it fail.

        Example:

            words.map(len).print()
            env.execute("lengths")
        """
        return self.execute_async(job_name or "penstock job").get_job_execution_result().result()

    def execute_async(self, job_name: str = "penstock job") -> JobClient:
        """Start the job in the background.

        Example:

            words.map(len).print()
            client = env.execute_async("lengths")
            result = client.get_job_execution_result().result()
        """
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
        """What was set in code goes over what was configured; PENSTOCK_EXECUTION_MODE goes over both."""
        settings = self._configuration.to_dict()
        if self._state_backend is not None:
            settings.update(self._state_backend.to_settings())
        settings.update(self._checkpoint_config.to_settings())
        if self.is_object_reuse_enabled() != JobOptions.OBJECT_REUSE.get(settings):
            JobOptions.OBJECT_REUSE.set(settings, self.is_object_reuse_enabled())
        if self._config.is_use_snapshot_compression():
            settings[CheckpointingOptions.COMPRESSION.key] = "true"
        if self._config.get_auto_watermark_interval() != JobOptions.WATERMARK_INTERVAL.default:
            JobOptions.WATERMARK_INTERVAL.set(settings, self._config.get_auto_watermark_interval())
        if self._config.get_latency_tracking_interval() != JobOptions.LATENCY_INTERVAL.default:
            JobOptions.LATENCY_INTERVAL.set(settings, self._config.get_latency_tracking_interval())
        if self._buffer_timeout is not None and self._buffer_timeout < 0:
            JobOptions.BUFFER_TIMEOUT_ENABLED.set(settings, False)
        elif self._buffer_timeout is not None:
            JobOptions.BUFFER_TIMEOUT.set(settings, self._buffer_timeout)
        runtime = os.environ.get("PENSTOCK_EXECUTION_MODE") or os.environ.get("PENSTOCK_RUNTIME")
        if runtime:
            JobOptions.RUNTIME.set(settings, runtime)
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
        operators = {node.operator_id: node.operator for node in self._nodes.values()}
        waiting = frozenset(
            vertex.head.operator_id
            for vertex in graph.job.vertices.values()
            if _waits_for_splits([operators[node.operator_id] for node in vertex.nodes])
        )
        return JobDescription(
            job_id=uuid.uuid4().hex, graph=graph, sources=sources, sinks=sinks, settings=settings,
            alignments=alignments, waits_for_splits=waiting, job_parameters=_text(self._config.get_global_job_parameters()),
        )  # fmt: skip


def _older_spark() -> str | None:
    """The version of the Spark that is installed, if it cannot run a job pipelined."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None
    return version if [int(part) for part in re.findall(r"\d+", version)[:2]] < [4, 3] else None


def _waits_for_splits(chain: Sequence[Any]) -> bool:
    """Whether a chain begins with a source whose subtasks hold event time as long as they have no split."""
    source = chain[0]
    if not isinstance(source, SourceOperator) or source.source is None or source.source.bounded:
        return False
    strategies = [operator.strategy for operator in chain if isinstance(operator, SourceOperator | WatermarkOperator)]
    making = [strategy for strategy in strategies if not isinstance(strategy.generator, NoWatermarks)]
    return bool(making) and making[-1].idle_timeout_ms is None


def _text(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in parameters.items()}
