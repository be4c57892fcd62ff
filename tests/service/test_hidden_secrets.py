"""Secrets in a job's settings, and in what made it fail, are in no document, file or line that others are shown."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from penstock.driver.control.home import JobHome
from penstock.service.dispatcher import Dispatcher
from penstock.service.program import UserProgram
from penstock.service.rest.app import create_app
from tests.driver.jobs import eventually
from tests.service.programs import program
from tests.service.served import served

SECRETS = {
    "fs.azure.account.key.acct.dfs.core.windows.net": "hush-azure==",
    "properties.sasl.jaas.config": 'PlainLoginModule required username="me" password="hush-jaas";',
    "ssl.key.passphrase": "hush-phrase",
    "my.database": "postgresql://me:hush-uri@localhost/jobs",
    "my.dsn": "host=localhost password=hush-dsn",
    "my.signed": "https://acct.blob.core.windows.net/box?sv=1&sig=hush-sas",
}

REFUSED = """
from penstock.common import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment

def connect(n):
    raise OSError("cannot connect to postgresql://me:hush-error@localhost/jobs")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_restart_strategy(RestartStrategies.no_restart())
env.from_collection([1]).map(connect).print()
env.execute("refused")
"""


def test_no_route_and_no_file_of_facts_shows_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    dispatcher = Dispatcher(JobHome(tmp_path / "home"))
    try:
        with served(create_app(dispatcher, token="t"), "t") as rest:
            path = program(tmp_path, "job.py", REFUSED)
            job_id = dispatcher.submit(
                UserProgram(entry=str(path), arguments=()), SECRETS, runtime="embedded", folder="/"
            )
            eventually(lambda: rest.get(f"/jobs/{job_id}").json().get("state") == "FAILED", "the job fails")
            known = {"jobid": job_id, "name": f"{job_id}.log"}
            texts = {"facts.json": (dispatcher.home.job(job_id).path / "facts.json").read_text()}
            for route, operations in rest.get("/openapi.json").json()["paths"].items():
                if "get" in operations:
                    asked = re.sub(r"\{(\w+)\}", lambda m: known.get(m[1], "0" * 32), route)
                    texts[route] = _read(rest, asked)
            log = (dispatcher.home.job(job_id).path / "driver.log").read_text()
    finally:
        dispatcher.close()
    assert "cannot connect" in texts["/jobs/{jobid}/exceptions"], "the failure is shown"
    assert "my.dsn" in texts["/jobs/{jobid}/config"], "settings are shown"
    assert "cannot connect" in texts["/jobs/{jobid}/log"]
    assert "cannot connect" in log
    assert [name for name, text in {**texts, "driver.log": log}.items() if "hush" in text] == []


def _read(rest: httpx.Client, path: str) -> str:
    answer = rest.get(path)
    assert answer.status_code in (200, 404, 400, 409), (path, answer.text)
    return answer.text
