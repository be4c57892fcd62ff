from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from penstock.common import Duration
from penstock.connectors.base import SourcePlan, SplitRange
from penstock.connectors.files import FileSource, StreamFormat
from penstock.errors import BadRecordError, ConfigurationError, StorageError
from penstock.testing.contracts import drain, read


def _cuts(size: int, cuts: list[int], name: str) -> list[SplitRange]:
    ends = sorted({cut for cut in cuts if cut < size} | {size})
    return [
        SplitRange(split=name, ordinal=0, start=start, end=end, last=end == size)
        for start, end in zip([0, *ends], ends, strict=False)
    ]


@settings(max_examples=150)
@given(
    content=st.text(st.sampled_from("\n\r aü,"), max_size=40),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    block_size=st.integers(1, 5),
)
def test_lines_belong_to_exactly_one_range_wherever_bytes_are_cut(
    tmp_path_factory: pytest.TempPathFactory, content: str, cuts: list[int], block_size: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_bytes(content.encode())
    reader = FileSource.text(path).create_reader()
    ranges = _cuts(path.stat().st_size, cuts, str(path))
    lines = [line for split in ranges for line, _ in read(reader, split, block_size)]
    expected = content.split("\n")
    assert lines == [line.removesuffix("\r") for line in (expected if expected[-1] else expected[:-1])]


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(0, 120), max_size=8), header=st.booleans(), block_size=st.integers(1, 5))
def test_csv_lines_belong_to_exactly_one_range_and_the_header_to_none(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], header: bool, block_size: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text(("f0,f1\n" if header else "") + "".join(f"{n},x{n}\n" for n in range(20)))
    reader = FileSource.csv(path, header=header).create_reader()
    ranges = _cuts(path.stat().st_size, cuts, str(path))
    rows = [row for split in ranges for row, _ in read(reader, split, block_size)]
    assert rows == [{"f0": n, "f1": f"x{n}"} for n in range(20)]


@settings(max_examples=60)
@given(limits=st.lists(st.integers(1, 40), min_size=1, max_size=30), block_size=st.integers(1, 20))
def test_row_groups_cut_anywhere_give_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, limits: list[int], block_size: int
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    pq.write_table(pa.table({"n": range(70)}), path, row_group_size=25)
    source = FileSource.parquet(path)
    enumerator, reader = source.create_enumerator(), source.create_reader()
    rows: list[int] = []
    plan: SourcePlan | None = None
    for limit in limits * 70:
        plan = enumerator.plan(now_ms=0, max_records=limit)
        rows += [row["n"] for split in plan.ranges for row, _ in read(reader, split, block_size)]
        if plan.finished:
            break
    assert rows == list(range(70))


def test_a_whole_row_group_is_preferred_to_a_cut_inside_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(100)}), tmp_path / "a.parquet", row_group_size=40)
    enumerator = FileSource.parquet(tmp_path, concurrent_files=1).create_enumerator()
    ends = [enumerator.plan(now_ms=0, max_records=limit).ranges[0].end for limit in (50, 30, 10, 99)]
    assert ends == [1, [1, 30], 2, 3]


