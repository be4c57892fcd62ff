"""Our own bounded sources under the contract that ships in `penstock.testing`, and that contract under sources that break it."""

from __future__ import annotations

import csv
import gzip
import json
import operator
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.clickstream.clicks import Clickstream
from penstock.connectors.base import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.connectors.cache import CacheSink, CacheSource
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSource
from penstock.connectors.program import CollectionSource
from penstock.records import Block, Rows
from penstock.testing import SourceContract
from penstock.testing.contracts import stage, writer_context

_LINES = [f"line {n} {'ü' * (n % 5)}" if n % 7 else "" for n in range(100)]
_TABLE = [{"id": n, "name": f'n{n}, "quoted"', "at": 1_000 + n} for n in range(100)]


class TestCollection(SourceContract):
    records = 50

    def source(self, folder: Path) -> Source:
        return CollectionSource(list(range(50)), epochs=[0, 3, 3, 20])


class TestGeneratedRows(SourceContract):
    records = 100

    def source(self, folder: Path) -> Source:
        rows = Clickstream(step_ms=1_000).rows(5)
        return DataGeneratorSource(rows, 100, splits=3, timestamp_of=operator.attrgetter("event_time"))


class TestGeneratedColumns(SourceContract):
    records = 100

    def source(self, folder: Path) -> Source:
        return DataGeneratorSource(Clickstream(step_ms=1_000, late_fraction=0.2), 100, splits=3, seed=5)


class _Files(SourceContract):
    """A file source whose epochs are bounded in bytes."""

    def source(self, folder: Path) -> Source:
        return self.files(folder, None)

    def source_in_small_epochs(self, folder: Path, size: int) -> Source:
        return self.files(folder, size)

    def files(self, folder: Path, budget: int | None) -> Source:
        raise NotImplementedError


class TestText(_Files):
    records = 200

    def files(self, folder: Path, budget: int | None) -> Source:
        (folder / "a.txt").write_bytes("\r\n".join(_LINES).encode())
        (folder / "b.txt").write_bytes("\n".join([*_LINES, ""]).encode())
        (folder / "empty.txt").write_bytes(b"")
        return FileSource.text(folder, max_bytes_per_epoch=budget)


class TestGzipText(_Files):
    records = 100

    def files(self, folder: Path, budget: int | None) -> Source:
        (folder / "a.txt.gz").write_bytes(gzip.compress("\n".join(_LINES).encode()))
        return FileSource.text(folder, max_bytes_per_epoch=budget)


class TestUtf16Text(_Files):
    records = 100

    def files(self, folder: Path, budget: int | None) -> Source:
        (folder / "a.txt").write_bytes("\n".join([*_LINES, ""]).encode("utf-16"))
        return FileSource.text(folder, "UTF-16", max_bytes_per_epoch=budget)


class TestNdjson(_Files):
    records = 200

    def files(self, folder: Path, budget: int | None) -> Source:
        for name in ("a", "b"):
            (folder / f"{name}.ndjson").write_text("\n".join(json.dumps(row) for row in _TABLE))
        return FileSource.ndjson(folder, event_time_column="at", max_bytes_per_epoch=budget)


class TestCsv(_Files):
    records = 100

    def files(self, folder: Path, budget: int | None) -> Source:
        with (folder / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, ["id", "name", "at"])
            writer.writeheader()
            writer.writerows(_TABLE)
        return FileSource.csv(str(folder / "*.csv"), event_time_column="at", max_bytes_per_epoch=budget)


