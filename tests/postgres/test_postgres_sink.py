"""PostgresSink against a real server: what a query finds, whatever dies when."""

from __future__ import annotations

import datetime
import decimal
import logging
import time
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from penstock.common import Row, RowKind
from penstock.connectors.base import Sink
from penstock.connectors.postgres import PostgresError, PostgresSink
from penstock.connectors.postgres.committer import PostgresCommitter
from penstock.errors import BadRecordError, ConfigurationError, FencedError
from penstock.records import Block, Columns, Rows
from penstock.testing import CrashPlan, CrashPoint, SinkContract
from tests.postgres.jobs import (
    MAX,
    append_sink,
    assert_exact,
    counting,
    create_tables,
    embedded,
    environment,
    staged,
    upsert_sink,
)
from tests.servers.postgres import PostgresServer


def written(postgres: PostgresServer, table: str, folder: Path, blocks: Any, columns: list[str] | None = None) -> None:
    sink = append_sink(postgres.conninfo, table, columns=columns)
    _, committer, output = staged(sink, folder, 1, blocks)
    committer.commit(1, output)
    committer.close()


class TestContract(SinkContract):
    @pytest.fixture(autouse=True)
    def _table(self, postgres: PostgresServer, table: str) -> None:
        self.postgres, self.table = postgres, table
        postgres.sql(f"create table {table} (text text)")

    def sink(self, folder: Path) -> Sink:
        return append_sink(self.postgres.conninfo, self.table, columns=["text"])

    def block(self, values: list[str]) -> Block:
        return Rows([(value,) for value in values])

    def visible(self, folder: Path) -> list[Any]:
        return [text for (text,) in self.postgres.sql(f"select text from {self.table}")]


