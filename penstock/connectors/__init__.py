"""Connectors: a module each, or a package. What each implements is in `penstock.connectors.base`.

files       Parquet, CSV, NDJSON, text: source and exactly-once sink
kafka       source and exactly-once sink; needs the extra `kafka`
postgres    bounded source and exactly-once sink; needs the extra `postgres`
push        sources that are pushed to: sockets, web hooks
datagen     sources that make their records up
program     values from and to the program itself: `from_collection`, `execute_and_collect`, `print`
function_sink, cache    what `add_sink` and `cache` put behind a stream
staging, sink_values, builder_arguments    what connectors have in common

The names that PyFlink has here, too, are found here when they are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.common.absent import missing_name
from penstock.functions.connectors import DeliveryGuarantee, Sink, Source

if TYPE_CHECKING:
    from penstock.connectors.program import DiscardingSink as DiscardingSink

__all__ = ["DeliveryGuarantee", "Sink", "Source"]

_ELSEWHERE: Final = {
    "DiscardingSink": "program",
    "NumberSequenceSource": "datagen",
    **dict.fromkeys(
        (
            "BucketAssigner",
            "BulkFormat",
            "FileSink",
            "FileSource",
            "FileSourceBuilder",
            "OutputFileConfig",
            "RollingPolicy",
            "StreamFormat",
            "StreamingFileSink",
        ),
        "files",
    ),
    **dict.fromkeys(
        ("FlinkKafkaConsumer", "FlinkKafkaProducer", "KafkaSink", "KafkaSource", "KafkaOffsetsInitializer", "Semantic"),
        "kafka",
    ),
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _ELSEWHERE:
            return getattr(import_module(f"penstock.connectors.{_ELSEWHERE[name]}"), name)
        raise missing_name(__name__, name)
