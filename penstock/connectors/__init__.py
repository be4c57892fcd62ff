"""Connectors: a module each, or a package. What each implements is in `penstock.connectors.base`.

files       Parquet, CSV, NDJSON, text: source and exactly-once sink
kafka       source and exactly-once sink; needs the extra `kafka`
postgres    bounded source and exactly-once sink; needs the extra `postgres`
push        sources that are pushed to: sockets, web hooks
datagen     a source that makes its records up
program     values from and to the program itself: `from_collection`, `execute_and_collect`, `print`
function_sink, cache    what `add_sink` and `cache` put behind a stream
staging, sink_values, builder_arguments    what connectors have in common
"""

from penstock.functions.connectors import DeliveryGuarantee, Sink, Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
