"""Building iterations: what is refused, and what the graph looks like."""

from __future__ import annotations

import pytest

from penstock.common import Types
from penstock.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.errors import JobDefinitionError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import build_job_graph


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3]).map(lambda n: n)


def test_an_iteration_that_is_never_closed_is_refused_when_the_job_is_built(env: StreamExecutionEnvironment) -> None:
    numbers(env).iterate().name("loop").print()
    with pytest.raises(JobDefinitionError, match=r"'loop'.* has no feedback: call close_with"):
        env.execute()


def test_an_iteration_is_closed_once(env: StreamExecutionEnvironment) -> None:
    iteration = numbers(env).iterate()
    back = iteration.map(lambda n: n - 1)
    assert iteration.close_with(back) is back
    with pytest.raises(JobDefinitionError, match=r"closed already.*union"):
        iteration.close_with(back)


def test_feedback_must_come_from_the_iteration(env: StreamExecutionEnvironment) -> None:
    stream = numbers(env)
    iteration = stream.iterate()
    with pytest.raises(JobDefinitionError, match=r"'Map'.* does not come from iteration 'Iteration'"):
        iteration.close_with(stream)
    with pytest.raises(JobDefinitionError, match="does not come from iteration"):
        iteration.close_with(iteration.map(lambda n: n).union(numbers(env)))


def test_feedback_must_be_a_stream_of_the_same_environment(env: StreamExecutionEnvironment) -> None:
    iteration = numbers(env).iterate()
    with pytest.raises(JobDefinitionError, match="takes a DataStream, not a list"):
        iteration.close_with([1])  # type: ignore[arg-type]
    other = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(JobDefinitionError, match="another environment"):
        iteration.close_with(numbers(other))


def test_feedback_of_another_type_is_refused(env: StreamExecutionEnvironment) -> None:
    iteration = env.from_collection([1], Types.INT()).iterate()
    with pytest.raises(JobDefinitionError, match="with_feedback_type"):
        iteration.close_with(iteration.map(str, Types.STRING()))


def test_feedback_must_have_the_parallelism_of_the_iteration(env: StreamExecutionEnvironment) -> None:
    iteration = numbers(env).set_parallelism(2).iterate()
    iteration.name("loop")
    iteration.close_with(iteration.map(lambda n: n).name("back").set_parallelism(3))
    with pytest.raises(JobDefinitionError, match=r"'back'.* of iteration 'loop' has parallelism 3, the iteration 2"):
        env.explain()


def test_a_negative_wait_is_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(JobDefinitionError, match="at least 0, not -1"):
        numbers(env).iterate(-1)


def test_the_feedback_type_is_declared_before_the_iteration_is_used(env: StreamExecutionEnvironment) -> None:
    iteration = numbers(env).iterate()
    iteration.map(lambda n: n)
    with pytest.raises(JobDefinitionError, match="right after iterate"):
        iteration.with_feedback_type(Types.STRING())


def test_iterations_do_not_run_in_batch_mode_and_make_automatic_a_stream(env: StreamExecutionEnvironment) -> None:
    iteration = numbers(env).iterate()
    iteration.close_with(iteration.filter(lambda n: n > 5))
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    assert not env._is_batch()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    with pytest.raises(JobDefinitionError, match="iterations do not run in BATCH mode"):
        env.explain()


def test_the_plan_shows_where_the_feedback_goes(env: StreamExecutionEnvironment) -> None:
    iteration = numbers(env).rebalance().iterate()
    iteration.close_with(iteration.key_by(lambda n: n).reduce(max))
    text = env.explain()
    assert "↺ feedback to [1] in the next epoch" in text


def test_the_feedback_is_stored_under_the_uid_of_the_iteration(env: StreamExecutionEnvironment) -> None:
    iteration = numbers(env).iterate()
    iteration.uid("loop")
    iteration.close_with(iteration.map(lambda n: n - 1))
    graph = build_job_graph(env._stream_graph(None, pickled=False))
    assert {"loop", "loop-feedback"} <= graph.operators().keys()


def test_a_loop_knows_the_sources_and_the_loops_that_can_reach_it(env: StreamExecutionEnvironment) -> None:
    """before ─▶ outer ⟲ ( inner ⟲ ) ─▶ after ⟲ ◀─ other"""
    before = env.from_collection([1]).uid("before")
    outer = before.iterate()
    outer.uid("outer")
    inner = outer.map(lambda n: n).iterate()
    inner.uid("inner")
    inner.close_with(inner.map(lambda n: n))
    outer.close_with(inner.map(lambda n: n))
    after = inner.map(lambda n: n).union(env.from_collection([2]).uid("other")).iterate()
    after.uid("after")
    after.close_with(after.map(lambda n: n))
    graph = ExecutionGraph(build_job_graph(env._stream_graph(None, pickled=False)))
    known = {loop.tail: (set(loop.sources), set(loop.tails)) for loop in graph.loops}
    both = {"outer-feedback", "inner-feedback"}
    assert known == {
        "outer-feedback": ({"before"}, both),
        "inner-feedback": ({"before"}, both),
        "after-feedback": ({"before", "other"}, both | {"after-feedback"}),
    }
