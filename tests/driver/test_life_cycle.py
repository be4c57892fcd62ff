"""The life of a job: legal ways through the states, and what is remembered of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Configuration
from penstock.common.job import JobStatus as S
from penstock.common.restart_strategy import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.control.facts import FactsRecorder
from penstock.driver.life_cycle import SUCCESSORS, Failure, LifeCycle
from penstock.errors import JobFailedError, ProtocolError
from penstock.state.keys import key_group, subtask_of


def _story(life: LifeCycle) -> list[str]:
    return [step.state for step in life.transitions]


def test_a_job_that_fails_twice_and_then_finishes_shows_every_step_with_its_time() -> None:
    life = LifeCycle(0)
    for at, state in enumerate((S.CREATED, S.RUNNING), start=1):
        assert life.advance(state, at)
    life.failed(Failure.of(ValueError("no"), 3))
    life.advance(S.RESTARTING, 4)
    life.failed(Failure.of(KeyError("again"), 5))
    life.advance(S.RESTARTING, 6)
    life.advance(S.RUNNING, 7)
    life.reached(S.FINISHED, 8)
    assert _story(life) == [
        "INITIALIZING", "CREATED", "RUNNING", "FAILING", "RESTARTING", "FAILING", "RESTARTING", "RUNNING", "FINISHED",
    ]  # fmt: skip
    assert [(failure.at_ms, failure.name) for failure in life.failures] == [
        (3, "builtins.ValueError"),
        (5, "builtins.KeyError"),
    ]
    stamps = life.timestamps()
    assert (stamps["RUNNING"], stamps["RESTARTING"], stamps["FINISHED"], stamps["CANCELED"]) == (7, 6, 8, 0)


def test_a_job_on_its_way_out_is_not_called_back_by_a_restart() -> None:
    life = LifeCycle(0)
    life.advance(S.CREATED, 1)
    life.advance(S.RUNNING, 2)
    life.advance(S.CANCELLING, 3)
    assert not life.advance(S.RESTARTING, 4)
    assert not life.advance(S.RUNNING, 5)
    life.reached(S.CANCELED, 6)
    assert not life.advance(S.RUNNING, 7)
    assert life.state is S.CANCELED


def test_a_step_that_no_order_of_events_explains_is_refused_with_the_story() -> None:
    life = LifeCycle(0)
    with pytest.raises(ProtocolError, match=r"from INITIALIZING to FINISHED; its story: INITIALIZING"):
        life.advance(S.FINISHED, 1)


def test_terminal_states_are_the_ones_without_successors() -> None:
    assert {state for state, after in SUCCESSORS.items() if not after} == {
        s for s in S if s.is_globally_terminal_state()
    }
    assert set(SUCCESSORS) == set(S)


@given(st.lists(st.sampled_from(S), max_size=30))
def test_whatever_is_asked_for_only_legal_steps_are_made_and_the_history_is_bounded(wanted: list[S]) -> None:
    life = LifeCycle(0)
    for at, state in enumerate(wanted):
        before = life.state
        try:
            moved = life.advance(state, at)
        except ProtocolError:
            moved = False
        assert moved == (life.state is not before)
        assert not moved or state in SUCCESSORS[before]
    assert _story(life)[-1] == life.state.name


def facts_of(life: LifeCycle) -> FactsRecorder:
    """Of a driver process of one and the same job."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    described = env._describe("told")
    return FactsRecorder(
        job_id="job",
        graph=lambda: described.graph,
        life_cycle=life.to_json,
        configuration={},
        runtime="embedded",
        storage_url=None,
        process={},
        clock=lambda: 10,
    )


def test_history_of_an_earlier_process_comes_first() -> None:
    first, second = LifeCycle(0), LifeCycle(10)
    first.failed(Failure.of(ValueError("old"), 1))
    later = facts_of(second)
    later.continue_from(facts_of(first).snapshot())
    second.failed(Failure.of(ValueError("new"), 11))
    told = later.snapshot()
    assert [step["state"] for step in told["transitions"]] == ["INITIALIZING", "FAILING", "INITIALIZING", "FAILING"]
    assert [failure["message"] for failure in told["exceptions"]] == ["old", "new"]
    assert told["drivers"] == 2


def test_the_history_of_another_job_is_not_this_ones() -> None:
    facts = facts_of(LifeCycle(10))
    facts.continue_from({**facts_of(LifeCycle(0)).snapshot(), "job_id": "another"})
    assert facts.snapshot()["drivers"] == 1


def test_a_jobs_client_has_the_whole_story_of_a_failed_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    subtask = subtask_of(key_group(1, 128), 4, 128)
    keyed = env.set_parallelism(4).from_collection([1]).key_by(lambda n: n)
    keyed.map(lambda n: n // 0).uid("div").disable_chaining().print().disable_chaining()
    client = env.execute_async()
    with pytest.raises(JobFailedError):
        client.get_job_execution_result().result()
    story = client.life_cycle()
    assert [step["state"] for step in story["transitions"]] == [
        "INITIALIZING", "CREATED", "RUNNING", "FAILING", "RESTARTING", "RUNNING", "FAILING", "FAILED",
    ]  # fmt: skip
    assert len(story["exceptions"]) == 2
    assert "'div'" in story["exceptions"][0]["message"]
    assert "ZeroDivisionError" in story["exceptions"][0]["stacktrace"]
    assert story["exceptions"][0]["task"] == f"Map ({subtask + 1}/4)"
    assert client.get_job_status().result() is S.FAILED


def test_a_cancelled_job_ends_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    small_epochs = Configuration().set_string("penstock.epoch.max-records", "10")
    env = StreamExecutionEnvironment.get_execution_environment(small_epochs)
    env.from_sequence(0, 10**9).filter(lambda n: False).print()
    client = env.execute_async()
    client.cancel().result()
    assert client.get_job_status().result() is S.CANCELED
    assert [step["state"] for step in client.life_cycle()["transitions"]][-2:] == ["CANCELLING", "CANCELED"]
