"""Chains of many operators."""

from __future__ import annotations

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment


def test_a_chain_of_a_thousand_operators_runs() -> None:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    stream = env.from_collection([1, 2, 3])
    for _ in range(1000):
        stream = stream.map(lambda value: value + 1)
    with stream.execute_and_collect() as results:
        assert list(results) == [1001, 1002, 1003]
