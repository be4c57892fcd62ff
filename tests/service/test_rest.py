"""REST in Flink's shape: what clients of Flink's find, and what bad requests get."""

from __future__ import annotations

import errno
import io
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.checkpoint import manifest_file
from penstock.checkpoint.manifest import Manifest
from penstock.common import Configuration, WatermarkStrategy
from penstock.common.secrets import nonce
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.driver.control import challenge
from penstock.driver.control.answers import refuse
from penstock.driver.control.control import JobControl
from penstock.driver.control.home import JobHome
from penstock.errors import JobDefinitionError
from penstock.protocol.ids import CheckpointId, Generation
from penstock.service.dispatcher import Dispatcher
from penstock.service.documents import checkpoints, jobs
from penstock.service.dry_run import plan_of
from penstock.service.endpoint import Endpoint, UnknownServerError
from penstock.service.program import UserProgram
from penstock.service.prometheus import METRICS
from penstock.service.rest import programs
from penstock.service.rest.app import create_app
from penstock.service.submission import Submission, asked_for
from penstock.service.uploads import UploadedPrograms
from tests.driver.jobs import endless, eventually
from tests.service.programs import ENDLESS, FAILING, program
from tests.service.served import served

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def dispatcher(home: Path) -> Iterator[Dispatcher]:
    made = Dispatcher(JobHome(home), slots=16)
    yield made
    made.close()


@pytest.fixture(scope="module")
def job(home: Path, dispatcher: Dispatcher) -> Iterator[JobClient]:
    client = endless(home)
    eventually(lambda: len(client.epoch_reports()) > 5, "epochs")
    yield client
    client.cancel().result()


@pytest.fixture(scope="module")
def rest(dispatcher: Dispatcher) -> Iterator[httpx.Client]:
    with served(create_app(dispatcher, token="t", largest_body=1 << 20), "t") as client:
        yield client


def _get(rest: httpx.Client, path: str) -> Any:
    answer = rest.get(path)
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


def test_a_job_is_listed_and_described_as_flink_does(rest: httpx.Client, job: JobClient) -> None:
    job_id = str(job.get_job_id())
    assert {"id": job_id, "status": "RUNNING"} in _get(rest, "/jobs")["jobs"]
    listed = next(j for j in _get(rest, "/v1/jobs/overview")["jobs"] if j["jid"] == job_id)
    assert (listed["state"], listed["end-time"], listed["tasks"]["running"]) == ("RUNNING", -1, 4)
    found = _get(rest, f"/jobs/{job_id}")
    assert (found["jid"], found["name"], found["state"]) == (job_id, "endless", "RUNNING")
    assert found["timestamps"]["RUNNING"] >= found["timestamps"]["CREATED"] > 0
    source, keyed = found["vertices"]
    assert keyed["metrics"]["read-records"] == source["metrics"]["write-records"] > 0
    assert _get(rest, f"/jobs/{job_id}/plan")["plan"]["nodes"][1]["inputs"] == [
        {"num": 0, "id": source["id"], "ship_strategy": "HASH", "exchange": "spark_shuffle"}
    ]
    assert _get(rest, f"/jobs/{job_id}/exceptions")["exceptionHistory"] == {"entries": [], "truncated": False}
    assert _get(rest, f"/jobs/{job_id}/config")["execution-config"]["job-parallelism"] == 2
    overview = _get(rest, "/overview")
    assert (overview["jobs-running"], overview["slots-total"], overview["slots-available"]) == (1, 16, 14)
    assert overview["taskmanagers"] == len(_get(rest, "/taskmanagers")["taskmanagers"]) == 1


def test_vertices_show_subtasks_back_pressure_watermarks_and_metrics(rest: httpx.Client, job: JobClient) -> None:
    base = f"/jobs/{job.get_job_id()}"
    vertex = f"{base}/vertices/{_get(rest, base)['vertices'][1]['id']}"
    subtasks = _get(rest, vertex)["subtasks"]
    assert [(s["subtask"], s["status"]) for s in subtasks] == [(0, "RUNNING"), (1, "RUNNING")]
    pressure = _get(rest, f"{vertex}/backpressure")
    assert pressure["status"] == "ok"
    assert all(abs(s["ratio"] + s["busyRatio"] + s["idleRatio"] - 1) < 0.001 for s in pressure["subtasks"])
    assert [w["id"] for w in _get(rest, f"{vertex}/watermarks")] == [
        "0.currentInputWatermark",
        "1.currentInputWatermark",
    ]
    names = [m["id"] for m in _get(rest, f"{vertex}/metrics")]
    assert "1.numRecordsIn" in names
    assert int(_get(rest, f"{vertex}/metrics?get=1.numRecordsIn,absent")[0]["value"].partition(".")[0]) > 0
    assert _get(rest, f"{vertex}/subtasks/1")["subtask"] == 1
    assert rest.get(f"{vertex}/subtasks/2").status_code == 404
    for rest_of_path in ("subtasks", "subtasktimes", "accumulators"):
        assert _get(rest, f"{vertex}/{rest_of_path}")["id"] == vertex.rpartition("/")[2]


