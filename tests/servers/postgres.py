"""A real PostgreSQL server on loopback, from the programs that are installed (`make postgres`)."""

from __future__ import annotations

import getpass
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.servers.jars import ServerUnavailable
from tests.servers.process import ServerProcess, free_ports

_UNPRIVILEGED = ("postgres", "nobody")  # whoever of them exists; the server refuses to run as root


class PostgresServer(ServerProcess):
    """One server with its own data folder."""

    stop_signal = signal.SIGINT  # does not wait for clients

    def __init__(self) -> None:
        self._bin = _programs()
        self._user = _unprivileged_user()
        # Not below pytest's folder: that is root's own when root runs the tests.
        folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        super().__init__(folder, mark=str(folder / "data"))
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        (self.port,) = free_ports(1)
        self.superuser = self._user or getpass.getuser()
        self.conninfo = f"host=127.0.0.1 port={self.port} user={self.superuser} dbname=postgres"
        self._initialise()

    def _initialise(self) -> None:
        command = [str(self._bin / "initdb"), "-D", str(self._data), "-A", "trust", "-U", self.superuser]
        done = subprocess.run(
            [*command, "-E", "UTF8", "--locale=C", "--no-sync"],
            capture_output=True,
            text=True,
            timeout=self.start_timeout_s,
            check=False,
            cwd=self._folder,
            **self._settings_of_process(),
        )
        if done.returncode:
            raise ServerUnavailable(f"initdb failed: {done.stdout[-500:]}{done.stderr[-500:]}")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _settings_of_process(self) -> dict[str, Any]:
        """Its user, and an environment of its own: messages in English, and none of the variables that steer tests."""
        settings: dict[str, Any] = {"env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}}
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            settings |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        return settings

    def _command(self) -> list[str]:
        # fsync protects from the death of the machine only: what the server has written outlives its own death without it.
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "40",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.conninfo, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _ended(self) -> None:
        # The processes of a server that was killed may outlive it by a moment, and hold its memory.
        if "pre-existing shared memory block" not in self.log() and "lock file" not in self.log():
            super()._ended()
        time.sleep(0.1)
        self.start(wait=False)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def sql(self, statement: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """An independent client: one statement in a transaction of its own, and its rows."""
        with psycopg.connect(self.conninfo, connect_timeout=10) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description is not None else []


def _programs() -> Path:
    """The folder with initdb and postgres: of PATH, else the newest that Debian keeps."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(os.path.realpath(found)).parent
    folders = glob.glob("/usr/lib/postgresql/*/bin")
    usable = [folder for folder in folders if os.path.exists(f"{folder}/initdb")]
    if not usable:
        raise ServerUnavailable(
            "no initdb on PATH nor below /usr/lib/postgresql: install a PostgreSQL server (`make postgres`)"
        )
    return Path(max(usable, key=lambda folder: [int(part) for part in re.findall(r"\d+", folder)]))


def _unprivileged_user() -> str | None:
    """Whose processes they are when root runs the tests; None: one's own."""
    if os.getuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise ServerUnavailable(f"PostgreSQL does not run as root, and none of the users {_UNPRIVILEGED} exists")
