"""Our own exactly-once sinks under the contract that ships in `penstock.testing`, and that contract under sinks that break it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.checkpoint.object_storage import ObjectStorage
from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.cache import CacheSink, CacheSource
from penstock.connectors.files import FileCompactStrategy, FileSink, committed_files
from penstock.connectors.function_sink import FunctionSink
from penstock.datastream.functions import TwoPhaseCommitSinkFunction
from penstock.records import Block, Columns, Rows
from penstock.testing import ListSink, SinkContract
from penstock.testing.contracts import drain


class TestTextFiles(SinkContract):
    def sink(self, folder: Path) -> Sink:
        return FileSink.text(folder)

    def visible(self, folder: Path) -> list[Any]:
        return [line for path in folder.glob("part-*.txt") for line in path.read_text().splitlines()]


class TestPartitionedParquet(SinkContract):
    def sink(self, folder: Path) -> Sink:
        return FileSink.parquet(folder, pa.schema([("text", pa.string()), ("size", pa.int64())]), partition_by=["size"])

    def block(self, values: list[str]) -> Block:
        return Columns(pa.RecordBatch.from_pydict({"text": values, "size": [len(value) for value in values]}))

    def visible(self, folder: Path) -> list[Any]:
        return [text for path in folder.glob("size=*/part-*") for text in pq.read_table(path)["text"].to_pylist()]


class TestListedFiles(TestTextFiles):
    """As `committed_files` lists them."""

    def visible(self, folder: Path) -> list[Any]:
        return [line for path in committed_files(folder) for line in Path(path).read_text().splitlines()]


class TestCompactedFiles(TestTextFiles):
    """Files of all subtasks are joined at every checkpoint."""

    def sink(self, folder: Path) -> Sink:
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build()
        return FileSink.text(folder, compaction=strategy)


class TestFilesInAnObjectStore(SinkContract):
    """As all do that see whole objects only: nothing there is renamed."""

    def sink(self, folder: Path) -> Sink:
        return FileSink.text(f"memory:///{folder}")

    def visible(self, folder: Path) -> list[Any]:
        store = ObjectStorage(f"memory:///{folder}")
        names = [name for name in store.list("") if not name.startswith((".", "_"))]
        return [line for name in names for line in store.get(name).decode().splitlines()]


class TestListSink(SinkContract):
    def sink(self, folder: Path) -> Sink:
        return ListSink(str(folder))

    def visible(self, folder: Path) -> list[Any]:
        return ListSink.results(str(folder))


class TestCache(SinkContract):
    def sink(self, folder: Path) -> Sink:
        sink = CacheSink(str(folder / "cache"))
        sink.create_committer("sink")  # the driver makes the folder before any slot writes
        return sink

    def visible(self, folder: Path) -> list[Any]:
        source = CacheSource(str(folder / "cache"), None)
        return [value for records in drain(source).values() for value, _ in records]


class _LinesInFiles(TwoPhaseCommitSinkFunction[str]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin_transaction(self) -> str:
        return f".{uuid.uuid4().hex}"

    def invoke(self, transaction: str, value: Any, context: Any) -> None:
        with (self.folder / transaction).open("a") as file:
            file.write(f"{value}\n")

    def pre_commit(self, transaction: str) -> None:
        pass

    def commit(self, transaction: str) -> None:
        os.rename(self.folder / transaction, self.folder / transaction.removeprefix("."))

    def recover_and_commit(self, transaction: str) -> None:
        if not (self.folder / transaction.removeprefix(".")).exists():
            self.commit(transaction)

    def abort(self, transaction: str) -> None:
        (self.folder / transaction).unlink(missing_ok=True)


class TestTwoPhaseCommitFunction(SinkContract):
    def sink(self, folder: Path) -> Sink:
        return FunctionSink(_LinesInFiles(folder))

    def visible(self, folder: Path) -> list[Any]:
        return [line for path in folder.glob("[!.]*") for line in path.read_text().splitlines()]


class _Shelf(Sink):
    """A JSON file of epochs, with one fault or none."""

    def __init__(self, folder: Path, fault: str = "") -> None:
        self.file, self.fault = folder / "shelf.json", fault

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _ShelfWriter(self)

    def create_committer(self, sink_id: str) -> Committer:
        return _ShelfCommitter(self)

    def read(self) -> dict[str, list[str]]:
        return dict(json.loads(self.file.read_text())) if self.file.exists() else {}

    def add(self, epoch: int | str, values: list[str]) -> None:
        self.file.write_text(json.dumps({**self.read(), str(epoch): values}))


class _ShelfWriter(SinkWriter):
    def __init__(self, sink: _Shelf) -> None:
        self._sink, self._values = sink, list[str]()

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        if not self._sink.fault.startswith("keeps"):
            self._values = []

    def write(self, block: Block) -> None:
        assert isinstance(block, Rows)
        self._values += block.values
        if self._sink.fault == "writes at once":
            self._sink.add(f"early {uuid.uuid4()}", list(block.values))

    def prepare_commit(self) -> list[Any]:
        values = self._values
        if self._sink.fault != "keeps what an earlier epoch wrote":
            self._values = []
        if self._sink.fault == "writes when it prepares":
            self._sink.add(f"early {uuid.uuid4()}", values)
            return []
        return [values] if values else []


class _ShelfCommitter(Committer):
    def __init__(self, sink: _Shelf) -> None:
        self._sink = sink

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        fault = self._sink.fault
        if fault == "needs something to commit":
            assert committables
        if fault == "takes the first committable only":
            committables = committables[:1]
        values = [value for staged in committables for value in staged]
        self._sink.add(str(uuid.uuid4()) if fault == "commits twice" else epoch, values)

    def discard_after(self, epoch: int) -> None:
        if self._sink.fault == "forgets to take part":
            self._sink.add("discarded", ["all"])


class TestShelf(SinkContract):
    fault = ""

    def sink(self, folder: Path) -> Sink:
        return _Shelf(folder, self.fault)

    def visible(self, folder: Path) -> list[Any]:
        return [value for values in _Shelf(folder).read().values() for value in values]


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("writes at once", SinkContract.test_nothing_is_visible_before_its_commit_and_everything_after),
        ("writes when it prepares", SinkContract.test_what_was_staged_and_then_written_again_is_there_once),
        ("commits twice", SinkContract.test_a_commit_that_is_repeated_changes_nothing),
        ("keeps what a failed attempt wrote", SinkContract.test_an_attempt_that_was_given_up_is_not_in_the_output),
        ("keeps what an earlier epoch wrote", SinkContract.test_a_writer_is_used_for_one_epoch_after_the_other),
        (
            "takes the first committable only",
            SinkContract.test_every_subtask_writes_its_part_and_one_commit_may_bring_several_epochs,
        ),
        ("needs something to commit", SinkContract.test_a_commit_of_nothing_is_taken),
        (
            "forgets to take part",
            SinkContract.test_a_restart_drops_what_no_checkpoint_holds_and_commits_what_one_does,
        ),
    ],
)
def test_a_sink_that_breaks_the_contract_is_told_so(fault: str, test: Any, tmp_path: Path) -> None:
    class Broken(TestShelf):
        pass

    Broken.fault = fault
    with pytest.raises(AssertionError):
        test(Broken(), tmp_path)