def test_folders_are_read_recursively_and_hidden_names_are_not(tmp_path: Path) -> None:
    for name in ("a.txt", "sub/b.txt", "_c.txt", ".d.txt", "_commits/e.txt", ".staging/f.txt", "sub/.g.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    found = drain(FileSource.text(tmp_path))
    assert {os.path.relpath(name, tmp_path) for name in found} == {"a.txt", "sub/b.txt"}
    assert set(drain(FileSource.text(tmp_path.as_uri()))) == set(found)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.txt", {"a.txt", "b.txt"}),
        ("**/*.txt", {"a.txt", "b.txt", "x/c.txt", "x/y/d.txt"}),
        ("x/?.txt", {"x/c.txt"}),
        ("[!a].*", {"b.txt", "b.csv"}),
        ("*/y/*", {"x/y/d.txt"}),
        ("nothing/*", set()),
    ],
)
def test_globs_choose_files(tmp_path: Path, glob: str, expected: set[str]) -> None:
    for name in ("a.txt", "b.txt", "b.csv", "x/c.txt", "x/y/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("1\n")
    assert {os.path.relpath(name, tmp_path) for name in drain(FileSource.text(str(tmp_path / glob)))} == expected


def test_files_are_numbered_by_modification_time_then_name(tmp_path: Path) -> None:
    for name, modified in (("a", 30), ("b", 10), ("d", 20), ("c", 20)):
        (tmp_path / name).write_text("x\n")
        os.utime(tmp_path / name, (modified, modified))
    plan = FileSource.text(tmp_path).create_enumerator().plan(now_ms=0, max_records=None)
    assert [(Path(split.split).name, split.ordinal) for split in plan.ranges] == [
        ("b", 0),
        ("c", 1),
        ("d", 2),
        ("a", 3),
    ]


def test_new_files_are_found_while_monitoring_at_most_once_an_interval(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path)
    source = builder.monitor_continuously(Duration.of_millis(100)).build()
    assert not source.bounded
    enumerator = source.create_enumerator()

    def names(now_ms: int) -> list[str]:
        plan = enumerator.plan(now_ms=now_ms, max_records=None)
        assert not plan.finished
        return [Path(split.split).name for split in plan.ranges]

    assert names(1_000) == ["a"]
    (tmp_path / "b").write_text("2\n")
    assert names(1_099) == []
    assert names(1_100) == ["b"]
    restored = source.create_enumerator()
    restored.restore(json.loads(json.dumps(enumerator.plan(now_ms=1_101, max_records=None).state)))
    (tmp_path / "c").write_text("3\n")
    enumerator = restored
    assert names(1_150) == []
    assert names(1_200) == ["c"]


def test_a_static_set_does_not_grow(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    source = FileSource.text(tmp_path, max_bytes_per_epoch=2)
    assert source.bounded
    enumerator = source.create_enumerator()
    enumerator.plan(now_ms=0, max_records=None)
    (tmp_path / "b").write_text("3\n")
    assert enumerator.plan(now_ms=10**9, max_records=None).finished


def test_files_beyond_the_budget_are_listed_once_with_an_empty_range(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("12345\n")
    enumerator = FileSource.text(tmp_path, max_bytes_per_epoch=6, concurrent_files=1).create_enumerator()
    plans = [enumerator.plan(now_ms=0, max_records=None) for _ in range(3)]
    planned = [[(s.ordinal, s.start, s.end, s.last) for s in plan.ranges] for plan in plans]
    assert planned == [[(0, 0, 6, True), (1, 0, 0, False), (2, 0, 0, False)], [(1, 0, 6, True)], [(2, 0, 6, True)]]


def test_the_budget_is_shared_by_concurrent_files(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("1\n" * 50)
    enumerator = FileSource.text(tmp_path, max_bytes_per_epoch=60, concurrent_files=2).create_enumerator()
    assert [split.end for split in enumerator.plan(now_ms=0, max_records=None).ranges] == [30, 30, 0]


def test_timestamp_columns_become_milliseconds(tmp_path: Path) -> None:
    micros = pa.array([1_999, -1, 5_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"at": micros}), tmp_path / "a.parquet")
    (records,) = drain(FileSource.parquet(tmp_path, event_time_column="at")).values()
    assert [timestamp for _, timestamp in records] == [1, -1, 5_000]


def _planned(source: FileSource) -> SplitRange:
    return source.create_enumerator().plan(now_ms=0, max_records=None).ranges[0]


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1\n")
    source = FileSource.text(path)
    split = _planned(source)
    path.unlink()
    with pytest.raises(StorageError, match=r"a\.txt: the file is gone"):
        read(source.create_reader(), split)


@pytest.mark.parametrize(("content", "message"), [("1\n", "shrunk to 2 bytes"), ("1\n2\n3\n", "grown from 4 to 6")])
def test_a_text_file_that_changed_size_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n")
    source = FileSource.text(path)
    split = _planned(source)
    path.write_text(content)
    with pytest.raises(StorageError, match=rf"a\.txt has {message}"):
        read(source.create_reader(), split)


def test_a_parquet_file_that_lost_row_groups_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(10)}), path, row_group_size=5)
    source = FileSource.parquet(path)
    split = _planned(source)
    pq.write_table(pa.table({"n": range(5)}), path, row_group_size=5)
    with pytest.raises(StorageError, match=r"a\.parquet has changed: it now has 1 row groups.* from 0 to 2"):
        read(source.create_reader(), split)


