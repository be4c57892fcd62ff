"""What PostgreSQL does not take: found while the epoch runs where that can be known, and never a job that restarts for ever."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import Row, RowKind, Types
from penstock.connectors.postgres import PostgresSink
from penstock.connectors.postgres.rejected import MOST_REJECTED
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import BadRecordError, CommitRefusedError, ConfigurationError, PenstockError
from penstock.records import Columns
from penstock.testing import CrashPlan
from tests.postgres.jobs import MAX, append_sink, embedded, staged
from tests.servers.postgres import PostgresServer


def write(postgres: PostgresServer, table: str, folder: Path, blocks: Any) -> None:
    _, committer, output = staged(append_sink(postgres.conninfo, table), folder, 1, blocks)
    committer.commit(1, output)


@pytest.fixture(scope="module")
def odd_types(postgres_server: PostgresServer) -> None:
    postgres_server.sql("create type mood as enum ('fine', 'bad')")
    postgres_server.sql("create domain positive as int check (value > 0)")


@pytest.mark.usefixtures("odd_types")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("real", [1e38, 0.0, float("inf"), 1e-40, None], [1e39, -1e39, 1e-60]),
        ("double precision", [1, decimal.Decimal("1e300"), float("nan")], [10**400, decimal.Decimal("1e999")]),
        ("numeric", [10**400, decimal.Decimal("1e5000")], [decimal.Decimal("1e200000"), decimal.Decimal("sNaN")]),
        ("numeric(3,-2)", [99_949], [99_951]),
        ("jsonb", [{"a": "é"}, '"\\u00e9"', '"\\\\u0000"'], [{"a": "\x00"}, '["\\u0000"]', "NaN", '"\\ud800"', "1e200000"]),
        ("json", [{"a": "\x00"}], ['{"a": Infinity}']),
        ("date", ["2026-01-31", "January 8, 1999", datetime.date.max], ["2026-02-30", "soon", ""]),
        ("timestamp", ["2026-01-31T12:00:00.5Z", "2026-01-31 12:00", "now"], ["2026-01-31T25:00", "2026-13-01 00:00:00"]),
        ("timestamptz", [datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=23)))], ["x"]),
        ("uuid", ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"], ["6ba7b810"]),
        ("int[]", [[1, None], [[1], [2]]], [[[1, 2], [3]], [1, [2]]]),
        ("interval", [datetime.timedelta(days=-1, seconds=3), "1 day"], ["one day", True]),
        ("mood", ["fine"], ["excited", 1]),
        ("positive", [1], [0, "one"]),
        ("inet", ["127.0.0.1"], ["127.0.0.256"]),
        ("bit(3)", ["101"], ["10"]),
    ],
)  # fmt: skip
def test_a_value_that_a_type_does_not_take_is_refused_while_the_epoch_runs(
    kind: str, good: list[Any], bad: list[Any], postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (n int, v {kind})")
    write(postgres, table, tmp_path, [{"n": n, "v": value} for n, value in enumerate(good)])
    assert postgres.sql(f"select count(*) from {table}") == [(len(good),)]
    for value in bad:
        rows = [{"n": 1, "v": good[0]}, {"n": 2, "v": value}]
        with pytest.raises(BadRecordError, match=rf"PostgresSink out: table {table}, column v.* record is .*'n'"):
            staged(append_sink(postgres.conninfo, table), tmp_path, 2, rows)


def test_columns_are_checked_as_rows_are(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} (r real, d date, at timestamptz, check (r < 100))")
    for column, values, message in (
        ("r", pa.array([1.0, 1e39]), r"column r \(real\): 1e\+39 is out of range"),
        ("r", pa.array([1.0, 100.0]), "violates check constraint .* The first such record is {'r': '100'}"),
        ("d", pa.array(["2026-01-01", "soon"]), "column d: the database would refuse it.*soon"),
        ("at", pa.array([-(2**62)], pa.timestamp("us", "UTC")), "cannot be read"),
    ):
        with pytest.raises(BadRecordError, match=f"table {table}.*{message}"):
            staged(append_sink(postgres.conninfo, table), tmp_path, 1, Columns(pa.record_batch({column: values})))


def test_instants_in_arrays_reach_columns_without_a_zone_in_utc(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (v timestamp[])")
    paris = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    write(postgres, table, tmp_path, [{"v": [paris, None]}])
    assert postgres.sql(f"select v from {table}") == [([datetime.datetime(2026, 1, 2, 11), None],)]


def test_a_row_that_deletes_needs_only_its_keys(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} (k int primary key, v text not null check (v <> ''))")
    builder = PostgresSink.builder().set_connection(postgres.conninfo).set_table(table)
    sink = builder.set_columns(["k", "v"]).set_upsert_keys(["k"]).build()
    gone = Row(1, None)
    gone.set_row_kind(RowKind.DELETE)
    _, committer, output = staged(sink, tmp_path, 1, [Row(1, "a"), Row(2, "b"), gone])
    committer.commit(1, output)
    assert postgres.sql(f"select * from {table}") == [(2, "b")]
    with pytest.raises(BadRecordError, match=r"column v .*None is null"):
        staged(sink, tmp_path, 2, [Row(1, None), gone])


# ---------------------------------------------------------------- what only a commit can tell


def _numbers(sink: PostgresSink, count: int = 120) -> Callable[[StreamExecutionEnvironment], None]:
    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.from_sequence(0, count - 1).map(lambda n: Row(n=n), Types.PICKLED_BYTE_ARRAY())
        rows.sink_to(sink).uid("numbers")

    return build


@pytest.mark.parametrize(
    ("table_of", "constraint", "repair"),
    [
        ("(n int) partition by range (n)", "no partition of relation", "create table {}_rest partition of {} default"),
        ("(n int references {}_other deferrable initially deferred)", "_n_fkey", "alter table {} drop constraint {}_n_fkey"),
        ("(n int)", "not so fast", "drop trigger guard on {}"),
    ],
)  # fmt: skip
def test_a_refused_commit_ends_the_job_and_a_repaired_table_gets_the_epoch_exactly_once(
    table_of: str, constraint: str, repair: str, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table}_other (n int primary key)")
    postgres.sql(f"insert into {table}_other select generate_series(0, 69)")
    postgres.sql(f"create table {table} {table_of.format(table)}")
    if "partition" in table_of:
        postgres.sql(f"create table {table}_low partition of {table} for values from (0) to (70)")
    elif "references" not in table_of:
        postgres.sql(
            f"create function {table}_guard() returns trigger language plpgsql as "
            "$$begin if new.n >= 70 then raise exception 'not so fast'; end if; return new; end$$"
        )
        postgres.sql(f"create trigger guard before insert on {table} for each row execute function {table}_guard()")
    build = _numbers(append_sink(postgres.conninfo, table))
    job = embedded(tmp_path, build, MAX)
    with pytest.raises(
        CommitRefusedError, match=f"PostgresSink numbers: table {table}.*refuses epoch 2, 60 rows.*"
    ) as caught:
        job.run()
    assert constraint in str(caught.value)
    assert "start the job again with the same job folder" in str(caught.value)
    assert job.failures == 2, "tried three times in all, whatever the restart strategy allows"
    assert postgres.sql(f"select count(*), max(n) from {table}") == [(60, 59)]
    postgres.sql(repair.format(table, table))
    embedded(tmp_path, build, MAX).run()
    assert postgres.sql(f"select count(*), count(distinct n), max(n) from {table}") == [(120, 120, 119)]


def test_a_row_may_refer_to_one_that_another_sink_of_the_job_writes(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table}_shops (shop int primary key)")
    postgres.sql(f"create table {table} (sale int primary key, shop int references {table}_shops)")

    def build(env: StreamExecutionEnvironment) -> None:
        sales = env.from_sequence(1, 5).map(lambda n: Row(sale=n, shop=n), Types.PICKLED_BYTE_ARRAY())
        sales.sink_to(append_sink(postgres.conninfo, table)).uid("sales")
        shops = sales.map(lambda sale: Row(shop=sale["shop"]), Types.PICKLED_BYTE_ARRAY())
        shops.sink_to(append_sink(postgres.conninfo, f"{table}_shops")).uid("shops")

    embedded(tmp_path, build, MAX).run()
    assert postgres.sql(f"select count(*) from {table} join {table}_shops using (shop)") == [(5,)]


# ---------------------------------------------------------------- rows put aside


def _rejecting(postgres: PostgresServer, table: str, keys: tuple[str, ...] = ()) -> PostgresSink:
    builder = PostgresSink.builder().set_connection(postgres.conninfo).set_table(table)
    return builder.set_upsert_keys(keys).set_rejected_rows(f"{table}_rejected").build()


@pytest.mark.parametrize("point", [None, "after-manifest", "after-commit"])
def test_rejected_rows_are_put_aside_exactly_once_and_all_others_written(
    point: Any, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (n int unique check (n <> 7), text varchar(3))")
    postgres.sql(f"insert into {table} values (100, 'old')")

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.from_sequence(0, 119)
        rows = numbers.map(lambda n: Row(n=n, text="long" if n == 30 else "ok"), Types.PICKLED_BYTE_ARRAY())
        rows.sink_to(_rejecting(postgres, table)).uid("numbers")

    embedded(tmp_path, build, MAX, CrashPlan([(point, 1), (point, 2)]) if point else None).run()
    assert postgres.sql(f"select count(*), count(distinct n) from {table}") == [(118, 118)]
    found = postgres.sql(f"select sink, epoch, record, problem from {table}_rejected order by problem")
    assert [(sink, epoch, record) for sink, epoch, record, _ in found] == [
        ("numbers", 2, '{"n": "100", "text": "ok"}'),
        ("numbers", 1, '{"n": "7", "text": "ok"}'),
        ("numbers", 1, "Row(n=30, text='long')"),
    ]
    assert [problem[:6] for *_, problem in found] == ["23505:", "23514:", "Postgr"]


def test_among_rows_of_a_key_the_last_that_the_table_takes_wins(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (k int primary key, v int check (v < 10))")
    rows = [{"k": 1, "v": 1}, {"k": 2, "v": 50}, {"k": 1, "v": 2}, {"k": 1, "v": 99}, {"k": 3, "v": 3}]
    _, committer, output = staged(_rejecting(postgres, table, ("k",)), tmp_path, 1, rows)
    committer.commit(1, output)
    assert postgres.sql(f"select * from {table} order by k") == [(1, 2), (3, 3)]
    assert postgres.sql(f"select count(*) from {table}_rejected") == [(2,)]


def test_more_rejected_rows_than_are_put_aside_end_the_job(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (n int, check (n < 0))")
    rows = [{"n": n} for n in range(MOST_REJECTED + 1)]
    _, committer, output = staged(_rejecting(postgres, table), tmp_path, 1, rows)
    with pytest.raises(PenstockError, match=r"more than 1,000 rows of epoch 1 are refused.*n_check"):
        committer.commit(1, output)
    assert postgres.sql(f"select count(*) from {table}_rejected") == [(0,)]


# ---------------------------------------------------------------- before the job runs


def _sink(postgres: PostgresServer, table: str, **settings: Any) -> PostgresSink:
    builder = PostgresSink.builder().set_connection(settings.pop("connection", postgres.conninfo)).set_table(table)
    for name, value in settings.items():
        builder = getattr(builder, f"set_{name}")(value)
    return builder.build()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"table": "no_such"}, "has no table no_such"),
        ({"table": "NoSuch.Table"}, r'in lower case: if it is not, write "NoSuch"."Table"'),
        ({"table": "pg_catalog.pg_tables"}, "is no table, nor a view with a trigger"),
        ({"table": "a b"}, "looking up table a b for PostgresSink numbers failed"),
        ({"columns": ["n", "other"]}, "has no column other; its columns are n, twice, needed"),
        ({"columns": ["n"]}, "needs a value for column needed"),
        ({"columns": ["n", "needed", "twice"]}, "computes by itself the column twice"),
        ({"upsert_keys": ["n"]}, r"no primary key or unique index over exactly \(n\)"),
        ({"user": "nobody_here"}, 'role "nobody_here" does not exist'),
        ({"user": "reader"}, "user reader has no right to insert on table .*: grant insert on"),
        ({"user": "writer"}, "creating the tables penstock_sinks and penstock_commits .*permission denied"),
    ],
)  # fmt: skip
def test_what_can_never_work_ends_the_job_before_it_runs(
    settings: dict[str, Any], message: str, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (n int, twice int generated always as (2 * n) stored, needed int not null)")
    settings = dict(settings)
    if (user := settings.pop("user", None)) is not None:
        settings["connection"] = f"{postgres.conninfo} user={user} options='-c search_path={table}_empty,public'"
        postgres.sql(f"create schema {table}_empty")
        for name in ("reader", "writer"):
            if not postgres.sql("select from pg_roles where rolname = %s", (name,)):
                postgres.sql(f"create role {name} login")
            postgres.sql(f"grant usage on schema {table}_empty to {name}")
        postgres.sql(f"grant insert on {table} to writer")
        postgres.sql("drop table if exists penstock_sinks, penstock_commits")
    job = embedded(tmp_path, _numbers(_sink(postgres, settings.pop("table", table), **settings)))
    with pytest.raises(ConfigurationError, match=message):
        job.run()
    assert job.failures == 0
    assert job.master.epoch == 0


def test_a_user_who_may_not_ask_in_advance_is_told_at_commit(
    postgres: PostgresServer, table: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.sql(f"create table {table} (n int check (n > 0))")
    if not postgres.sql("select from pg_roles where rolname = 'blind'"):
        postgres.sql("create role blind login")
    postgres.sql(f"create schema {table}_own authorization blind")
    postgres.sql(f"grant insert on {table} to blind")  # but not to look at it, which a table like it needs
    sink = append_sink(f"{postgres.conninfo} user=blind options='-c search_path={table}_own,public'", table)
    _, committer, good = staged(sink, tmp_path, 1, [{"n": 1}])
    committer.commit(1, good)
    _, _, bad = staged(sink, tmp_path, 2, [{"n": -1}])
    assert "only when they are committed: permission denied" in caplog.text
    with pytest.raises(PenstockError, match=rf"constraint {table}_n_check.*'n': '-1'"):
        committer.commit(2, bad)
    assert postgres.sql(f"select n from {table}") == [(1,)]
