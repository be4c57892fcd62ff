"""Flink SQL: all of it on the JVM, no Python but this client's. A checkpoint every second, state on the heap."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from pyflink.common import Configuration  # type: ignore[import-not-found,unused-ignore]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.program import Job, main

_DISORDER_S: Final = 5
_WINDOW_S: Final = 10


def millis(timestamp: str) -> str:
    """A timestamp without a zone as milliseconds since 1970, in SQL."""
    seconds = f"CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {timestamp}) AS BIGINT)"
    return f"({seconds} * 1000 + EXTRACT(MILLISECOND FROM {timestamp}))"


# (columns of the result, query)
_QUERIES: Final = {
    "W1": (
        "`key` BIGINT, price BIGINT",
        "SELECT `key`, amount * 2 FROM events WHERE MOD(amount * 2, 4) = 0",
    ),
    "W2": (
        "`key` BIGINT, window_begin BIGINT, `number` BIGINT, total BIGINT",
        f"SELECT `key`, {millis('window_start')}, COUNT(*), SUM(amount) FROM "
        f"TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '{_WINDOW_S}' SECOND)) "
        "GROUP BY `key`, window_start, window_end",
    ),
    "W3": (
        "`key` BIGINT, total BIGINT",
        "SELECT `key`, SUM(amount) OVER (PARTITION BY `key` ORDER BY came ROWS UNBOUNDED PRECEDING) FROM events",
    ),
}


def environment(spec: Mapping[str, Any]) -> Any:
    """Two of each, as the Nexmark project sets Flink up: objects are reused, changes of aggregates are gathered."""
    config = Configuration()
    for key, value in {
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{spec['folder']}/checkpoints",
        "pipeline.object-reuse": "true",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
        "pipeline.jars": ";".join(f"file://{jar}" for jar in spec["jars"]),
        "python.client.executable": sys.executable,
    }.items():
        config.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(config).build()
    return TableEnvironment.create(settings)


def job(name: str) -> Job:
    """One workload."""
    columns, query = _QUERIES[name]

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        tables = environment(spec)
        tables.execute_sql(
            "CREATE TABLE events (`key` BIGINT, event_time BIGINT, amount BIGINT, came AS PROCTIME(), "
            "`at` AS TO_TIMESTAMP_LTZ(event_time, 3), "
            f"WATERMARK FOR `at` AS `at` - INTERVAL '{_DISORDER_S}' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = 'file://{source}', 'format' = 'parquet')"
        )
        kept = f"'connector' = 'filesystem', 'path' = 'file://{output}', 'format' = 'csv'"
        sink = kept if output else "'connector' = 'blackhole'"
        tables.execute_sql(f"CREATE TABLE results ({columns}) WITH ({sink})")
        tables.execute_sql(f"INSERT INTO results {query}").wait()

    return run


if __name__ == "__main__":
    main({name: job(name) for name in _QUERIES})
