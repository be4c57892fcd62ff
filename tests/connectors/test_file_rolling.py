"""Files that are larger than an epoch: when they end, that no crash loses or doubles what waits, and that files are joined once."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Encoder
from penstock.connectors.base import Committer
from penstock.connectors.files import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
    committed_files,
)
from penstock.connectors.files.commit import FileCommitter, InputEnded, run_name
from penstock.connectors.files.folders import DiskFolder, Folder, ObjectFolder, open_folder
from penstock.connectors.files.rolling import RollRule, StagedFile, due
from penstock.connectors.files.write_formats import ParquetWriteFormat, RowWriteFormat, TextEncoder
from penstock.errors import ConfigurationError
from penstock.records import Columns, Rows
from penstock.testing.contracts import stage
from penstock.testing.contracts import writer_context as context
from tests.connectors.test_file_sink import committer_of

RUN = run_name("sink", "job")
MINUTE = 60_000
ENDED = InputEnded(job_id="job")


def _file(
    epoch: int, size: int = 1, subtask: int = 0, created: int = 0, folder: str = "", waited: int = 0
) -> StagedFile:
    name = f"part-{epoch}-{subtask}"
    return StagedFile(
        job_id="job",
        epoch=epoch,
        staged=f".staging/sink/{epoch}-{subtask}-a",
        final=f"{folder}/{name}" if folder else name,
        rows=size,
        size=size,
        subtask=subtask,
        created=created,
        waited=waited,
    )


# ---------------------------------------------------------------- when


@pytest.mark.parametrize(
    ("rule", "now", "groups"),
    [
        (RollRule(size=10), 0, [[1, 2], [3]]),
        (RollRule(size=100, age_ms=50), 49, []),
        (RollRule(size=100, age_ms=50), 50, [[1, 2, 3, 4]]),
        (RollRule(size=100, age_ms=500, idle_ms=20), 59, []),
        (RollRule(size=100, age_ms=500, idle_ms=20), 60, [[1, 2, 3, 4]]),
        (RollRule(size=10, checkpoints=1), 0, [[1, 2], [3], [4]]),
        (RollRule(checkpoints=2), 0, []),
    ],
)
def test_a_file_ends_by_size_by_age_by_silence_or_after_checkpoints(
    rule: RollRule, now: int, groups: list[list[int]]
) -> None:
    files = [_file(1, 6), _file(2, 6, created=10), _file(3, 50 if rule.size == 10 else 6), _file(4, 6, created=40)]
    found, waiting = due(files, rule, now, ended=False)
    assert [[file.epoch for file in group] for group in found] == groups
    assert [file.epoch for file in waiting] == [n for n in (1, 2, 3, 4) if all(n not in group for group in groups)]


@given(
    files=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["", "a"]), st.integers(1, 9)), max_size=20),
    size=st.none() | st.integers(1, 30),
    across=st.booleans(),
    ended=st.booleans(),
)
def test_every_file_is_in_one_group_or_waits_and_keeps_its_order(
    files: list[tuple[int, str, int]], size: int | None, across: bool, ended: bool
) -> None:
    staged = [_file(n, length, subtask, folder=folder) for n, (subtask, folder, length) in enumerate(files)]
    groups, waiting = due(staged, RollRule(size=size, across_subtasks=across), 0, ended=ended)
    assert sorted(file.epoch for group in [*groups, waiting] for file in group) == list(range(len(files)))
    assert not (ended and waiting)
    for group in groups:
        assert [file.epoch for file in group] == sorted(file.epoch for file in group)
        assert len({file.bucket for file in group}) == 1
        assert across or len({file.subtask for file in group}) == 1


# ---------------------------------------------------------------- what waits


def _policy(size: int = 12) -> RollingPolicy:
    return RollingPolicy.default_rolling_policy(part_size=size)


@pytest.fixture(params=["disk", "object store"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "disk" else f"memory:///{uuid.uuid4().hex}"


def _lines(base: str) -> list[str]:
    """All records that a reader sees, in the order of the files' names."""
    folder = open_folder(base)
    names = (
        [path for path in folder.list("") if path.startswith("part-")]
        if isinstance(folder, ObjectFolder)
        else [name for name in folder.names("") if name.startswith("part-")]
    )
    return [line for name in sorted(names) for line in (folder.read(name) or b"").decode().splitlines()]


def _files(base: str) -> int:
    return len(committed_files(base))


