"""agg, first, last and top of streams keyed by columns: what they take, and what they refuse while the program is built."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common import Configuration, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.aggregates import count, max_, sum_
from penstock.errors import JobDefinitionError

EVENT = Types.ROW_NAMED(["user", "amount", "tags"], [Types.STRING(), Types.LONG(), Types.LIST(Types.STRING())])
RECORDS = [("ann", 3, ["x"]), ("bob", 4, []), ("ann", 5, None)]


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.runtime": "embedded"})
    )


def test_results_are_of_the_type_that_follows_from_the_input(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(RECORDS, EVENT).key_by("user")
    assert keyed.agg(n=count(), most=max_("amount")).get_type() == Types.ROW_NAMED(
        ["user", "n", "most"], [Types.STRING(), Types.LONG(), Types.LONG()]
    )
    assert keyed.first().get_type() == keyed.last(by="amount").get_type() == EVENT
    assert keyed.top(1, by="amount", rank="place").get_type() == Types.ROW_NAMED(
        [*EVENT.get_field_names(), "place"], [*EVENT.get_field_types(), Types.LONG()]
    )


def test_tuples_stay_tuples(env: StreamExecutionEnvironment) -> None:
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    keyed = env.from_collection([("a", 1), ("b", 2), ("a", 3)], pair).key_by("f0")
    assert list(keyed.first().execute_and_collect()) == [("a", 1), ("b", 2)]


def test_they_work_on_columns_and_the_plan_says_so(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(RECORDS, EVENT).key_by("user")
    for stream in (keyed.agg(n=count()), keyed.first(), keyed.last(), keyed.top(2, by="amount")):
        stream.print()
    plan = env.explain()
    for name in ("Running Aggregates", "First of Key", "Last of Key", "Top 2"):
        assert f"columns: {name}" in plan
        assert f"{name}=" in plan  # it has state
    assert "because" not in plan


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        (lambda keyed: keyed.agg(), "agg needs at least one key column and at least one aggregate"),
        (lambda keyed: keyed.agg(user=count()), "would have several columns named"),
        (lambda keyed: keyed.agg(n=1), "aggregate 'n' must be count"),
        (lambda keyed: keyed.agg(n=sum_("price")), "agg: the stream has no column 'price'"),
        (lambda keyed: keyed.agg(n=sum_("user")), "agg: column 'user' is of string, which has no sum"),
        (lambda keyed: keyed.first(by="price"), "first: the stream has no column 'price'"),
        (lambda keyed: keyed.first(by=1), "first takes the name of a column, not 1"),
        (
            lambda keyed: keyed.last(by="amount", event_time=True),
            "last goes by a column, or by event time, not by both",
        ),
        (lambda keyed: keyed.last(by="tags"), "last: column 'tags' is of list<.*>, which has no order"),
        (lambda keyed: keyed.top(0, by="amount"), "top takes how many records of each key are wanted"),
        (lambda keyed: keyed.top(2, by="price"), "top: the stream has no column 'price'"),
        (lambda keyed: keyed.top(2, by="amount", rank="user"), "top: the stream has a column 'user' already"),
    ],
)
def test_what_cannot_be_is_refused_while_the_program_is_built(
    env: StreamExecutionEnvironment, verb: Any, error: str
) -> None:
    with pytest.raises(JobDefinitionError, match=error):
        verb(env.from_collection(RECORDS, EVENT).key_by("user"))


@pytest.mark.parametrize("verb", ["agg", "first", "last", "top"])
def test_keys_must_be_columns_and_records_must_have_some(env: StreamExecutionEnvironment, verb: str) -> None:
    given: dict[str, dict[str, Any]] = {"agg": {"n": count()}, "top": {"number": 1, "by": "amount"}}
    options = given.get(verb, {})
    typed = env.from_collection(RECORDS, EVENT)
    with pytest.raises(JobDefinitionError, match=rf"{verb} names its key columns: key_by column names"):
        getattr(typed.key_by(lambda row: row[0]), verb)(**options)
    with pytest.raises(JobDefinitionError, match=rf"{verb}: column 'tags' is of list<.*>, which cannot be a key"):
        getattr(typed.key_by("tags"), verb)(**options)
    with pytest.raises(JobDefinitionError, match=rf"{verb} works on columns, but this stream is of Python objects"):
        getattr(env.from_collection(RECORDS).key_by("user"), verb)(**options)


def test_event_time_must_be_there(env: StreamExecutionEnvironment) -> None:
    env.from_collection(RECORDS, EVENT).key_by("user").last(event_time=True).print()
    with pytest.raises(JobDefinitionError, match="timestamp"):
        env.execute()