def test_checkpoints_have_details_for_each_subtask(rest: httpx.Client, job: JobClient) -> None:
    base = f"/jobs/{job.get_job_id()}"
    statistics = _get(rest, f"{base}/checkpoints")
    assert statistics["counts"]["completed"] >= 5
    completed = [entry for entry in statistics["history"] if entry["status"] == "COMPLETED"]
    assert statistics["latest"]["completed"]["id"] == completed[0]["id"]
    newest = completed[0]
    vertex, task = next(iter(newest["tasks"].items()))
    details = _get(rest, f"{base}/checkpoints/details/{newest['id']}/subtasks/{vertex}")
    assert [s["checkpointed_size"] for s in details["subtasks"]] != []
    assert sum(s["checkpointed_size"] for s in details["subtasks"]) == task["checkpointed_size"]
    assert _get(rest, f"{base}/checkpoints/details/{newest['id']}")["id"] == newest["id"]
    assert rest.get(f"{base}/checkpoints/details/999999").status_code == 404
    config = _get(rest, f"{base}/checkpoints/config")
    assert (config["mode"], config["interval"], config["timeout"]) == ("exactly_once", 0, 600_000)


def test_metrics_are_aggregated_over_subtasks_and_jobs(rest: httpx.Client, job: JobClient) -> None:
    base = f"/jobs/{job.get_job_id()}"
    path = f"{base}/vertices/{_get(rest, base)['vertices'][1]['id']}"
    assert {"id": "numRecordsIn"} in _get(rest, f"{path}/subtasks/metrics")
    (whole,) = _get(rest, f"{path}/subtasks/metrics?get=stateEntries,absent")
    assert whole["avg"] * 2 == whole["sum"] == whole["min"] + whole["max"]
    (one,) = _get(rest, f"{path}/subtasks/metrics?get=numRecordsIn&agg=max&subtasks=1")
    assert set(one) == {"id", "max"}
    assert _get(rest, f"{path}/subtasks/metrics?get=numRecordsIn&subtasks=7-9") == []
    for bad in ("agg=median", "subtasks=a", "subtasks=1-"):
        assert rest.get(f"{path}/subtasks/metrics?get=numRecordsIn&{bad}").status_code == 400
    (epochs,) = _get(rest, f"/jobs/metrics?get=numEpochs&jobs={job.get_job_id()}&agg=sum,min")
    assert epochs["sum"] == epochs["min"] > 5
    assert float(_get(rest, f"{path}/subtasks/1/metrics?get=numRecordsIn")[0]["value"]) > 0
    assert _get(rest, f"{path}/subtasks/1/attempts/0")["subtask"] == 1
    for absent in ("subtasks/2/metrics", "subtasks/2/attempts/0", "subtasks/1/attempts/1"):
        assert rest.get(f"{path}/{absent}").status_code == 404
    assert {"key": "penstock.runtime", "value": "embedded"} in _get(rest, f"{base}/jobmanager/config")
    processes = _get(rest, f"{path}/taskmanagers")["taskmanagers"]
    assert [entry["status-counts"]["RUNNING"] for entry in processes] == [2]