def test_what_waits_survives_checkpoints_and_drivers_and_is_then_one_file(base: str) -> None:
    sink = FileSink.text(base, rolling_policy=_policy())
    for epoch, value in enumerate(["aaa", "bbb", "ccc", "ddd"], start=1):
        committer_of(sink).commit(epoch, pickle.loads(pickle.dumps(stage(sink, epoch, [Rows([value])]))))
        assert _lines(base) == (["aaa", "bbb", "ccc"] if epoch >= 3 else [])
    assert _files(base) == 1
    assert [Path(path).name for path in committed_files(base)] == [f"part-00000001-0000-{RUN}.txt"]
    committer_of(sink).commit(5, [ENDED])
    assert _lines(base) == ["aaa", "bbb", "ccc", "ddd"], "the end of the input ends all files"
    assert open_folder(base).names(f".staging/sink-{RUN}") == []


def test_time_ends_a_file_at_a_commit_that_brings_nothing(base: str) -> None:
    sink = FileSink.text(base, rolling_policy=_policy(1000))
    later = [0]
    rule, text = sink._rule, RowWriteFormat(TextEncoder())
    committer = FileCommitter(open_folder(base), "sink", text, rule, now_ms=lambda: later[0])
    made = stage(sink, 1, [Rows(["a"])])
    later[0] = made[0].created
    committer.commit(1, made)
    committer.commit(2, [])
    assert _lines(base) == []
    later[0] += MINUTE
    committer.commit(3, [])
    assert _lines(base) == ["a"]
    committer.commit(4, [])
    assert open_folder(base).names("_commits") == [f"1-{RUN}.json", f"3-{RUN}.json"]


class _Crash(BaseException):
    pass


def _dying(folder: Folder, at: int, *, after: bool) -> list[str]:
    """The folder dies before, or after, its `at`-th change; gives the changes so far."""
    done: list[str] = []

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any) -> Any:
            done.append(name)
            if len(done) == at and not after:
                raise _Crash(name)
            result = call(*arguments)
            if len(done) == at:
                raise _Crash(name)
            return result

        return change

    for name in ("seal", "move", "write", "remove"):
        setattr(folder, name, wrapped(name, getattr(folder, name)))
    return done


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("strategy", ["rolling", "compaction", "checkpoint"])
def test_a_commit_that_dies_at_any_change_is_healed_by_the_next_driver(
    base: str, strategy: str, after: bool, tmp_path: Path
) -> None:
    """Six commits; in each, the driver dies at the n-th change, for every n; the next driver commits again."""
    ways: dict[str, dict[str, Any]] = {
        "rolling": {"rolling_policy": _policy(20)},
        "compaction": {"compaction": FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()},
        "checkpoint": {},
    }
    options = ways[strategy]
    expected = sorted(f"{epoch}-{subtask}-x" for epoch in range(1, 13) for subtask in (0, 1))
    deaths = 0
    for at in range(1, 30):
        place = f"{base}/{at}"
        sink = FileSink.text(place, **options)
        died = 0
        for number in range(1, 7):
            made = [
                item
                for epoch in (2 * number - 1, 2 * number)
                for subtask in (0, 1)
                for item in stage(sink, epoch, [Rows([f"{epoch}-{subtask}-x"])], where=context(subtask=subtask))
            ]
            made += [ENDED] if number == 6 else []
            dying = committer_of(sink)
            assert isinstance(dying, FileCommitter)
            dying._folder = pickle.loads(pickle.dumps(dying._folder))
            _dying(dying._folder, at, after=after)
            try:
                dying.commit(2 * number, made)
            except _Crash:
                died += 1
            successor = committer_of(sink)
            successor.commit(2 * number, made)
            successor.discard_after(2 * number)
            seen = _lines(place)
            assert len(seen) == len(set(seen)), f"dead at {at}: twice {seen}"
        assert sorted(_lines(place)) == expected, f"dead at {at}"
        listed = [line for path in committed_files(place) for line in _read(path).splitlines()]
        assert sorted(listed) == expected
        deaths += died
        if not died:
            break
    assert deaths > 12, "drivers died"
    assert died == 0, "and at every change there is"


def _read(path: str) -> str:
    base, _, name = path.rpartition("/")
    return (open_folder(base).read(name) or b"").decode()


