"""Penstock's sources for plain PySpark: `read_stream(spark, source, schema)` is a streaming DataFrame like any other.

A Penstock job does not need this (its slots read the splits themselves); it is for everyone else on the same cluster.
One adapter serves every source: Spark's offset is the enumerator's state together with the ranges that led to it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.common.time import now_ms
from penstock.errors import PenstockError
from penstock.functions.connectors import Source, SplitRange
from penstock.records import Block, Columns, SideRows
from penstock.records.exact_arrays import exact_array
from penstock.runtime.epochs.arrow_schema import arrow_schema

FORMAT = "penstock"
_BLOCK = 10_000


def read_stream(spark: SparkSession, source: Source, schema: StructType | str) -> DataFrame:
    """A streaming DataFrame over `source`, whose records are columns, or rows that fit `schema` by position."""
    spark.dataSource.register(PenstockDataSource)
    encoded = base64.b64encode(cloudpickle.dumps(source)).decode()
    return spark.readStream.format(FORMAT).schema(schema).option("source", encoded).load()


class _Range(InputPartition):
    def __init__(self, split: SplitRange) -> None:
        super().__init__(split)
        self.split = split


class PenstockDataSource(DataSource):
    """A Penstock source as a streaming data source of Spark's."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType | str:
        raise PenstockError("give a schema: penstock.spark.data_source.read_stream(spark, source, schema)")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if "source" not in self.options:
            raise PenstockError(
                f"format {FORMAT!r} needs a source: use penstock.spark.data_source.read_stream(spark, source, schema)"
            )
        return _Reader(cloudpickle.loads(base64.b64decode(self.options["source"])), schema)


class _Reader(DataSourceStreamReader):
    def __init__(self, source: Source, schema: StructType) -> None:
        self._source, self._schema = source, schema

    def initialOffset(self) -> dict[str, Any]:
        return {"state": None, "ranges": [], "finished": False}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """A function of `start` but for the clock: every call makes its enumerator anew, so a restart needs no memory."""
        if start["finished"]:
            return start
        enumerator = self._source.create_enumerator()
        try:
            if start["state"] is not None:
                enumerator.restore(start["state"])
            plan = enumerator.plan(now_ms=now_ms(), max_records=getattr(limit, "max_rows", None))
        finally:
            enumerator.close()
        if all(r.start == r.end for r in plan.ranges) and not plan.finished:
            return start
        return {"state": plan.state, "ranges": [asdict(r) for r in plan.ranges], "finished": plan.finished}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[_Range]:
        if start == end:
            return []
        return [_Range(SplitRange(**r)) for r in end["ranges"] if r["start"] != r["end"]]

    def read(self, partition: _Range) -> Iterator[Any]:  # type: ignore[override]  # Spark hands back what `partitions` gave
        reader = self._source.create_reader()
        arrow = arrow_schema(self._schema, "UTC")  # of columns of instants, whatever the session's zone is
        try:
            for block in reader.read(partition.split, _BLOCK):
                if isinstance(block, SideRows):  # a DataFrame has no side outputs
                    continue
                yield _to_batch(block, arrow)
        finally:
            reader.close()


def _to_batch(block: Block, schema: pa.Schema) -> pa.RecordBatch:
    if isinstance(block, Columns):
        return block.batch.select(schema.names).cast(schema)
    values = [value if isinstance(value, (tuple, list)) else (value,) for value in block.values]
    columns = list(zip(*values, strict=True)) or [()] * len(schema)
    return pa.RecordBatch.from_arrays(
        [exact_array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
