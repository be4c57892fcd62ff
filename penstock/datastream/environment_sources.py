"""The sources of a program: what `StreamExecutionEnvironment` reads from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions
from penstock.common.typeinfo import TypeInformation, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.connectors.files import FileSource
from penstock.connectors.program import CollectionSource
from penstock.connectors.push import PushSource, SocketTextReceiver
from penstock.datastream.data_stream import DataStream
from penstock.errors import JobDefinitionError
from penstock.functions.connectors import Source
from penstock.operators.source import SourceOperator
from penstock.protocol.ids import NodeId
from penstock.records.narrowing import narrowed
from penstock.records.typed import Typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

R = TypeVar("R")


class EnvironmentSources:
    """Part of `StreamExecutionEnvironment`."""

    _configuration: Configuration
    _spark_frames: dict[NodeId, Any]
    _bounded_frames: set[NodeId]

    if TYPE_CHECKING:

        def get_parallelism(self) -> int: ...

        def _source(
            self, operator: SourceOperator, name: str, parallelism: int, type_info: TypeInformation | None
        ) -> DataStream: ...

    @overload
    def from_collection(self, collection: Sequence[R]) -> DataStream[R]: ...

    @overload
    def from_collection(self, collection: Sequence[Any], type_info: TypeInformation | None) -> DataStream: ...

    def from_collection(self, collection: Sequence[Any], type_info: TypeInformation | None = None) -> DataStream:
        """A bounded stream of the given values; not parallel, as in Flink. They must be of the type that is declared; whole
        numbers that are too large for it lose their upper bits, as in Flink, with a warning.

        Example:

            env.from_collection([("a", 1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.INT()]))  # gives [("a", 1), ("b", 2)]
        """
        values = list(collection)
        if isinstance(type_info, TypeInformation):  # anything else is refused below
            values = Typed(type_info, "from_collection").values(narrowed(values, type_info))
        source = CollectionSource(values, type_info)
        return self._source(
            SourceOperator(source, WatermarkStrategy.no_watermarks()), "Collection Source", 1, type_info
        )._not_parallel()

    def from_sequence(self, start: int, end: int) -> DataStream[int]:
        """The numbers from `start` to `end`, both included: bounded, and read in parallel, so in no particular order.

        Example:

            env.from_sequence(1, 4)  # gives [1, 2, 3, 4]
        """
        if start > end:
            raise JobDefinitionError(f"from_sequence: the start ({start}) must not be above the end ({end})")
        source = NumberSequenceSource(start, end)
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Sequence Source")

    def read_text_file(self, file_path: str | os.PathLike[str], charset_name: str = "UTF-8") -> DataStream[str]:
        """The lines of a file, or of the files of a folder, as they are now. `FileSource.text` has more options.

        Example:

            env.read_text_file("lines.txt").map(len)  # gives [12, 6]
        """
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
    ) -> DataStream[str]:
        """Text from a TCP server (Java's socketTextStream; not in PyFlink). Not parallel; timestamps are the time of receipt.

        A socket cannot be asked again. With `receive_log`, a folder of this source's own that every slot can read, a
        record is on disk before the job knows of it and takes effect exactly once; without it, records that wait for
        their epoch are lost when the driver dies or the job goes back to a checkpoint. See docs/howto/sockets.md.

        Example:

            env.socket_text_stream("localhost", 9999, receive_log="/data/received").print()
        """
        source = PushSource(
            SocketTextReceiver(host, port, delimiter, max_retry),
            receive_log=receive_log,
            retained_checkpoints=CheckpointingOptions.NUM_RETAINED.get(self._configuration),
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
        """Watermarks are made per split, and the stream's is the minimum over the splits that are not idle.

        Example:

            env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers")  # gives [1, 2, 3]
        """
        if not isinstance(source, Source):
            raise JobDefinitionError(
                f"from_source takes a Penstock source (a penstock.functions.connectors.Source), not {type(source).__name__}; "
                "a streaming DataFrame of Spark's goes to from_spark"
            )
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise JobDefinitionError(
                f"from_source of {source_name!r} takes a WatermarkStrategy, not a {type(watermark_strategy).__name__}; for "
                "processing time only: WatermarkStrategy.no_watermarks()"
            )
        produced = type_info if type_info is not None else source.produced_type
        return self._source(SourceOperator(source, watermark_strategy), source_name, self.get_parallelism(), produced)

    def add_source(
        self, source_func: Source, source_name: str = "Custom Source", type_info: TypeInformation | None = None
    ) -> DataStream:
        """As `from_source` without watermarks: PyFlink's older way, for a connector's source such as `FlinkKafkaConsumer`. Sources
        written in Java are refused.

        Example:

            env.add_source(NumberSequenceSource(1, 3), "numbers")  # gives [1, 2, 3]
        """
        if not isinstance(source_func, Source):
            raise JobDefinitionError(
                f"add_source takes a source of Penstock's, not {type(source_func).__name__}: write a "
                "penstock.connectors.base.Source (an enumerator and a reader), and use from_source"
            )
        return self.from_source(source_func, WatermarkStrategy.no_watermarks(), source_name, type_info)

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

        Example:

            frame = spark.readStream.schema("user string, at timestamp").json("/data/in")
            env.from_spark(frame, timestamp="at", watermark_strategy=WatermarkStrategy.for_monotonous_timestamps())
        """
        from penstock.runtime.epochs.source import spark_source

        strategy = watermark_strategy or WatermarkStrategy.no_watermarks()
        if strategy.alignment is not None:
            raise JobDefinitionError(
                f"from_spark of {source_name!r}: Spark decides what it reads, so it cannot wait for other sources; leave out "
                "with_watermark_alignment"
            )
        frame, strategy, type_info = spark_source(streaming_df, split, timestamp, strategy, bounded)
        stream = self._source(SourceOperator(None, strategy), source_name, self.get_parallelism(), type_info)
        self._spark_frames[stream._origins[0].node.id] = frame
        if bounded:
            self._bounded_frames.add(stream._origins[0].node.id)
        return stream
