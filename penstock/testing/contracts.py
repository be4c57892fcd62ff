"""Contract suites for connectors: subclass one in a test module, say how a source or sink is made, and let pytest run it.

    class TestTickets(SourceContract):
        records = 75

        def source(self, folder):
            return TicketSource(3, 25)

Each test is a sentence of the contract in `penstock.connectors.base`. They need no engine and no server of ours, only what the
connector itself needs. Penstock's own connectors run the same suites.
"""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import cloudpickle

from penstock.checkpoint.storage import Storage, open_storage
from penstock.functions.connectors import Committer, Sink, Source, SplitRange, SplitReader, WriterContext
from penstock.records import Block, Columns, Rows

ReadValue: TypeAlias = tuple[Any, int | None]  # a value (of columns: a row as a dict) and its timestamp


def records_of(blocks: Iterable[Block], block_size: int) -> list[ReadValue]:
    """Values with their timestamps. No block may be empty or larger than `block_size`."""
    records: list[ReadValue] = []
    for block in blocks:
        assert 0 < len(block) <= block_size, f"a block of {len(block)} records where {block_size} were allowed"
        values = block.batch.to_pylist() if isinstance(block, Columns) else block.values
        stamps = [None] * len(block) if block.timestamps is None else [t and int(t) for t in block.timestamps]
        assert len(stamps) == len(values), f"{len(stamps)} timestamps for {len(values)} values"
        records += zip(values, stamps, strict=True)
    return records


def read(reader: SplitReader, split: SplitRange, block_size: int = 10_000) -> list[ReadValue]:
    """The records of one range."""
    return records_of(reader.read(split, block_size), block_size)


def drain(
    source: Source, *, max_records: int | None = None, block_size: int = 10_000, restore_each_epoch: bool = False
) -> dict[str, list[ReadValue]]:
    """All records of a bounded source, by split. `restore_each_epoch` replaces the enumerator after every plan by a new one
    that got the plan's state as JSON."""
    enumerator, reader = source.create_enumerator(), source.create_reader()
    records: dict[str, list[ReadValue]] = {}
    ordinals: dict[str, int] = {}
    ended: set[str] = set()
    try:
        for now_ms in range(100_000):
            plan = enumerator.plan(now_ms=now_ms, max_records=max_records)
            for split in plan.ranges:
                assert split.split not in ended, f"a range of {split.split!r} follows one that was marked last"
                known = ordinals.setdefault(split.split, split.ordinal)
                assert known == split.ordinal, f"split {split.split!r} had ordinal {known} and now {split.ordinal}"
                records.setdefault(split.split, []).extend(read(reader, split, block_size))
                if split.last:
                    ended.add(split.split)
            if plan.finished:
                assert ended == set(records), f"finished, but not marked last: {sorted(set(records) - ended)}"
                assert len(set(ordinals.values())) == len(ordinals), f"two splits share an ordinal: {ordinals}"
                return records
            if restore_each_epoch:
                enumerator.close()
                enumerator = source.create_enumerator()
                enumerator.restore(json.loads(json.dumps(plan.state)))
    finally:
        enumerator.close()
        reader.close()
    raise AssertionError("the source did not finish in 100,000 epochs")


def _mixed(records: Mapping[str, list[ReadValue]]) -> Counter[str]:
    """The records of all splits, whichever each came in."""
    return Counter(repr(record) for of_split in records.values() for record in of_split)


