"""Spark's Python daemon with everything imported that a task host needs: its workers are forked, and begin at once.

Spark starts it by name (`spark.python.daemon.module`) on every executor. What cannot be imported there is left for the worker to
stumble over, whose error reaches the driver.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from typing import Any

_PRELOADED = (
    "encodings.idna",  # for a host's name
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "pandas",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "penstock.datastream",
    "penstock.connectors.files.source",
    "penstock.operators.columnar_sessions",
    "penstock.operators.columnar_window",
    "penstock.runtime.pipelined.worker",
)


def _read_in_one_thread() -> None:
    """A row passes one thread less on its way in.

    With pipelined UDFs PySpark's worker reads ahead in a thread of its own, from which the host's would take each row over a
    queue; without, a host reads by itself. What the setting means for what goes out stays: a flush after every batch. (The JVM
    does not mind which way a worker reads.)
    """
    serializers: Any = importlib.import_module("pyspark.sql.pandas.serializers")
    original = serializers.ArrowStreamSerializer.__init__

    def flushing(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._flush_per_batch = True

    serializers.ArrowStreamSerializer.__init__ = flushing
    os.environ["SPARK_PIPELINED_UDF"] = "0"


def main() -> None:
    """Imports, then is Spark's own daemon."""
    for module in _PRELOADED:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    if os.environ.get("SPARK_PIPELINED_UDF") == "1":
        _read_in_one_thread()
    gc.collect()
    gc.freeze()  # what is shared with all workers is not written to by their collectors
    daemon: Any = importlib.import_module("pyspark.daemon")
    serve = daemon.worker

    def worker(*args: Any) -> Any:
        """When the last level of a job has ended Spark hangs up on the others, whose last word nobody needs."""
        try:
            return serve(*args)
        except BrokenPipeError:
            return 1

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
