"""A source with more subtasks than splits stops event time: that is said when the job starts, and when it is rescaled."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage import Storage
from penstock.common import Configuration, Duration, SimpleStringSchema, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSource
from penstock.connectors.kafka import KafkaSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.description import JobDescription
from penstock.driver.requests import RescaleRequest
from penstock.functions.connectors import Source
from penstock.testing import EmbeddedJob
from tests.embedded.jobs import master_of, memory_storage

IN_ORDER = WatermarkStrategy.for_monotonous_timestamps()
NONE = WatermarkStrategy.no_watermarks()
PATIENT = IN_ORDER.with_idleness(Duration.of_hours(1))


def numbers(splits: int | None, count: int | None = None) -> Source:
    return DataGeneratorSource(
        lambda index: index, count, splits=splits, rate_per_second=1000, timestamp_of=lambda value: int(value)
    )


def job_of(
    source: Source, strategy: WatermarkStrategy, parallelism: int, behind: WatermarkStrategy | None = None
) -> JobDescription:
    settings = {"penstock.runtime": "embedded", "parallelism.default": str(parallelism)}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.enable_checkpointing(10)
    stream = env.from_source(source, strategy, "clicks").uid("clicks")
    if behind is not None:
        stream = stream.assign_timestamps_and_watermarks(behind).uid("times")
    stream.key_by(lambda value: int(value) % 3).reduce(max).uid("largest").print()
    return env._describe("job")


def told(
    job: JobDescription, *, epochs: int = 2, storage: Storage | None = None, rescaled: dict[int, int] | None = None
) -> list[list[str]]:
    """What holds after each epoch. `rescaled`: the parallelism that is asked for after an epoch."""
    runtime = EmbeddedJob(job, master_of(job, storage or memory_storage()), schedule="ordered")
    found: list[list[str]] = []

    def on_report(report: Any) -> None:
        found.append([notice["text"] for notice in runtime.master.notices.to_json()])
        if rescaled and report.epoch in rescaled:
            runtime.master.requests.rescale(RescaleRequest(parallelism=rescaled[report.epoch]))
        if len(found) >= epochs:
            runtime.cancel()

    runtime.master.on_report = on_report
    runtime.run()
    return found


def test_a_job_that_starts_with_more_subtasks_than_splits_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        ((text,), *more) = told(job_of(numbers(2), IN_ORDER, 5), epochs=4)
    assert more == [[text]] * 3
    assert text.startswith("event time stands still behind 'clicks': it has 2 splits for 5 subtasks, and the 3 without")
    assert "Set the source's parallelism to 2, or give its watermark strategy with_idleness" in text
    assert [record.getMessage() for record in caplog.records] == [text]


def test_one_subtask_without_a_split_is_told_as_one() -> None:
    ((text,),) = told(job_of(numbers(2), IN_ORDER, 3), epochs=1)
    assert (
        "for 3 subtasks, and the one without one holds event time back, because a split may still come to it." in text
    )


@pytest.mark.parametrize(
    ("source", "strategy", "parallelism", "behind"),
    [
        (numbers(2), IN_ORDER, 2, None),
        (numbers(2), IN_ORDER, 1, None),
        (numbers(None), IN_ORDER, 3, None),  # as many splits as subtasks
        (numbers(2, 100_000), IN_ORDER, 5, None),  # it has an end: none will come
        (numbers(2), PATIENT, 5, None),
        (numbers(2), NONE, 5, None),  # no event time
        (numbers(2), NONE, 5, PATIENT),
        (numbers(2), IN_ORDER, 5, PATIENT),
    ],
)
def test_nothing_is_said_where_nothing_is_held_back(
    source: Source, strategy: WatermarkStrategy, parallelism: int, behind: WatermarkStrategy | None
) -> None:
    assert told(job_of(source, strategy, parallelism, behind)) == [[], []]


@pytest.mark.parametrize("strategy", [NONE, IN_ORDER, PATIENT])
def test_watermarks_that_are_made_in_the_sources_chain_wait_as_well(strategy: WatermarkStrategy) -> None:
    (first, *_) = told(job_of(numbers(1), strategy, 2, IN_ORDER))
    assert ["it has 1 split for 2 subtasks" in text for text in first] == [True]


def test_a_rescaled_job_says_it_of_its_new_subtasks_and_takes_it_back(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        found = told(job_of(numbers(3), IN_ORDER, 2), epochs=12, rescaled={2: 4, 5: 7, 8: 3})
    words = [text.partition("it has ")[2].partition(",")[0] for now in found for text in now]
    assert found[0] == found[-1] == []
    assert list(dict.fromkeys(words)) == ["3 splits for 4 subtasks", "3 splits for 7 subtasks"]
    logged = [record.getMessage() for record in caplog.records]
    assert [text.startswith("no longer: ") for text in logged] == [False, True, False, True]


def test_a_job_that_goes_on_from_a_checkpoint_knows_the_splits_it_had() -> None:
    """Only some of them are named by its next plans."""
    storage = memory_storage()
    assert told(job_of(numbers(3), IN_ORDER, 3), storage=storage, epochs=3)[-1] == []
    (first, *_) = told(job_of(numbers(3), IN_ORDER, 4), storage=storage)
    assert ["it has 3 splits for 4 subtasks" in text for text in first] == [True]


def test_files_that_come_later_end_it(tmp_path: Path) -> None:
    def put(name: str) -> None:
        (tmp_path / f"{name}.txt").write_text("1\n2\n3\n")

    put("one")
    source = FileSource.text(str(tmp_path), monitor_interval=1)
    enumerator = source.create_enumerator()
    assert enumerator.splits_found() == 0
    state = enumerator.plan(now_ms=0, max_records=None).state
    assert enumerator.splits_found() == 1
    put("two")
    after = source.create_enumerator()
    after.restore(state)
    assert after.splits_found() == 1
    after.plan(now_ms=10_000, max_records=None)
    assert after.splits_found() == 2


def test_kafka_counts_partitions_that_have_nothing_new() -> None:
    builder = KafkaSource.builder().set_bootstrap_servers("nowhere:1").set_topics("clicks")
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    enumerator = source.create_enumerator()
    assert enumerator.splits_found() == 0
    enumerator.restore({"version": 1, "partitions": [["clicks", n, 10, None, False] for n in range(3)]})
    assert enumerator.splits_found() == 3
