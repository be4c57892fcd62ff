"""`env.from_spark`: a streaming DataFrame as a columnar source.

What a streaming DataFrame reads, from its plan: which of Spark's sources, and what those do when a batch is committed.

Spark commits a batch when its callback returns, and tells its sources when it begins the next one. Most do nothing. Some
throw away what they gave: files are deleted or moved (`cleanSource`), a queue is told that its messages are done with, a data
source written in Python may do anything. A checkpoint must cover a batch before such a source hears of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import ColumnTimestampAssigner, WatermarkStrategy
from penstock.errors import JobDefinitionError
from penstock.runtime.epochs.arrow_schema import arrow_schema, row_type
from penstock.runtime.epochs.job import SparkSource


def spark_source(
    frame: DataFrame, split: str | None, timestamp: str | None, strategy: WatermarkStrategy, bounded: bool
) -> tuple[SparkSource, WatermarkStrategy, TypeInformation]:
    """The source for a streaming DataFrame, with its strategy and type; JobDefinitionError for what cannot be read
    that way.
    """
    if not getattr(frame, "isStreaming", False):
        raise JobDefinitionError(
            "from_spark takes a streaming DataFrame, as spark.readStream...load() gives; this one is not a stream"
        )
    check_plan(frame)
    for what, name in (("split", split), ("timestamp", timestamp)):
        if name is not None and name not in frame.columns:
            raise JobDefinitionError(f"from_spark: the {what} column {name!r} is not among {frame.columns}")
    if timestamp is not None:
        strategy = strategy.with_timestamp_assigner(ColumnTimestampAssigner(timestamp))
    # As Spark hands them to Python: instants in the zone of the session.
    zone = str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
    type_info = row_type(arrow_schema(frame.schema, zone))
    source = SparkSource(frame=frame, split=split, bounded=bounded, forgets=forgetting(frame))
    return source, strategy, type_info


# Sources that are known to keep what they gave, by Spark's name for them. `penstock` is ours (data_source.py).
_KEEPING = frozenset({"delta", "iceberg", "kafka", "penstock", "rate", "rate-micro-batch"})
_FILES = "FileSource["
# Operators with state in Spark's checkpoint folder, which is thrown away with the query.
_STATEFUL = (
    "Aggregate",
    "Deduplicate",
    "Distinct",
    "FlatMapGroups",
    "GlobalLimit",
    "Join",
    "LocalLimit",
    "TransformWithState",
)


def check_plan(frame: DataFrame) -> None:
    """JobDefinitionError if a recovery could not bring back what Spark itself keeps of this stream."""
    plan = _analyzed(frame)
    streams = list(_streams(plan))
    if len(streams) > 1:
        names = ", ".join(stream.sourceName() for stream in streams)
        raise JobDefinitionError(
            f"from_spark takes a frame over one stream, this one reads {len(streams)} ({names}): call from_spark for each, and "
            "unite or join them in Penstock"
        )
    stateful = next((name for name in _operators_over_streams(plan) if name.startswith(_STATEFUL)), None)
    if stateful is not None:
        raise JobDefinitionError(
            f"from_spark: the frame has an operator with state of Spark's own ({stateful}), which no checkpoint of Penstock's "
            "holds: leave it out of the frame and do that in Penstock (key_by, windows, joins, state)"
        )


def forgetting(frame: DataFrame) -> str | None:
    """Which of the frame's sources may throw away what was committed, in words; None: none does."""
    for stream in _streams(_analyzed(frame)):
        name = str(stream.sourceName())
        if name.startswith(_FILES):
            cleaning = _options(stream).get("cleansource", "off").lower()
            if cleaning != "off":
                return f"{name} with cleanSource={cleaning}"
        elif name.lower() not in _KEEPING:
            return name
    return None


def _analyzed(frame: DataFrame) -> Any:
    """There is no public way to a plan but its text."""
    return frame._jdf.queryExecution().analyzed()


def _streams(plan: Any) -> Iterator[Any]:
    """The streaming relations at the plan's leaves; static tables that are joined to a stream are none."""
    leaves = plan.collectLeaves()
    yield from (leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming())


def _operators_over_streams(plan: Any) -> Iterator[str]:
    children = plan.children()
    streaming = [child for child in map(children.apply, range(children.size())) if child.isStreaming()]
    # A join with a static table keeps nothing.
    if streaming and not (plan.nodeName() == "Join" and len(streaming) == 1):
        yield str(plan.nodeName())
    for child in streaming:
        yield from _operators_over_streams(child)


def _options(stream: Any) -> dict[str, str]:
    """Of a source of the first kind; Spark does not mind how they are capitalised."""
    found, options = {}, stream.dataSource().options().iterator()
    while options.hasNext():
        option = options.next()
        found[str(option._1()).lower()] = str(option._2())
    return found