@pytest.mark.parametrize("bad", ['{"n": 3', '{"n": "x"}', '{"n": 1, "m": 2}', '{"n":\n3}', '{"n": 1}{"n": 2}'])
def test_a_bad_ndjson_line_is_named_with_its_position(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text('{"n": 1}\n' * 3)
    source = FileSource.ndjson(path)
    path.write_text('{"n": 1}\n\n{"n": 2}\n' + bad + '\n{"n": 3}\n')
    with pytest.raises(BadRecordError, match=r"a\.ndjson at byte 19: .*n: int64"):
        drain(source)


@pytest.mark.parametrize("bad", ["x", "1,2", '"1\n"'])
def test_a_bad_csv_line_is_named_with_its_position(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"n\n1\n22\n{bad}\n4\n")
    with pytest.raises(BadRecordError, match=r"a\.csv at byte 7: .*n: int64"):
        drain(FileSource.csv(path, schema=pa.schema([("n", pa.int64())])))


def test_bytes_that_are_not_text_are_named_with_their_position(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ok\nab\xff\n")
    with pytest.raises(BadRecordError, match=r"a\.txt at byte 5: not utf-8"):
        drain(FileSource.text(tmp_path))


def test_a_schema_that_differs_between_parquet_files_is_named(tmp_path: Path) -> None:
    for name, table in (("a", pa.table({"n": [1]})), ("b", pa.table({"n": ["x"], "m": [1]}))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        os.utime(tmp_path / f"{name}.parquet", (ord(name), ord(name)))
    with pytest.raises(
        BadRecordError, match=r"b\.parquet .*n: expected int64, found string; m: expected no such column"
    ):
        drain(FileSource.parquet(tmp_path))


def test_a_header_that_differs_between_csv_files_is_named(tmp_path: Path) -> None:
    for name, content in (("a", "n,m\n1,2\n"), ("b", "n,k\n1,2\n")):
        (tmp_path / f"{name}.csv").write_text(content)
        os.utime(tmp_path / f"{name}.csv", (ord(name), ord(name)))
    with pytest.raises(BadRecordError, match=r"b\.csv .*missing \['m'\], unexpected \['k'\]"):
        drain(FileSource.csv(tmp_path))


def test_csv_columns_are_matched_by_name_not_by_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,m\n1,2\n")
    (tmp_path / "b.csv").write_text("m,n\n2,1\n")
    assert {row["n"] for rows in drain(FileSource.csv(tmp_path)).values() for row, _ in rows} == {1}


def test_a_truncated_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but no footer")
    with pytest.raises(BadRecordError, match=r"a\.parquet at position 0: not a Parquet file"):
        FileSource.parquet(tmp_path)


def test_an_event_time_that_is_missing_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([1, None], pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(BadRecordError, match=r"a\.parquet, row group 0.*row 1 .* no value .*'at'"):
        drain(FileSource.parquet(tmp_path, event_time_column="at"))


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere' does not exist"):
        drain(FileSource.text(tmp_path / "nowhere"))


def test_columns_cannot_be_inferred_from_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no CSV file yet"):
        FileSource.csv(tmp_path, monitor_interval=10)
    source = FileSource.csv(tmp_path, schema=pa.schema([("n", pa.int64())]), monitor_interval=10)
    assert not source.create_enumerator().plan(now_ms=0, max_records=None).ranges


def test_a_given_filesystem_is_used_for_listing_and_reading(tmp_path: Path) -> None:
    (tmp_path / "in" / "_hidden").mkdir(parents=True)
    for name in ("in/a.txt", "in/b.log", "in/_hidden/c.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    below = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert drain(FileSource.text("in", filesystem=below)) == {n: [(n, None)] for n in ("in/a.txt", "in/b.log")}
    assert set(drain(FileSource.text("in/*.txt", filesystem=below))) == {"in/a.txt"}
    assert set(drain(FileSource.text("", filesystem=below))) == {"in/a.txt", "in/b.log"}


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="holds a password") as error:
        FileSource.text("s3://key:secret@bucket/folder").create_enumerator().plan(now_ms=0, max_records=None)
    assert "secret" not in str(error.value)