def test_upper_bounds_rescale_a_job_and_its_end_is_told_as_flink_does(rest: httpx.Client, home: Path) -> None:
    client = endless(home)
    base = f"/jobs/{client.get_job_id()}"
    assert _get(rest, f"{base}/execution-result") == {"status": {"id": "IN_PROGRESS"}, "job-execution-result": None}
    path = f"{base}/resource-requirements"
    first, second = _get(rest, path)
    bounds = {n: {"parallelism": {"lowerBound": 1, "upperBound": n}} for n in (0, 2, 3, 4)}
    assert rest.put(path, json={first: bounds[2]}).json() == {}
    wrong: list[dict[str, Any]] = [
        {first: bounds[3], second: bounds[4]}, {"0" * 32: bounds[3]}, {first: bounds[0]}, {first: {}},
    ]  # fmt: skip
    for bad in wrong:
        assert rest.put(path, json=bad).status_code == 400
    trigger_id = rest.put(path, json={first: bounds[3], second: bounds[3]}).json()["request-id"]
    eventually(lambda: _get(rest, f"{base}/rescaling/{trigger_id}")["status"]["id"] == "COMPLETED", "it is rescaled")
    assert _get(rest, path)[second]["parallelism"]["upperBound"] == 3
    client.cancel().result()
    result = _get(rest, f"{base}/execution-result")["job-execution-result"]
    assert (result["application-status"], result["id"]) == ("CANCELED", str(client.get_job_id()))
    assert _get(rest, f"{base}/accumulators")["user-task-accumulators"] == []


def test_logs_of_drivers_are_listed_and_read(rest: httpx.Client, dispatcher: Dispatcher, tmp_path: Path) -> None:
    job_id = dispatcher.submit(
        UserProgram(entry=str(program(tmp_path, "job.py", ENDLESS))), {}, runtime="embedded", folder=str(tmp_path)
    )
    eventually(lambda: "the program's words" in rest.get(f"/jobmanager/logs/{job_id}.log").text, "its words")
    assert f"{job_id}.log" in [log["name"] for log in _get(rest, "/jobmanager/logs")["logs"]]
    for path in ("..%2fslots.json", "x.log", f"{'0' * 32}.log"):
        assert rest.get(f"/jobmanager/logs/{path}").status_code == 404
    where = eventually(
        lambda: [t["id"] for t in _get(rest, "/taskmanagers")["taskmanagers"] if t["job"] == job_id], "its process"
    )[0]
    assert "the program's words" in rest.get(f"/taskmanagers/{where}/log").text
    assert [log["name"] for log in _get(rest, f"/taskmanagers/{where}/logs")["logs"]] == [f"{job_id}.log"]
    assert rest.get("/taskmanagers/elsewhere:1/log").status_code == 404
    assert {entry["key"] for entry in _get(rest, "/jobmanager/config")} == {"penstock.job.home", "slots"}
    assert float(_get(rest, "/jobmanager/metrics?get=taskSlotsTotal")[0]["value"]) == 16
    assert "MainThread" in [t["threadName"] for t in _get(rest, "/jobmanager/thread-dump")["threadInfos"]]
    assert "Python" in _get(rest, "/jobmanager/environment")["jvm"]["version"]
    rest.patch(f"/jobs/{job_id}")
    eventually(lambda: _get(rest, f"/jobs/{job_id}/status")["status"] == "CANCELED", "it ends")


@pytest.mark.parametrize("kind", ["CONFIGURED", "FULL", "INCREMENTAL"])
def test_a_checkpoint_is_taken_when_it_is_asked_for(rest: httpx.Client, job: JobClient, kind: str) -> None:
    path = f"/jobs/{job.get_job_id()}/checkpoints"
    trigger_id = uuid.uuid4().hex
    for _ in range(2):  # the same id is the same action
        begun = rest.post(path, json={"checkpointType": kind, "triggerId": trigger_id})
        assert (begun.status_code, begun.json()) == (202, {"request-id": trigger_id})
    done = eventually(lambda: (d := _get(rest, f"{path}/{trigger_id}"))["status"]["id"] == "COMPLETED" and d, "its end")
    number = done["operation"]["checkpointId"]
    # Who asked hears of it with the commit; what each task did is in the report of the epoch, which follows.
    details = eventually(lambda: (d := _get(rest, f"{path}/details/{number}"))["tasks"] and d, "the tasks' part in it")
    assert (details["status"], len(details["tasks"])) == ("COMPLETED", 2)
    assert rest.get(f"{path}/{uuid.uuid4().hex}").status_code == 404
    assert rest.post(path, json={"checkpointType": "HALF"}).status_code == 400
    assert rest.post(path, json={"triggerId": "../x"}).status_code == 400
    assert rest.post(f"/jobs/{'0' * 32}/checkpoints").status_code == 404


