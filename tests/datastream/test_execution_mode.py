"""How a job is run, as the program tells it before there is a Spark."""

from __future__ import annotations

from importlib import metadata

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment


def told(**settings: str) -> str:
    config = Configuration.from_dict({key.replace("_", "."): value for key, value in settings.items()})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(3)
    env.from_collection([1]).map(str).key_by(lambda s: s).reduce(lambda a, b: a).print()
    return str(env.explain()).splitlines()[1]


def test_auto_says_how_many_task_slots_a_pipelined_job_takes() -> None:
    assert told() == "runs pipelined if 9 task slots of Spark are free, else in epochs"


def test_an_older_spark_is_named_as_the_reason_for_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", {"pyspark": "4.2.1"}.__getitem__)
    assert told() == "runs in epochs: Spark 4.2.1 cannot stream between stages; 4.3 or later can"


def test_what_was_asked_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(penstock_execution_mode="epochs") == "runs epochs: penstock.execution.mode says so"
    monkeypatch.setenv("PENSTOCK_EXECUTION_MODE", "pipelined")
    assert told(penstock_execution_mode="epochs").startswith("runs pipelined:"), "the variable goes over the setting"


def test_the_older_names_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(penstock_runtime="embedded").startswith("runs embedded:")
    monkeypatch.setenv("PENSTOCK_RUNTIME", "spark")
    assert told(penstock_runtime="embedded").startswith("runs pipelined if"), "spark means auto"


def test_at_most_once_runs_in_epochs() -> None:
    assert "AT_MOST_ONCE" in told(execution_checkpointing_mode="AT_MOST_ONCE")