class TestCsvWithQuotedNewlines(_Files):
    records = 100

    def files(self, folder: Path, budget: int | None) -> Source:
        with (folder / "a.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["id", "text"], *([n, f"two\nlines {n}"] for n in range(100))])
        return FileSource.csv(folder, quoted_newlines=True, max_bytes_per_epoch=budget)


class TestParquet(SourceContract):
    records = 200

    def source(self, folder: Path) -> Source:
        for name in ("a", "b"):
            pq.write_table(pa.Table.from_pylist(_TABLE), folder / f"{name}.parquet", row_group_size=30)
        return FileSource.parquet([folder / "a.parquet", folder / "b.parquet"], ["name", "at"], event_time_column="at")


class TestCache(SourceContract):
    """What a cache sink committed: rows of three epochs and two subtasks. It reads whole parts."""

    records = 60
    smallest_range = 10

    def source(self, folder: Path) -> Source:
        url = str(folder / "cache")
        if Path(url).exists():
            return CacheSource(url, None)
        sink = CacheSink(url)
        committer = sink.create_committer("cache")
        for epoch in (1, 2, 3):
            parts = [
                part
                for subtask in (0, 1)
                for part in stage(
                    sink, epoch, [Rows(list(range(10)), list(range(10)))], where=writer_context(subtask=subtask)
                )
            ]
            committer.commit(epoch, parts)
        return CacheSource(url, None)


class _Numbers(Source):
    """Numbers in two splits, with one fault or none."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self) -> SplitEnumerator:
        return _NumbersEnumerator(self.fault)

    def create_reader(self) -> SplitReader:
        return _NumbersReader(self.fault)


class _NumbersEnumerator(SplitEnumerator):
    def __init__(self, fault: str) -> None:
        self._fault, self._at, self._done = fault, 0, False

    def restore(self, state: Json) -> None:
        self._at = 0 if self._fault == "forgets its position" else state
        self._done = self._at == 30 and self._fault != "begins again"

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        start = self._at
        if self._done:
            return SourcePlan(ranges=(), state=start, finished=True, records=0)
        size = 30 if max_records is None or self._fault == "ignores the limit" else max(1, max_records // 2)
        end = self._at = min(30, start + size)
        self._done = end == 30
        ranges = [SplitRange(split=f"s{i}", ordinal=i, start=start, end=end, last=end == 30) for i in (0, 1)]
        if self._fault == "never marks the end":
            ranges = [replace(one, last=False) for one in ranges]
        if self._fault == "gives one ordinal twice":
            ranges = [replace(one, ordinal=0) for one in ranges]
        records = 2 * (end - start) if max_records is None or max_records >= 2 else None
        return SourcePlan(ranges=tuple(ranges), state=end, finished=end == 30, records=records)


class _NumbersReader(SplitReader):
    def __init__(self, fault: str) -> None:
        self._fault, self._calls = fault, 0

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        self._calls += 1
        first = split.start + (1 if self._fault == "drops what begins a block" and block_size < 7 else 0)
        step = block_size + 1 if self._fault == "makes blocks too large" else block_size
        for start in range(first, split.end, step):
            values: list[Any] = list(range(start, min(start + step, split.end)))
            if self._fault == "counts its calls":
                values = [(value, self._calls) for value in values]
            yield Rows(values)


class TestNumbers(SourceContract):
    records: ClassVar[int] = 60

    def source(self, folder: Path) -> Source:
        return _Numbers()


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("never marks the end", SourceContract.test_every_record_comes_exactly_once),
        ("gives one ordinal twice", SourceContract.test_every_record_comes_exactly_once),
        ("makes blocks too large", SourceContract.test_block_sizes_do_not_change_the_records),
        ("drops what begins a block", SourceContract.test_block_sizes_do_not_change_the_records),
        ("counts its calls", SourceContract.test_a_range_read_again_by_another_reader_gives_the_same_records),
        ("forgets its position", SourceContract.test_the_enumerators_state_survives_json_at_every_epoch),
        ("begins again", SourceContract.test_a_plan_after_the_end_has_no_ranges),
        ("ignores the limit", SourceContract.test_planned_record_counts_are_those_read_and_within_the_limit),
    ],
)
def test_a_source_that_breaks_the_contract_is_told_so(fault: str, test: Any, tmp_path: Path) -> None:
    class Broken(TestNumbers):
        def source(self, folder: Path) -> Source:
            return _Numbers(fault)

    with pytest.raises(AssertionError):
        test(Broken(), tmp_path)