def test_without_checkpointing_a_checkpoint_is_refused_with_what_to_do(rest: httpx.Client, home: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.runtime": "embedded", "penstock.job.home": str(home)})
    )
    source = DataGeneratorSource(lambda index: index, None, rate_per_second=100)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").filter(lambda n: False).print()
    client = env.execute_async("without checkpoints")
    path = f"/jobs/{client.get_job_id()}/checkpoints"
    trigger_id = rest.post(path).json()["request-id"]
    done = eventually(lambda: (d := _get(rest, f"{path}/{trigger_id}"))["status"]["id"] == "COMPLETED" and d, "its end")
    assert "set execution.checkpointing.interval" in done["operation"]["failureCause"]["stack-trace"]
    client.cancel().result()
    assert rest.post(path).status_code == 409


def test_a_checkpoint_is_found_beside_a_savepoint_of_the_same_epoch() -> None:
    entry = {"id": 7, "status": "COMPLETED", "trigger_ms": 1, "ack_ms": 2, "bytes": 3, "duration_ms": 1, "path": None,
             "subtasks": 1, "manifest_ms": 0, "commit_ms": 0}  # fmt: skip
    columns = {"snapshot_bytes": [3], "snapshot_ms": [1], "alignment_ms": [0]}
    history = [{**entry, "is_savepoint": False, "vertices": {"0": columns}}, {**entry, "is_savepoint": True}]
    facts = {"checkpoints": {"history": history}}
    found = checkpoints.subtasks(facts, 7, {"id": 0, "key": "k"})
    assert found is not None
    assert [s["checkpointed_size"] for s in found["subtasks"]] == [3]


def test_the_plan_shows_what_an_iteration_sends_back_beside_its_inputs() -> None:
    vertices = [
        {"id": 0, "key": "a", "name": "head", "parallelism": 1, "level": 0, "operators": [], "inputs": []},
        {"id": 1, "key": "b", "name": "tail", "parallelism": 1, "level": 1, "operators": [],
         "inputs": [{"vertex": 0, "ship_strategy": "HASH", "input": 0, "tag": None}]},
    ]  # fmt: skip
    facts = {"job_id": "j", "name": "n", "vertices": vertices, "feedback": [{"from": 1, "to": 0}]}
    head, tail = jobs.plan(facts)["nodes"]
    assert head["feedback"] == [{"id": "b", "ship_strategy": "FEEDBACK"}]
    assert [head["inputs"], [edge["id"] for edge in tail["inputs"]], "feedback" in tail] == [[], ["a"], False]


def test_states_of_the_newest_checkpoint_are_listed(rest: httpx.Client, dispatcher: Dispatcher, tmp_path: Path) -> None:
    job_id = dispatcher.submit(
        UserProgram(entry=str(program(tmp_path, "job.py", ENDLESS))), {}, runtime="embedded", folder=str(tmp_path)
    )
    expected = {"uid": "newest", "name": "reduce", "kind": "reducing", "internal": False}
    eventually(
        lambda: expected in rest.get(f"/jobs/{job_id}/states").json().get("states", []), "a checkpoint with state"
    )
    internal = [each["name"] for each in _get(rest, f"/jobs/{job_id}/states")["states"] if each["internal"]]
    assert "splits" in internal
    rest.patch(f"/jobs/{job_id}")
    eventually(lambda: _get(rest, f"/jobs/{job_id}/status")["status"] == "CANCELED", "it ends")


def test_the_page_is_served_and_loads_nothing_from_elsewhere(rest: httpx.Client) -> None:
    page = rest.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name in re.findall(r'(?:href|src)="([^"#]+)"', page.text):
        assert rest.get(f"/{name}").status_code == 200, name
    assert rest.get("/absent.js").status_code == 404


def test_prometheus_gets_every_metric_once_with_its_type_and_documented_name(
    rest: httpx.Client, job: JobClient
) -> None:
    text = rest.get("/metrics").text
    assert rest.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert f'penstock_job_state{{job_id="{job.get_job_id()}",job_name="endless",state="RUNNING"}} 1' in text
    assert 'source="numbers",sink="out",quantile="0.99"' in text
    between = "latency.source_id.numbers.operator_id.out.latency_p99"
    assert float(_get(rest, f"/jobs/{job.get_job_id()}/metrics?get={between}")[0]["value"]) >= 0
    documented = (ROOT / "docs/reference/metrics.md").read_text()
    assert [name for name, _, _ in METRICS if f"`{name}`" not in documented] == []
    for line in text.splitlines():
        if not line.startswith("#"):
            float(line.rpartition(" ")[2])


