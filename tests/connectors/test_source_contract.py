"""What every bounded source owes the engine, whatever it reads."""

from __future__ import annotations

import csv
import gzip
import json
import operator
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.clickstream.clicks import Clickstream
from penstock.connectors.base import Source
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSource
from penstock.connectors.program import CollectionSource
from tests.connectors.reading import drain, read, records_of

Budget = int | None
Factory = Callable[[Path, Budget], Source]

_LINES = [f"line {n} {'ü' * (n % 5)}" if n % 7 else "" for n in range(100)]
_TABLE = [{"id": n, "name": f'n{n}, "quoted"', "at": 1_000 + n} for n in range(100)]


def _collection(folder: Path, budget: Budget) -> Source:
    return CollectionSource(list(range(50)), epochs=[0, 3, 3, 20])


def _generated_rows(folder: Path, budget: Budget) -> Source:
    rows = Clickstream(step_ms=1_000).rows(5)
    return DataGeneratorSource(rows, 100, splits=3, timestamp_of=operator.attrgetter("event_time"))


def _generated_columns(folder: Path, budget: Budget) -> Source:
    return DataGeneratorSource(Clickstream(step_ms=1_000, late_fraction=0.2), 100, splits=3, seed=5)


def _text(folder: Path, budget: Budget) -> Source:
    (folder / "a.txt").write_bytes("\r\n".join(_LINES).encode())
    (folder / "b.txt").write_bytes("\n".join([*_LINES, ""]).encode())
    (folder / "empty.txt").write_bytes(b"")
    return FileSource.text(folder, max_bytes_per_epoch=budget)


def _gzip_text(folder: Path, budget: Budget) -> Source:
    (folder / "a.txt.gz").write_bytes(gzip.compress("\n".join(_LINES).encode()))
    return FileSource.text(folder, max_bytes_per_epoch=budget)


def _utf16_text(folder: Path, budget: Budget) -> Source:
    (folder / "a.txt").write_bytes("\n".join([*_LINES, ""]).encode("utf-16"))
    return FileSource.text(folder, "UTF-16", max_bytes_per_epoch=budget)


def _ndjson(folder: Path, budget: Budget) -> Source:
    for name in ("a", "b"):
        (folder / f"{name}.ndjson").write_text("\n".join(json.dumps(row) for row in _TABLE))
    return FileSource.ndjson(folder, event_time_column="at", max_bytes_per_epoch=budget)


def _csv(folder: Path, budget: Budget) -> Source:
    with (folder / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["id", "name", "at"])
        writer.writeheader()
        writer.writerows(_TABLE)
    return FileSource.csv(str(folder / "*.csv"), event_time_column="at", max_bytes_per_epoch=budget)


def _csv_with_quoted_newlines(folder: Path, budget: Budget) -> Source:
    with (folder / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *([n, f"two\nlines {n}"] for n in range(100))])
    return FileSource.csv(folder, quoted_newlines=True, max_bytes_per_epoch=budget)


def _parquet(folder: Path, budget: Budget) -> Source:
    for name in ("a", "b"):
        pq.write_table(pa.Table.from_pylist(_TABLE), folder / f"{name}.parquet", row_group_size=30)
    return FileSource.parquet([folder / "a.parquet", folder / "b.parquet"], ["name", "at"], event_time_column="at")


_FACTORIES: list[tuple[Factory, int]] = [
    (_collection, 50),
    (_generated_rows, 100),
    (_generated_columns, 100),
    (_text, 200),
    (_gzip_text, 100),
    (_utf16_text, 100),
    (_ndjson, 200),
    (_csv, 100),
    (_csv_with_quoted_newlines, 100),
    (_parquet, 200),
]
every_source = pytest.mark.parametrize(
    ("factory", "count"), _FACTORIES, ids=[factory.__name__.strip("_") for factory, _ in _FACTORIES]
)


@every_source
def test_every_record_comes_exactly_once(factory: Factory, count: int, tmp_path: Path) -> None:
    records = drain(factory(tmp_path, None))
    assert sum(map(len, records.values())) == count


@every_source
@pytest.mark.parametrize("budget", [1, 7, 64])
def test_ranges_cut_anywhere_partition_the_records(factory: Factory, count: int, budget: int, tmp_path: Path) -> None:
    whole = drain(factory(tmp_path, None))
    assert drain(factory(tmp_path, budget), max_records=budget) == whole


@every_source
def test_block_sizes_do_not_change_the_records(factory: Factory, count: int, tmp_path: Path) -> None:
    source = factory(tmp_path, None)
    assert drain(source, block_size=1) == drain(source, block_size=7) == drain(source, block_size=10_000)


@every_source
def test_a_range_read_again_by_another_reader_gives_the_same_records(
    factory: Factory, count: int, tmp_path: Path
) -> None:
    source = factory(tmp_path, 50)
    enumerator = source.create_enumerator()
    first = source.create_reader()
    compared = 0
    while True:
        plan = enumerator.plan(now_ms=0, max_records=50)
        for split in reversed(plan.ranges):
            again = pickle.loads(pickle.dumps(source)).create_reader()
            expected = read(first, split)
            assert read(again, split, 3) == expected
            compared += len(expected)
        if plan.finished:
            break
    assert compared == count


@every_source
def test_the_enumerators_state_survives_json_at_every_epoch(factory: Factory, count: int, tmp_path: Path) -> None:
    source = factory(tmp_path, 11)
    assert drain(source, max_records=11, restore_each_epoch=True) == drain(source, max_records=11)


@every_source
def test_a_plan_after_the_end_has_no_ranges(factory: Factory, count: int, tmp_path: Path) -> None:
    source = factory(tmp_path, None)
    enumerator = source.create_enumerator()
    plan = enumerator.plan(now_ms=0, max_records=None)
    while not plan.finished:
        plan = enumerator.plan(now_ms=0, max_records=None)
    restored = source.create_enumerator()
    restored.restore(json.loads(json.dumps(plan.state)))
    for done in (enumerator, restored):
        after = done.plan(now_ms=1, max_records=None)
        assert after.finished
        assert not after.ranges


@every_source
def test_planned_record_counts_are_those_read_and_within_the_limit(
    factory: Factory, count: int, tmp_path: Path
) -> None:
    source = factory(tmp_path, None)
    enumerator, reader = source.create_enumerator(), source.create_reader()
    while True:
        plan = enumerator.plan(now_ms=0, max_records=9)
        if plan.records is not None:
            assert plan.records <= 9
            assert plan.records == sum(len(records_of(reader.read(split, 4), 4)) for split in plan.ranges)
        if plan.finished:
            break
