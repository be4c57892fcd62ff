"""PostgresSource against a real server: a bounded read in ranges of a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.base import Source
from penstock.connectors.postgres import PostgresError, PostgresSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import ConfigurationError
from penstock.testing import CrashPlan, SourceContract
from tests.postgres.jobs import append_sink, embedded
from tests.servers.postgres import PostgresServer


def source(postgres: PostgresServer, query: str, key: str, chunk: int = 7) -> PostgresSource:
    builder = PostgresSource.builder().set_connection(postgres.conninfo).set_query(query).set_split_column(key)
    return builder.set_splits(3).set_chunk_size(chunk).build()


def read_all(made: PostgresSource, *, block_size: int = 4, max_records: int | None = None) -> list[Any]:
    """All plans to their end, each by an enumerator of its own that was restored, and every range read twice."""
    state, found, reader = None, list[Any](), made.create_reader()
    for _ in range(1000):
        enumerator = made.create_enumerator()
        if state is not None:
            enumerator.restore(state)
        plan = enumerator.plan(now_ms=0, max_records=max_records)
        enumerator.close()
        assert [split.ordinal for split in plan.ranges] == [0, 1, 2]
        for split in plan.ranges:
            rows = [row for block in reader.read(split, block_size) for row in block.values]  # type: ignore[union-attr]
            again = [row for block in reader.read(split, 1000) for row in block.values]  # type: ignore[union-attr]
            assert rows == again
            found += rows
        state = plan.state
        if plan.finished:
            reader.close()
            return found
    raise AssertionError("it does not end")


class TestContract(SourceContract):
    records = 60
    fixed_splits = False  # ranges of the key go round robin

    @pytest.fixture(autouse=True)
    def _table(self, postgres: PostgresServer, table: str) -> None:
        self.postgres, self.table = postgres, table
        postgres.sql(f"create table {table} as select n as id, 'v' || n as v from generate_series(1, 60) n")

    def source(self, folder: Path) -> Source:
        return source(self.postgres, f"select id, v from {self.table}", "id")


@pytest.mark.parametrize("count", [0, 1, 6, 7, 21, 22, 100])
def test_every_row_is_read_once_in_order_whatever_the_sizes(count: int, postgres: PostgresServer, table: str) -> None:
    postgres.sql(f"create table {table} as select n as id, 'v' || n as v from generate_series(1, {count}) n")
    expected = [(n, f"v{n}") for n in range(1, count + 1)]
    made = source(postgres, f"select id, v from {table}", "id")
    assert [(row["id"], row["v"]) for row in read_all(made)] == expected
    assert [(row["id"], row["v"]) for row in read_all(made, max_records=5)] == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", "chr(65 + n % 50) || n"),
        ("timestamptz", "to_timestamp(n * 1.234567)"),
        ("numeric", "n * 0.1"),
        ("uuid", "md5(n::text)::uuid"),
    ],
)
def test_any_type_with_an_order_can_be_the_key(kind: str, value: str, postgres: PostgresServer, table: str) -> None:
    postgres.sql(f"create table {table} as select ({value})::{kind} as k, n from generate_series(1, 50) n")
    rows = read_all(source(postgres, f"select k, n from {table} where 'a%' like '%%'", "k"))
    assert sorted(row["n"] for row in rows) == list(range(1, 51))


def test_rows_of_one_key_stay_together(postgres: PostgresServer, table: str) -> None:
    postgres.sql(f"create table {table} as select n / 40 as k, n from generate_series(0, 99) n")
    rows = read_all(source(postgres, f"select k, n from {table}", "k"))
    assert sorted(row["n"] for row in rows) == list(range(100))


def test_rows_above_the_highest_key_of_the_start_are_not_read(postgres: PostgresServer, table: str) -> None:
    postgres.sql(f"create table {table} as select n as id from generate_series(1, 30) n")
    made = source(postgres, f"select id from {table}", "id")
    enumerator = made.create_enumerator()
    first = enumerator.plan(now_ms=0, max_records=None)
    enumerator.close()
    postgres.sql(f"insert into {table} values (31), (32)")
    enumerator = made.create_enumerator()
    enumerator.restore(first.state)
    second = enumerator.plan(now_ms=0, max_records=None)
    enumerator.close()
    assert (first.records, first.finished) == (21, False)
    assert (second.records, second.finished) == (9, True)


def test_rows_without_a_key_and_wrong_columns_are_refused(postgres: PostgresServer, table: str) -> None:
    postgres.sql(f"create table {table} as select 1 as id union all select null")
    with pytest.raises(PostgresError, match=r"1 rows of .* have no id and would be in no range"):
        read_all(source(postgres, f"select id from {table}", "id"))
    with pytest.raises(PostgresError, match=f"select id from {table}.* by other.*does not exist"):
        read_all(source(postgres, f"select id from {table}", "other"))
    with pytest.raises(ConfigurationError, match="set_split_column"):
        PostgresSource.builder().set_table("t").build()


# Columns, and their values as SQL of n.
TYPES = [
    ('"Key of ""x""" bigint primary key', "n"),
    ('"order" text', r"e'tab\t \\ back, line\n ' || n"),
    ("flag boolean", "n % 2 = 0"),
    ("small smallint", "n"),
    ("double float8", "1.0 / n"),
    ("single real", "n / 7.0"),
    ("exact numeric(20,6)", "n / 3.0"),
    ("raw bytea", "decode(md5(n::text), 'hex')"),
    ("day date", "date '2026-01-01' + n"),
    ("bare timestamp", "timestamp '2026-01-01' + n * interval '1.5 s'"),
    ("zoned timestamptz", "to_timestamp(n * 1e5 + 0.000001)"),
    ("clock time", "time '01:02:03.04'"),
    ("span interval", "n * interval '1 day 1.25 s'"),
    ("id uuid", "md5(n::text)::uuid"),
    ("words text[]", r"""array['a,b', null, e'q" \\', n::text]"""),
    ("grid int[]", "array[[n, 2], [3, 4]]"),
    ("doc jsonb", "jsonb_build_object('n', n, 'list', array[n, null], 'text', e'é\"\t')"),
    ("short char(4)", "'ab'"),
]


