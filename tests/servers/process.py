"""The process of a real server on loopback: started, waited for, stopped, killed and started again."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from penstock.testing.kill import Target, kill
from tests.servers.jars import ServerUnavailable


class ServerProcess(ABC):
    """`stop`, `kill` (SIGKILL) and `start` again keep the data and the port. `mark` is a part of the command line that tells this
    server from every other process."""

    start_timeout_s = 180.0
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, mark: str) -> None:
        self._folder, self._mark = folder, mark
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it does its work by now."""

    def _settings_of_process(self) -> dict[str, Any]:
        return {}

    def _ended(self) -> None:
        """It has ended while it was waited for."""
        raise ServerUnavailable(f"the server ended by itself:\n{self.log()}")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        assert not self.running, "the server runs already"
        with (self._folder / f"server-{self.starts}.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                **self._settings_of_process(),
            )
        self.starts += 1
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            if not self.running:
                self._ended()
            elif self._answers():
                return
            time.sleep(0.05)
        raise ServerUnavailable(f"the server was not ready within {self.start_timeout_s:.0f} s:\n{self.log()}")

    def stop(self) -> None:
        """An orderly end, without waiting for clients; SIGKILL if it takes too long."""
        if self.running:
            assert self._process is not None
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> int:
        """SIGKILL of the server's main process. Returns the pid that died."""
        assert self._process is not None
        pid = self._process.pid
        kill(Target.of(pid, command_contains=self._mark))
        self._process.wait(10)
        return pid

    def log(self) -> str:
        path = self._folder / f"server-{self.starts - 1}.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, below those that the system gives to connections: a server that is killed finds its own
    free again when it comes back, however many connections were made meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
    return found if len(set(found)) == count else free_ports(count)
