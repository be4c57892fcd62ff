"""A running job made visible and steerable: its facts in a folder, its control endpoint beside them."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.common.options import ControlOptions
from penstock.driver.control.control import JobControl
from penstock.driver.control.control_server import ControlServer
from penstock.driver.control.facts import FactsRecorder
from penstock.driver.control.home import JobFolder, JobHome, how_to_run, this_process
from penstock.driver.control.resource_manager import ResourceManager
from penstock.engine.messages import EpochReport

if TYPE_CHECKING:
    from penstock.driver.client import JobClient
    from penstock.driver.description import JobDescription
    from penstock.driver.job_master import JobMaster

_log = logging.getLogger("penstock")

_WRITE_EVERY_S = 1.0
_SETTLE_S = 5.0
_given: dict[str, int] = {}  # ids that were given to this process, and how many jobs it has started with each


def given_job_id(configuration: Mapping[str, str]) -> str | None:
    """The id the job was submitted under. A program that starts several jobs gives the later ones ids that follow from
    it, so that each finds its own folder when the program is started again."""
    given = ControlOptions.JOB_ID.get(configuration)
    if given is None:
        return None
    number = _given[given] = _given.get(given, 0) + 1
    return given if number == 1 else uuid.uuid5(uuid.UUID(given), str(number)).hex


def home_of(configuration: Mapping[str, str]) -> JobHome | None:
    """The home that a configuration names; None if the job is not known to any."""
    root = ControlOptions.HOME.get(configuration)
    return None if root is None else JobHome(Path(root))


def folder_of(configuration: Mapping[str, str], job_id: str, storage_url: str | None) -> JobFolder | None:
    """Where facts and control go: below the home folder, else, when that is asked for, into a local job folder."""
    home = home_of(configuration)
    if home is not None:
        return home.job(job_id)
    wanted = ControlOptions.ENABLED.get(configuration)
    if wanted and storage_url is not None and storage_url.startswith("file://"):
        return JobFolder(Path(storage_url.removeprefix("file://")))
    return None


class Attachment:
    """Lives as long as the job: writes facts once a second, serves the control endpoint, cleans up at the end."""

    def __init__(
        self,
        folder: JobFolder,
        job_id: str,
        client: JobClient,
        master: JobMaster,
        job: JobDescription,
        configuration: Mapping[str, str],
    ) -> None:
        self._folder = folder.create()
        self._client, self._job_id = client, job_id
        self._home = home_of(configuration)
        self._facts = FactsRecorder(
            job_id=job_id,
            graph=lambda: master.job.graph,
            life_cycle=client.life_cycle,
            configuration=configuration,
            runtime=job.settings.runtime,
            storage_url=None if master.storage is None else master.storage.url,
            process=this_process(),
            program=how_to_run(),
            execution=master.execution,
            statistics=getattr(client, "checkpoint_statistics", None),
            accumulators=lambda: client.get_accumulators().result(),
            notices=master.notices.to_json,
        )
        self._facts.continue_from(folder.facts())
        self._writing = threading.Lock()
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._control = JobControl(job_id, client, self._facts, self.save, self._reserve)
        master.requests.claim_slots = self._claim
        self._server = ControlServer(self._control.handle)
        self._journal, master.on_report = master.on_report, self._on_report
        client._listeners.append(self._on_state)
        folder.write_control({"address": self._server.address, "token": self._server.token, **this_process()})
        self.save()
        threading.Thread(target=self._write_now_and_then, name="penstock-facts", daemon=True).start()

    def _on_report(self, report: EpochReport) -> None:
        if self._journal is not None:
            self._journal(report)
        self._facts.on_report(report)
        self._changed.set()

    def _on_state(self) -> None:
        """On the thread that changed the state, before anybody hears of the job's end: what is written here is there
        when the process is gone."""
        if self._client.get_job_status().result().is_globally_terminal_state() and not self._ended.is_set():
            self._control.settle(_SETTLE_S)
            self._ended.set()
            self._changed.set()
            self.save()
            with contextlib.suppress(OSError):  # this process ends soon, and both are void then
                self._folder.remove_control()
                if self._home is not None:
                    ResourceManager(self._home).release(self._job_id)
            threading.Thread(target=self._server.close, daemon=True).start()
        else:
            self.save()

    def _reserve(self, slots: int) -> None:
        if self._home is not None and not self._ended.is_set():
            ResourceManager(self._home).acquire(self._job_id, slots)

    def _claim(self, slots: int) -> int:
        if self._home is None or self._ended.is_set():
            return slots
        return ResourceManager(self._home).acquire_up_to(self._job_id, slots)

    def save(self) -> None:
        """A folder that is gone or full is no reason for the job to fail: it can only not be seen."""
        try:
            with self._writing:
                self._folder.write_facts(self._facts.snapshot())
        except OSError as error:
            _log.warning("the facts of job %s cannot be written to %s: %s", self._job_id, self._folder.path, error)

    def _write_now_and_then(self) -> None:
        while not self._ended.is_set():
            self._changed.wait()
            self._changed.clear()
            if not self._ended.is_set():
                self.save()
            self._ended.wait(_WRITE_EVERY_S)
