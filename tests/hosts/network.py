"""Hosts as network namespaces: an address and a name each, joined by a bridge in a namespace that is the switch."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from examples.kill import ChosenProcess, NotOurs, kill

_SUBNET = "10.77.0"
_ETC = Path("/etc/netns")  # `ip netns exec` shows files from here instead of those in /etc
# What runs on a host, by its command line: nothing else is ever killed.
_OURS = ("org.apache.spark.", "pyspark.worker", "penstock.runtime.epochs.slot", "tests.chaos.job")


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    address: str
    namespace: str
    switch: str

    @property
    def port(self) -> str:
        """The switch's end of its cable."""
        return f"to-{self.name}"

    def command(self, *command: str) -> list[str]:
        """What runs `command` on this host, in the same process."""
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name, *command]
        return ["ip", "netns", "exec", self.namespace, *named]

    # ------------------------------------------------------------ its link

    def cut(self) -> None:
        """The cable is pulled: nothing is closed, nobody is told."""
        ip("-n", self.switch, "link", "set", self.port, "down")
        assert not self.linked

    def mend(self) -> None:
        ip("-n", self.switch, "link", "set", self.port, "up")
        deadline = time.monotonic() + 10
        while not self.linked and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.linked

    @property
    def linked(self) -> bool:
        return "LOWER_UP" in ip("-n", self.namespace, "link", "show", "eth0")

    # ------------------------------------------------------------ its processes

    def processes(self, command: str = "") -> list[psutil.Process]:
        found = []
        for pid in ip("netns", "pids", self.namespace).split():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(int(pid))
                if command in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def kill_all(self) -> list[int]:
        """Every process of this host, one by one. Its kernel lives and closes their connections, as at a reset."""
        killed: list[int] = []
        for _ in range(20):  # those that start others first die last
            processes = self.processes()
            if not processes:
                return killed
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    command = " ".join(process.cmdline())
                    mark = next((mark for mark in _OURS if mark in command), None)
                    if mark is None and command:
                        raise NotOurs(f"pid {process.pid} on host {self.name} is {command[:120]!r}")
                    if mark is not None:
                        kill(ChosenProcess.of(process.pid, command_contains=mark))
                        killed.append(process.pid)
            time.sleep(0.1)
        raise AssertionError(f"{self.name} still has {[p.pid for p in self.processes()]}")


@dataclass(slots=True)
class Network:
    hosts: dict[str, Host] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """Hosts with these names. Their processes, links and namespaces are gone afterwards, whatever happens."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        raise SystemExit(
            "hosts are network namespaces: this needs root, `ip` (iproute2) and `unshare` (util-linux). Debian and Ubuntu: "
            "apt-get install iproute2 util-linux"
        )
    sweep()
    run = f"ph{os.getpid()}"
    switch = f"{run}-switch"
    made = Network()
    try:
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate(names, start=1):
            host = Host(name, f"{_SUBNET}.{number}", f"{run}-{name}", switch)
            made.hosts[name] = host
            _join(host, names)
        yield made
    finally:
        for host in made.hosts.values():
            _remove(host)
        with contextlib.suppress(AssertionError):
            ip("netns", "del", switch)
        with contextlib.suppress(OSError):
            _ETC.rmdir()  # if nobody else has anything in it


def _remove(host: Host) -> None:
    with contextlib.suppress(AssertionError):
        host.kill_all()
    with contextlib.suppress(AssertionError):
        ip("netns", "del", host.namespace)
    shutil.rmtree(_ETC / host.namespace, ignore_errors=True)


def sweep() -> None:
    """What a run that was killed itself has left: namespaces carry the pid of who made them."""
    for namespace in re.findall(r"^ph\d+-\S+", ip("netns", "list"), re.MULTILINE):
        run, _, name = namespace.partition("-")
        if not psutil.pid_exists(int(run.removeprefix("ph"))):
            _remove(Host(name, "", namespace, f"{run}-switch"))


def _join(host: Host, names: tuple[str, ...]) -> None:
    known = [f"{_SUBNET}.{number} {name}" for number, name in enumerate(names, start=1)]
    etc = _ETC / host.namespace
    etc.mkdir(parents=True, exist_ok=True)
    (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *known]) + "\n")
    ip("netns", "add", host.namespace)
    ip("-n", host.switch, "link", "add", host.port, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    ip("-n", host.switch, "link", "set", host.port, "master", "bridge", "up")
    ip("-n", host.namespace, "link", "set", "lo", "up")
    ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
    ip("-n", host.namespace, "link", "set", "eth0", "up")