def test_a_commit_that_is_repeated_does_not_ask_the_clock_again(base: str) -> None:
    sink = FileSink.text(base, rolling_policy=_policy(1000))
    folder, text = open_folder(base), RowWriteFormat(TextEncoder())
    first, second = stage(sink, 1, [Rows(["a"])]), stage(sink, 2, [Rows(["b"])])
    now = [first[0].created]
    FileCommitter(folder, "sink", text, sink._rule, now_ms=lambda: now[0]).commit(1, first)
    dying = FileCommitter(open_folder(base), "sink", text, sink._rule, now_ms=lambda: now[0] + 2 * MINUTE)
    _dying(dying._folder, 3, after=True)  # the plan, the joined file, its place
    with pytest.raises(_Crash):
        dying.commit(2, second)
    FileCommitter(folder, "sink", text, sink._rule, now_ms=lambda: now[0]).commit(2, second)  # a clock that went back
    assert _lines(base) == ["a", "b"]
    assert _files(base) == 1


def test_a_job_that_goes_back_takes_what_waited_then_and_not_what_waited_since(base: str) -> None:
    sink = FileSink.text(base, rolling_policy=_policy(9))

    def run(epoch: int, value: str, attempt: str) -> None:
        committer_of(sink).commit(epoch, stage(sink, epoch, [Rows([value])], attempt=attempt))

    run(1, "one", "a")
    run(5, "a-5", "a")  # 8 bytes wait
    run(10, "a-10", "a")
    committer_of(sink).commit(15, [ENDED])
    assert _lines(base) == ["one", "a-5", "a-10"]
    committer_of(sink).discard_after(5)
    # 10 and 15 are of the history that was left: for every driver from now on, what is committed at 12 comes after 7.
    run(7, "b-7", "b")
    run(12, "b", "b")
    committer_of(sink).commit(13, [ENDED])
    assert _lines(base) == ["one", "a-5", "a-10", "b-7", "b"]


def test_a_subtask_that_is_tried_again_says_once_that_its_input_has_ended(tmp_path: Path) -> None:
    writer = FileSink.text(tmp_path, rolling_policy=_policy()).create_writer(context())
    writer.begin_epoch(1, "a")
    writer.end_input()
    writer.begin_epoch(1, "b")
    assert writer.prepare_commit() == []
    writer.begin_epoch(2, "a")
    writer.end_input()
    assert writer.prepare_commit() == [ENDED]
    writer.close()


# ---------------------------------------------------------------- joined


def test_compaction_joins_the_files_of_all_subtasks(base: str) -> None:
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).set_num_compact_threads(2).build()
    builder = FileSink.for_row_format(base, Encoder.simple_string_encoder())
    sink = builder.enable_compact(strategy, FileCompactor.concat_file_compactor(b"--\n")).build()
    committer = committer_of(sink)
    for epoch in (1, 2):
        made = [stage(sink, epoch, [Rows([f"{epoch}{n}"])], where=context(subtask=n)) for n in range(3)]
        committer.commit(epoch, [part for parts in made for part in parts])
        assert _files(base) == epoch - 1
    assert _lines(base) == ["10", "--", "11", "--", "12", "--", "20", "--", "21", "--", "22"]


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(1, 40_000), min_size=2, max_size=6))
def test_joined_parquet_has_the_bytes_of_a_file_that_was_written_at_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    table = pa.table({"id": range(sum(cuts)), "name": [f"n{n % 7}" for n in range(sum(cuts))]}).combine_chunks()
    folder = tmp_path_factory.mktemp("joined")
    once, joined = FileSink.parquet(folder / "once"), FileSink.parquet(folder / "joined")
    committer_of(once).commit(9, stage(once, 1, [Columns(table.to_batches()[0])]))
    made: list[Any] = []
    start = 0
    for epoch, cut in enumerate(cuts, start=1):
        made += stage(joined, epoch, [Columns(table.slice(start, cut).to_batches()[0])])
        start += cut
    committer_of(joined).commit(9, made)
    (left,), (right,) = committed_files(folder / "once"), committed_files(folder / "joined")
    assert Path(left).read_bytes() == Path(right).read_bytes()


def test_joined_csv_has_one_header(tmp_path: Path) -> None:
    schema = pa.schema([("a\nb", pa.int64()), ("c", pa.string())])
    sink = FileSink.csv(tmp_path, schema)
    made = [*stage(sink, 1, [Rows([(1, "x")])]), *stage(sink, 2, [Rows([(2, "y\n")])])]
    committer_of(sink).commit(2, made)
    (path,) = committed_files(tmp_path)
    assert Path(path).read_bytes() == b'"a\nb","c"\n1,"x"\n2,"y\n"\n'


