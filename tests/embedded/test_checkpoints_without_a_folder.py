"""`enable_checkpointing` with nothing that says where to: checkpoints are in memory, and a warning says what that is not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.common.restart_strategy import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import ListSink


def environment(**more: str) -> StreamExecutionEnvironment:
    config = {"penstock.runtime": "embedded", "penstock.epoch.interval": "1 ms", "penstock.epoch.max-records": "10"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({**config, **more}))
    return env


def test_enable_checkpointing_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    ListSink.clear("memory")
    env = environment()
    env.enable_checkpointing(10)
    env.from_sequence(1, 5).uid("numbers").sink_to(ListSink("memory")).uid("out")
    with caplog.at_level(logging.WARNING, "penstock"):
        env.execute("nothing else said")
    assert sorted(ListSink.results("memory")) == [1, 2, 3, 4, 5]
    assert any("driver's memory" in message for message in caplog.messages)


def test_a_job_that_names_no_folder_goes_on_after_a_failure_and_says_that_it_cannot_be_resumed(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    ListSink.clear("memory")
    calls = tmp_path / "calls"

    def fail_once(n: int) -> int:
        with calls.open("a") as file:
            file.write(f"{n}\n")
        if n == 57 and calls.read_text().splitlines().count("57") == 1:
            raise OSError("once")
        return n

    env = environment(**{"execution.checkpointing.interval": "0 ms"})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    env.from_sequence(1, 100).uid("numbers").map(fail_once).sink_to(ListSink("memory")).uid("out")
    with caplog.at_level(logging.WARNING, "penstock"):
        env.execute("without a folder")
    assert sorted(ListSink.results("memory")) == list(range(1, 101))
    told = [message for message in caplog.messages if "driver's memory" in message]
    assert len(told) == 1
    assert "'penstock.job.dir'" in told[0]
    called = calls.read_text().splitlines()
    assert (called.count("57"), called.count("1")) == (2, 1), "back to a checkpoint, not to the beginning"


def test_who_asks_for_memory_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    ListSink.clear("memory")
    env = environment(**{"execution.checkpointing.storage": "jobmanager"})
    env.enable_checkpointing(10)
    env.from_sequence(1, 5).uid("numbers").sink_to(ListSink("memory")).uid("out")
    with caplog.at_level(logging.WARNING, "penstock"):
        env.execute("in memory")
    assert not [message for message in caplog.messages if "driver's memory" in message]
