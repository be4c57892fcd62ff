"""The competitors: rows of one function into one table, by hand and by Penstock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from benchmarks.sides import environment, main, steady

COLUMNS = ("id", "shop", "amount", "note")
APPENDED = "create table {} (id bigint not null, shop text, amount bigint, note text)"
UPSERTED = "create table {} (id bigint primary key, shop text, amount bigint, note text)"
_NOTE = "x" * 60
# By hand, too, something must say after a crash which batches are there: a row in the same transaction.
_PROGRESS = "create table if not exists plain_progress (loop text primary key, done bigint not null)"


class Rows:
    """Row n, about 90 bytes; `keys`: how many different ids there are."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, n: int) -> tuple[int, str, int, str]:
        return n * 7919 % self.keys, f"shop-{n % 1000}", n, _NOTE


def _batches(spec: dict[str, Any]) -> Iterator[list[tuple[Any, ...]]]:
    rows = Rows(spec["keys"])
    for start in range(0, spec["records"], spec["batch"]):
        yield [rows(n) for n in range(start, min(start + spec["batch"], spec["records"]))]


def _loop(spec: dict[str, Any], write: Callable[[Any, list[tuple[Any, ...]]], None]) -> dict[str, Any]:
    """A transaction for each batch. As with Penstock's, the time of the first is not measured."""
    with psycopg.connect(spec["conninfo"]) as connection:
        connection.execute(_PROGRESS)
        connection.commit()
        done, measured, started = 0, 0, 0.0
        for batch in _batches(spec):
            if measured or done:
                measured += len(batch)
            write(connection, batch)
            done += len(batch)
            connection.execute(
                "insert into plain_progress values (%s, %s) on conflict (loop) do update set done = excluded.done",
                (spec["table"], done),
            )
            connection.commit()
            started = started or time.perf_counter()
        return {"records": measured, "seconds": time.perf_counter() - started}


def copy_loop(spec: dict[str, Any]) -> dict[str, Any]:
    def write(connection: Any, batch: list[tuple[Any, ...]]) -> None:
        with connection.cursor().copy(f"copy {spec['table']} ({', '.join(COLUMNS)}) from stdin") as copy:
            for row in batch:
                copy.write_row(row)

    return _loop(spec, write)


_NEWS = "create temp table news (id bigint, shop text, amount bigint, note text, place bigserial) on commit drop"
_MERGE = """
insert into {} select distinct on (id) id, shop, amount, note from news order by id, place desc
on conflict (id) do update set shop = excluded.shop, amount = excluded.amount, note = excluded.note
"""


def merge_loop(spec: dict[str, Any]) -> dict[str, Any]:
    """Upserts as one writes them for speed: COPY into a temporary table, then one INSERT … ON CONFLICT."""

    def write(connection: Any, batch: list[tuple[Any, ...]]) -> None:
        connection.execute(
            "create temp table news (id bigint, shop text, amount bigint, note text, place bigserial) on commit drop"
        )
        with connection.cursor().copy(f"copy news ({', '.join(COLUMNS)}) from stdin") as copy:
            for row in batch:
                copy.write_row(row)
        connection.execute(_MERGE.format(spec["table"]))

    return _loop(spec, write)


def executemany_loop(spec: dict[str, Any]) -> dict[str, Any]:
    """Upserts as one writes them first: a statement for each row, sent in psycopg's pipeline."""

    def write(connection: Any, batch: list[tuple[Any, ...]]) -> None:
        connection.cursor().executemany(
            f"insert into {spec['table']} values (%s, %s, %s, %s) on conflict (id) do update set shop = excluded.shop, "
            "amount = excluded.amount, note = excluded.note",
            batch,
        )

    return _loop(spec, write)


def penstock(spec: dict[str, Any]) -> dict[str, Any]:
    from penstock.common import WatermarkStrategy
    from penstock.connectors.datagen import DataGeneratorSource
    from penstock.connectors.postgres import PostgresSink

    env = environment(spec)
    builder = PostgresSink.builder().set_connection(spec["conninfo"]).set_table(spec["table"]).set_columns(COLUMNS)
    if spec["upsert"]:
        builder.set_upsert_keys(["id"])
    source = DataGeneratorSource(Rows(spec["keys"]), spec["records"], splits=2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
    stream.sink_to(builder.build()).uid("out")
    client = env.execute_async("postgres")
    client.get_job_execution_result().result()
    return steady(client.epoch_reports(), 2)


SIDES = {"copy": copy_loop, "merge": merge_loop, "executemany": executemany_loop, "penstock": penstock}

if __name__ == "__main__":
    main(SIDES)
