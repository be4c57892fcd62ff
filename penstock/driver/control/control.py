"""What can be asked of a running job, over its JobClient: a subset of the REST paths, without a server around it.

The driver answers these itself, so a job can be steered whether or not a dispatcher runs. Long actions give a trigger id at
once; their outcome is in the job's facts, and so outlives the driver.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.checkpoint import savepoint
from penstock.common.time import now_ms
from penstock.driver.control import state_browser
from penstock.driver.control.answers import Answer, refuse
from penstock.driver.control.facts import FactsRecorder
from penstock.driver.control.flame_graph import FlameGraphs
from penstock.driver.control.home import is_job_id
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.common.job import CompletableFuture
    from penstock.driver.client import JobClient

Json: TypeAlias = dict[str, Any]


def operation_document(facts: Mapping[str, Any], kind: str, trigger_id: str) -> Json | None:
    """A long action as Flink describes it; None if the job knows of none with that id."""
    kinds = {"savepoints": ("savepoint", "stop"), "checkpoints": ("checkpoint",)}.get(kind, (kind,))
    found = next((o for o in facts["operations"] if o["trigger_id"] == trigger_id and o["kind"] in kinds), None)
    if found is None:
        return None
    if found["status"] == "IN_PROGRESS":
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    if found["failure"] is not None:
        cause = {"class": found["failure"]["class"], "stack-trace": found["failure"]["message"]}
        name = "failureCause" if kind == "checkpoints" else "failure-cause"  # Flink's names
        return {"status": {"id": "COMPLETED"}, "operation": {name: cause}}
    if kind == "checkpoints":
        return {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": int(found["location"])}}
    return {"status": {"id": "COMPLETED"}, "operation": {"location": found["location"]}}


class JobControl:
    """Answers requests about one job. Thread-safe; `handle` never raises for what a caller sent."""

    def __init__(
        self,
        job_id: str,
        client: JobClient,
        facts: FactsRecorder,
        save: Callable[[], None],
        reserve: Callable[[int], None] = lambda slots: None,
    ) -> None:
        """`reserve` claims the slots the job is to have, or raises."""
        self._job_id, self._client, self._facts, self._save, self._reserve = job_id, client, facts, save, reserve
        self._waiting: list[threading.Thread] = []
        self._flame_graphs = FlameGraphs(client.sample)

    def handle(self, method: str, path: str, query: Mapping[str, str], body: Json) -> Answer:
        """Answers one request; one that makes no sense is refused with a status and a reason."""
        match [method, *path.strip("/").split("/")]:
            case [_, "jobs", job_id, *_] if job_id != self._job_id:
                return refuse(404, f"this driver runs job {self._job_id}, not {job_id}")
            case ["GET", "jobs", _, "facts"]:
                return Answer(200, self._facts.snapshot())
            case ["PATCH", "jobs", _]:
                return self._cancel(query.get("mode", "cancel"))
            case ["POST", "jobs", _, "savepoints"]:
                return self._savepoint(body)
            case ["POST", "jobs", _, "checkpoints"]:
                return self._checkpoint(body)
            case ["POST", "jobs", _, "stop"]:
                return self._stop(body)
            case ["PATCH", "jobs", _, "rescaling"]:
                return self._rescale(query)
            case ["GET", "jobs", _, ("savepoints" | "checkpoints" | "rescaling") as kind, trigger_id]:
                document = operation_document(self._facts.snapshot(), kind, trigger_id)
                if document is None:
                    return refuse(404, f"no {kind} with trigger id {trigger_id}")
                return Answer(200, document)
            case ["GET", "jobs", _, "vertices", vertex, "flamegraph"] if vertex.isascii() and vertex.isdigit():
                return self._flame_graph(int(vertex), query)
            case ["GET", "jobs", _, ("state" | "states") as what]:
                return state_browser.answer(self._client.read_checkpoint, what, query)
        return refuse(404, f"a driver does not answer {method} {path}")

    def _flame_graph(self, vertex: int, query: Mapping[str, str]) -> Answer:
        subtask = query.get("subtaskindex")
        return self._over() or Answer(
            200,
            self._flame_graphs.of(
                vertex, subtask=None if subtask is None else int(subtask), kind=query.get("type", "full")
            ),
        )

    def settle(self, timeout_s: float) -> None:
        """The job has ended: long actions under way end with it."""
        deadline = time.monotonic() + timeout_s
        for thread in self._waiting:
            thread.join(max(0.0, deadline - time.monotonic()))
        for operation in self._facts.snapshot()["operations"]:
            if operation["status"] == "IN_PROGRESS":
                failure = {"class": "JobEnded", "message": "the job ended before this was done"}
                self._facts.operation({**operation, "status": "COMPLETED", "failure": failure, "end_ms": now_ms()})

    # ---------------------------------------------------------------- actions

    def _over(self) -> Answer | None:
        status = self._client.get_job_status().result()
        if status.is_globally_terminal_state():
            return refuse(409, f"job {self._job_id} has ended: it is {status.name}")
        return None

    def _cancel(self, mode: str) -> Answer:
        if mode != "cancel":
            return refuse(
                400, f"mode={mode}: only cancel is known; POST /jobs/{self._job_id}/stop stops with a savepoint"
            )
        over = self._over()
        if over is None:
            self._client.cancel()
        return over or Answer(202, {})

    def _savepoint(self, body: Json) -> Answer:
        directory = body.get("target-directory")
        if _relative(directory):
            return refuse(400, _SAY_WHERE.format(directory))
        if body.get("cancel-job"):
            return self._long("stop", lambda: self._client.stop_with_savepoint(False, directory), body)
        return self._long("savepoint", lambda: self._client.trigger_savepoint(directory), body)

    def _checkpoint(self, body: Json) -> Answer:
        kind = body.get("checkpointType") or "CONFIGURED"
        if kind not in ("CONFIGURED", "FULL", "INCREMENTAL"):
            return refuse(400, f"checkpointType={kind!r}: choose CONFIGURED, FULL or INCREMENTAL")
        return self._long("checkpoint", lambda: self._client.trigger_checkpoint(kind), body)

    def _stop(self, body: Json) -> Answer:
        drain, directory = bool(body.get("drain", False)), body.get("targetDirectory")
        if _relative(directory):
            return refuse(400, _SAY_WHERE.format(directory))
        return self._long("stop", lambda: self._client.stop_with_savepoint(drain, directory), body)

    def _rescale(self, query: Mapping[str, str]) -> Answer:
        text = query.get("parallelism", "")
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 32768:
            return refuse(400, f"parallelism={text!r} should be a whole number from 1 to 32768")

        def start() -> CompletableFuture[Any]:
            self._reserve(max(int(text), self._facts.snapshot()["slots"]))
            return self._client.rescale(int(text))

        return self._long("rescaling", start)

    def _long(self, kind: str, start: Callable[[], Any], body: Mapping[str, Any] | None = None) -> Answer:
        """Begin, remember under a trigger id, and wait for the end in a thread. Who gives the id can ask again without fear:
        the same id is the same action."""
        given = (body or {}).get("triggerId")
        if given is not None and not is_job_id(given):
            return refuse(400, f"triggerId={given!r} should be 32 hexadecimal digits")
        if given is not None and any(o["trigger_id"] == given for o in self._facts.snapshot()["operations"]):
            return Answer(202, {"request-id": given})
        over = self._over()
        if over is not None:
            return over
        trigger_id, begun = given or uuid.uuid4().hex, now_ms()
        try:
            future = start()
        except PenstockError as error:
            return refuse(409, f"{kind} cannot be done: {error}")
        entry = {
            "trigger_id": trigger_id, "kind": kind, "status": "IN_PROGRESS", "begin_ms": begun,
            "end_ms": None, "location": None, "failure": None,
        }  # fmt: skip
        self._facts.operation(entry)
        thread = threading.Thread(target=self._await, args=(entry, future), name=f"penstock-{kind}", daemon=True)
        self._waiting = [t for t in self._waiting if t.is_alive()] + [thread]
        thread.start()
        return Answer(202, {"request-id": trigger_id})

    def _await(self, entry: Json, future: Any) -> None:
        location, failure = None, None
        try:
            result = future.result()
            location = None if result is None else str(result)
        except BaseException as error:  # for who asked, whatever it is
            failure = {"class": f"{type(error).__module__}.{type(error).__qualname__}", "message": str(error)}
        if failure is None and location is not None and entry["kind"] in ("savepoint", "stop"):
            self._facts.savepoint_completed(location, entry["begin_ms"], _size(location))
        if entry["kind"] == "rescaling":
            self._reserve(self._facts.snapshot()["slots"])  # fewer than before, or not more after all
        ended = {"status": "COMPLETED", "end_ms": now_ms(), "location": location, "failure": failure}
        self._facts.operation({**entry, **ended})
        self._save()


_SAY_WHERE: Final = (
    "{!r} is a relative path, and the driver's working folder is no place for savepoints: "
    "give an absolute path or a url"
)


def _size(location: str) -> int:
    try:
        return savepoint.load(location).state_bytes
    except PenstockError:  # somebody moved it at once
        return 0


def _relative(directory: str | None) -> bool:
    return bool(directory) and "://" not in str(directory) and not str(directory).startswith("/")