def test_a_program_is_uploaded_and_run_and_its_failure_is_told(rest: httpx.Client, dispatcher: Dispatcher) -> None:
    form = {"jarfile": ("failing.py", io.BytesIO(FAILING.encode()), "text/x-python")}
    stored = rest.post("/jars/upload", files=form).json()["filename"]
    assert stored in [file["id"] for file in _get(rest, "/programs")["files"]]
    started = rest.post(f"/programs/{stored}/run", json={"runtime": "embedded", "programArgsList": ["--x"]})
    job_id = started.json()["jobid"]
    eventually(lambda: _get(rest, f"/jobs/{job_id}")["state"] == "FAILED", "the failure")
    history = _get(rest, f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    assert "'divide'" in history[0]["message"]
    assert "ZeroDivisionError" in history[0]["stacktrace"]
    assert history[0]["taskName"] == "Collection Source → Map → Sink: Print to Std. Out (1/1)"
    driver = _get(rest, f"/jobs/{job_id}/facts")["process"]
    assert history[0]["taskManagerId"] == history[0]["endpoint"] == f"{driver['host']}:{driver['pid']}"
    eventually(lambda: "UserFunctionError" in rest.get(f"/jobs/{job_id}/log").text, "the log")
    assert rest.patch(f"/jobs/{job_id}").status_code == 409
    assert rest.delete(f"/programs/{stored}").status_code == 200
    assert rest.post(f"/programs/{stored}/run").status_code == 404


@pytest.mark.long
def test_the_plan_of_a_program_is_told_without_starting_its_job(rest: httpx.Client) -> None:
    def plan(text: str, **asked: Any) -> httpx.Response:
        stored = rest.post("/programs/upload", params={"name": "planned.py"}, content=text).json()["filename"]
        return rest.post(f"/jars/{stored}/plan", json={"runtime": "embedded", **asked}, timeout=90)

    before = len(_get(rest, "/jobs")["jobs"])
    found = plan(ENDLESS, parallelism=3, programArgsList=["a name"]).json()["plan"]
    assert (found["name"], [node["parallelism"] for node in found["nodes"]]) == ("a name", [3, 3])
    assert found["nodes"][1]["inputs"][0] == {
        "num": 0, "id": found["nodes"][0]["id"], "ship_strategy": "HASH", "exchange": "spark_shuffle"
    }  # fmt: skip
    for text, words in (
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "invalid syntax"),
        ("print('hello')", "does it call env.execute()"),
        ("raise SystemExit(3)", "status 3"),
        ("import os; os._exit(1)", "ended by itself"),
    ):
        refused = plan(text)
        assert (refused.status_code, words in refused.json()["errors"][0]) == (400, True), refused.text
    misspelt = plan(ENDLESS, flinkConfiguration={"parallelism.defualt": "2"})
    assert (misspelt.status_code, "did you mean 'parallelism.default'" in misspelt.text) == (400, True)
    asked = {"entry": "json.tool", "module": True, "flinkConfiguration": {"penstock.block.size": "0"}}
    refused = rest.post("/jobs", json=asked)
    assert (refused.status_code, "should be a whole number of at least 1" in refused.text) == (400, True)
    assert len(_get(rest, "/jobs")["jobs"]) == before
    assert rest.post("/programs/absent/plan").status_code == 404


def test_how_a_job_was_submitted_is_told_without_what_only_that_start_was_about(tmp_path: Path) -> None:
    once = {"execution.state-recovery.path": "/a", "execution.savepoint.path": "/b", "penstock.job.dir": "/c"}
    again = {"penstock.block.size": "7", "spark.master": "local[2]"}
    configuration = {**once, **again, "parallelism.default": "3", "python.files": "/d.py"}
    submission = Submission(program=UserProgram(entry="job.py"), configuration=configuration)
    told = asked_for(submission, UploadedPrograms(tmp_path))
    assert (told["flinkConfiguration"], told["parallelism"]) == (again, "3")


def test_the_wait_for_a_plan_ends(tmp_path: Path) -> None:
    path = program(tmp_path, "slow.py", "import time\ntime.sleep(600)")
    with pytest.raises(JobDefinitionError, match="within 1 s"):
        plan_of(UserProgram(entry=str(path)), {}, timeout_s=1.0)


