"""A stream that is computed once and read again by later jobs of the same environment.

program 1   source ─▶ expensive ─┬─▶ sink                 execute(): also spills the records
                                 └─▶ (cache)
program 2              (cache) ──┴─▶ another sink         execute(): reads them, nothing is computed again
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.storage import LocalStorage, open_storage
from penstock.common.job import JobStatus
from penstock.common.options import JobOptions
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.cache import CacheSink, CacheSource
from penstock.datastream.data_stream import DataStream
from penstock.datastream.keyed_stream import KeyedStream
from penstock.datastream.program import Origin, ProgramEdge
from penstock.errors import JobDefinitionError, PenstockError
from penstock.graph.explain import leading_to
from penstock.graph.stream_graph import StreamNode
from penstock.operators.source import SourceOperator
from penstock.protocol.ids import NodeId

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.driver.client import JobClient


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedUpstream:
    """How the stream is computed: kept for the case that its cache is not there when a later program wants it."""

    nodes: dict[NodeId, StreamNode]
    edges: list[ProgramEdge]
    frames: dict[NodeId, Any]
    bounded_frames: set[NodeId]
    origins: list[Origin]


class CachedDataStream(DataStream):
    """Made by `DataStream.cache()`. Used in the program that made it, it is the stream itself; in later ones it is what
    the first job that ran to its end has kept."""

    def __init__(self, stream: DataStream) -> None:
        if isinstance(stream, KeyedStream) or stream._partitioner is not None:
            raise JobDefinitionError(
                "cache() of a stream that is partitioned or keyed: cache it before, and partition what is read again"
            )
        self._folder: str | None = None
        self._client: JobClient | None = None
        self._lineage: _CachedUpstream | None = None
        self._program: Any = stream._env._nodes  # a new one is begun with every execute()
        super().__init__(stream._env, stream._origins, stream._type)
        self._spill()

    @property
    def _origins(self) -> list[Origin]:
        """In the program that is being built now."""
        if self._program is not self._env._nodes:
            self._program = self._env._nodes
            self._here = self._read() if self._is_complete() else self._rebuild()
        return self._here

    @_origins.setter
    def _origins(self, origins: list[Origin]) -> None:
        self._here = origins

    def invalidate(self) -> None:
        """Delete what was kept. The stream can still be used: the next job that does computes and keeps it again. A program
        that uses it already and has not run fails, because what it would read is gone.

        Example:

            lengths = words.map(len).cache()
            lengths.invalidate()
        """
        if self._folder is not None:
            _delete(self._folder)
        self._folder = self._client = None
        if self._lineage is not None:
            self._program = None

    # ---------------------------------------------------------------- called by the environment

    def _submitted(self, client: JobClient) -> None:
        """The program this stream was part of runs. Until its end nobody may take the folder away."""
        self._client = self._client or client
        client._result.add_done_callback(lambda _: self)

    def _remember(self) -> None:
        """The program this stream is part of is about to be forgotten."""
        if self._lineage is not None:
            return
        env = self._env
        found = set(leading_to((o.node.id for o in self._here), ((e.source, e.target) for e in env._edges)))
        self._lineage = _CachedUpstream(
            nodes={node: env._nodes[node] for node in sorted(found)},
            edges=[edge for edge in env._edges if edge.target in found],
            frames={node: frame for node, frame in env._spark_frames.items() if node in found},
            bounded_frames=env._bounded_frames & found,
            origins=self._here,
        )

    # ---------------------------------------------------------------- in and out

    def _is_complete(self) -> bool:
        if self._folder is None or self._client is None:
            return False
        return self._client.get_job_status().result() is JobStatus.FINISHED

    def _spill(self) -> None:
        self._folder = _new_folder(self._env)
        self._client = None
        weakref.finalize(self, _delete, self._folder)
        self._sink(CacheSink(self._folder), "Sink: Cache")
        self._env._caches.append(self)

    def _read(self) -> list[Origin]:
        assert self._folder is not None
        parallelism = max(origin.node.parallelism for origin in self._here)
        operator = SourceOperator(CacheSource(self._folder, self._type), WatermarkStrategy.no_watermarks())
        self._env._caches.append(self)
        return self._env._source(operator, "Cache", parallelism, self._type)._origins

    def _rebuild(self) -> list[Origin]:
        """The cache is not there: the operators again, in the new program, and a new cache. Without uids: another
        rebuilt stream may have some of the same operators."""
        env, lineage = self._env, self._lineage
        assert lineage is not None, "a program is remembered before it is forgotten"
        new: dict[NodeId, StreamNode] = {}
        for old, node in lineage.nodes.items():
            place = env._add_node(node.name, node.kind, node.operator, parallelism=node.parallelism)
            new[old] = env._nodes[place.id] = replace(node, id=place.id, uid=None)
        for edge in lineage.edges:
            env._edges.append(replace(edge, source=new[edge.source].id, target=new[edge.target].id))
        env._spark_frames.update({new[node].id: frame for node, frame in lineage.frames.items()})
        env._bounded_frames.update(new[node].id for node in lineage.bounded_frames)
        self._here = [Origin(new[origin.node.id], origin.tag) for origin in lineage.origins]
        self._spill()
        return self._here


def _new_folder(env: StreamExecutionEnvironment) -> str:
    """Below `penstock.cache.dir`, which slots on other hosts must reach; else on this host's temporary storage."""
    base = JobOptions.CACHE_DIR.get(env._configuration) or tempfile.gettempdir()
    return f"{base.rstrip('/')}/penstock-cache-{uuid.uuid4().hex}"


def _delete(folder: str) -> None:
    with contextlib.suppress(PenstockError):
        storage = open_storage(folder, create=False)
        for path in storage.list(""):
            storage.delete(path)
        if isinstance(storage, LocalStorage):
            with contextlib.suppress(OSError):
                storage.root.rmdir()
