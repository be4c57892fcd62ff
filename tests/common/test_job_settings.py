from __future__ import annotations

import pickle
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from penstock.common import (
    ByteArraySchema,
    CompletableFuture,
    Encoder,
    ExecutionConfig,
    JobExecutionResult,
    JobID,
    JobStatus,
    RestartStrategies,
    SimpleStringSchema,
)
from penstock.errors import ConfigurationError, JobDefinitionError


def test_restart_strategies_take_milliseconds_or_timedeltas_and_are_equal_by_value() -> None:
    fixed = RestartStrategies.fixed_delay_restart(3, 1500)
    assert fixed == RestartStrategies.fixed_delay_restart(3, timedelta(seconds=1.5))
    assert fixed.get_restart_attempts() == 3
    assert fixed.get_delay_between_attempts_interval() == timedelta(seconds=1.5)
    rate = RestartStrategies.failure_rate_restart(2, 60_000, 100)
    assert (rate.get_max_failure_rate(), rate.get_failure_interval()) == (2, timedelta(minutes=1))
    assert len({fixed, rate, RestartStrategies.no_restart(), RestartStrategies.fall_back_restart()}) == 4
    assert pickle.loads(pickle.dumps(rate)) == rate


def test_a_strategy_made_by_its_class_accepts_milliseconds_too() -> None:
    made: Any = RestartStrategies.FixedDelayRestartStrategyConfiguration
    assert made(1, 10) == RestartStrategies.fixed_delay_restart(1, 10)
    with pytest.raises(TypeError, match="milliseconds"):
        made(1, "10 s")


@pytest.mark.parametrize(
    "settings",
    [(0, 10, 2.0, 10, 0.1), (10, 5, 2.0, 10, 0.1), (1, 5, 0.5, 10, 0.1), (1, 5, 2.0, 10, 1.5), (1, 5, 2.0, 10, -0.1)],
)
def test_an_exponential_delay_that_cannot_work_is_refused(settings: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError):
        RestartStrategies.exponential_delay_restart(*settings)
    assert RestartStrategies.exponential_delay_restart(1, 5, 2.0, 10, 0.1).get_max_backoff() == timedelta(
        milliseconds=5
    )


def test_a_suspended_job_is_terminal_here_but_not_everywhere() -> None:
    everywhere = {status for status in JobStatus if status.is_globally_terminal_state()}
    here = {status for status in JobStatus if status.is_terminal_state()}
    assert everywhere == {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}
    assert here - everywhere == {JobStatus.SUSPENDED}


def test_a_job_result_gives_its_accumulators() -> None:
    result = JobExecutionResult(JobID("abc"), 12, {"seen": 3})
    assert (str(result.get_job_id()), result.get_net_runtime()) == ("abc", 12)
    assert result.get_accumulator_result("seen") == 3
    assert result.get_accumulator_result("other") is None
    assert "abc" in str(result)


def test_execution_settings_are_checked_and_equal_by_value() -> None:
    config = ExecutionConfig().set_parallelism(4).set_max_parallelism(128).enable_object_reuse()
    config.set_global_job_parameters({"limit": 10})
    assert config.get_global_job_parameters() == {"limit": "10"}
    assert config.set_parallelism(ExecutionConfig.PARALLELISM_UNKNOWN).get_parallelism() == 4
    assert pickle.loads(pickle.dumps(config)) == config != ExecutionConfig()
    with pytest.raises(ConfigurationError, match="Parallelism must be at least 1"):
        config.set_parallelism(0)
    with pytest.raises(ConfigurationError, match="between 1 and 32768"):
        config.set_max_parallelism(32769)


def test_strings_and_bytes_travel_through_their_schemas() -> None:
    latin = SimpleStringSchema("ISO-8859-1")
    assert latin.serialize("é") == b"\xe9"
    assert latin.deserialize(b"\xe9") == "é"
    assert SimpleStringSchema().deserialize(b"a\xff") == "a\ufffd"
    assert ByteArraySchema().deserialize(ByteArraySchema().serialize(b"x")) == b"x"
    encoder = pickle.loads(pickle.dumps(Encoder.simple_string_encoder()))
    assert encoder.encode(("a", 1)) == b"('a', 1)\n"
    with pytest.raises(TypeError, match="serializes str"):
        SimpleStringSchema().serialize(1)
    with pytest.raises(JobDefinitionError, match="no character set 'klingon'"):
        SimpleStringSchema("klingon")


def test_a_completable_future_shows_what_the_work_gave_or_raised() -> None:
    good: Future[int] = Future()
    future = CompletableFuture(good)
    assert not future.done()
    assert future.exception() is None
    good.set_result(1)
    assert (future.done(), future.result(), future.exception()) == (True, 1, None)
    bad: Future[int] = Future()
    bad.set_exception(KeyError("x"))
    assert isinstance(CompletableFuture(bad).exception(), KeyError)
    pending = CompletableFuture[int](Future())
    assert pending.cancel()
    assert pending.cancelled()
    assert pending.exception() is None