def test_a_program_is_not_deleted_under_a_job_that_would_be_started_again_from_it(
    rest: httpx.Client, tmp_path: Path
) -> None:
    stored = rest.post("/programs/upload", params={"name": "endless.py"}, content=ENDLESS).json()["filename"]
    assert rest.post("/programs/upload", params={"name": "endless.py"}, content=ENDLESS).json()["filename"] == stored
    assert [file["id"] for file in _get(rest, "/programs")["files"]].count(stored) == 1
    job_id = rest.post(f"/programs/{stored}/run", json={"runtime": "embedded"}).json()["jobid"]
    refused = rest.delete(f"/programs/{stored}")
    assert (refused.status_code, job_id in refused.text) == (409, True)
    assert _get(rest, f"/jobs/{job_id}")["program"] == stored
    assert rest.patch(f"/jobs/{job_id}").status_code == 202
    eventually(lambda: _get(rest, f"/jobs/{job_id}")["state"] == "CANCELED", "the end")
    assert rest.delete(f"/programs/{stored}").status_code == 200
    assert rest.delete(f"/programs/{stored}").status_code == 404


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/x.py", "a/b.py", "..", "x", ".py", "a\\b.py", "a.py\n", "\x00.py", "é.py"]
)
def test_an_upload_cannot_leave_its_folder(rest: httpx.Client, home: Path, name: str) -> None:
    before = sorted((home / "programs").iterdir())
    assert rest.post("/programs/upload", params={"name": name}, content=b"x").status_code == 400
    form = {"jarfile": (name, b"x", "text/plain")}
    assert rest.post("/programs/upload", files=form).status_code == 400
    assert sorted((home / "programs").iterdir()) == before
    assert [found for folder in (home, home / "jobs", home.parent) for found in folder.glob("*.py")] == []


@pytest.mark.parametrize("program", ["..%2F..%2Fetc%2Fpasswd", "%2e%2e", "dispatcher.lock", "a" * 32 + "_..%2Fx.py"])
def test_a_program_id_cannot_name_another_file(rest: httpx.Client, program: str) -> None:
    assert rest.post(f"/programs/{program}/run").status_code in (404, 405)
    assert rest.delete(f"/programs/{program}").status_code in (404, 405)


def test_what_is_not_there_is_404_and_what_makes_no_sense_400(rest: httpx.Client, job: JobClient) -> None:
    job_id, other = str(job.get_job_id()), "f" * 32
    for path in (f"/jobs/{other}", "/jobs/..%2F..", "/jobs/x/plan", f"/jobs/{job_id}/vertices/0", "/taskmanagers/no", "/nowhere",
                 f"/jobs/{job_id}/savepoints/{other}", f"/jobs/{job_id}/rescaling/a-b", "/savepoint-disposal/x"):  # fmt: skip
        answer = rest.get(path)
        assert answer.status_code == 404, path
    assert rest.get(f"/jobs/{other}").json() == {"errors": [f"there is no job {other}"]}
    assert rest.patch(f"/jobs/{other}").status_code == 404
    assert rest.patch(f"/jobs/{job_id}?mode=stop").status_code == 400
    assert rest.patch(f"/jobs/{job_id}/rescaling?parallelism=0").status_code == 400
    assert rest.post(f"/jobs/{job_id}/savepoints", content=b"{").status_code == 400
    assert rest.post(f"/jobs/{job_id}/stop", json={"drain": "maybe"}).status_code == 400
    for path, body in (("savepoints", {"target-directory": "here"}), ("stop", {"targetDirectory": "../here"})):
        assert "absolute" in rest.post(f"/jobs/{job_id}/{path}", json=body).json()["errors"][0]
    assert rest.post("/jobs", json={"entry": "relative.py"}).status_code == 400
    assert rest.post("/jobs", json={"entry": "no_such_package_at_all.job", "module": True}).status_code == 400


def test_a_huge_body_is_refused_whether_or_not_it_says_so(rest: httpx.Client) -> None:
    huge = b"x" * (16 << 20)  # more than sockets buffer: the answer must not be lost while the client is still sending
    assert rest.post("/programs/upload?name=a.py", content=huge).status_code == 413
    assert rest.post("/programs/upload?name=a.py", content=iter([huge[:1000], huge])).status_code == 413


def test_pages_from_elsewhere_are_refused(rest: httpx.Client) -> None:
    assert (
        rest.post("/programs/upload?name=a.py", content=b"x", headers={"Origin": "http://evil.example"}).status_code
        == 403
    )
    assert rest.get("/jobs", headers={"Origin": str(rest.base_url).rstrip("/")}).status_code == 200


