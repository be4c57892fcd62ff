"""Jobs that the tests of the embedded runtime run, and the sequential reference they are compared with."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.storage import ObjectStorage, Storage
from penstock.common import Configuration
from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.base import Sink, Source
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.engine.settings import JobSettings
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import build_job_graph
from penstock.graph.partitioner import Forward, Hash, Partitioner
from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from penstock.operators.base import Operator
from penstock.operators.simple import MapOperator, SinkOperator
from penstock.operators.source import SourceOperator
from penstock.protocol.ids import NodeId
from penstock.records import Block, Columns
from penstock.state.overlay import MISSING
from penstock.testing import Epoch, ListSink, ManualClock, ScriptedSource, Split

KEYS = "abcde"


def configured(job: Path, more: Mapping[str, str], *, path: str | None = None) -> Configuration:
    """A job on the embedded runtime in quick epochs, each a checkpoint in the folder `job`, from the savepoint or checkpoint
    at `path`. `more` goes over all that."""
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(job))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "1 ms")
    if path is not None:
        config.set_string("execution.state-recovery.path", path)
    for name, value in more.items():
        config.set_string(name, value)
    return config


def key_of(value: Any) -> Any:
    return value[0]


class CountOperator(Operator):
    """(key, …) → (key, how many of this key so far, …)."""

    def process(self, input: int, block: Block) -> None:
        assert not isinstance(block, Columns)
        table = self.ctx.state.table("count", "value")
        out = []
        for key, *rest in block.values:
            before = table.get(key)
            count = 1 if before is MISSING else before + 1
            table.put(key, count)
            out.append((key, count, *rest))
        self.emit(out, block.timestamps)


class Pipeline:
    """A straight line of operators, built without the user API."""

    def __init__(self, *, max_parallelism: int = 8) -> None:
        self._graph = StreamGraph("embedded test", max_parallelism)
        self._sources: dict[str, Source] = {}
        self._sinks: dict[str, Sink] = {}

    def _add(self, name: str, kind: str, operator: Any, parallelism: int, partitioner: Partitioner | None) -> Pipeline:
        node = NodeId(len(self._graph.nodes))
        self._graph.add_node(
            StreamNode(id=node, name=name, kind=kind, operator=operator, parallelism=parallelism, uid=name)
        )
        if partitioner is not None:
            self._graph.add_edge(StreamEdge(source=NodeId(node - 1), target=node, partitioner=partitioner))
        return self

    def source(self, source: Source, parallelism: int = 1, strategy: WatermarkStrategy | None = None) -> Pipeline:
        self._sources["source"] = source
        operator = SourceOperator(source, strategy or WatermarkStrategy.no_watermarks())
        return self._add("source", "source", operator, parallelism, None)

    def map(self, function: Any, parallelism: int = 1, by: Partitioner | None = None) -> Pipeline:
        return self._add(
            f"map-{len(self._graph.nodes)}", "operator", MapOperator(function), parallelism, by or Forward()
        )

    def operator(self, operator: Operator, parallelism: int = 1, by: Partitioner | None = None) -> Pipeline:
        name = f"operator-{len(self._graph.nodes)}"
        return self._add(name, "operator", operator, parallelism, by or Hash(key_of))

    def sink(self, sink: Sink, parallelism: int = 1, by: Partitioner | None = None) -> Pipeline:
        self._sinks["sink"] = sink
        return self._add("sink", "sink", SinkOperator(sink), parallelism, by or Hash(key_of))

    def build(self, settings: JobSettings) -> JobDescription:
        return JobDescription(
            job_id="job",
            graph=ExecutionGraph(build_job_graph(self._graph)),
            sources=self._sources,
            sinks=self._sinks,
            settings=settings,
        )


def settings(
    *,
    restart: RestartStrategyConfiguration | None = None,
    checkpoint_interval_ms: int | None = 0,
    block_size: int = 3,
    inline_threshold: int = 20 * 1024,
) -> JobSettings:
    return JobSettings(
        runtime="embedded",
        checkpoint_interval_ms=checkpoint_interval_ms,
        block_size=block_size,
        restart=restart or RestartStrategies.no_restart(),
        inline_threshold=inline_threshold,
    )


def memory_storage() -> Storage:
    """One of its own: within a process the same memory url is the same place."""
    return ObjectStorage(f"memory:///{uuid.uuid4().hex}")


def master_of(job: JobDescription, storage: Storage | None) -> JobMaster:
    return JobMaster(job, storage, clock=ManualClock())


def numbered_script(splits: int, per_split: int, epochs: int, seed: int = 0) -> list[Any]:
    """Records (key, split, number) with random keys, spread over the epochs; every split in every epoch."""
    rng = random.Random(seed)
    script: list[Any] = []
    numbers = [0] * splits
    for epoch in range(epochs):
        for split in range(splits):
            script.append(Split(f"s{split}"))
            until = per_split * (epoch + 1) // epochs
            while numbers[split] < until:
                script.append((rng.choice(KEYS), split, numbers[split]))
                numbers[split] += 1
        if epoch < epochs - 1:
            script.append(Epoch())
    return script


UNEVEN_EPOCHS = 7


def uneven_script(seed: int = 0) -> list[Any]:
    """`early` ends in the second epoch, `late` begins in the fourth, `long` brings more with every epoch."""
    rng = random.Random(seed)
    script: list[Any] = []
    numbers = [0, 0, 0]
    for epoch in range(1, UNEVEN_EPOCHS + 1):
        brings = (9 if epoch <= 2 else 0, 0 if epoch < 4 else 5, 2 * epoch)
        for split, (name, count) in enumerate(zip(("early", "late", "long"), brings, strict=True)):
            if count:
                script.append(Split(name))
                script += [(rng.choice(KEYS), split, numbers[split] + n) for n in range(count)]
                numbers[split] += count
        if epoch < UNEVEN_EPOCHS:
            script.append(Epoch())
    return script


def read_until(script: Sequence[Any], manifest: Manifest) -> list[Any]:
    """What the only source had read of its script at a checkpoint or savepoint: up to the end of an epoch."""
    (source,) = manifest.sources.values()
    cuts = [place for place, item in enumerate(script) if isinstance(item, Epoch)]
    return list(script[: [*cuts, len(script)][int(source.state) - 1]])


def values_of(script: Sequence[Any]) -> list[tuple[str, int, int]]:
    return [item for item in script if isinstance(item, tuple)]


def counting_job(
    script: Sequence[Any],
    sink: str,
    *,
    parallelism: tuple[int, int, int, int] = (2, 2, 3, 2),
    job: JobSettings | None = None,
) -> JobDescription:
    """source → map → count → sink, with an exchange by key between each two."""
    sources, maps, counts, sinks = parallelism
    return (
        Pipeline()
        .source(ScriptedSource(script), sources)
        .map(_same, maps, by=Hash(key_of))
        .operator(CountOperator(), counts)
        .sink(ListSink(sink), sinks)
        .build(job or settings())
    )


def _same(value: Any) -> Any:
    return value


class Verdict:
    """What came out against what went in. `results` are (key, count, split, number) in the order they were committed."""

    def __init__(self, script: Sequence[Any], results: Sequence[tuple[str, int, int, int]]) -> None:
        expected = Counter((key, split, number) for key, split, number in values_of(script))
        found = Counter((key, split, number) for key, _, split, number in results)
        self.lost = sum((expected - found).values())
        self.duplicated = sum((found - expected).values())
        self.reordered = sum(1 for _ in self._out_of_order(results))

    @staticmethod
    def _out_of_order(results: Sequence[tuple[str, int, int, int]]) -> Iterator[str]:
        """Within a key counts go 1, 2, 3, … and every split's records keep their order."""
        counts: Counter[str] = Counter()
        last: dict[tuple[str, int], int] = {}
        for key, count, split, number in results:
            counts[key] += 1
            if count != counts[key] or number <= last.get((key, split), -1):
                yield key
            last[(key, split)] = number

    @property
    def exact(self) -> bool:
        return (self.lost, self.duplicated, self.reordered) == (0, 0, 0)

    def __repr__(self) -> str:
        return f"lost {self.lost}, duplicated {self.duplicated}, reordered {self.reordered}"
