"""A job that fails again and again with one error at one place says so."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.restart_strategy import RestartStrategies
from penstock.driver.failures import Notices, RepeatedFailures
from penstock.errors import JobFailedError, StorageError, UserFunctionError
from penstock.graph.partitioner import Hash
from penstock.testing import EmbeddedJob, ListSink, ScriptedSource
from tests.embedded.jobs import Pipeline, key_of, master_of, memory_storage, numbered_script, settings


def texts(notices: Notices) -> list[str]:
    return [notice["text"] for notice in notices.to_json()]


def bug(port: int) -> UserFunctionError:
    return UserFunctionError(f"operator 'parse' failed on 'x' (slot 10.0.0.1:{port})\nTraceback …")


def test_the_same_error_at_the_same_epoch_three_times_in_a_row_is_said_until_the_epoch_completes() -> None:
    notices = Notices()
    failures = RepeatedFailures(notices)
    for port in (4001, 4002):
        failures.failed(bug(port), 7, 5)
        failures.epoch_completed(6)  # run again on the way there
    assert texts(notices) == []
    failures.failed(bug(4003), 7, 5)
    failures.failed(bug(4004), 7, 5)
    (text,) = texts(notices)
    assert "epoch 7 has failed 4 times in a row" in text
    assert "checkpoint 5" in text
    assert "operator 'parse' failed on 'x'" in text
    failures.epoch_completed(7)
    assert texts(notices) == []


@pytest.mark.parametrize("other", [(bug(1), 8), (StorageError("simulated: away"), 7)])
def test_another_error_or_another_epoch_begins_the_count_anew(other: Any) -> None:
    notices = Notices()
    failures = RepeatedFailures(notices)
    for _ in range(2):
        for error, epoch in ((bug(1), 7), (bug(1), 7), other):
            failures.failed(error, epoch, None)
    assert texts(notices) == []


def test_a_job_with_a_bug_says_so_while_it_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    def parse(value: Any) -> Any:
        if value[2] == 17:
            raise ValueError("17 is no number of ours")
        return value

    script = numbered_script(splits=1, per_split=40, epochs=8)
    job = (
        Pipeline()
        .source(ScriptedSource(script))
        .map(parse, 2, by=Hash(key_of))
        .sink(ListSink("repeated"))
        .build(settings(restart=RestartStrategies.fixed_delay_restart(4, 1000)))
    )
    runtime = EmbeddedJob(job, master_of(job, memory_storage()))
    said: list[int] = []
    runtime.on_failure = lambda error: said.append(len(texts(runtime.master.notices)))
    with pytest.raises(JobFailedError, match="17 is no number of ours"):
        runtime.run()
    assert said == [0, 0, 0, 1, 1], "from the third failure on"
    assert sum("failed 3 times in a row with the same error" in message for message in caplog.messages) == 1