def test_without_the_token_only_the_page_is_open(dispatcher: Dispatcher) -> None:
    with served(create_app(dispatcher, token="s3cret")) as guarded:
        assert guarded.get("/", headers={"Host": "any.host"}).status_code == 200
        for given_ in (None, "Bearer wrong", "s3cret", b"Bearer \xff"):
            headers = {} if given_ is None else {"Authorization": given_}
            for path in (
                "/jobs",
                "/v1/jobs",
                "/openapi.json",
                "/metrics",
                "/nowhere",
                "/auth/",
                "/v1/auth/x",
            ):
                assert guarded.get(path, headers=headers).status_code == 401, (path, headers)  # type: ignore[arg-type]
        assert guarded.get("/v1/jobs", headers={"Authorization": "Bearer s3cret"}).status_code == 200


def test_commands_prove_the_token_to_the_dispatcher_and_do_not_send_it(dispatcher: Dispatcher) -> None:
    app, seen = create_app(dispatcher, token="s3cret"), list[str]()

    async def watching(scope: Any, receive: Any, send: Any) -> None:
        seen.append(f"{scope['path']} {scope.get('headers')}")
        await app(scope, receive, send)

    with served(watching) as guarded:
        address = str(guarded.base_url)
        endpoint = Endpoint(address, "s3cret")
        assert endpoint.ask("GET", "/jobs").status == 200
        assert endpoint.ask("GET", "/v1/jobmanager/metrics", {"get": "ä b,c&d"}).status == 200
        assert endpoint.ask("POST", "/programs/upload", {"name": "my.py"}, raw=b"print()" * 100_000).status == 200
        with pytest.raises(UnknownServerError):
            Endpoint(address, "other").ask("GET", "/jobs")
        assert len(seen) == 7
        assert not [line for line in seen if "s3cret" in line or "other" in line]
        mine = nonce()
        greeting = guarded.get(challenge.PATH, headers={challenge.HEADER: mine.hex()}).json()
        theirs = challenge.server_is_known("s3cret", mine, greeting)
        assert theirs is not None
        target = "/programs/upload?name=other.py"
        header = challenge.authorization("s3cret", mine, theirs, "POST", target, b"good")
        sent = guarded.post(target, content=b"evil", headers={"Authorization": header})
        assert (sent.status_code, "body" in sent.text) == (401, True)


