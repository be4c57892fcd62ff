"""A running job can be seen and steered through its folder, without a dispatcher."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.checkpoint import savepoint
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.state_data import Read, StateEntry
from penstock.common.job import CompletableFuture, JobStatus
from penstock.driver.client import JobClient
from penstock.driver.control import state_browser
from penstock.driver.control.control import JobControl
from penstock.driver.control.facts import FactsRecorder
from penstock.driver.control.home import JobHome
from penstock.driver.control.resource_manager import ResourceManager
from penstock.engine.sampling import Sample
from penstock.errors import NoCheckpointError, NoResourceAvailableError
from penstock.protocol.ids import CheckpointId, Generation
from penstock.service.documents.jobs import details
from penstock.service.endpoint import Endpoint, UnknownServerError
from tests.driver.jobs import endless, eventually


def _endpoint(home: Path, job_id: str) -> Endpoint:
    control = JobHome(home).job(job_id).control()
    assert control is not None
    return Endpoint(control["address"], control["token"])


def test_a_job_tells_its_facts_and_is_cancelled_through_its_endpoint(tmp_path: Path) -> None:
    client = endless(tmp_path)
    job_id = str(client.get_job_id())
    endpoint = _endpoint(tmp_path, job_id)
    facts = eventually(
        lambda: (f := endpoint.ask("GET", f"/jobs/{job_id}/facts").body)["totals"]["epochs"] > 5 and f, "epochs"
    )
    assert (facts["state"], facts["name"], facts["slots"]) == ("RUNNING", "endless", 2)
    source, keyed = facts["vertices"]
    assert (
        sum(keyed["subtasks"]["records_in"]) == sum(source["subtasks"]["records_out"]) == facts["totals"]["records_in"]
    )
    assert sum(keyed["rates"]["records_in_per_second"]) > 0
    assert all(busy + pressed + idle == pytest.approx(1.0, abs=0.001) for busy, pressed, idle in zip(
        keyed["rates"]["busy"], keyed["rates"]["back_pressured"], keyed["rates"]["idle"], strict=True))  # fmt: skip
    assert facts["checkpoints"]["counts"]["completed"] == facts["totals"]["epochs"]
    client._job.master.notices.say("no-executor", "no executor has been registered")
    shown = endpoint.ask("GET", f"/jobs/{job_id}/facts").body
    assert [notice["text"] for notice in shown["notices"]] == ["no executor has been registered"]
    assert details(shown, None)["notices"] == shown["notices"], "what the page is made from"
    assert endpoint.ask("PATCH", f"/jobs/{job_id}", {"mode": "cancel"}).status == 202
    client.get_job_execution_result().result()
    folder = JobHome(tmp_path).job(job_id)
    ended = folder.facts()
    assert ended is not None
    assert ended["state"] == "CANCELED"
    assert ended["end_ms"] >= ended["start_ms"]
    assert ended["notices"] == []
    assert folder.control() is None


def test_control_files_are_for_their_owner_only_and_a_wrong_token_is_refused(tmp_path: Path) -> None:
    client = endless(tmp_path, **{"my.password": "hush"})
    job_id = str(client.get_job_id())
    try:
        folder = JobHome(tmp_path).job(job_id)
        for name in ("control.json", "facts.json"):
            assert stat.S_IMODE(os.stat(folder.path / name).st_mode) == 0o600
        good = _endpoint(tmp_path, job_id)
        assert Endpoint(good.address).ask("GET", f"/jobs/{job_id}/facts").status == 401
        with pytest.raises(UnknownServerError, match="was told nothing"):
            Endpoint(good.address, "wrong").ask("GET", f"/jobs/{job_id}/facts")
        facts = good.ask("GET", f"/jobs/{job_id}/facts").body
        assert facts["configuration"]["my.password"] == "******"
        assert good.ask("GET", f"/jobs/{'0' * 32}/facts").status == 404
        assert good.ask("GET", "/elsewhere").status == 404
        assert good.ask("PATCH", f"/jobs/{job_id}", {"mode": "explode"}).status == 400
        assert good.ask("POST", f"/jobs/{job_id}/savepoints", raw=b"[1]").status == 400
        assert good.ask("POST", f"/jobs/{job_id}/savepoints", raw=b"{").status == 400
    finally:
        client.cancel().result()


def test_history_goes_on_when_the_job_is_started_again_under_its_id(tmp_path: Path) -> None:
    job_id = "ab" * 16
    first = endless(tmp_path, job_id)
    folder = JobHome(tmp_path).job(job_id)
    eventually(lambda: len(first.epoch_reports()) > 3, "epochs")
    first.cancel().result()
    before = folder.facts()
    assert before is not None
    from penstock.driver.control import attach

    attach._given.clear()  # as in a new process
    second = endless(tmp_path, job_id)
    eventually(lambda: len(second.epoch_reports()) > 3, "epochs")
    second.cancel().result()
    after = folder.facts()
    assert after is not None
    assert after["drivers"] == 2
    assert after["start_ms"] == before["start_ms"]
    assert after["totals"]["records_in"] > before["totals"]["records_in"]
    assert after["transitions"][: len(before["transitions"])] == before["transitions"]
    assert after["checkpoints"]["counts"]["restored"] == 1
    assert after["checkpoints"]["restored"]["id"] == before["checkpoints"]["history"][-1]["id"]


def test_a_job_that_asks_for_more_slots_than_are_free_is_told_who_has_them(tmp_path: Path) -> None:
    manager = ResourceManager(JobHome(tmp_path))
    manager.offer(3)
    first = endless(tmp_path)
    try:
        with pytest.raises(
            NoResourceAvailableError,
            match=rf"needs 2 slots.*1 of 3 are free \({first.get_job_id().__str__()[:8]} has 2\)",
        ):
            endless(tmp_path)
        assert (manager.count().taken, manager.count().free) == (2, 1)
        job_id = str(first.get_job_id())
        endpoint = _endpoint(tmp_path, job_id)
        refused = endpoint.ask("PATCH", f"/jobs/{job_id}/rescaling", {"parallelism": "4"})
        assert refused.status == 409
        assert "needs 4 slots" in refused.body["errors"][0]
        for parallelism in (3, 1):
            trigger = endpoint.ask("PATCH", f"/jobs/{job_id}/rescaling", {"parallelism": str(parallelism)}).body[
                "request-id"
            ]
            path = f"/jobs/{job_id}/rescaling/{trigger}"
            done = eventually(lambda p=path: (d := endpoint.ask("GET", p).body)["operation"] and d, "the rescale")  # type: ignore[misc]
            assert "failure-cause" not in done["operation"]
            assert manager.count().taken == parallelism
    finally:
        first.cancel().result()
    assert manager.count().free == 3


def test_a_job_that_follows_its_load_takes_no_more_slots_than_are_offered(tmp_path: Path) -> None:
    manager = ResourceManager(JobHome(tmp_path))
    manager.offer(4)
    manager.acquire("a" * 32, 1)
    automatic = {"enabled": "true", "min": "4", "max": "8", "cooldown": "1"}
    job = endless(tmp_path, **{f"penstock.rescale.auto.{key}": value for key, value in automatic.items()})

    def width() -> int:
        reports = job.epoch_reports()
        return int(reports[-1].vertices[-1]["parallelism"]) if reports else 0

    try:
        eventually(lambda: width() == 3, "it goes to what is left")
        epoch = job.epoch_reports()[-1].epoch
        eventually(lambda: job.epoch_reports()[-1].epoch > epoch + 10, "it goes on")
        assert width() == 3
        assert manager.claims() == {"a" * 32: 1, str(job.get_job_id()): 3}
        manager.release("a" * 32)
        eventually(lambda: width() == 4, "it gets what is free again")
        eventually(lambda: manager.count().taken == 4, "and has it")
    finally:
        job.cancel().result()


def test_a_job_whose_folder_disappears_goes_on(tmp_path: Path) -> None:
    client = endless(tmp_path / "home", **{"penstock.job.dir": str(tmp_path / "job")})
    (tmp_path / "home").rename(tmp_path / "elsewhere")  # at once: a write may be under way
    epochs = len(client.epoch_reports())
    eventually(lambda: len(client.epoch_reports()) > epochs + 5, "epochs")
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_a_claim_of_a_dead_process_counts_no_more(tmp_path: Path) -> None:
    manager = ResourceManager(JobHome(tmp_path))
    manager.offer(2)
    manager.acquire("a" * 32, 2)
    state = json.loads((tmp_path / "slots.json").read_text())
    state["claims"]["a" * 32]["process_start_time"] -= 1000  # the pid belongs to another process now
    (tmp_path / "slots.json").write_text(json.dumps(state))
    manager.acquire("b" * 32, 2)
    assert manager.claims() == {"b" * 32: 2}


class _Client:
    """A JobClient whose long actions end when the test says so."""

    def __init__(self) -> None:
        self.future: Future[str] = Future()
        self.asked: list[Any] = []
        self.manifest: Manifest | None = None

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        future: Future[JobStatus] = Future()
        future.set_result(JobStatus.RUNNING)
        return CompletableFuture(future)

    def cancel(self) -> CompletableFuture[None]:
        raise AssertionError("not asked for")

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        self.asked.append(savepoint_directory)
        return CompletableFuture(self.future)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        self.asked.append((advance_to_end_of_event_time, savepoint_directory))
        return CompletableFuture(self.future)

    def trigger_checkpoint(self, checkpoint_type: str = "CONFIGURED") -> CompletableFuture[Any]:
        self.asked.append(checkpoint_type)
        return CompletableFuture(self.future)

    def rescale(self, parallelism: int) -> CompletableFuture[str]:
        self.asked.append(parallelism)
        return CompletableFuture(self.future)

    def sample(self, seconds: float) -> Counter[Sample]:
        return Counter()

    def read_checkpoint(self, use: Callable[[Manifest, Read], dict[str, Any]]) -> dict[str, Any]:
        if self.manifest is None:
            raise NoCheckpointError("there is none")
        return use(self.manifest, savepoint.read_absolute)


@pytest.fixture
def steered() -> tuple[JobControl, _Client]:
    from penstock.graph.execution_graph import ExecutionGraph
    from penstock.graph.job_graph import JobGraph, JobVertex
    from penstock.graph.stream_graph import StreamNode
    from penstock.protocol.ids import NodeId, VertexId

    node = StreamNode(id=NodeId(1), name="in", kind="source", operator=b"", parallelism=1)
    graph = ExecutionGraph(
        JobGraph(job_name="x", max_parallelism=128, vertices={VertexId(1): JobVertex(id=VertexId(1), nodes=[node])})
    )
    client = _Client()
    facts = FactsRecorder(
        job_id="j", graph=lambda: graph, configuration={}, runtime="embedded", storage_url=None, process={},
        life_cycle=lambda: {"state": "RUNNING", "transitions": [], "exceptions": []},
    )  # fmt: skip
    return JobControl("j", cast(JobClient, client), facts, lambda: None), client


def test_a_savepoint_has_a_trigger_id_and_its_place_once_it_is_there(steered: tuple[JobControl, _Client]) -> None:
    control, client = steered
    begun = control.handle("POST", "/jobs/j/savepoints", {}, {"target-directory": "/sp"})
    assert begun.status == 202
    path = f"/jobs/j/savepoints/{begun.body['request-id']}"
    assert control.handle("GET", path, {}, {}).body == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    client.future.set_result("/sp/savepoint-1")
    control.settle(5.0)
    assert control.handle("GET", path, {}, {}).body == {
        "status": {"id": "COMPLETED"}, "operation": {"location": "/sp/savepoint-1"},
    }  # fmt: skip
    assert client.asked == ["/sp"]
    history = control.handle("GET", "/jobs/j/facts", {}, {}).body["checkpoints"]["history"]
    assert [(c["is_savepoint"], c["path"]) for c in history] == [(True, "/sp/savepoint-1")]
    assert control.handle("GET", f"/jobs/j/savepoints/{'0' * 32}", {}, {}).status == 404


def test_a_failed_action_says_why_and_one_that_outlives_its_job_ends_with_it(
    steered: tuple[JobControl, _Client],
) -> None:
    control, client = steered
    failed = control.handle("POST", "/jobs/j/stop", {}, {"drain": True, "targetDirectory": "/sp"}).body["request-id"]
    client.future.set_exception(OSError("disk full"))
    control.settle(5.0)
    client.future = Future()
    pending = control.handle("PATCH", "/jobs/j/rescaling", {"parallelism": "4"}, {}).body["request-id"]
    control.settle(0.0)
    answers = [
        control.handle("GET", f"/jobs/j/{path}", {}, {}).body["operation"]["failure-cause"]
        for path in (f"savepoints/{failed}", f"rescaling/{pending}")
    ]
    assert answers[0] == {"class": "builtins.OSError", "stack-trace": "disk full"}
    assert "job ended" in answers[1]["stack-trace"]
    assert client.asked == [(True, "/sp"), 4]
    client.future.set_result("late")


@pytest.mark.parametrize("parallelism", ["", "0", "-1", "x", "99999", "²"])
def test_a_parallelism_that_is_none_is_refused(steered: tuple[JobControl, _Client], parallelism: str) -> None:
    assert steered[0].handle("PATCH", "/jobs/j/rescaling", {"parallelism": parallelism}, {}).status == 400


def test_what_is_shown_of_state_is_bounded_and_says_so() -> None:
    assert state_browser.shown([1, "a"]) == {"value": [1, "a"], "text": "[1, 'a']", "shortened": False}
    huge = state_browser.shown("x" * 1_000_000)
    assert (huge["value"], huge["shortened"], len(huge["text"])) == (None, True, 10_000)
    assert huge["text"].endswith("x…")
    entry = StateEntry(key_group=1, key="k" * 1000, value=list(range(1000)))
    shown = state_browser.shown_entry(entry)
    assert (len(shown["key"]), len(shown["text"]), shown["shortened"]) == (300, 300, True)
    assert not state_browser.shown_entry(StateEntry(key_group=1, key="k", value=1))["shortened"]


def test_state_is_asked_for_by_a_key_in_json_or_without_one(steered: tuple[JobControl, _Client]) -> None:
    control, client = steered
    query = {"uid": "count", "name": "total", "key": '["a", 1]'}
    assert control.handle("GET", "/jobs/j/states", {}, {}).body == {"checkpoint": None, "states": []}
    assert control.handle("GET", "/jobs/j/state", query, {}).status == 404
    client.manifest = Manifest(
        job_id="j", job_name="n", checkpoint_id=CheckpointId(7), epoch=7, generation=Generation(1), created_ms=0,
        processing_time_ms=0, max_parallelism=128,
    )  # fmt: skip
    assert state_browser.parse_key(query["key"]) == ("a", 1)
    found = control.handle("GET", "/jobs/j/state", query, {})
    assert (found.status, found.body["text"], found.body["checkpoint"]) == (200, "None", 7)
    assert control.handle("GET", "/jobs/j/states", {}, {}).body == {"checkpoint": 7, "states": []}
    assert control.handle("GET", "/jobs/j/state", {**query, "key": "a"}, {}).status == 400
    assert control.handle("GET", "/jobs/j/state", {"uid": "count"}, {}).status == 400
    absent = control.handle("GET", "/jobs/j/state", {"uid": "count", "name": "absent"}, {})
    assert absent.status == 404
    assert "no entries of state 'absent' of operator 'count'" in absent.body["errors"][0]
