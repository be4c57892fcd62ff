"""Jobs into PostgreSQL on the embedded runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.checkpoint.storage import LocalStorage
from penstock.common import Types
from penstock.connectors.base import Committer, WriterContext
from penstock.connectors.postgres import PostgresSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.records import Block, Rows
from tests.kafka.jobs import embedded, environment
from tests.servers.postgres import PostgresServer

__all__ = [
    "MAX",
    "RECORDS",
    "append_sink",
    "assert_exact",
    "counting",
    "embedded",
    "environment",
    "staged",
    "upsert_sink",
]

RECORDS = 300
MAX = {"penstock.epoch.max-records": "60"}
KEYS = 10
committers: list[Committer] = []  # closed when the test ends


def append_sink(conninfo: str, table: str, wait_ms: int = 15_000, columns: Sequence[str] | None = None) -> PostgresSink:
    builder = PostgresSink.builder().set_connection(conninfo).set_table(table).set_wait_ms(wait_ms)
    return (builder if columns is None else builder.set_columns(columns)).build()


def upsert_sink(conninfo: str, table: str, wait_ms: int = 15_000) -> PostgresSink:
    builder = PostgresSink.builder().set_connection(conninfo).set_table(table).set_wait_ms(wait_ms)
    return builder.set_columns(["key", "count", "last"]).set_upsert_keys(["key"]).build()


def _count(a: Any, b: Any) -> Any:
    return a[0], a[1] + 1, b[2]


def counting(conninfo: str, table: str, wait_ms: int = 15_000) -> Callable[[StreamExecutionEnvironment], None]:
    """Every record is appended to <table>_log, and the count and last record of each key upserted into <table>."""

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.from_sequence(0, RECORDS - 1).map(lambda n: (n % KEYS, 1, n), Types.PICKLED_BYTE_ARRAY())
        counts = numbers.key_by(lambda value: value[0]).reduce(_count)
        counts.sink_to(upsert_sink(conninfo, table, wait_ms)).uid("counts")
        counts.sink_to(append_sink(conninfo, f"{table}_log", wait_ms, ["key", "count", "last"])).uid("log")

    return build


def create_tables(server: PostgresServer, table: str) -> None:
    server.sql(f"create table {table} (key int primary key, count bigint not null, last bigint)")
    server.sql(f"create table {table}_log (key int, count bigint, last bigint)")


def assert_exact(server: PostgresServer, table: str) -> None:
    """The log has each record once, and the upserted table the newest of each key."""
    expected = [(n % KEYS, n // KEYS + 1, n) for n in range(RECORDS)]
    assert sorted(server.sql(f"select key, count, last from {table}_log"), key=lambda row: row[2]) == expected
    assert server.sql(f"select key, count, last from {table} order by key") == expected[-KEYS:]


def staged(
    sink: PostgresSink, folder: Path, epoch: int, blocks: Block | list[Any]
) -> tuple[LocalStorage, Committer, list[Any]]:
    """What a writer stages for one epoch, and a committer of its own."""
    storage = LocalStorage(folder)
    writer = sink.create_writer(WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1, storage=storage))
    writer.begin_epoch(epoch, "a")
    writer.write(Rows(blocks) if isinstance(blocks, list) else blocks)
    committer = sink.create_committer("out")
    committer.open(storage)
    committers.append(committer)
    return storage, committer, writer.prepare_commit()
