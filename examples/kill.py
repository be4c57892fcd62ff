"""The one place that kills a process on purpose: fault tests and the demo. One pid, checked, never a group or a name."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import psutil


class NotOurs(Exception):
    """The process is not the one that was meant."""


@dataclass(frozen=True, slots=True)
class ChosenProcess:
    """A process as it was when it was chosen: a pid alone may by now be somebody else's."""

    pid: int
    started: float
    command: str

    @staticmethod
    def of(pid: int, *, command_contains: str) -> ChosenProcess:
        """Remember a process of ours: its command line must hold `command_contains`."""
        if pid <= 1 or pid == os.getpid():
            raise NotOurs(f"refusing to kill pid {pid}")
        process = psutil.Process(pid)
        command = " ".join(process.cmdline())
        if not command_contains or command_contains not in command:
            raise NotOurs(f"pid {pid} is {command[:120]!r}, which does not contain {command_contains!r}")
        return ChosenProcess(pid, process.create_time(), command_contains)


def kill(target: ChosenProcess) -> None:
    """SIGKILL, if it is still the same process. Returns when the process is gone (at most 10 s)."""
    if target.pid <= 1:
        raise NotOurs(f"refusing to kill pid {target.pid}")
    process = psutil.Process(target.pid)
    if process.create_time() != target.started or target.command not in " ".join(process.cmdline()):
        raise NotOurs(f"pid {target.pid} is another process now")
    os.kill(target.pid, signal.SIGKILL)
    psutil.wait_procs([process], timeout=10)