def test_a_home_folder_that_is_full_is_told_as_such(
    rest: httpx.Client, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(UploadedPrograms, "add", full)
    refused = rest.post("/programs/upload", params={"name": "a.py"}, content=b"x")
    assert (refused.status_code, "No space left" in refused.json()["errors"][0]) == (507, True)
    assert rest.delete("/cluster").status_code == 404, "a test serves it, and ends it"


def test_only_savepoints_are_disposed_of(rest: httpx.Client, tmp_path: Path, job: JobClient) -> None:
    def manifest(kind: Any) -> bytes:
        made = Manifest(
            job_id="j", job_name="n", checkpoint_id=CheckpointId(1), epoch=1, generation=Generation(1),
            kind=kind, created_ms=0, processing_time_ms=0, max_parallelism=128,
        )  # fmt: skip
        return manifest_file.encode(made)

    outcomes = {}
    for kind in ("savepoint", "checkpoint", "neither"):
        (tmp_path / kind).mkdir()
        if kind != "neither":
            (tmp_path / kind / "manifest.json").write_bytes(manifest(kind))
        (tmp_path / kind / "a-0-1.state").write_bytes(b"")
        trigger = rest.post("/savepoint-disposal", json={"savepoint-path": str(tmp_path / kind)}).json()["request-id"]
        outcomes[kind] = _get(rest, f"/savepoint-disposal/{trigger}")["operation"]
    assert outcomes["savepoint"] == {}
    assert not (tmp_path / "savepoint").exists()
    for kind in ("checkpoint", "neither"):
        assert "savepoint" in outcomes[kind]["failure-cause"]["stack-trace"]
        assert (tmp_path / kind / "a-0-1.state").exists()
    for path in ("relative", "/a\x00b", str(tmp_path)):
        trigger = rest.post("/savepoint-disposal", json={"savepoint-path": path}).json()["request-id"]
        assert "failure-cause" in _get(rest, f"/savepoint-disposal/{trigger}")["operation"]


def _working(n: int) -> int:
    time.sleep(0.002)  # a vertex that does next to nothing may not be seen once
    return n


@pytest.fixture
def busy(home: Path) -> Iterator[JobClient]:
    """A job whose second vertex works most of the time."""
    settings = {
        "penstock.runtime": "embedded",
        "penstock.job.home": str(home),
        "penstock.epoch.interval": "20 ms",
        "penstock.epoch.max-records": "50",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    stream = env.from_source(DataGeneratorSource(lambda i: i, None), WatermarkStrategy.no_watermarks(), "numbers")
    stream.key_by(lambda n: n % 10).map(_working).uid("working").filter(lambda n: False).print()
    client = env.execute_async("busy")
    yield client
    client.cancel().result()


def test_a_flame_graph_shows_where_a_vertex_spends_its_time(rest: httpx.Client, busy: JobClient) -> None:
    base = f"/jobs/{busy.get_job_id()}"
    flame = f"{base}/vertices/{_get(rest, base)['vertices'][1]['id']}/flamegraph"
    root = eventually(lambda: _get(rest, flame)["root"], "samples")
    assert root["stackTraceLocation"] == "root"
    assert root["children"][0]["stackTraceLocation"].startswith("penstock.engine.task.Task.")
    assert sum(child["hitCount"] for child in root["children"]) == root["hitCount"] > 0
    parts = [_get(rest, f"{flame}?type={kind}")["root"]["hitCount"] for kind in ("on_cpu", "off_cpu")]
    assert sum(parts) == root["hitCount"]
    parts = [_get(rest, f"{flame}?subtaskindex={index}")["root"]["hitCount"] for index in (0, 1)]
    assert sum(parts) == root["hitCount"]
    assert rest.get(f"{flame}?subtaskindex=2").status_code == 404
    assert rest.get(f"{flame}?type=hot").status_code == 400


def test_the_interface_is_published(rest: httpx.Client) -> None:
    paths = _get(rest, "/openapi.json")["paths"]
    assert {"/jobs/{jobid}/savepoints", "/jobs/{jobid}/vertices/{vertexid}/backpressure", "/programs/upload"} <= set(
        paths
    )
    documented = (ROOT / "docs/reference/rest.md").read_text()
    missing = [p for p in paths if f"`{p.replace('{', ':').replace('}', '')}`" not in documented]
    assert missing == []


@pytest.mark.long
def test_no_request_that_the_interface_describes_brings_the_server_down(
    dispatcher: Dispatcher, rest: httpx.Client, job: JobClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    schemathesis = pytest.importorskip("schemathesis")
    # Starting processes for nonsense, or ending the job, would only make this slow: both are tested above.
    monkeypatch.setattr(dispatcher, "submit", lambda *a, **k: "0" * 32)
    monkeypatch.setattr(programs, "plan_of", lambda *a, **k: {})
    monkeypatch.setattr(dispatcher, "_cancel", lambda *a: refuse(409, "not now"))
    monkeypatch.setattr(JobControl, "_stop", lambda *a: refuse(409, "not now"))
    schema = schemathesis.openapi.from_url(f"{rest.base_url}/openapi.json", headers=dict(rest.headers))
    job_id = str(job.get_job_id())
    known = {"jobid": job_id, "vertexid": _get(rest, f"/jobs/{job_id}")["vertices"][0]["id"]}
    deadline = time.monotonic() + 60
    tried: dict[str, int] = {}

    def check(case: Any, real: bool) -> None:
        operation = f"{case.method} {case.path}"
        if time.monotonic() > deadline and operation in tried:  # a slow machine tries each once
            return
        if real and case.path_parameters:  # most random ids lead to a 404: go further in, too
            case.path_parameters = {name: known.get(name, value) for name, value in case.path_parameters.items()}
        response = case.call(headers={"Authorization": rest.headers["Authorization"]})
        tried[operation] = tried.get(operation, 0) + 1
        assert list(tmp_path.iterdir()) == [], f"{case.as_curl_command()} wrote where the driver happens to run"
        assert response.status_code < 500, f"{case.as_curl_command()}: {response.status_code} {response.text}"

    few = settings(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    operations = [result.ok() for result in schema.get_all_operations()]
    for operation in operations:
        few(given(case=operation.as_strategy(), real=st.booleans())(check))()
    assert len(tried) == len(operations) > 50