def test_files_with_other_columns_are_not_joined(tmp_path: Path) -> None:
    sink = FileSink.parquet(tmp_path)
    narrow = pa.RecordBatch.from_pylist([{"a": 1}])
    wide = pa.RecordBatch.from_pylist([{"a": 1, "b": 2}])
    made = [part for n, batch in enumerate([narrow, narrow, wide], 1) for part in stage(sink, n, [Columns(batch)])]
    committer_of(sink).commit(3, made)
    assert [pq.read_table(path).num_rows for path in committed_files(tmp_path)] == [2, 1]


def test_partitions_have_files_of_their_own_that_end_for_themselves(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("page", pa.string())])
    sink = FileSink.csv(tmp_path, schema, partition_by=["page"], rolling_policy=_policy(25))
    for epoch in (1, 2, 3):
        rows = [(n, "long") for n in range(4)] + [(epoch, "short")]
        committer_of(sink).commit(epoch, stage(sink, epoch, [Rows(rows)]))
    assert {path.parent.name for path in tmp_path.rglob("part-*")} == {"page=long"}
    committer_of(sink).commit(4, [ENDED])
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("part-*"))[-1].startswith("page=short")
    assert sum(json.loads(path.read_text())["files"] != [] for path in (tmp_path / "_commits").iterdir()) >= 2


# ---------------------------------------------------------------- names


def test_names_and_buckets_are_given_as_in_pyflink(tmp_path: Path) -> None:
    names = OutputFileConfig.builder().with_part_prefix("orders").with_part_suffix(".log").build()
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    sink = (
        builder.with_output_file_config(names)
        .with_bucket_check_interval(1000)
        .with_bucket_assigner(BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd'T'HH", "UTC"))
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    where = context()
    object.__setattr__(where, "processing_time", lambda: 1_700_000_000_000)
    committer_of(sink).commit(1, stage(sink, 1, [Rows(["a"])], where=where))
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("orders*")] == [
        Path(f"2023-11-14T22/orders-00000001-0000-{RUN}.log")
    ]
    assert (names.get_part_prefix(), names.get_part_suffix()) == ("orders", ".log")
    plain = FileSink.text(tmp_path / "plain", partition_by=BucketAssigner.base_path_bucket_assigner())
    committer_of(plain).commit(1, stage(plain, 1, [Rows(["a"])]))
    assert (tmp_path / "plain" / f"part-00000001-0000-{RUN}.txt").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: BucketAssigner.date_time_bucket_assigner("yyyy-ww"),
        lambda: BucketAssigner.date_time_bucket_assigner(timezone_id="Nowhere/Land"),
        lambda: RollingPolicy.default_rolling_policy(part_size=0),
        lambda: FileCompactStrategy.builder().build(),
        lambda: FileCompactStrategy.builder().enable_compaction_on_checkpoint(0),
        lambda: OutputFileConfig("_hidden"),
        lambda: OutputFileConfig("a/b"),
        lambda: (
            FileSink.for_bulk_format("x", ParquetWriteFormat())
            .enable_compact(
                FileCompactStrategy.builder().set_size_threshold(9).build(), FileCompactor.concat_file_compactor(b"-")
            )
            .build()
        ),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_said(wrong: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError):
        wrong()


def test_a_file_of_a_manifest_from_before_there_were_rolling_files_is_read() -> None:
    old = StagedFile.__new__(StagedFile)
    old.__setstate__(["job", 3, ".staging/a", "part-3-0.csv", 1, 3])
    assert old == StagedFile(job_id="job", epoch=3, staged=".staging/a", final="part-3-0.csv", rows=1, size=3)
    assert pickle.loads(pickle.dumps(_file(7, subtask=2, waited=1))) == _file(7, subtask=2, waited=1)


def test_committers_that_join_much_do_so_beside_the_next_epoch(tmp_path: Path) -> None:
    def committer(**options: Any) -> Committer:
        return committer_of(FileSink.text(tmp_path, **options))

    assert committer(rolling_policy=_policy()).commits_beside_next_epoch
    assert not committer().commits_beside_next_epoch
    assert isinstance(open_folder("file:///x"), DiskFolder)