class SourceContract(ABC):
    """The tests that every bounded source must pass, whatever it reads. Give an unbounded one an end for them."""

    records: ClassVar[int]  # how many records `source` has; at least 50, in more than one split if it can have several
    smallest_range: ClassVar[int] = 1  # so many it can only read together: a plan may be larger than allowed by them
    fixed_splits: ClassVar[bool] = True  # False: which split a record comes in depends on how epochs are cut

    @abstractmethod
    def source(self, folder: Path) -> Source:
        """A source. Each call of one test gets the same empty `folder` and must give the same records."""

    def source_in_small_epochs(self, folder: Path, size: int) -> Source:
        """The same source, told to read about `size` of its own units (bytes, requests) in an epoch. Those that plan by the
        number of records, which they are told at every `plan`, leave this as it is."""
        return self.source(folder)

    def test_every_record_comes_exactly_once(self, tmp_path: Path) -> None:
        found = sum(map(len, drain(self.source(tmp_path)).values()))
        assert found == self.records, f"{found} records, not {self.records}"

    def test_ranges_cut_anywhere_partition_the_records(self, tmp_path: Path) -> None:
        whole = drain(self.source(tmp_path))
        for size in (1, 7, 64):
            cut = drain(self.source_in_small_epochs(tmp_path, size), max_records=size)
            if self.fixed_splits:
                assert cut == whole, f"epochs of {size} give other records than one epoch"
            assert _mixed(cut) == _mixed(whole), f"epochs of {size} give other records than one epoch"

    def test_block_sizes_do_not_change_the_records(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        whole = drain(source)
        for block_size in (1, 7):
            assert drain(source, block_size=block_size) == whole, f"blocks of {block_size} give other records"

    def test_a_range_read_again_by_another_reader_gives_the_same_records(self, tmp_path: Path) -> None:
        source = self.source_in_small_epochs(tmp_path, 50)
        enumerator, first = source.create_enumerator(), source.create_reader()
        compared = 0
        while True:
            plan = enumerator.plan(now_ms=0, max_records=50)
            for split in reversed(plan.ranges):
                travelled: Source = pickle.loads(cloudpickle.dumps(source))
                again = travelled.create_reader()
                expected = read(first, split)
                assert read(again, split, 3) == expected, f"another reader gives other records of {split}"
                again.close()
                compared += len(expected)
            if plan.finished:
                break
        enumerator.close()
        first.close()
        assert compared == self.records, f"{compared} records, not {self.records}"

    def test_the_enumerators_state_survives_json_at_every_epoch(self, tmp_path: Path) -> None:
        source = self.source_in_small_epochs(tmp_path, 11)
        restored = drain(source, max_records=11, restore_each_epoch=True)
        assert restored == drain(source, max_records=11), "enumerators that are restored give other records"

    def test_a_plan_after_the_end_has_no_ranges(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        enumerator = source.create_enumerator()
        plan = enumerator.plan(now_ms=0, max_records=None)
        while not plan.finished:
            plan = enumerator.plan(now_ms=0, max_records=None)
        restored = source.create_enumerator()
        restored.restore(json.loads(json.dumps(plan.state)))
        for done in (enumerator, restored):
            after = done.plan(now_ms=1, max_records=None)
            assert after.finished, "what was finished is no longer"
            assert not after.ranges, f"ranges after the end: {after.ranges}"
            done.close()

    def test_planned_record_counts_are_those_read_and_within_the_limit(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        enumerator, reader = source.create_enumerator(), source.create_reader()
        while True:
            plan = enumerator.plan(now_ms=0, max_records=9)
            if plan.records is not None:
                found = sum(len(read(reader, split, 4)) for split in plan.ranges)
                assert plan.records <= max(9, self.smallest_range), f"{plan.records} records planned, 9 allowed"
                assert plan.records == found, f"{plan.records} records planned, {found} read"
            if plan.finished:
                break
        enumerator.close()
        reader.close()


def writer_context(
    *,
    subtask: int = 0,
    parallelism: int = 1,
    sink_id: str = "sink",
    job_id: str = "job",
    storage: Storage | None = None,
) -> WriterContext:
    """A WriterContext for a test."""
    return WriterContext(job_id=job_id, sink_id=sink_id, subtask=subtask, parallelism=parallelism, storage=storage)


def stage(
    sink: Sink, epoch: int, blocks: Iterable[Block], *, attempt: str = "a", where: WriterContext | None = None
) -> list[Any]:
    """Write one epoch with a writer of its own: its committables."""
    writer = sink.create_writer(where or writer_context())
    try:
        writer.begin_epoch(epoch, attempt)
        for block in blocks:
            writer.write(block)
        return writer.prepare_commit()
    finally:
        writer.close()


class SinkContract(ABC):
    """The tests that every exactly-once sink must pass, whatever it writes to."""

    @abstractmethod
    def sink(self, folder: Path) -> Sink:
        """A sink. All of one test get the same `folder`, empty at first, and write to the same place."""

    @abstractmethod
    def visible(self, folder: Path) -> list[Any]:
        """The values that a reader of that place sees now, in any order."""

    def block(self, values: list[str]) -> Block:
        """Values as a block that the sink takes: text, unless it is told otherwise. `visible` gives back the same texts."""
        return Rows(values)

    # --- the tests' own words

    def _stage(self, folder: Path, epoch: int, values: list[str], attempt: str = "a", subtask: int = 0) -> list[Any]:
        where = writer_context(subtask=subtask, parallelism=2, storage=self._job(folder))
        blocks = [self.block([value]) for value in values]
        travelled: Sink = pickle.loads(cloudpickle.dumps(self.sink(folder)))
        return list(pickle.loads(cloudpickle.dumps(stage(travelled, epoch, blocks, attempt=attempt, where=where))))

    def _committer(self, folder: Path) -> Committer:
        """Of a driver that has just started."""
        committer = self.sink(folder).create_committer("sink")
        committer.job_id = writer_context().job_id
        committer.open(self._job(folder))
        committer.check()
        committer.take_over()
        return committer

    def _commit(self, folder: Path, epoch: int, committables: list[Any]) -> None:
        committer = self._committer(folder)
        committer.commit(epoch, committables)
        committer.close()

    def _job(self, folder: Path) -> Storage:
        return open_storage(str(folder / ".job"))

    def _expect(self, folder: Path, values: list[str], when: str) -> None:
        found = Counter(self.visible(folder))
        lost, extra = Counter(values) - found, found - Counter(values)
        assert not lost + extra, f"{when}: lost {sorted(lost)}, not expected {sorted(extra)}"

    # --- the contract

    def test_nothing_is_visible_before_its_commit_and_everything_after(self, tmp_path: Path) -> None:
        staged = self._stage(tmp_path, 1, ["a", "b"])
        self._expect(tmp_path, [], "before the commit")
        self._commit(tmp_path, 1, staged)
        self._expect(tmp_path, ["a", "b"], "after the commit")

    def test_a_commit_that_is_repeated_changes_nothing(self, tmp_path: Path) -> None:
        staged = self._stage(tmp_path, 1, ["a", "b"])
        committer = self._committer(tmp_path)
        committer.commit(1, staged)
        committer.commit(1, staged)
        committer.close()
        self._expect(tmp_path, ["a", "b"], "after the same committer's second call")
        self._commit(tmp_path, 1, staged)
        self._expect(tmp_path, ["a", "b"], "after another committer's call")

    def test_an_attempt_that_was_given_up_is_not_in_the_output(self, tmp_path: Path) -> None:
        writer = self.sink(tmp_path).create_writer(writer_context(storage=self._job(tmp_path)))
        writer.begin_epoch(1, "first")
        writer.write(self.block(["given up"]))
        writer.begin_epoch(1, "second")
        writer.write(self.block(["a"]))
        staged = writer.prepare_commit()
        writer.close()
        self._commit(tmp_path, 1, staged)
        self._expect(tmp_path, ["a"], "after a second attempt of the same writer")

    def test_what_was_staged_and_then_written_again_is_there_once(self, tmp_path: Path) -> None:
        self._stage(tmp_path, 1, ["a"], attempt="first")  # its host died before the acknowledgement arrived
        staged = self._stage(tmp_path, 1, ["a"], attempt="second")
        self._commit(tmp_path, 1, staged)
        self._expect(tmp_path, ["a"], "after a second attempt by another writer")

    def test_a_writer_is_used_for_one_epoch_after_the_other(self, tmp_path: Path) -> None:
        writer = self.sink(tmp_path).create_writer(writer_context(storage=self._job(tmp_path)))
        expected: list[str] = []
        for epoch, values in enumerate((["a"], [], ["b", "c"]), start=1):
            writer.begin_epoch(epoch, "a")
            for value in values:
                writer.write(self.block([value]))
            self._commit(tmp_path, epoch, writer.prepare_commit())
            expected += values
            self._expect(tmp_path, expected, f"after epoch {epoch}")
        writer.close()

    def test_every_subtask_writes_its_part_and_one_commit_may_bring_several_epochs(self, tmp_path: Path) -> None:
        staged = [
            committable
            for epoch in (1, 2, 3)
            for subtask in (0, 1)
            for committable in self._stage(tmp_path, epoch, [f"{epoch}-{subtask}"], subtask=subtask)
        ]
        self._commit(tmp_path, 3, staged)
        self._expect(tmp_path, ["1-0", "1-1", "2-0", "2-1", "3-0", "3-1"], "after one commit of three epochs")

    def test_a_commit_of_nothing_is_taken(self, tmp_path: Path) -> None:
        self._commit(tmp_path, 1, [])
        self._expect(tmp_path, [], "after a commit of nothing")

    def test_a_restart_drops_what_no_checkpoint_holds_and_commits_what_one_does(self, tmp_path: Path) -> None:
        promised = self._stage(tmp_path, 1, ["promised"])
        self._stage(tmp_path, 2, ["no checkpoint holds this"])
        committer = self._committer(tmp_path)
        committer.discard_after(1)
        committer.commit(1, promised)
        committer.close()
        self._expect(tmp_path, ["promised"], "after the restart")
        self._commit(tmp_path, 2, self._stage(tmp_path, 2, ["again"], attempt="b"))
        self._expect(tmp_path, ["promised", "again"], "after the epoch was run again")
