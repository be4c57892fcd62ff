"""What is kept of each key over columns, on Spark: records are gathered between two flushes of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.common import Types
from penstock.datastream.aggregates import count, max_
from tests.pipelined.jobs import environment

EVENT = Types.ROW_NAMED(["key", "value", "id"], [Types.STRING(), Types.LONG(), Types.LONG()])
RECORDS = [(f"k{number * 7919 % 97}", number * 31 % 1009, number) for number in range(20_000)]


def test_the_last_row_of_a_key_is_the_aggregate_of_all_its_records(tmp_path: Path) -> None:
    stream = environment(tmp_path, 2).from_collection(RECORDS, EVENT)
    seen: dict[str, list[tuple[Any, ...]]] = {}
    for row in stream.key_by("key").agg(n=count(), high=max_("value")).execute_and_collect():
        seen.setdefault(row[0], []).append(tuple(row))
    assert len(seen) == 97
    for key, rows in seen.items():
        values = [value for name, value, _ in RECORDS if name == key]
        assert rows == [(key, n, max(values[:n])) for _, n, _ in rows]
        assert rows[-1][1] == len(values)