def test_a_copy_of_a_table_has_the_same_values_of_every_type_and_the_same_odd_names(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql('create schema if not exists "Copies"')
    old, new = f'"Copies"."{table} old"', f'"Copies"."{table} new"'
    for name in (old, new):
        columns = ", ".join(column for column, _ in TYPES)
        postgres.sql(f"create table {name} ({columns})")
    postgres.sql(f"insert into {old} select {', '.join(value for _, value in TYPES)} from generate_series(1, 20) n")
    postgres.sql(f'insert into {old} ("Key of ""x""") values (21)')  # nulls everywhere else
    read = PostgresSource.builder().set_connection(postgres.conninfo).set_table(old).set_split_column('Key of "x"')

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(read.build(), WatermarkStrategy.no_watermarks(), "old")
        rows.sink_to(append_sink(postgres.conninfo, new))

    embedded(tmp_path, build).run()
    assert postgres.sql(f"select count(*) from {new}") == [(21,)]
    assert postgres.sql(f"select o::text from {old} o except select n::text from {new} n") == []


def test_a_table_is_copied_exactly_once_through_crashes(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} as select n as id, md5(n::text) as v from generate_series(1, 200) n")
    postgres.sql(f"create table {table}_copy (id int, v text)")
    read = PostgresSource.builder().set_connection(postgres.conninfo).set_table(table).set_split_column("id").build()

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_source(read, WatermarkStrategy.no_watermarks(), "in")
        kind = Types.ROW_NAMED(["id", "v"], [Types.INT(), Types.STRING()])
        rows.map(lambda row: row, kind).sink_to(append_sink(postgres.conninfo, f"{table}_copy")).uid("out")

    crashes = CrashPlan([("after-manifest", 2), ("before-manifest", 4)])
    embedded(tmp_path, build, {"penstock.epoch.max-records": "40"}, crashes).run()
    assert len(crashes.fired) == 2
    assert postgres.sql(f"select * from {table}_copy order by id") == postgres.sql(f"select * from {table} order by id")


def test_a_query_that_can_never_work_ends_the_job_at_once(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    read = PostgresSource.builder().set_connection(postgres.conninfo).set_table(table).set_split_column("id").build()

    def build(env: StreamExecutionEnvironment) -> None:
        env.from_source(read, WatermarkStrategy.no_watermarks(), "in").print()

    job = embedded(tmp_path, build)
    with pytest.raises(ConfigurationError, match=f'relation "{table}" does not exist'):
        job.run()
    assert job.failures == 0


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("splits", 0, "set_splits takes a whole number above 0, not 0"),
        ("chunk_size", None, "set_chunk_size takes a whole number"),
        ("query", " ", "set_query takes a text"),
        ("split_column", None, "set_split_column takes a text"),
        ("connection", None, "as text, not NoneType"),
    ],
)
def test_arguments_are_checked_when_they_are_given(setting: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        getattr(PostgresSource.builder(), f"set_{setting}")(value)
