"""from_sequence and read_text_file: sources for which nobody wants to build a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common import Types
from penstock.common.configuration import Configuration
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.errors import JobDefinitionError


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("penstock.runtime", "embedded")
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def collected(stream: DataStream) -> list[object]:
    with stream.execute_and_collect() as results:
        return sorted(results)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(("start", "end"), [(1, 10), (-4, 3), (7, 7)])
def test_a_sequence_has_each_number_once_both_ends_included(parallelism: int, start: int, end: int) -> None:
    env = environment(parallelism)
    assert collected(env.from_sequence(start, end)) == list(range(start, end + 1))


def test_a_sequence_is_as_parallel_as_the_environment_and_bounded() -> None:
    env = environment(3).set_runtime_mode(RuntimeExecutionMode.BATCH)
    stream = env.from_sequence(1, 9)
    assert stream._node.parallelism == 3
    assert stream.get_type() == Types.LONG()
    assert collected(stream.key_by(lambda number: number % 2).reduce(lambda a, b: a + b)) == [20, 25]


def test_a_sequence_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(JobDefinitionError, match="must not be above"):
        environment().from_sequence(2, 1)


def test_a_text_file_is_read_line_by_line_and_a_folder_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("drei\nfünf", encoding="utf-8")
    assert collected(environment().read_text_file(tmp_path / "a.txt")) == ["one", "two"]
    assert collected(environment(2).read_text_file(str(tmp_path))) == ["drei", "fünf", "one", "two"]


def test_a_text_file_may_have_another_charset(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("fünf\n", encoding="latin-1")
    assert collected(environment().read_text_file(str(tmp_path / "a.txt"), "ISO-8859-1")) == ["fünf"]
