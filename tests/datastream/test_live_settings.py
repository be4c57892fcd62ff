"""Settings that are configured and settings that are made in code are one: getters see both, and the last one counts."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from penstock.common import Configuration, ExecutionConfig
from penstock.datastream import (
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.errors import ConfigurationError


def environment(settings: dict[str, str]) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"penstock.runtime": "embedded", **settings})
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def test_configs_show_what_the_environment_is_configured_with() -> None:
    env = environment(
        {
            "pipeline.max-parallelism": "64",
            "pipeline.object-reuse": "true",
            "pipeline.auto-watermark-interval": "50 ms",
            "pipeline.generic-types": "false",
            "execution.checkpointing.interval": "5 s",
            "execution.checkpointing.mode": "AT_LEAST_ONCE",
            "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
        }
    )
    assert env.get_config().get_max_parallelism() == env.get_max_parallelism() == 64
    assert env.get_config().is_object_reuse_enabled()
    assert env.get_config().get_auto_watermark_interval() == 50
    assert env.get_config().has_generic_types_disabled()
    checkpoints = env.get_checkpoint_config()
    assert (checkpoints.get_checkpoint_interval(), env.get_checkpoint_interval()) == (5000, 5000)
    assert checkpoints.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    retention = checkpoints.get_externalized_checkpoint_retention()
    assert retention is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION


def test_configure_goes_over_what_was_set_before_and_code_over_what_was_configured_before() -> None:
    env = environment({})
    env.set_max_parallelism(10).set_buffer_timeout(5)
    env.get_checkpoint_config().set_checkpoint_timeout(1000)
    env.configure(
        Configuration.from_dict(
            {
                "pipeline.max-parallelism": "20",
                "execution.buffer-timeout": "1 min",
                "execution.checkpointing.timeout": "12000",
                "parallelism.default": "3",
            }
        )
    )
    assert (env.get_max_parallelism(), env.get_buffer_timeout(), env.get_parallelism()) == (20, 60_000, 3)
    assert env.get_checkpoint_config().get_checkpoint_timeout() == 12_000
    env.get_config().set_max_parallelism(30)
    assert env.get_max_parallelism() == 30
    assert env._stream_graph(None, pickled=False).max_parallelism == 30


def test_object_reuse_that_is_configured_can_be_turned_off_in_code() -> None:
    env = environment({"pipeline.object-reuse": "true"})
    env.get_config().disable_object_reuse()
    assert not env.is_object_reuse_enabled()
    assert env._effective_configuration()["pipeline.object-reuse"] == "false"


class Greeting(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.greeting = runtime_context.get_job_parameter("greeting", "none")

    def map(self, value: Any) -> str:
        return self.greeting


def test_configured_job_parameters_reach_functions() -> None:
    env = environment({"pipeline.global-job-parameters": "greeting:'hello, you: all',other:1"})
    assert env.get_config().get_global_job_parameters() == {"greeting": "hello, you: all", "other": "1"}
    assert list(env.from_collection([1]).map(Greeting()).execute_and_collect()) == ["hello, you: all"]
    with pytest.raises(ConfigurationError, match="pairs such as"):
        environment({"pipeline.global-job-parameters": "greeting"})


def test_a_config_of_its_own_has_the_defaults() -> None:
    config = ExecutionConfig()
    assert (config.get_max_parallelism(), config.get_auto_watermark_interval()) == (-1, 200)
    assert config == ExecutionConfig()
    assert config.set_max_parallelism(5) != ExecutionConfig()


def test_the_plan_is_read_by_python_as_by_json() -> None:
    env = environment({})
    env.from_collection([1]).map(lambda n: n).print()
    plan = ast.literal_eval(env.get_execution_plan())
    assert [node["type"] for node in plan["nodes"]] == ["Collection Source", "Map", "Sink: Print to Std. Out"]
