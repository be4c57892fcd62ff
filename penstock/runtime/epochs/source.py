"""`env.from_spark`: a streaming DataFrame as a columnar source."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.common.typeinfo import TypeInformation, row_type_of
from penstock.common.watermark_strategy import ColumnTimestampAssigner, WatermarkStrategy
from penstock.errors import JobDefinitionError
from penstock.runtime.epochs.job import SparkSource
from penstock.runtime.epochs.source_plan import check_plan, forgetting


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
    schema = to_arrow_schema(frame.schema, timezone=frame.sparkSession.conf.get("spark.sql.session.timeZone"))
    type_info = row_type_of(schema)
    source = SparkSource(frame=frame, split=split, bounded=bounded, forgets=forgetting(frame))
    return source, strategy, type_info
