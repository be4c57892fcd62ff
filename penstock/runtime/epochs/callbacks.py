"""The connections over which Spark's JVM calls `foreachBatch` functions of this process.

Py4J opens one for each thread of the JVM that calls, and a query is a thread: it keeps a connection after its query has
ended, with a socket on both sides and a thread on ours, so a job that restarts for weeks would collect them.
"""

from __future__ import annotations

from pyspark.sql import SparkSession


def close_unused_callbacks(session: SparkSession) -> None:
    """Close the connections that no query has used since this was last called. A query that is alive gets a new one when it
    calls again. There is no public way to the gateway; without one (another kind of session) there is nothing to close."""
    gateway = getattr(session.sparkContext, "_gateway", None)
    if gateway is not None:
        gateway.java_gateway_server.getCallbackClient().periodicCleanup()