def test_a_job_appends_and_upserts_every_record(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    create_tables(postgres, table)
    embedded(tmp_path, counting(postgres.conninfo, table), MAX).run()
    assert_exact(postgres, table)


@pytest.mark.parametrize(
    "point",
    ["before-manifest", "after-manifest", "during-sink-commit", "after-commit", "before-snapshot", "after-snapshot"],
)
def test_a_process_that_dies_at_a_named_point_leaves_every_row_exactly_once(
    point: CrashPoint, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    create_tables(postgres, table)
    crashes = CrashPlan([(point, 2), (point, 4)])
    embedded(tmp_path, counting(postgres.conninfo, table), MAX, crashes).run()
    assert crashes.fired == [(point, 2), (point, 4)]
    assert_exact(postgres, table)


class _LostAnswer:
    """A connection whose COMMIT is lost on its way to the server, twice, or its answer on the way back."""

    def __init__(self, connection: Any, step: str, fired: list[str]) -> None:
        self._connection, self._step, self._fired = connection, step, fired

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        if len(self._fired) < 2:
            self._fired.append(self._step)
            if self._step == "after":
                self._connection.commit()
            self._connection.close()
            raise psycopg.OperationalError("the connection was lost")
        self._connection.commit()


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_commit_whose_outcome_is_unknown_is_found_out_from_the_marker(
    step: str, postgres: PostgresServer, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tables(postgres, table)
    fired: list[str] = []
    begin = PostgresCommitter._begin_life

    def begin_and_wrap(self: PostgresCommitter) -> None:
        begin(self)
        self._connection = _LostAnswer(self._connection, step, fired)

    monkeypatch.setattr(PostgresCommitter, "_begin_life", begin_and_wrap)
    job = embedded(tmp_path, counting(postgres.conninfo, table), MAX)
    job.run()
    if step == "before":  # lost again on a new connection: the job goes back to its checkpoint
        assert (fired, job.failures) == (["before", "before"], 1)
    else:
        assert (fired[0], job.failures) == ("after", 0)
    assert_exact(postgres, table)


def test_the_server_killed_between_manifest_and_commit_changes_nothing(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    create_tables(postgres, table)
    killed: list[int] = []
    job = embedded(tmp_path, counting(postgres.conninfo, table), MAX)

    def kill_between_manifest_and_commit(point: str, epoch: int) -> None:
        if point == "after-manifest" and epoch in (2, 3) and len(killed) < epoch - 1:
            killed.append(postgres.kill())
            postgres.start(wait=epoch == 2)

    job.master.reach = kill_between_manifest_and_commit
    job.run()
    assert len(killed) == 2
    postgres.wait_until_ready()
    assert_exact(postgres, table)


def test_a_server_that_is_away_fails_the_job_after_a_bounded_wait_which_resumes_when_it_is_back(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    create_tables(postgres, table)
    postgres.stop()
    job = embedded(tmp_path, counting(postgres.conninfo, table, wait_ms=300), MAX)
    seen: list[BaseException] = []

    def back_after_two_failures(error: BaseException) -> None:
        seen.append(error)
        if len(seen) == 2:
            postgres.start()

    job.on_failure = back_after_two_failures
    job.run()
    assert len(seen) >= 2
    assert f"127.0.0.1:{postgres.port}/postgres: connecting failed" in str(seen[0])
    assert_exact(postgres, table)


# ---------------------------------------------------------------- the committer by itself


def test_a_repeated_commit_is_a_no_op_also_by_another_process_and_after_later_ones(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (n int)")
    sink = append_sink(postgres.conninfo, table, columns=["n"])
    _, first, one = staged(sink, tmp_path, 1, [(1,)])
    _, _, two = staged(sink, tmp_path, 2, [(2,)])
    first.commit(1, one)
    first.commit(1, one)
    first.commit(2, two)
    _, second, _ = staged(sink, tmp_path, 3, [(3,)])
    second.commit(1, one)
    second.commit(2, two)
    assert postgres.sql(f"select n from {table} order by n") == [(1,), (2,)]


def test_an_epoch_that_was_run_again_is_committed_though_its_number_was_seen(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (n int)")
    sink = append_sink(postgres.conninfo, table, columns=["n"])
    _, committer, one = staged(sink, tmp_path, 1, [(1,)])
    committer.commit(1, one)
    _, _, again = staged(sink, tmp_path, 1, [(1,)])
    committer.commit(1, again)
    assert postgres.sql(f"select n from {table}") == [(1,), (1,)]


def test_an_older_attempt_is_fenced_by_a_newer_one(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} (n int)")
    sink = append_sink(postgres.conninfo, table, columns=["n"])
    _, old, one = staged(sink, tmp_path, 1, [(1,)])
    _, new, two = staged(sink, tmp_path, 2, [(2,)])
    _, _, three = staged(sink, tmp_path, 3, [(3,)])
    old.commit(1, one)
    new.commit(2, two)
    with pytest.raises(FencedError, match="newer attempt of this job"):
        old.commit(3, three)
    new.commit(3, three)
    assert postgres.sql(f"select n from {table} order by n") == [(1,), (2,), (3,)]


def test_large_output_is_a_file_that_goes_when_it_is_committed(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (n int)")
    sink = append_sink(postgres.conninfo, table, columns=["n"])
    storage, committer, large = staged(sink, tmp_path, 1, [(n,) for n in range(20_000)])
    assert large[0].data is None
    assert storage.list("staged") == [large[0].path]
    committer.commit(1, large)
    assert storage.list("staged") == []
    _, another, _ = staged(sink, tmp_path, 2, [(1,)])
    another.commit(1, large)  # the marker is asked before the file, which is gone, is looked for
    assert postgres.sql(f"select count(*), sum(n) from {table}") == [(20_000, sum(range(20_000)))]
    _, committer, _ = staged(sink, tmp_path, 5, [(n,) for n in range(20_000)])
    committer.discard_after(4)
    assert storage.list("staged") == []


def test_only_so_many_commits_are_remembered(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} (n int)")
    sink = append_sink(postgres.conninfo, table, columns=["n"])
    postgres.sql("drop table if exists penstock_sinks, penstock_commits")
    for epoch in range(1, 70):
        _, committer, output = staged(sink, tmp_path, epoch, [(epoch,)])
        committer.commit(epoch, output)
        committer.close()
    assert postgres.sql("select count(*), max(epoch) from penstock_commits where job = 'job'") == [(64, 69)]


@pytest.mark.parametrize("back_to", [70, 40], ids=["it goes on", "it fell back to an older checkpoint"])
def test_a_commit_is_remembered_though_the_servers_clock_jumped_back(
    back_to: int, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    """All that was written before says that it comes from the future. Then a commit's answer is lost, and it is repeated."""
    postgres.sql(f"create table {table} (n int)")
    sink = append_sink(postgres.conninfo, table, columns=["n"])
    postgres.sql("drop table if exists penstock_sinks, penstock_commits")
    _, committer, _ = staged(sink, tmp_path, 0, [(0,)])
    for epoch in range(1, 70):
        committer.commit(epoch, staged(sink, tmp_path, epoch, [(epoch,)])[2])
    postgres.sql("update penstock_commits set committed_at = committed_at + interval '1 hour'")
    assert postgres.sql("select count(*) from penstock_commits where committed_at > now()") == [(64,)]
    for epoch in range(back_to, back_to + 3):
        output = staged(sink, tmp_path, epoch, [(1000 + epoch,)])[2]
        committer.commit(epoch, output)
        _, committer, _ = staged(sink, tmp_path, epoch, [(0,)])
        committer.commit(epoch, output)
    assert postgres.sql(f"select n from {table} where n > 1000 order by n") == [(1000 + back_to + n,) for n in range(3)]


# ---------------------------------------------------------------- upserts


def test_the_last_row_of_a_key_wins_within_an_epoch_and_across_epochs(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    create_tables(postgres, table)
    sink = upsert_sink(postgres.conninfo, table)
    _, committer, one = staged(sink, tmp_path, 1, [(1, 1, 10), (2, 1, 20), (1, 2, 11)])
    _, _, two = staged(sink, tmp_path, 2, [(2, 5, 25), (3, 1, 30)])
    committer.commit(1, one)
    committer.commit(2, two)
    assert postgres.sql(f"select * from {table} order by key") == [(1, 2, 11), (2, 5, 25), (3, 1, 30)]


def test_a_changelog_deletes_rows(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    create_tables(postgres, table)

    def row(kind: RowKind, key: int, count: int) -> Row:
        made = Row(key, count, 0)
        made.set_row_kind(kind)
        return made

    sink = upsert_sink(postgres.conninfo, table)
    rows = [row(RowKind.INSERT, 1, 1), row(RowKind.INSERT, 2, 1), row(RowKind.INSERT, 3, 1)]
    _, committer, one = staged(sink, tmp_path, 1, rows)
    committer.commit(1, one)
    changes = [
        row(RowKind.UPDATE_BEFORE, 1, 1), row(RowKind.UPDATE_AFTER, 1, 2), row(RowKind.DELETE, 2, 1),
        row(RowKind.DELETE, 3, 1), row(RowKind.INSERT, 3, 7), row(RowKind.INSERT, 4, 1), row(RowKind.DELETE, 4, 1),
    ]  # fmt: skip
    _, _, two = staged(sink, tmp_path, 2, changes)
    committer.commit(2, two)
    assert postgres.sql(f"select key, count from {table} order by key") == [(1, 2), (3, 7)]
    with pytest.raises(BadRecordError, match="only appends: give it set_upsert_keys"):
        staged(append_sink(postgres.conninfo, table, columns=["key", "count", "last"]), tmp_path, 3, changes[2:])


def test_upserts_need_a_unique_index_over_exactly_the_keys(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (key int, count int, last int, unique (key, last))")
    with pytest.raises(
        PostgresError, match=rf"{table} has no primary key or unique index over exactly \(key\).*\(key, last\)"
    ):
        staged(upsert_sink(postgres.conninfo, table), tmp_path, 1, [(1, 1, 1)])


def test_an_index_counts_by_its_keys_and_not_by_what_it_includes(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (key int, count int, last int)")
    postgres.sql(f"create unique index on {table} (key) include (count)")
    _, committer, one = staged(upsert_sink(postgres.conninfo, table), tmp_path, 1, [(1, 1, 1), (1, 2, 2)])
    committer.commit(1, one)
    assert postgres.sql(f"select * from {table}") == [(1, 2, 2)]


def test_a_constraint_that_is_checked_later_is_no_index_for_upserts(
    postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (key int unique deferrable, count int, last int)")
    with pytest.raises(PostgresError, match=r"no primary key or unique index over exactly \(key\).*there is none"):
        staged(upsert_sink(postgres.conninfo, table), tmp_path, 1, [(1, 1, 1)])


@pytest.mark.parametrize("columnar", [False, True])
def test_a_null_key_is_refused_because_it_would_never_be_found_again(
    columnar: bool, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (key int unique, count int, last int)")
    batch = pa.record_batch({"key": pa.array([1, None]), "count": [1, 1], "last": [1, 2]})
    block: Any = Columns(batch) if columnar else [(1, 1, 1), (None, 1, 2)]
    with pytest.raises(BadRecordError, match=r"column key .*None is null, which a key of the upserts cannot be"):
        staged(upsert_sink(postgres.conninfo, table), tmp_path, 1, block)


# ---------------------------------------------------------------- values


def test_values_of_many_types_come_back_as_they_were(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(
        f"create table {table} (i int, s text, f double precision, d numeric, b boolean, at timestamptz, day date, raw bytea, "
        "j jsonb, a text[], u uuid, n varchar(5))"
    )
    rows = [
        {
            "i": 2**31 - 1, "s": "tab\there, back\\slash,\nnew line\r, \\N, é", "f": 0.1, "d": decimal.Decimal("12.50"), "b": True,
            "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC), "day": datetime.date(2026, 1, 2), "raw": b"\x00\\\xff",
            "j": {"a": [1, "\t\\\""]}, "a": ['x "y"', "a\\b\t,", None], "u": uuid.UUID(int=5), "n": "abcde",
        },
        dict.fromkeys(("i", "s", "f", "d", "b", "at", "day", "raw", "j", "a", "u", "n")),
    ]  # fmt: skip
    written(postgres, table, tmp_path, rows)
    found = postgres.sql(f"select * from {table} order by i")
    assert found == [tuple(row.values()) for row in rows]


def test_numbers_that_a_bounded_column_rounds_are_taken(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} (d numeric(5,2), fraction numeric(2,2))")
    rows: list[Any] = [
        {"d": decimal.Decimal("999.994"), "fraction": 0}, {"d": -999.99, "fraction": 0.5}, {"d": float("nan"), "fraction": None},
    ]  # fmt: skip
    written(postgres, table, tmp_path, rows)
    found = postgres.sql(f"select d::text, fraction::text from {table}")
    assert found == [("999.99", "0.00"), ("-999.99", "0.50"), ("NaN", None)]


def test_instants_reach_columns_without_a_zone_in_utc(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} (n int, bare timestamp(3), zoned timestamptz)")
    noon = datetime.datetime(2026, 1, 2, 12, 0)
    paris = noon.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    written(postgres, table, tmp_path, [{"n": 1, "bare": paris, "zoned": paris}, {"n": 2, "bare": noon, "zoned": noon}])
    at_11 = datetime.datetime(2026, 1, 2, 11, 0)
    assert postgres.sql(f"select bare, zoned at time zone 'utc' from {table} order by n") == [
        (at_11, at_11), (noon, noon),
    ]  # fmt: skip


def test_names_that_need_quotes_and_schemas_are_written_as_in_sql(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.sql('create schema if not exists "Odd schema"')
    name = '"Odd schema"."select"'
    postgres.sql(f"drop table if exists {name}")
    postgres.sql(f'create table {name} ("order" int primary key, "User ""x""" text, "group" int[])')
    builder = PostgresSink.builder().set_connection(postgres.conninfo).set_table(name).set_upsert_keys(["order"])
    for epoch, text in ((1, "old"), (2, "new")):
        rows = [{"order": 1, 'User "x"': text, "group": [epoch, None]}]
        _, committer, output = staged(builder.build(), tmp_path, epoch, rows)
        committer.commit(epoch, output)
    assert postgres.sql(f"select * from {name}") == [(1, "new", [2, None])]


def test_columns_are_written_without_looking_at_values(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(
        f'create table {table} (i int, big bigint, s text, f real, b boolean, at timestamp, "Odd ""name" int default 7)'
    )
    batch = pa.record_batch(
        {
            "i": pa.array([1, None, -5], pa.int32()),
            "big": pa.array([2**60, 1, None], pa.int64()),
            "s": pa.array(["a\\b", None, "c\td"]),
            "f": pa.array([0.5, float("inf"), None], pa.float64()),
            "b": pa.array([True, None, False]),
            "at": pa.array([datetime.datetime(2026, 1, 1, 0, 0, 0, 1), None, None], pa.timestamp("us")),
        }
    )
    written(postgres, table, tmp_path, Columns(batch))
    found = postgres.sql(f"select * from {table} order by big nulls first")
    assert found == [
        (-5, None, "c\td", None, False, None, 7),
        (None, 1, None, float("inf"), None, None, 7),
        (1, 2**60, "a\\b", 0.5, True, datetime.datetime(2026, 1, 1, 0, 0, 0, 1), 7),
    ]


def test_records_with_other_columns_may_follow_each_other(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} (a int, b int default 9)")
    sink = append_sink(postgres.conninfo, table)
    _, committer, one = staged(sink, tmp_path, 1, [Row(a=1)])
    _, _, two = staged(sink, tmp_path, 1, [Row(b=2, a=3)])
    committer.commit(1, [*one, *two])
    assert postgres.sql(f"select a, b from {table} order by a") == [(1, 9), (3, 2)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"i": 1, "other": 2}, "has no column other; its columns are i, s"),
        ({"s": "a"}, "needs a value for column i"),
        ({"i": "one", "s": "a"}, r"column i \(integer\): 'one' is str. The record is .*'one'"),
        ({"i": True, "s": "a"}, "column i .*True is bool"),
        ({"i": 2**31, "s": "a"}, "column i .*2147483648 is out of range"),
        ({"i": None, "s": "a"}, "column i .*None is null, which the column does not allow"),
        ({"i": 1, "s": "abcd"}, r"column s \(character varying\(3\)\): 'abcd' has 4 characters"),
        ({"i": 1, "s": "a\x00"}, "column s .*NUL"),
        ({"i": 1, "s": "\ud800"}, "column s .*cannot be written"),
        ({"i": 1, "j": "{"}, r"column j \(json\): '{' is not JSON"),
        ({"i": 1, "j": {"n": float("nan")}}, r"column j \(json\): .*cannot be written"),
        ({"i": 1, "j": [object()]}, r"column j \(json\): .*cannot be written: Object of type object"),
        ({"i": 1, "a": [object()]}, r"column a \(integer\[\]\): .*has an element that is object"),
        ({"i": 1, "a": [[1, 2], [3, 2**31]]}, "column a .*has an element that is out of range"),
        ({"i": 1, "a": "{1,2}"}, r"column a .*'\{1,2\}' is str and not a list"),
        ({"i": 1, "x": object()}, "column x .*there is no form of object in PostgreSQL"),
        ({"i": 1, "d": decimal.Decimal("999.995")}, r"column d \(numeric\(5,2\)\): .* is out of range"),
        ({"i": 1, "d": float("inf")}, "column d .*inf is out of range"),
        ((1, "a"), "cannot tell the columns of"),
    ],
)
def test_what_does_not_fit_is_an_error_in_the_slot_that_names_sink_table_column_and_record(
    record: Any, message: str, postgres: PostgresServer, table: str, tmp_path: Path
) -> None:
    postgres.sql(f"create table {table} (i int not null, s varchar(3), j json, a int[], d numeric(5,2), x inet)")
    with pytest.raises(BadRecordError, match=f"PostgresSink out: table {table}.*{message}"):
        staged(append_sink(postgres.conninfo, table), tmp_path, 1, [record])


def test_columns_that_do_not_fit_are_an_error_too(postgres: PostgresServer, table: str, tmp_path: Path) -> None:
    postgres.sql(f"create table {table} (i int not null)")
    for values, message in (
        (["a"], "'a' is str"),
        ([1, 2**40], "1099511627776 is out of range"),
        ([1, None], "None is null"),
    ):
        with pytest.raises(
            BadRecordError, match=rf"table {table}, column i \(integer\): {message}. .*The record is {{'i'"
        ):
            staged(append_sink(postgres.conninfo, table), tmp_path, 1, Columns(pa.record_batch({"i": values})))


def test_a_table_that_does_not_exist_is_named(postgres: PostgresServer, tmp_path: Path) -> None:
    with pytest.raises(PostgresError, match=r"PostgresSink out: .* has no table no_such_table"):
        staged(append_sink(postgres.conninfo, "no_such_table"), tmp_path, 1, [{"a": 1}])


def test_a_server_nobody_listens_at_is_an_error_without_the_password_after_a_bounded_wait(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(PostgresError, match=r"PostgreSQL at 127.0.0.1:1/db: connecting failed") as caught:
        staged(append_sink("postgresql://user:secret@127.0.0.1:1/db", "t", wait_ms=500), tmp_path, 1, [{"a": 1}])
    assert time.monotonic() - started < 10
    assert "secret" not in str(caught.value)


@pytest.fixture
def locked_user(postgres: PostgresServer) -> Iterator[str]:
    """A connection string of a user whom the server asks for a password: hush-hush."""
    ((found,),) = postgres.sql("show hba_file")
    rules = Path(found)
    before = rules.read_text()
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{before}")
    postgres.sql("create role locked login superuser password 'hush-hush'")
    postgres.sql("select pg_reload_conf()")
    yield f"host=127.0.0.1 port={postgres.port} user=locked dbname=postgres password="
    rules.write_text(before)
    postgres.sql("drop role locked")
    postgres.sql("select pg_reload_conf()")


def test_a_wrong_password_is_an_error_at_once_that_does_not_show_it(locked_user: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(PostgresError, match='password authentication failed for user "locked"') as caught:
        staged(append_sink(f"{locked_user}not-this", "t"), tmp_path, 1, [{"a": 1}])
    assert time.monotonic() - started < 10, "asking again would not help"
    assert "not-this" not in "".join(traceback.format_exception(caught.value, limit=0))


def test_a_password_is_in_no_message_log_plan_or_file(
    postgres: PostgresServer, table: str, locked_user: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    create_tables(postgres, table)
    build, env = counting(f"{locked_user}hush-hush", table), environment(tmp_path)
    build(env)
    plan = env.get_execution_plan()
    env.execute("hush")
    assert_exact(postgres, table)
    sink = append_sink(f"{locked_user}hush-hush", table)
    shown = [plan, repr(sink), repr(sink.create_committer("out")), caplog.text]
    shown += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(shown) > 4, "the job folder has files"
    assert not [text for text in shown if "hush-hush" in text]


@pytest.mark.parametrize(
    "conninfo",
    [
        "host=db password=sec ret",
        "host=db passwort=secret",
        "postgresql://user:sec@ret@db/x",
        "postgresql://user:%zzsecret@db/x",
    ],
)
def test_a_connection_string_that_cannot_be_read_is_refused_without_showing_a_word_of_it(conninfo: str) -> None:
    with pytest.raises(ConfigurationError, match="percent codes") as caught:
        PostgresSink.builder().set_connection(conninfo).set_table("t").build()
    shown = traceback.format_exception(caught.value, limit=0)  # causes included, lines of source not
    assert "ret" not in "".join(shown)


def test_settings_that_cannot_work_are_refused_when_the_sink_is_built() -> None:
    with pytest.raises(ConfigurationError, match="set_table"):
        PostgresSink.builder().set_connection("dbname=x").build()
    with pytest.raises(ConfigurationError, match="connection string cannot be read"):
        PostgresSink.builder().set_connection("nonsense").set_table("t").build()
    for setting, value in (("columns", "id"), ("columns", []), ("upsert_keys", "id"), ("upsert_keys", ["a", "a"])):
        with pytest.raises(ConfigurationError, match=f"PostgresSink.set_{setting}"):
            getattr(PostgresSink.builder(), f"set_{setting}")(value)
    for setting, given in (
        ("table", None),
        ("rejected_rows", ""),
        ("wait_ms", 0),
        ("wait_ms", "5"),
        ("connection", None),
    ):
        with pytest.raises(ConfigurationError, match=f"PostgresSink.set_{setting}"):
            getattr(PostgresSink.builder(), f"set_{setting}")(given)
    with pytest.raises(ConfigurationError, match=r"upsert keys \['k'\]"):
        PostgresSink.builder().set_table("t").set_columns(["a"]).set_upsert_keys(["k"]).build()
