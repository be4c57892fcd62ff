"""Spark's Python daemon with everything imported that a task host needs: its workers are forked, and begin at once.

Spark starts it by name (`spark.python.daemon.module`) on every executor. What cannot be imported there is left for the worker to
stumble over, whose error reaches the driver.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
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
    "penstock.operators.columnar_window",
    "penstock.runtime.pipelined.worker",
)


def main() -> None:
    """Imports, then is Spark's own daemon."""
    for module in _PRELOADED:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
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
