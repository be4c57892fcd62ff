"""Spark's own Kafka connector as a source: python -m tests.kafka.from_spark_job <folder> <servers> <topic> <jars>.

In a process of its own, because the connector's jars must be there when the JVM starts. Resumes <folder>/job by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.common import Configuration, Duration, Time, WatermarkStrategy
from penstock.connectors.files import FileSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.aggregates import count, sum_
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.runtime.epochs.session import spark_session

WINDOW_MS = 1000


def main(folder: Path, servers: str, topic: str, jars: str) -> None:
    spark = spark_session({"spark.master": "local[2,4]", "spark.jars": jars})
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .load()
        .selectExpr("partition", "timestamp", "cast(cast(value as string) as long) number")
        .selectExpr("partition", "timestamp", "number", "number % 7 user")
    )
    config = Configuration()
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10))
    (
        env.from_spark(frame, split="partition", timestamp="timestamp", watermark_strategy=strategy, bounded=True)
        .key_by("user")
        .window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .agg(n=count(), total=sum_("number"))
        .sink_to(FileSink.parquet(str(folder / "out")))
    )
    env.execute("from Spark's connector")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
