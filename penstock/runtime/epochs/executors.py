"""The executors of a session: on which hosts they are, and what to say when there are none.

PySpark tells nothing of them: the two calls to the JVM's own status are here.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from penstock.driver.failures import Notices
from penstock.runtime.connection.liveness import is_loopback

PATIENCE_S = 15.0
_EVERY_S = 2.0
_NO_EXECUTOR, _LOOPBACK = "no-executor", "driver-on-loopback"


def runs_in_driver(context: Any) -> bool:
    """`local[…]`: tasks run in the driver's own JVM. `local-cluster` has executors."""
    master = str(context.master)
    return master.startswith("local") and not master.startswith("local-cluster")


def executor_hosts(context: Any) -> list[str]:
    """One entry an executor that is registered with the driver."""
    known = context._jsc.sc().statusStore().executorList(True)
    summaries = [known.apply(index) for index in range(known.size())]
    return [str(s.hostPort()).rpartition(":")[0] for s in summaries if s.id() != "driver"]


def loopback_notice(master: str, host: str, resolve: Callable[[str], str] = socket.gethostbyname) -> str | None:
    """What is wrong with the driver's name, if executors on other hosts cannot use it."""
    if master.startswith("local") or _resolves_to_loopback(urlsplit(master.split(",")[0]).hostname or "", resolve):
        return None
    address = _address(host, resolve)
    if address is None or not is_loopback(address):
        return None
    return (
        f"the driver's name {host!r} is {address} on its own host: executors and slots on other hosts cannot reach that. Set "
        "spark.driver.host to a name or address of this host that they can, and spark.driver.bindAddress to an address it has"
    )


def _address(host: str, resolve: Callable[[str], str]) -> str | None:
    try:
        return resolve(host)
    except OSError:
        return None


def _resolves_to_loopback(host: str, resolve: Callable[[str], str]) -> bool:
    address = _address(host, resolve) if host else None
    return address is not None and is_loopback(address)


class ExecutorWatch:
    """Says so when the driver has no executor for a while. `look` may be called as often as one likes."""

    def __init__(
        self, notices: Notices, count: Callable[[], int], where: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._notices, self._count, self._where, self._clock = notices, count, where, clock
        self._none_since: float | None = None
        self._next = 0.0

    def look(self) -> None:
        """Counts executors if it is time to, and tells the user when there has been none for a while."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + _EVERY_S
        if self._count() > 0:
            self._none_since = None
            self._notices.over(_NO_EXECUTOR)
            return
        self._none_since = now if self._none_since is None else self._none_since
        if now - self._none_since >= PATIENCE_S:
            self._notices.say(
                _NO_EXECUTOR,
                f"no executor has been registered with the driver for {PATIENCE_S:.0f} s, so nothing runs: either the cluster "
                f"has no free cores or memory for one, or executors cannot reach the driver at {self._where} (see "
                "spark.driver.host; the cluster's own page has their logs)",
            )


def say_loopback(notices: Notices, master: str, host: str) -> None:
    """Tells the user when executors on other hosts could not reach the driver's address."""
    text = loopback_notice(master, host)
    if text is not None:
        notices.say(_LOOPBACK, text)
