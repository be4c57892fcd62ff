"""What another user of the machine can do with a dispatcher and its drivers: nothing."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.driver.control.home import JobHome
from tests.driver.jobs import eventually
from tests.service.programs import ENDLESS, jobmanager, program

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

INTRUDER = """
import json, sys, urllib.error, urllib.request

address, marker = sys.argv[1:]

def ask(method, path, document=None, headers={}):
    data = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code

run = {"entry": "os", "module": True, "programArgsList": [marker]}
print(json.dumps([
    ask("GET", "/jobs"), ask("GET", "/jobmanager/config"), ask("POST", "/jobs", run), ask("DELETE", "/cluster"),
    ask("POST", "/jobs", run, {"Authorization": "Bearer "}), ask("POST", "/jobs", run, {"Authorization": "Bearer None"}),
    ask("POST", "/jobs", run, {"Authorization": "Penstock 00.00.00.00"}), ask("GET", "/"),
]))
"""


@pytest.mark.long
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="to be another user one has to be root first"
)
def test_another_user_runs_nothing_reads_no_token_and_sees_none_in_ps(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with jobmanager(home) as endpoint:
        token = str(endpoint.token)
        assert len(token) >= 32, "one is made without being asked for, on loopback too"
        assert (home / "token").read_text().strip() == token
        started = endpoint.ask("POST", "/jobs", body={"entry": str(program(tmp_path, "job.py", ENDLESS))})
        assert started.status == 202, started.body
        job_id = started.body["jobid"]
        folder = JobHome(home).job(job_id)
        control = eventually(folder.control, "the driver is up")
        for path in (home / "token", home / "dispatcher.json", folder.path / "control.json"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for path in (home, folder.path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700

        def intrude(*command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([*NOBODY, *command], capture_output=True, text=True, timeout=60, cwd="/", check=False)

        python = os.path.realpath(sys.executable)
        may_run = intrude(python, "-c", "print(1)").stdout == "1\n"  # not if the interpreter is in root's own folder
        interpreter = python if may_run else "/usr/bin/python3"
        asked = intrude(interpreter, "-c", INTRUDER, endpoint.address, "marker")
        assert asked.returncode == 0, asked.stderr
        assert json.loads(asked.stdout) == [401] * 7 + [200]
        assert len(endpoint.ask("GET", "/jobs").body["jobs"]) == 1

        seen = intrude("ps", "axeww", "-o", "pid,args").stdout
        pids = {int(line.split()[0]) for line in seen.splitlines()[1:]}
        ours = [control["pid"], *(child.pid for child in psutil.Process(control["pid"]).children(recursive=True))]
        assert set(ours) & pids, "ps shows our processes"
        assert token not in seen
        assert control["token"] not in seen
        for pid in ours:
            assert intrude("cat", f"/proc/{pid}/environ").stdout == ""
        assert endpoint.ask("PATCH", f"/jobs/{job_id}", {"mode": "cancel"}).status == 202
    assert not (home / "token").exists()
