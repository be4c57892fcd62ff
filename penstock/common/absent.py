"""What PyFlink has and Penstock has not, and what to use instead: the texts of the errors that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

_SPARK_SOURCE: Final = "read it with Spark: env.from_spark(spark.readStream.format(...).load())"
_OWN_SINK: Final = "write a penstock.connectors.base.Sink (a writer and a committer)"
_OWN_SOURCE: Final = "write a penstock.connectors.base.Source (an enumerator and a reader) and use env.from_source"
_JDBC: Final = f"use penstock.connectors.postgres, or {_OWN_SINK}"
_NO_JVM: Final = "there is no Flink in a JVM behind Penstock"

# The longest name that fits is taken.
_MODULES: Final = {
    "pyflink": "Penstock has pyflink.common, pyflink.datastream and pyflink.metrics",
    "pyflink.table": "use the DataStream API, or Spark SQL on a streaming DataFrame and env.from_spark",
    "pyflink.java_gateway": _NO_JVM,
    "pyflink.util": _NO_JVM,
    "pyflink.find_flink_home": _NO_JVM,
    "pyflink.pyflink_gateway_server": _NO_JVM,
    "pyflink.shell": "start Python and create a StreamExecutionEnvironment",
    "pyflink.testing": "use penstock.testing",
    "pyflink.fn_execution": "functions run in Penstock's own slot processes",
    "pyflink.common.io": "InputFormats are Java's: use FileSource, or " + _OWN_SOURCE,
    "pyflink.common": "its public names are in penstock.common",
    "pyflink.datastream": "its public names are in penstock.datastream",
    "pyflink.datastream.connectors": f"{_SPARK_SOURCE}, or {_OWN_SINK}",
    "pyflink.datastream.connectors.jdbc": _JDBC,
    "pyflink.datastream.formats": "there are formats.avro, csv, json and parquet; FileSource and FileSink read and write "
    "Parquet, CSV, NDJSON and text themselves",
}

_NO_JAVA_OBJECT: Final = f"{_NO_JVM}, so there is no object of Java's behind it"

_AVRO_FILES: Final = "no Avro files are read or written: use FileSource and FileSink with Parquet"
_FILES: Final = "FileSource lists folders and deals splits by itself: for_record_stream_format, monitor_continuously"

_NAMES: Final = {
    "AssignerWithPeriodicWatermarksWrapper": "write a WatermarkGenerator and use WatermarkStrategy.for_generator",
    **dict.fromkeys(("AvroBulkWriters", "AvroInputFormat", "AvroSchema", "GenericRecordAvroTypeInfo"), _AVRO_FILES),
    **dict.fromkeys(
        ("AvroParquetReaders", "AvroParquetWriters"),
        "declare a row type and use ParquetColumnarRowInputFormat and ParquetBulkWriters",
    ),
    "CustomCheckpointStorage": "name a folder that every slot reaches: FileSystemCheckpointStorage",
    "CustomStateBackend": "choose HashMapStateBackend or EmbeddedRocksDBStateBackend",
    "CustomTrigger": "subclass penstock.datastream.window.Trigger",
    "ExecutionMode": "leave it out, or choose streaming or batch: env.set_runtime_mode(RuntimeExecutionMode.BATCH)",
    **dict.fromkeys(("FileEnumeratorProvider", "FileSplitAssignerProvider"), _FILES),
    **dict.fromkeys(("JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"), _JDBC),
    "InputFormat": "use FileSource, or " + _OWN_SOURCE,
    "JavaFunctionWrapper": _NO_JVM,
    "MiniClusterClient": "use penstock.testing",
    "SourceFunction": _OWN_SOURCE,
}

_METHODS: Final = {
    "create_input": "InputFormats are Java's: use env.from_source(FileSource…), or " + _OWN_SOURCE,
    "generate_sequence": "use env.from_sequence(start, end)",
    "get_java_function": _NO_JAVA_OBJECT,
    "get_java_memory_size": _NO_JAVA_OBJECT,
    "get_java_output_tag": _NO_JAVA_OBJECT,
    "get_java_slot_sharing_group": _NO_JAVA_OBJECT,
    "get_java_type_info": f"{_NO_JAVA_OBJECT}; what Penstock uses is TypeInformation.to_arrow",
    "to_j_row_kind": _NO_JAVA_OBJECT,
}


def explain(module: str) -> str:
    """Why `module` cannot be imported, and what to do."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        advice = _MODULES.get(".".join(parts[:length]))
        if advice is not None:
            return f"Penstock has no {module}: {advice}. docs/flink.md lists what is here"
    return f"Penstock has no {module}. docs/flink.md lists what is here"


def advice(name: str) -> str | None:
    """What to use instead of a PyFlink class that is not here; None for names that PyFlink has not either."""
    instead = _NAMES.get(name)
    return None if instead is None else f"Penstock has no {name}: {instead}. docs/flink.md lists what is here"


def missing_name(module: str, name: str) -> Exception:
    """For `__getattr__` of modules: the usual error or, for a class that PyFlink has there, one that helps."""
    instead = advice(name)
    if instead is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    # `from … import` replaces the text of an AttributeError, but lets this one through.
    return ImportError(instead, name=module)


def missing_attribute(owner: object, name: str) -> AttributeError:
    """For `__getattr__` of the API's classes: the usual error or, for a method that PyFlink has, one that helps."""
    instead = _METHODS.get(name)
    usual = f"{type(owner).__name__!r} object has no attribute {name!r}"
    text = usual if instead is None else f"{usual}: {instead}. docs/flink.md lists what is here"
    return AttributeError(text, name=name, obj=owner)


class Explaining:
    """A class of PyFlink's: what that one has and this one has not is explained to whoever asks for it."""

    __slots__ = ()

    if not TYPE_CHECKING:  # to a type checker what is not here is simply not here

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)
