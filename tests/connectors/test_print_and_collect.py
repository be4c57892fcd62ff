from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.connectors import program
from penstock.connectors.program import CollectSink, PrintSink
from penstock.errors import ProtocolError
from penstock.records import Columns, Rows
from penstock.testing.contracts import stage
from penstock.testing.contracts import writer_context as context


@pytest.mark.parametrize(
    ("identifier", "parallelism", "expected"),
    [(None, 1, "x"), (None, 2, "2> x"), ("id", 1, "id> x"), ("id", 2, "id:2> x")],
)
def test_lines_are_prefixed_as_flink_does(
    identifier: str | None, parallelism: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = PrintSink(identifier)
    where = context(subtask=parallelism - 1, parallelism=parallelism)
    sink.create_committer("sink").commit(1, pickle.loads(pickle.dumps(stage(sink, 1, [Rows(["x"])], where=where))))
    assert capsys.readouterr().out == expected + "\n"


def test_nothing_is_printed_before_commit_and_each_epoch_once(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink()
    committables = [stage(sink, epoch, [Rows([epoch]), Columns(pa.record_batch({"a": [epoch]}))]) for epoch in (1, 2)]
    assert capsys.readouterr().out == ""
    committer = sink.create_committer("sink")
    for epoch in (1, 1, 2, 1):
        committer.commit(epoch, committables[epoch - 1])
    assert capsys.readouterr().out == "1\n{'a': 1}\n2\n{'a': 2}\n"


def test_a_failed_attempt_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink()
    writer = sink.create_writer(context())
    writer.begin_epoch(1, "a")
    writer.write(Rows(["failed"]))
    writer.begin_epoch(1, "b")
    writer.write(Rows(["good"]))
    sink.create_committer("sink").commit(1, writer.prepare_commit())
    assert capsys.readouterr().out == "good\n"


@pytest.fixture
def received() -> Iterator[list[tuple[int, list[object]]]]:
    epochs: list[tuple[int, list[object]]] = []
    program.deliveries["sink"] = lambda epoch, values: epochs.append((epoch, values))
    yield epochs
    del program.deliveries["sink"]


def test_each_epoch_is_delivered_once_even_by_the_committer_of_a_restart(
    received: list[tuple[int, list[object]]],
) -> None:
    sink = CollectSink()
    first = [*stage(sink, 1, [Rows([1, 2])]), *stage(sink, 1, [Rows([3])], where=context(subtask=1))]
    second = stage(sink, 2, [Columns(pa.record_batch({"a": [4]}))])
    sink.create_committer("sink").commit(1, first)
    restarted = sink.create_committer("sink")
    restarted.commit(1, first)
    restarted.commit(2, second)
    assert received == [(1, [1, 2, 3]), (2, [{"a": 4}])]


def test_a_new_collector_under_the_same_id_starts_anew(received: list[tuple[int, list[object]]]) -> None:
    sink = CollectSink()
    sink.create_committer("sink").commit(1, stage(sink, 1, [Rows(["old job"])]))
    fresh: list[tuple[int, list[object]]] = []
    program.deliveries["sink"] = lambda epoch, values: fresh.append((epoch, values))
    sink.create_committer("sink").commit(1, stage(sink, 1, [Rows(["new job"])]))
    assert fresh == [(1, ["new job"])]


def test_a_delivery_that_fails_is_made_again(received: list[tuple[int, list[object]]]) -> None:
    sink = CollectSink()
    committables = stage(sink, 1, [Rows([1])])
    committer = sink.create_committer("sink")
    failures = [RuntimeError("consumer")]

    def failing_once(epoch: int, values: list[object]) -> None:
        if failures:
            raise failures.pop()
        received.append((epoch, values))

    program.deliveries["sink"] = failing_once
    with pytest.raises(RuntimeError, match="consumer"):
        committer.commit(1, committables)
    committer.commit(1, committables)
    assert received == [(1, [1])]


def test_values_nobody_collects_are_an_error() -> None:
    sink = CollectSink()
    with pytest.raises(ProtocolError, match="nobody in this process collects"):
        sink.create_committer("unknown").commit(1, stage(sink, 1, [Rows([1])]))
