"""A job as it was submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.common.watermark_strategy import WatermarkAlignment
from penstock.engine.settings import JobSettings
from penstock.functions.connectors import Sink, Source
from penstock.graph.execution_graph import ExecutionGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """A job as the driver runs it: its graph, and the sources and sinks whose enumerators and committers it makes."""

    job_id: str
    graph: ExecutionGraph
    sources: Mapping[str, Source]  # by operator id; Spark's own sources are not in here
    sinks: Mapping[str, Sink]
    settings: JobSettings
    alignments: Mapping[str, WatermarkAlignment] = field(default_factory=dict)  # by operator id of the source
    waits_for_splits: frozenset[str] = frozenset()  # sources whose subtasks hold event time while they have no split
    job_parameters: Mapping[str, str] = field(default_factory=dict)
    rescaled_from: int | None = None  # the parallelism its program gave it, if it was rescaled since


class Planned(BaseException):
    """The program has described its job. No Exception: a program that catches all of those does not catch this."""

    def __init__(self, job: JobDescription) -> None:
        super().__init__("only the plan was asked for")
        self.job = job
