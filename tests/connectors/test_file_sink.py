from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Encoder, Row
from penstock.connectors.base import Committer
from penstock.connectors.files import FileSink, FileSource, RollingPolicy, committed_files
from penstock.connectors.files.commit import run_name
from penstock.connectors.files.write_formats import ParquetWriteFormat
from penstock.errors import BadRecordError, ConfigurationError, StorageError
from penstock.records import Block, Columns, Rows
from penstock.testing.contracts import drain, stage
from penstock.testing.contracts import writer_context as context

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


RUN = run_name("sink", "job")


def committer_of(sink: FileSink, sink_id: str = "sink", job_id: str = "job") -> Committer:
    """As a driver has it."""
    committer = sink.create_committer(sink_id)
    committer.job_id = job_id
    return committer


def _visible(folder: Path) -> dict[str, bytes]:
    """What a reader that skips hidden names sees."""
    files = (path for path in folder.rglob("*") if path.is_file())
    named = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {name: data for name, data in named.items() if not any(part[0] in "._" for part in Path(name).parts)}


def _staged(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".staging").rglob("*") if path.is_file())


def test_nothing_is_visible_before_commit_and_everything_after(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    committables = stage(sink, 3, [Rows(["a", "b"])], where=context(subtask=2, parallelism=4))
    assert _visible(tmp_path) == {}
    assert _staged(tmp_path) == ["3-2-a.txt"]
    committer_of(sink).commit(3, pickle.loads(pickle.dumps(committables)))
    assert _visible(tmp_path) == {f"part-00000003-0002-{RUN}.txt": b"a\nb\n"}
    assert _staged(tmp_path) == []


def test_committing_twice_changes_nothing(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    committables = stage(sink, 1, [Rows(["a"])])
    committer_of(sink).commit(1, committables)
    before = _visible(tmp_path), (tmp_path / "_commits" / f"1-{RUN}.json").read_bytes()
    committer_of(sink).commit(1, committables)
    assert (_visible(tmp_path), (tmp_path / "_commits" / f"1-{RUN}.json").read_bytes()) == before


@pytest.mark.parametrize("crash_at", [1, 2, 3])
def test_a_crash_at_any_rename_is_healed_by_committing_again(
    tmp_path: Path, crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink.text(tmp_path)
    committables = [*stage(sink, 1, [Rows(["a"])]), *stage(sink, 1, [Rows(["b"])], where=context(subtask=1))]
    replace, calls = os.replace, 0

    def crashing(source: str, target: str) -> None:
        nonlocal calls
        calls += 1
        if calls == crash_at:
            raise KeyboardInterrupt("crash")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crashing)
        with pytest.raises(KeyboardInterrupt):
            committer_of(sink).commit(1, committables)
    assert len(_visible(tmp_path)) == crash_at - 1
    assert committed_files(tmp_path) == [], "an epoch that is not whole is not listed"
    committer_of(sink).discard_after(1)
    committer_of(sink).commit(1, committables)
    assert _visible(tmp_path) == {f"part-00000001-0000-{RUN}.txt": b"a\n", f"part-00000001-0001-{RUN}.txt": b"b\n"}
    assert [Path(path).name for path in committed_files(tmp_path)] == sorted(_visible(tmp_path))


def test_output_that_is_neither_staged_nor_committed_is_an_error_naming_both(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    (staged,) = stage(sink, 1, [Rows(["a"])])
    (tmp_path / staged.staged).unlink()
    with pytest.raises(
        StorageError, match=rf"\.staging/sink-{RUN}/1-0-a\.txt .*part-00000001-0000-{RUN}\.txt exists, so 1 records"
    ):
        committer_of(sink).commit(1, [staged])


def test_a_committed_file_that_a_reader_took_away_is_not_missed(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    committables = stage(sink, 1, [Rows(["a"])])
    committer_of(sink).commit(1, committables)
    os.unlink(committed_files(tmp_path)[0])
    committer_of(sink).commit(1, committables)
    assert _visible(tmp_path) == {}


def test_a_final_file_of_another_size_is_not_taken_for_ours(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    (staged,) = stage(sink, 1, [Rows(["a"])])
    (tmp_path / staged.staged).unlink()
    (tmp_path / staged.final).write_text("something else")
    with pytest.raises(StorageError, match="14 bytes instead of 2"):
        committer_of(sink).commit(1, [staged])


def test_discard_after_deletes_later_epochs_of_this_sink_only(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    for epoch in (1, 2, 10):
        stage(sink, epoch, [Rows(["a"])])
        stage(sink, epoch, [Rows(["a"])], where=context(sink_id="other/sink"))
    committer_of(sink).discard_after(1)
    folders = {path.name: len(list(path.iterdir())) for path in (tmp_path / ".staging").iterdir()}
    assert folders == {f"sink-{RUN}": 1, f"other%2Fsink-{run_name('other/sink', 'job')}": 3}
    committer_of(FileSink.text(tmp_path / "new")).discard_after(0)


def test_a_failed_attempt_never_shows_up(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    stage(sink, 1, [Rows(["failed after pre-commit"])], attempt="a")
    writer = sink.create_writer(context())
    writer.begin_epoch(1, "b")
    writer.write(Rows(["failed before pre-commit"]))
    writer.begin_epoch(1, "c")
    writer.write(Rows(["good"]))
    committer_of(sink).commit(1, writer.prepare_commit())
    assert _visible(tmp_path) == {f"part-00000001-0000-{RUN}.txt": b"good\n"}
    assert _staged(tmp_path) == []


@pytest.mark.parametrize("name", ["parquet", "csv", "text"])
def test_a_closed_writer_leaves_no_unfinished_file(tmp_path: Path, name: str) -> None:
    writer = _FORMATS[name](tmp_path).create_writer(context())
    writer.begin_epoch(1, "a")
    writer.write(Rows([(1, "x")] * 70_000))
    assert len(_staged(tmp_path)) == 1
    writer.close()
    assert _staged(tmp_path) == []


def test_an_empty_epoch_has_no_file(tmp_path: Path) -> None:
    sink = FileSink.parquet(tmp_path / "out", _SCHEMA)
    assert stage(sink, 1, []) == stage(sink, 2, [Rows([])]) == []
    committer_of(sink).commit(1, [])
    assert not (tmp_path / "out").exists()


def test_small_files_of_the_epochs_of_one_checkpoint_become_one_and_are_listed(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    committer = committer_of(sink)
    committer.commit(2, [*stage(sink, 1, [Rows(["a"])]), *stage(sink, 2, [Rows(["b", "c"])])])
    committer.commit(10, stage(sink, 10, [Rows(["d"])]))
    manifest = json.loads((tmp_path / "_commits" / f"2-{RUN}.json").read_text())
    assert [(entry["path"], entry["rows"], entry["size"]) for entry in manifest["files"]] == [
        (f"part-00000001-0000-{RUN}.txt", 3, 6),
    ]
    assert [Path(path).name for path in committed_files(tmp_path, after_epoch=2)] == [f"part-00000010-0000-{RUN}.txt"]
    assert len(committed_files(tmp_path)) == 2
    assert _visible(tmp_path)[f"part-00000001-0000-{RUN}.txt"] == b"a\nb\nc\n"


@pytest.mark.parametrize("other", [{"sink_id": "other"}, {"job_id": "other"}])
def test_files_of_another_sink_or_job_stay_and_its_own_come_beside_them(tmp_path: Path, other: dict[str, str]) -> None:
    sink = FileSink.text(tmp_path)
    committer_of(sink).commit(2, [*stage(sink, 1, [Rows(["a"])]), *stage(sink, 2, [Rows(["b"])])])
    before = _visible(tmp_path)
    waits = stage(sink, 3, [Rows(["c"])])
    theirs = committer_of(sink, **other)
    theirs.discard_after(0)  # it starts anew
    for epoch in (1, 2):
        made = stage(sink, epoch, [Rows(["z"])], where=context(**other))  # type: ignore[arg-type]
        for _ in range(2):
            theirs.commit(epoch, made)
    assert before.items() <= _visible(tmp_path).items()
    assert sorted(_visible(tmp_path).values()) == [b"a\nb\n", b"z\n", b"z\n"]
    assert len(committed_files(tmp_path)) == 3
    committer_of(sink).commit(3, waits)
    assert _visible(tmp_path)[f"part-00000003-0000-{RUN}.txt"] == b"c\n", (
        "what was staged is not the other's to discard"
    )


def test_a_job_that_starts_from_a_savepoint_goes_on_with_what_waited_and_a_new_one_does_not(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path, rolling_policy=RollingPolicy.default_rolling_policy(part_size=6))
    committer_of(sink).commit(1, stage(sink, 1, [Rows(["aa"])]))
    new = committer_of(sink, job_id="new")
    new.commit(2, stage(sink, 2, [Rows(["nn"])], where=context(job_id="new")))
    assert _visible(tmp_path) == {}, "three bytes each"
    resumed = committer_of(sink, job_id="resumed")
    resumed.adopt("job")
    resumed = committer_of(sink, job_id="resumed")  # its driver has died since
    resumed.discard_after(1)
    resumed.commit(2, stage(sink, 2, [Rows(["rr"])], where=context(job_id="resumed")))
    assert list(_visible(tmp_path).values()) == [b"aa\nrr\n"]
    assert len(list((tmp_path / ".staging").rglob("*.txt"))) == 1, "what the new one lets wait"


def test_a_job_that_went_back_replaces_its_own_epochs(tmp_path: Path) -> None:
    sink = FileSink.text(tmp_path)
    for value in ("old", "new"):
        committer_of(sink).commit(1, stage(sink, 1, [Rows([value])]))
    assert _visible(tmp_path) == {f"part-00000001-0000-{RUN}.txt": b"new\n"}


_FORMATS: dict[str, Callable[[Path], FileSink]] = {
    "parquet": lambda path: FileSink.parquet(path, _SCHEMA),
    "csv": lambda path: FileSink.csv(path, _SCHEMA),
    "ndjson": FileSink.ndjson,
    "text": FileSink.text,
    "partitioned": lambda path: FileSink.parquet(path, _SCHEMA, partition_by=["name"]),
}
_NAMES = st.none() | st.sampled_from(["", "a", 'q"uote', "comma,", "new\nline", "ü"])


def _cut_rows(values: list[dict[str, Any]], cuts: list[int]) -> list[Block]:
    ends = [*sorted(cut for cut in cuts if cut < len(values)), len(values)]
    return [Rows(values[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _cut_columns(values: list[dict[str, Any]], cuts: list[int]) -> list[Block]:
    """Slices of one batch, of copies, and dictionary-encoded ones by turns."""
    whole = pa.RecordBatch.from_pylist(values, _SCHEMA)
    blocks: list[Block] = []
    start = 0
    for turn, rows in enumerate(_cut_rows(values, cuts)):
        part = whole.slice(start, len(rows))
        start += len(rows)
        if turn % 3 == 1:
            part = pa.RecordBatch.from_pylist(part.to_pylist(), _SCHEMA)
        if turn % 3 == 2:
            encoded = part.column("name").dictionary_encode()
            part = pa.RecordBatch.from_arrays([part.column("id"), encoded], names=["id", "name"])
        blocks.append(Columns(part))
    return blocks


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(_FORMATS)),
    pairs=st.lists(st.tuples(st.none() | st.integers(0, 99), _NAMES), min_size=1),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_bytes_do_not_depend_on_blocks(
    tmp_path_factory: pytest.TempPathFactory, name: str, pairs: list[tuple[Any, Any]], cuts: list[int]
) -> None:
    values = [{"id": number, "name": text} for number, text in pairs]
    outputs: list[dict[str, bytes]] = []
    for blocks in ([Rows(values)], _cut_rows(values, cuts), _cut_columns(values, cuts)):
        folder = tmp_path_factory.mktemp(name)
        sink = _FORMATS[name](folder)
        committer_of(sink).commit(1, stage(sink, 1, blocks, attempt=str(len(outputs))))
        outputs.append(_visible(folder))
    assert outputs[0]
    assert outputs[0] == outputs[1] == outputs[2]


def test_parquet_bytes_do_not_depend_on_blocks_across_row_groups(tmp_path: Path) -> None:
    table = pa.table({"id": range(150_000), "name": [f"n{n % 1000}" for n in range(150_000)]})
    outputs = []
    for rows in (1_000, 65_536, 77_777, 150_000):
        sink = FileSink.parquet(tmp_path / str(rows))
        batches = table.combine_chunks().to_batches(max_chunksize=rows)
        committer_of(sink).commit(1, stage(sink, 1, [Columns(batch) for batch in batches]))
        outputs.append(_visible(tmp_path / str(rows)))
    assert all(output == outputs[0] for output in outputs)
    written = pq.ParquetFile(committed_files(tmp_path / "1000")[0])
    groups = [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)]
    assert groups == [65_536, 65_536, 18_928]
    assert written.read().equals(table)


class _Point(NamedTuple):
    id: int
    name: str


@pytest.mark.parametrize("name", ["parquet", "csv"])
def test_rows_of_every_kind_become_columns(tmp_path: Path, name: str) -> None:
    sink = _FORMATS[name](tmp_path)
    values = [(1, "a"), {"name": "a", "id": 1}, _Point(1, "a"), Row(1, "a"), Row(name="a", id=1), [1, "a"]]
    committer_of(sink).commit(1, stage(sink, 1, [Rows(values)]))
    source = getattr(FileSource, name)(tmp_path)
    assert [value for records in drain(source).values() for value, _ in records] == [{"id": 1, "name": "a"}] * 6


def test_scalars_fit_a_schema_of_one_column(tmp_path: Path) -> None:
    sink = FileSink.csv(tmp_path, pa.schema([("word", pa.string())]))
    committer_of(sink).commit(1, stage(sink, 1, [Rows(["a", "b"])]))
    assert _visible(tmp_path) == {f"part-00000001-0000-{RUN}.csv": b'"word"\n"a"\n"b"\n'}


def test_ndjson_takes_whatever_json_can_say(tmp_path: Path) -> None:
    sink = FileSink.ndjson(tmp_path)
    values = [{"a": 1}, _Point(1, "ü"), Row(x=1), Row(1, 2), (1, 2), "text", None]
    committer_of(sink).commit(1, stage(sink, 1, [Rows(values)]))
    lines = _visible(tmp_path)[f"part-00000001-0000-{RUN}.ndjson"].decode().splitlines()
    assert lines == ['{"a":1}', '{"id":1,"name":"ü"}', '{"x":1}', "[1,2]", "[1,2]", '"text"', "null"]


@pytest.mark.parametrize("value", [("x", "a"), (1,), {"id": 1, "nam": "a"}, 7])
def test_a_value_that_does_not_fit_the_schema_is_named(tmp_path: Path, value: Any) -> None:
    message = rf"the {type(value).__name__} .*does not fit the schema \(id: int64, name: string\)"
    with pytest.raises(BadRecordError, match=message):
        stage(FileSink.parquet(tmp_path, _SCHEMA), 1, [Rows([(1, "good"), value])])


def test_objects_without_a_schema_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecordError, match=r"give the sink schema="):
        stage(FileSink.parquet(tmp_path), 1, [Rows([(1, "a")])])


def test_a_value_json_cannot_say_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRecordError, match=r"the set \{1\} cannot be written as JSON"):
        stage(FileSink.ndjson(tmp_path), 1, [Rows([{1}])])


def test_partition_columns_become_folders_and_leave_the_files(tmp_path: Path) -> None:
    sink = FileSink.csv(tmp_path, _SCHEMA, partition_by=["name"])
    committables = stage(sink, 1, [Rows([(1, "a/b"), (2, None)]), Rows([(3, "a/b")])])
    assert _visible(tmp_path) == {}
    committer_of(sink).commit(1, committables)
    assert _visible(tmp_path) == {
        f"name=a%2Fb/part-00000001-0000-{RUN}.csv": b'"id"\n1\n3\n',
        f"name=__HIVE_DEFAULT_PARTITION__/part-00000001-0000-{RUN}.csv": b'"id"\n2\n',
    }
    assert sorted(os.path.relpath(path, tmp_path) for path in committed_files(tmp_path)) == sorted(_visible(tmp_path))


def test_a_partition_function_names_the_folder(tmp_path: Path) -> None:
    builder = FileSink.for_row_format(tmp_path, Encoder.simple_string_encoder())
    sink = builder.with_bucket_assigner(lambda value: f"letter/{value[0]}").build()
    committer_of(sink).commit(1, stage(sink, 1, [Rows(["apple", "bean", "avocado"])]))
    assert _visible(tmp_path) == {
        f"letter/a/part-00000001-0000-{RUN}.txt": b"apple\navocado\n",
        f"letter/b/part-00000001-0000-{RUN}.txt": b"bean\n",
    }


@pytest.mark.parametrize("folder", ["../out", "/abs", "_hidden", ".", "a//b", ""])
def test_a_partition_function_cannot_leave_the_folder_or_hide(tmp_path: Path, folder: str) -> None:
    with pytest.raises(BadRecordError, match="must give a relative folder"):
        stage(FileSink.text(tmp_path, partition_by=lambda _: folder), 1, [Rows(["x"])])


def test_ndjson_partitions_by_field(tmp_path: Path) -> None:
    sink = FileSink.ndjson(tmp_path, partition_by=["page"])
    committer_of(sink).commit(1, stage(sink, 1, [Rows([{"page": "p", "n": 1}])]))
    assert _visible(tmp_path) == {f"page=p/part-00000001-0000-{RUN}.ndjson": b'{"n":1}\n'}
    with pytest.raises(BadRecordError, match=r"cannot partition the dict \{'n': 1\} by \['page'\]"):
        stage(sink, 2, [Rows([{"n": 1}])])


def test_bulk_formats_are_built_as_in_pyflink(tmp_path: Path) -> None:
    sink = FileSink.for_bulk_format(tmp_path, ParquetWriteFormat(_SCHEMA)).build()
    committer_of(sink).commit(1, stage(pickle.loads(pickle.dumps(sink)), 1, [Rows([(1, "a")])]))
    assert pq.read_table(committed_files(tmp_path)[0]).to_pylist() == [{"id": 1, "name": "a"}]


def test_a_file_url_with_a_host_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="three slashes"):
        FileSink.text("file://host/folder")


def test_what_the_sink_commits_the_source_reads_and_nothing_else(tmp_path: Path) -> None:
    sink = FileSink.parquet(tmp_path)
    batch = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], _SCHEMA)
    committer_of(sink).commit(1, stage(sink, 1, [Columns(batch)]))
    stage(sink, 2, [Columns(batch)])
    (records,) = drain(FileSource.parquet(tmp_path)).values()
    assert records == [({"id": 1, "name": "a"}, None)]


def test_programs_that_import_the_sink_by_its_older_name_still_run() -> None:
    from penstock.connectors import file_sink, files

    assert {name: getattr(file_sink, name) for name in file_sink.__all__} == {
        name: getattr(files, name) for name in ("BulkFormatBuilder", "FileSink", "RowFormatBuilder", "committed_files")
    }
