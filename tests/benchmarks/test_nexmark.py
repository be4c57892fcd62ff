"""Nexmark: the events are in proportion and the same each time, and every query's answer is DuckDB's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.nexmark.answers import difference, of_duckdb
from benchmarks.nexmark.events import KINDS, Site, write
from benchmarks.nexmark.queries import NAMES, QUERIES, Streams
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

SITE = Site(events=10_000, rate=300, disorder=200)  # half a minute


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nexmark")
    write(SITE, path, files=2, rows=1_000)
    return path


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids(folder: Path) -> None:
    counts = {kind: of_duckdb(folder, f"select count(*) from {kind}")[0][0] for kind in ("person", "auction", "bid")}
    assert counts == {"person": 200, "auction": 600, "bid": 9_200}


def test_an_event_depends_on_the_seed_and_its_place_alone() -> None:
    whole = SITE.columns("bid", range(9_200))
    assert whole.slice(700, 300) == SITE.columns("bid", range(700, 1_000))
    assert whole != replace(SITE, seed=4).columns("bid", range(9_200))


@pytest.mark.parametrize("kind", KINDS)
def test_events_are_out_of_order_and_none_is_further_behind_than_the_bound(kind: str) -> None:
    newest, behind = 0, []
    for time in SITE.columns(kind, range(SITE.count(kind)))["date_time"].to_pylist():
        newest = max(newest, time)
        behind.append(newest - time)
    assert 0 < max(behind) < SITE.bound_ms
    assert sum(delay > 0 for delay in behind) > len(behind) // 4


@pytest.mark.parametrize("name", NAMES)
def test_a_query_answers_what_duckdb_does(name: str, folder: Path) -> None:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.block.size", "500")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    with QUERIES[name].build(Streams(env, folder, SITE)).execute_and_collect() as results:
        rows = [tuple(row) for row in results]
    assert rows or name == "q12"  # whose windows end by the clock, or not at all
    assert difference(name, rows, folder) is None


def test_a_wrong_answer_is_noticed(folder: Path) -> None:
    rows = of_duckdb(folder, "select auction, price from bid where auction % 123 = 0")
    assert difference("q2", rows, folder) is None
    assert difference("q2", rows[1:], folder) is not None
    assert difference("q2", [*rows, rows[0]], folder) is not None
